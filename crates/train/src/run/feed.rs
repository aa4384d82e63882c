//! The inputs of a function from a batch and the scalars of a step: only what the function declares.
//! Knows names, not their meaning to a model.

use graph::{DType, Function, Type, names};
use runtime::{HostTensor, Inputs};

use crate::loader::Batch;

/// What the host hands to a micro-step beside the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepScalars {
    /// Highest learning rate of the step.
    pub learning_rate: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Step, counted from 0.
    pub step: u64,
    /// Counted labels of this rank's whole step.
    pub local_count: f64,
}

/// Labels of this value do not count.
pub const IGNORED: i32 = -100;

/// Inputs of a function that trains or evaluates.
pub fn inputs(function: &Function, batch: &Batch, scalars: &StepScalars) -> Inputs {
    function
        .inputs
        .iter()
        .filter_map(|input| {
            let ty = function.graph.ty(input.value).clone();
            let value = match input.name.as_str() {
                names::TOKENS => integers(ty, &batch.inputs),
                names::LABELS => integers(ty, &batch.labels),
                names::LEARNING_RATE => float(scalars.learning_rate),
                names::LOCAL_COUNT => float(scalars.local_count),
                names::FIRST_SAMPLE => {
                    long(Type::scalar(DType::I64), &[batch.first_sample.cast_signed()])
                }
                names::RANDOM_KEY => long(
                    Type::new(DType::I64, [2]),
                    &[scalars.seed.cast_signed(), scalars.step.cast_signed()],
                ),
                // The device says which input is missing.
                _ => return None,
            };
            Some((input.name.clone(), value))
        })
        .collect()
}

/// A tensor of integers in the type the function declares.
pub fn integers(ty: Type, values: &[i32]) -> HostTensor {
    let bytes = match ty.dtype {
        DType::I64 => values.iter().flat_map(|&value| i64::from(value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    HostTensor { ty, bytes }
}

/// An f32 scalar.
fn float(value: f64) -> HostTensor {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scalars of a step are f32 on every device"
    )]
    let bytes = (value as f32).to_le_bytes().to_vec();
    HostTensor { ty: Type::scalar(DType::F32), bytes }
}

fn long(ty: Type, values: &[i64]) -> HostTensor {
    HostTensor { ty, bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
}

/// Element 0 of a float result.
pub fn first_float(tensor: &HostTensor) -> Option<f64> {
    match tensor.ty.dtype {
        DType::F32 => tensor.bytes.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes))),
        DType::F64 => tensor.bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
        _ => None,
    }
}
