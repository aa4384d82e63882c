//! One rank's output of a collective from all ranks' inputs, as `Collective::specification` says: in rank order,
//! rounded to the dtype after every addition.
//!
//! Knows bytes and dtypes; no waiting.

use graph::{Collective, DType, Reduction, Type};
use half::{bf16, f16};

use crate::host::kernels::workers::vectorised;

/// Writes rank `rank`'s output.
pub(super) fn write(
    collective: Collective,
    ty: &Type,
    inputs: &[Vec<u8>],
    rank: usize,
    output: &mut [u8],
) {
    let part = ty.bytes() / inputs.len();
    match collective {
        Collective::AllReduce { reduction } => {
            let whole: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            reduce(ty.dtype, reduction, &whole, output);
        }
        Collective::ReduceScatter { reduction, .. } => {
            let parts: Vec<&[u8]> =
                inputs.iter().map(|input| &input[rank * part..(rank + 1) * part]).collect();
            reduce(ty.dtype, reduction, &parts, output);
        }
        Collective::AllGather { .. } => {
            for (out, input) in output.chunks_mut(ty.bytes().max(1)).zip(inputs) {
                out.copy_from_slice(input);
            }
        }
        Collective::Broadcast { root } => output.copy_from_slice(&inputs[root]),
        Collective::AllToAll { .. } => {
            for (out, input) in output.chunks_mut(part.max(1)).zip(inputs) {
                out.copy_from_slice(&input[rank * part..(rank + 1) * part]);
            }
        }
        Collective::SendReceive { from, to } => {
            output.copy_from_slice(&inputs[if rank == to { from } else { rank }]);
        }
    }
}

/// Bytes that are reduced over all ranks before the next: they stay in the cache.
const BLOCK: usize = 1 << 15;

fn reduce(dtype: DType, reduction: Reduction, inputs: &[&[u8]], output: &mut [u8]) {
    macro_rules! by_reduction {
        ($number:ty, $sum:expr, $max:expr, $min:expr) => {
            match reduction {
                Reduction::Sum => {
                    fold(inputs, output, <$number>::from_le_bytes, <$number>::to_le_bytes, $sum)
                }
                Reduction::Max => {
                    fold(inputs, output, <$number>::from_le_bytes, <$number>::to_le_bytes, $max)
                }
                Reduction::Min => {
                    fold(inputs, output, <$number>::from_le_bytes, <$number>::to_le_bytes, $min)
                }
            }
        };
    }
    macro_rules! through_f32 {
        ($number:ty) => {
            by_reduction!(
                $number,
                |a, b| <$number>::from_f32(a.to_f32() + b.to_f32()),
                |a, b| <$number>::from_f32(a.to_f32().max(b.to_f32())),
                |a, b| <$number>::from_f32(a.to_f32().min(b.to_f32()))
            )
        };
    }
    match dtype {
        DType::F64 => by_reduction!(f64, |a, b| a + b, f64::max, f64::min),
        DType::F32 => by_reduction!(f32, |a, b| a + b, f32::max, f32::min),
        DType::F16 => through_f32!(f16),
        DType::BF16 => through_f32!(bf16),
        DType::I64 => by_reduction!(i64, i64::wrapping_add, Ord::max, Ord::min),
        DType::I32 => by_reduction!(i32, i32::wrapping_add, Ord::max, Ord::min),
        DType::U8 => by_reduction!(u8, u8::wrapping_add, Ord::max, Ord::min),
        DType::Bool => by_reduction!(u8, |a, b| a | b, Ord::max, Ord::min),
    }
}

fn fold<const N: usize, T>(
    inputs: &[&[u8]],
    output: &mut [u8],
    read: impl Fn([u8; N]) -> T + Copy,
    write: impl Fn(T) -> [u8; N] + Copy,
    join: impl Fn(T, T) -> T + Copy,
) {
    vectorised(
        #[inline(always)]
        || {
            for (index, output) in output.chunks_mut(BLOCK).enumerate() {
                let range = index * BLOCK..index * BLOCK + output.len();
                output.copy_from_slice(&inputs[0][range.clone()]);
                for input in &inputs[1..] {
                    let pairs = output.as_chunks_mut::<N>().0.iter_mut();
                    for (out, &value) in pairs.zip(input[range.clone()].as_chunks::<N>().0) {
                        *out = write(join(read(*out), read(value)));
                    }
                }
            }
        },
    );
}
