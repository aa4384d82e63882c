//! Bytes of a dtype as typed elements: viewed where the host computes in that format, converted where it does not.
//!
//! Knows dtypes and strides; not buffers.

use bytemuck::{cast_slice, cast_slice_mut};
use graph::DType;
use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{
    call::{Elements, ElementsMut},
    kernels::strided::Walk,
};

/// Owned elements in a format the host computes in.
#[derive(Debug)]
pub enum Owned {
    /// f32, f16, bf16.
    F32(Vec<f32>),
    /// f64.
    F64(Vec<f64>),
    /// i64.
    I64(Vec<i64>),
    /// i32.
    I32(Vec<i32>),
    /// u8, bool.
    U8(Vec<u8>),
}

/// Whether the host computes in the dtype's own format.
pub fn is_native(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

/// Bytes as elements; the dtype is native and the bytes are aligned.
pub fn view(dtype: DType, bytes: &[u8]) -> Elements<'_> {
    // No bytes may lie anywhere.
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 if bytes.is_empty() => Elements::F32(&[]),
        DType::F64 if bytes.is_empty() => Elements::F64(&[]),
        DType::I64 if bytes.is_empty() => Elements::I64(&[]),
        DType::I32 if bytes.is_empty() => Elements::I32(&[]),
        DType::F32 | DType::F16 | DType::BF16 => Elements::F32(cast_slice(bytes)),
        DType::F64 => Elements::F64(cast_slice(bytes)),
        DType::I64 => Elements::I64(cast_slice(bytes)),
        DType::I32 => Elements::I32(cast_slice(bytes)),
        DType::U8 | DType::Bool => Elements::U8(bytes),
    }
}

/// Bytes as elements to write; the dtype is native and the bytes are aligned.
pub fn view_mut(dtype: DType, bytes: &mut [u8]) -> ElementsMut<'_> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 if bytes.is_empty() => ElementsMut::F32(&mut []),
        DType::F64 if bytes.is_empty() => ElementsMut::F64(&mut []),
        DType::I64 if bytes.is_empty() => ElementsMut::I64(&mut []),
        DType::I32 if bytes.is_empty() => ElementsMut::I32(&mut []),
        DType::F32 | DType::F16 | DType::BF16 => ElementsMut::F32(cast_slice_mut(bytes)),
        DType::F64 => ElementsMut::F64(cast_slice_mut(bytes)),
        DType::I64 => ElementsMut::I64(cast_slice_mut(bytes)),
        DType::I32 => ElementsMut::I32(cast_slice_mut(bytes)),
        DType::U8 | DType::Bool => ElementsMut::U8(bytes),
    }
}

impl Owned {
    /// Zeros for a dtype, in the memory of `spare` where it fits.
    pub fn zeros(dtype: DType, elements: usize, spare: &mut Spare) -> Owned {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Owned::F32(spare.take(elements)),
            DType::F64 => Owned::F64(vec![0.0; elements]),
            DType::I64 => Owned::I64(vec![0; elements]),
            DType::I32 => Owned::I32(vec![0; elements]),
            DType::U8 | DType::Bool => Owned::U8(vec![0; elements]),
        }
    }

    /// Dense elements gathered from the window `walk` over `bytes` of `dtype`.
    pub fn gather(dtype: DType, bytes: &[u8], walk: &Walk, spare: &mut Spare) -> Owned {
        let mut owned = Owned::zeros(dtype, walk.len(), spare);
        match (&mut owned, dtype) {
            (Owned::F32(out), DType::F16) => {
                let mut raw = vec![f16::ZERO; walk.len()];
                walk.gather(cast_slice(bytes), 0, &mut raw);
                raw.convert_to_f32_slice(out);
            }
            (Owned::F32(out), DType::BF16) => {
                let mut raw = vec![bf16::ZERO; walk.len()];
                walk.gather(cast_slice(bytes), 0, &mut raw);
                raw.convert_to_f32_slice(out);
            }
            (Owned::F32(out), _) => walk.gather(cast_slice(bytes), 0, out),
            (Owned::F64(out), _) => walk.gather(cast_slice(bytes), 0, out),
            (Owned::I64(out), _) => walk.gather(cast_slice(bytes), 0, out),
            (Owned::I32(out), _) => walk.gather(cast_slice(bytes), 0, out),
            (Owned::U8(out), _) => walk.gather(bytes, 0, out),
        }
        owned
    }

    /// Writes all elements into the window `walk` over `bytes` of `dtype`; with `add` onto what is there.
    pub fn scatter(&self, dtype: DType, bytes: &mut [u8], walk: &Walk, add: bool) {
        match (self, dtype) {
            (Owned::F32(values), DType::F16) => {
                let mut raw = vec![f16::ZERO; values.len()];
                if add {
                    walk.gather(cast_slice(bytes), 0, &mut raw);
                    let sum = |(raw, &v): (&mut f16, &f32)| *raw = f16::from_f32(raw.to_f32() + v);
                    raw.iter_mut().zip(values).for_each(sum);
                } else {
                    raw.convert_from_f32_slice(values);
                }
                walk.scatter(&raw, cast_slice_mut(bytes));
            }
            (Owned::F32(values), DType::BF16) => {
                let mut raw = vec![bf16::ZERO; values.len()];
                if add {
                    walk.gather(cast_slice(bytes), 0, &mut raw);
                    let sum =
                        |(raw, &v): (&mut bf16, &f32)| *raw = bf16::from_f32(raw.to_f32() + v);
                    raw.iter_mut().zip(values).for_each(sum);
                } else {
                    raw.convert_from_f32_slice(values);
                }
                walk.scatter(&raw, cast_slice_mut(bytes));
            }
            (Owned::F32(values), _) => put(values, cast_slice_mut(bytes), walk, add, |a, b| a + b),
            (Owned::F64(values), _) => put(values, cast_slice_mut(bytes), walk, add, |a, b| a + b),
            (Owned::I64(values), _) => {
                put(values, cast_slice_mut(bytes), walk, add, i64::wrapping_add)
            }
            (Owned::I32(values), _) => {
                put(values, cast_slice_mut(bytes), walk, add, i32::wrapping_add)
            }
            (Owned::U8(values), _) => put(values, bytes, walk, add, u8::wrapping_add),
        }
    }

    /// To read.
    pub fn elements(&self) -> Elements<'_> {
        match self {
            Owned::F32(values) => Elements::F32(values),
            Owned::F64(values) => Elements::F64(values),
            Owned::I64(values) => Elements::I64(values),
            Owned::I32(values) => Elements::I32(values),
            Owned::U8(values) => Elements::U8(values),
        }
    }

    /// To write.
    pub fn elements_mut(&mut self) -> ElementsMut<'_> {
        match self {
            Owned::F32(values) => ElementsMut::F32(values),
            Owned::F64(values) => ElementsMut::F64(values),
            Owned::I64(values) => ElementsMut::I64(values),
            Owned::I32(values) => ElementsMut::I32(values),
            Owned::U8(values) => ElementsMut::U8(values),
        }
    }
}

fn put<T: Copy + Default>(
    values: &[T],
    out: &mut [T],
    walk: &Walk,
    add: bool,
    sum: impl Fn(T, T) -> T,
) {
    if !add {
        return walk.scatter(values, out);
    }
    let mut present = vec![T::default(); values.len()];
    walk.gather(out, 0, &mut present);
    present.iter_mut().zip(values).for_each(|(present, &value)| *present = sum(*present, value));
    walk.scatter(&present, out);
}

/// Scratch memory of one lane, kept between steps: fresh pages cost more than the work on them.
#[derive(Debug, Default)]
pub struct Spare {
    free: Vec<Vec<f32>>,
}

impl Spare {
    fn take(&mut self, elements: usize) -> Vec<f32> {
        let fits = |v: &Vec<f32>| v.capacity() >= elements && v.capacity() <= 4 * elements.max(256);
        let found = self.free.iter().position(fits);
        let mut values = found.map_or_else(Vec::new, |index| self.free.swap_remove(index));
        values.clear();
        values.resize(elements, 0.0);
        values
    }

    /// Takes scratch memory back.
    pub fn give(&mut self, owned: Owned) {
        if let Owned::F32(values) = owned
            && self.free.len() < 16
        {
            self.free.push(values);
        }
    }
}
