//! dropout.
//!
//! Knows operand order and attributes; the mask is `kernels::dropout`.

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Fault, Kernel, Number},
    kernels::dropout::{Mask, dropout},
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    if request.name != "dropout" {
        return Ok(None);
    }
    let probability = request.attributes.float_of("probability")?;
    let site = request.attributes.int_of("site")? as u64;
    Ok(Some(Box::new(Dropout { probability, site })))
}

struct Dropout {
    probability: f64,
    site: u64,
}

impl Dropout {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [x, key, first_sample] = call.inputs else {
            return Err("expects three inputs".to_owned());
        };
        let key = key.integers();
        let [seed, step] = *key else { return Err("the key has two elements".to_owned()) };
        let mask = Mask {
            seed: seed as u64,
            step: step as u64,
            site: self.site,
            probability: self.probability,
            first_sample: first_sample.integer() as u64,
        };
        let samples = x.shape.first().copied().unwrap_or(1).max(1);
        let elements = x.len() / samples;
        let (values, workers) = (x.real::<T>(), call.workers);
        call.outputs[0].write::<T, _>(|y| dropout(workers, mask, &values, elements, y));
        Ok(())
    }
}

impl Kernel for Dropout {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }
}
