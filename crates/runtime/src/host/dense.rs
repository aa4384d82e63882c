//! Kernels on dense tensors outside of any plan: bodies of regions, tests.
//!
//! Knows no buffers.

use graph::Type;

use super::{
    call::{Call, Elements, Fault, Input, Kernel, Output},
    kernels::{strided::Walk, workers::Workers},
    typed::{Owned, Spare},
};
use crate::HostTensor;

/// Runs a kernel on dense inputs and yields dense outputs.
///
/// # Errors
/// What the kernel says.
pub fn evaluate(
    kernel: &dyn Kernel,
    workers: &Workers,
    rank: usize,
    inputs: &[&HostTensor],
    outputs: &[Type],
) -> Result<Vec<HostTensor>, Fault> {
    let mut spare = Spare::default();
    let owned: Vec<Owned> = inputs.iter().map(|tensor| widen(tensor, &mut spare)).collect();
    let strides: Vec<Vec<usize>> = inputs.iter().map(|tensor| tensor.ty.shape.strides()).collect();
    let views: Vec<Input<'_>> = inputs
        .iter()
        .zip(&owned)
        .zip(&strides)
        .map(|((tensor, owned), strides)| Input {
            elements: owned.elements(),
            shape: tensor.ty.shape.extents(),
            strides,
            dtype: tensor.ty.dtype,
            same_as: None,
        })
        .collect();
    let mut results: Vec<Owned> =
        outputs.iter().map(|ty| Owned::zeros(ty.dtype, ty.shape.elements(), &mut spare)).collect();
    let strides: Vec<Vec<usize>> = outputs.iter().map(|ty| ty.shape.strides()).collect();
    let mut views_out: Vec<Output<'_>> = results
        .iter_mut()
        .zip(outputs)
        .zip(&strides)
        .map(|((owned, ty), strides)| Output {
            elements: owned.elements_mut(),
            shape: ty.shape.extents(),
            strides,
            dtype: ty.dtype,
            accumulate: false,
        })
        .collect();
    kernel.run(&mut Call { workers, rank, inputs: &views, outputs: &mut views_out })?;
    drop(views_out);
    Ok(results.iter().zip(outputs).map(|(owned, ty)| narrow(owned, ty)).collect())
}

fn widen(tensor: &HostTensor, spare: &mut Spare) -> Owned {
    let walk = dense_walk(&tensor.ty);
    // The bytes of a host tensor have no alignment of their own.
    let mut aligned = vec![0u64; tensor.bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut aligned)[..tensor.bytes.len()].copy_from_slice(&tensor.bytes);
    let bytes: &[u8] = &bytemuck::cast_slice(&aligned)[..tensor.bytes.len()];
    Owned::gather(tensor.ty.dtype, bytes, &walk, spare)
}

fn narrow(owned: &Owned, ty: &Type) -> HostTensor {
    let mut aligned = vec![0u64; ty.bytes().div_ceil(8)];
    let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut aligned)[..ty.bytes()];
    owned.scatter(ty.dtype, bytes, &dense_walk(ty), false);
    HostTensor { ty: ty.clone(), bytes: bytes.to_vec() }
}

fn dense_walk(ty: &Type) -> Walk {
    Walk::new(ty.shape.extents(), &ty.shape.strides())
}

/// A dense operand as a tensor.
pub fn from_input(input: &Input<'_>) -> HostTensor {
    let ty = Type::new(input.dtype, input.shape);
    let owned = match input.elements {
        Elements::F32(values) => Owned::F32(values[..input.len()].to_vec()),
        Elements::F64(values) => Owned::F64(values[..input.len()].to_vec()),
        Elements::I64(values) => Owned::I64(values[..input.len()].to_vec()),
        Elements::I32(values) => Owned::I32(values[..input.len()].to_vec()),
        Elements::U8(values) => Owned::U8(values[..input.len()].to_vec()),
    };
    narrow(&owned, &ty)
}

/// Writes a tensor into a dense operand of its type.
pub fn write_output(output: &mut Output<'_>, tensor: &HostTensor) {
    use super::call::ElementsMut;
    let owned = widen(tensor, &mut Spare::default());
    match (&mut output.elements, &owned) {
        (ElementsMut::F32(out), Owned::F32(values)) => out.copy_from_slice(values),
        (ElementsMut::F64(out), Owned::F64(values)) => out.copy_from_slice(values),
        (ElementsMut::I64(out), Owned::I64(values)) => out.copy_from_slice(values),
        (ElementsMut::I32(out), Owned::I32(values)) => out.copy_from_slice(values),
        (ElementsMut::U8(out), Owned::U8(values)) => out.copy_from_slice(values),
        _ => {}
    }
}
