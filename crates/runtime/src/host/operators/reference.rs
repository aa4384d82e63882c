//! Operators without a host kernel, carried out by their own reference evaluation: slow and right.
//!
//! Knows no operator.

use std::sync::Arc;

use graph::{EvaluationContext, Op, OpDefinition, Registry, Tensor, Type};

use crate::{
    RuntimeError,
    host::call::{Call, ElementsMut, Fault, Input, Kernel, Output},
};

pub(super) fn prepare(op: &Op, registry: &Registry) -> Result<Reference, RuntimeError> {
    Ok(Reference { op: op.clone(), definition: registry.get(&op.name)?.clone() })
}

pub(super) struct Reference {
    op: Op,
    definition: Arc<dyn OpDefinition>,
}

impl Kernel for Reference {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let inputs: Vec<Tensor> = call.inputs.iter().map(tensor).collect();
        let context = EvaluationContext { rank: call.rank };
        let results = self
            .definition
            .evaluate(&self.op.attributes, &inputs, context)
            .map_err(|error| error.to_string())?;
        for (output, result) in call.outputs.iter_mut().zip(&results) {
            write(output, result);
        }
        Ok(())
    }
}

fn tensor(input: &Input<'_>) -> Tensor {
    let ty = Type::new(input.dtype, input.shape);
    if input.dtype.is_float() {
        Tensor::floats(ty, input.real::<f64>()[..input.len()].iter().copied())
    } else {
        Tensor::ints(ty, input.integers()[..input.len()].iter().copied())
    }
}

fn write(output: &mut Output<'_>, result: &Tensor) {
    let values = 0..result.shape().elements();
    match &mut output.elements {
        ElementsMut::F32(out) => values.for_each(|i| out[i] = result.at(i) as f32),
        ElementsMut::F64(out) => values.for_each(|i| out[i] = result.at(i)),
        ElementsMut::I64(out) => values.for_each(|i| out[i] = result.int_at(i)),
        ElementsMut::I32(out) => values.for_each(|i| out[i] = result.int_at(i) as i32),
        ElementsMut::U8(out) => values.for_each(|i| out[i] = result.int_at(i) as u8),
    }
}
