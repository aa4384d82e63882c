//! Operators that only move elements: copies of views, gather and its gradient, constants, iota.
//!
//! Knows shapes and indices; numbers pass unchanged.

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Elements, ElementsMut, Fault, Input, Kernel, Number, Output},
    kernels::strided::Walk,
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let axis = || request.attributes.size_of("axis");
    let kernel: Box<dyn Kernel> = match request.name {
        "copy" | "stop_gradient" => Box::new(Copy { permutation: None }),
        "reshape" => Box::new(Copy { permutation: None }),
        "permute" => Box::new(Copy { permutation: Some(request.attributes.sizes_of("axes")?) }),
        "gather" => Box::new(Gather { axis: axis()? }),
        "gather_gradient" => Box::new(GatherGradient { axis: axis()? }),
        "constant" => Box::new(Constant { value: request.attributes.float_of("value")? }),
        "iota" => Box::new(Iota),
        _ => return Ok(None),
    };
    Ok(Some(kernel))
}

/// Elements in row-major order of the (permuted) input.
struct Copy {
    permutation: Option<Vec<usize>>,
}

impl Kernel for Copy {
    fn takes_strides(&self, _: usize) -> bool {
        true
    }

    fn writes_strides(&self, _: usize) -> bool {
        true
    }

    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let input = &call.inputs[0];
        let order: Vec<usize> =
            self.permutation.clone().unwrap_or_else(|| (0..input.shape.len()).collect());
        let shape: Vec<usize> = order.iter().map(|&axis| input.shape[axis]).collect();
        let strides: Vec<usize> = order.iter().map(|&axis| input.strides[axis]).collect();
        let from = Walk::new(&shape, &strides);
        let output = &mut call.outputs[0];
        let to = Walk::new(output.shape, output.strides);
        match (input.elements, &mut output.elements) {
            (Elements::F32(x), ElementsMut::F32(out)) => copy(&from, x, &to, out),
            (Elements::F64(x), ElementsMut::F64(out)) => copy(&from, x, &to, out),
            (Elements::I64(x), ElementsMut::I64(out)) => copy(&from, x, &to, out),
            (Elements::I32(x), ElementsMut::I32(out)) => copy(&from, x, &to, out),
            (Elements::U8(x), ElementsMut::U8(out)) => copy(&from, x, &to, out),
            _ => return Err("cannot change the dtype".to_owned()),
        }
        Ok(())
    }
}

fn copy<T: std::marker::Copy + Default>(from: &Walk, x: &[T], to: &Walk, out: &mut [T]) {
    const BLOCK: usize = 4096;
    let total = from.len();
    if to.is_dense() {
        from.gather(x, 0, &mut out[..total]);
        return;
    }
    let mut block = vec![T::default(); BLOCK.min(total)];
    for start in (0..total).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(total - start)];
        from.gather(x, start, block);
        to.scatter_from(start, block, out);
    }
}

/// Extents before, along and after an axis.
fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let outer = shape[..axis].iter().product();
    (outer, shape[axis], shape[axis + 1..].iter().product())
}

/// Calls `visit(position in x, position in index)` for every index; `x_shape` may be larger outside of the axis.
fn positions(
    x_shape: &[usize],
    index: &Input<'_>,
    axis: usize,
    mut visit: impl FnMut(usize, usize),
) -> Result<(), Fault> {
    let (_, extent, _) = around(x_shape, axis);
    let strides = graph::Shape::new(x_shape).strides();
    let ids = index.integers();
    let mut place = vec![0usize; index.shape.len()];
    for (number, &id) in ids.iter().enumerate().take(index.len()) {
        let id = usize::try_from(id).ok().filter(|&id| id < extent).ok_or_else(|| {
            format!("index {id} at position {number} is beyond an axis of {extent}")
        })?;
        let at = |i: usize| if i == axis { id } else { place[i] };
        visit((0..place.len()).map(|i| at(i) * strides[i]).sum(), number);
        for i in (0..place.len()).rev() {
            place[i] += 1;
            if place[i] < index.shape[i] {
                break;
            }
            place[i] = 0;
        }
    }
    Ok(())
}

struct Gather {
    axis: usize,
}

impl Gather {
    fn compute<T: Number>(
        &self,
        x: &Input<'_>,
        index: &Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), Fault> {
        let values = x.real::<T>();
        output.write::<T, _>(|out| {
            positions(x.shape, index, self.axis, |from, to| out[to] = values[from])
        })
    }
}

impl Kernel for Gather {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [x, index] = call.inputs else { return Err("expects two inputs".to_owned()) };
        let output = &mut call.outputs[0];
        match x.elements {
            Elements::F32(_) => self.compute::<f32>(x, index, output),
            // i64 beyond 2^53 do not occur as gathered values in a training step; indices themselves stay exact.
            _ => self.compute::<f64>(x, index, output),
        }
    }
}

struct GatherGradient {
    axis: usize,
}

impl GatherGradient {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let [index, dy] = call.inputs else { return Err("expects two inputs".to_owned()) };
        let values = dy.real::<T>();
        let output = &mut call.outputs[0];
        let shape = output.shape;
        output.write::<T, _>(|out| {
            out.fill(T::ZERO);
            positions(shape, index, self.axis, |to, from| out[to] += values[from])
        })
    }
}

impl Kernel for GatherGradient {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[1].is_f64() { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }
}

struct Constant {
    value: f64,
}

impl Kernel for Constant {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        call.outputs[0].set_scalar(self.value);
        Ok(())
    }
}

struct Iota;

impl Kernel for Iota {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        call.outputs[0].write::<f64, _>(|out| {
            out.iter_mut().enumerate().for_each(|(i, out)| *out = i as f64);
        });
        Ok(())
    }
}
