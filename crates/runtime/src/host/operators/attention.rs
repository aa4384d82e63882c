//! attention and its gradient.
//!
//! Reads and writes any strides; an operand whose last axis has gaps is copied first. The loops are in
//! `kernels::attention`.

use std::borrow::Cow;

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Fault, Input, Kernel, Number, Output},
    kernels::attention::{Heads, HeadsMut, Options, attention, attention_gradient},
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let gradient = match request.name {
        "attention" => false,
        "attention_gradient" => true,
        _ => return Ok(None),
    };
    let options = Options {
        causal: request.attributes.flag("causal")?,
        scale: request.attributes.float_of("scale")?,
    };
    Ok(Some(Box::new(Attention { gradient, options })))
}

struct Attention {
    gradient: bool,
    options: Options,
}

/// An operand's elements with the strides they have: as they lie, or copied dense.
struct Operand<'a, T: Clone> {
    values: Cow<'a, [T]>,
    shape: [usize; 4],
    strides: [usize; 3],
}

impl<'a, T: Number> Operand<'a, T> {
    fn new(input: &Input<'a>) -> Option<Operand<'a, T>> {
        let shape: [usize; 4] = input.shape.try_into().ok()?;
        let [b, h, t, w]: [usize; 4] = input.strides.try_into().ok()?;
        let values = input.real::<T>();
        if w == 1 || shape[3] == 1 {
            return Some(Operand { values, shape, strides: [b, h, t] });
        }
        let mut dense = vec![T::ZERO; input.len()];
        input.walk().gather(&values, 0, &mut dense);
        let [_, heads, time, width] = shape;
        let strides = [heads * time * width, time * width, width];
        Some(Operand { values: Cow::Owned(dense), shape, strides })
    }

    fn heads(&self) -> Heads<'_, T> {
        Heads { data: &self.values, shape: self.shape, strides: self.strides }
    }
}

fn write<T: Number>(output: &mut Output<'_>, body: impl FnOnce(HeadsMut<'_, T>)) {
    let strides = output.strides.try_into().unwrap_or([0; 4]);
    if let Some(data) = T::slice_mut(&mut output.elements) {
        body(HeadsMut { data, strides });
    }
}

impl Attention {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Option<()> {
        let operands: Option<Vec<Operand<'_, T>>> =
            [0, 1, 2].map(|i| Operand::new(&call.inputs[i])).into_iter().collect();
        let operands = operands?;
        let [q, k, v] = [0, 1, 2].map(|i| operands[i].heads());
        let (workers, options) = (call.workers, self.options);
        if !self.gradient {
            let [out, lse] = &mut *call.outputs else { return None };
            lse.write::<T, _>(|lse| {
                write::<T>(out, |out| attention(workers, [q, k, v], options, out, lse));
            });
            return Some(());
        }
        let (out, dout) = (Operand::new(&call.inputs[3])?, Operand::new(&call.inputs[5])?);
        let lse = call.inputs[4].real::<T>();
        let [dq, dk, dv] = &mut *call.outputs else { return None };
        write::<T>(dq, |dq| {
            write::<T>(dk, |dk| {
                write::<T>(dv, |dv| {
                    let outs = [out.heads(), dout.heads()];
                    attention_gradient(workers, [q, k, v], outs, &lse, options, [dq, dk, dv]);
                });
            });
        });
        Some(())
    }
}

impl Kernel for Attention {
    fn takes_strides(&self, index: usize) -> bool {
        !(self.gradient && index == 4)
    }

    fn writes_strides(&self, index: usize) -> bool {
        self.gradient || index == 0
    }

    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let done = if call.inputs[0].is_f64() {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        };
        done.ok_or_else(|| "operands of attention have four axes".to_owned())
    }
}
