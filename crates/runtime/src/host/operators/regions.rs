//! Regions without a kernel of their own: their body's nodes one after another on dense scratch memory.
//!
//! Knows no pattern.

use std::collections::BTreeMap;

use graph::{Kind, Region, Registry, Type, Value};

use super::prepare as prepare_node;
use crate::{
    HostTensor, RuntimeError,
    host::{
        call::{Call, Fault, Kernel},
        dense::{evaluate, from_input, write_output},
    },
};

pub(super) struct Body {
    region: Region,
    kernels: BTreeMap<u32, Box<dyn Kernel>>,
}

pub(super) fn prepare(region: &Region, registry: &Registry) -> Result<Body, RuntimeError> {
    let body = &region.body;
    let mut kernels = BTreeMap::new();
    for id in body.ids() {
        let node = body.node(id);
        if matches!(node.kind, Kind::Input { .. }) {
            continue;
        }
        let types: Vec<Type> = node.inputs.iter().map(|&value| body.ty(value).clone()).collect();
        kernels.insert(id.0, prepare_node(node, &types, registry)?);
    }
    Ok(Body { region: region.clone(), kernels })
}

impl Kernel for Body {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let body = &self.region.body;
        let mut values: BTreeMap<Value, HostTensor> = self
            .region
            .inputs()
            .zip(call.inputs)
            .map(|(value, input)| (value, from_input(input)))
            .collect();
        for id in body.ids() {
            let Some(kernel) = self.kernels.get(&id.0) else { continue };
            let node = body.node(id);
            let inputs: Vec<&HostTensor> =
                node.inputs.iter().filter_map(|value| values.get(value)).collect();
            let results = evaluate(&**kernel, call.workers, call.rank, &inputs, &node.outputs)?;
            for (port, result) in results.into_iter().enumerate() {
                values.insert(Value::new(id, port), result);
            }
        }
        for (output, value) in call.outputs.iter_mut().zip(&self.region.outputs) {
            match values.get(value) {
                Some(result) => write_output(output, result),
                None => return Err(format!("the region yields {value}, which is not computed")),
            }
        }
        Ok(())
    }
}
