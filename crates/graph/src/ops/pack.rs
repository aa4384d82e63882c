//! Tensors laid one after the other into a flat one, with gaps: buckets.
//!
//! Knows shapes only: every input can be a window over the output.

use super::support::{expect_some, normal, prelude::*};

/// Input i lies at element `offsets[i]` of a flat tensor of `total` elements; gaps are zero. Offsets ascend.
pub struct Pack;

impl OpDefinition for Pack {
    fn name(&self) -> &'static str {
        "pack"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let dtype = expect_some(inputs)?.dtype;
        let (offsets, total) = (attributes.sizes_of("offsets")?, attributes.size_of("total")?);
        if offsets.len() != inputs.len() {
            let (found, expected) = (offsets.len(), inputs.len());
            return Err(OpError::new(format!("{found} offsets found, {expected} expected")));
        }
        let mut end = 0;
        for (input, &offset) in inputs.iter().zip(&offsets) {
            if input.dtype != dtype {
                return Err(OpError::new(format!("{input} among {dtype}, one dtype was expected")));
            }
            if offset < end {
                return Err(OpError::new(format!("{input} at {offset} overlaps, {end} is free")));
            }
            end = offset.saturating_add(input.shape.elements());
        }
        if end > total {
            return Err(OpError::new(format!("total is {total}, inputs reach {end}")));
        }
        Ok(vec![Type::new(dtype, [total])])
    }

    /// Each input's gradient is its window of `dy`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None; call.inputs.len()]) };
        let Ok(offsets) = call.attributes.sizes_of("offsets") else {
            return Err(builder.not_differentiable("pack"));
        };
        let windows = call.inputs.iter().zip(offsets).map(|(&input, offset)| {
            let attributes = Attributes::new().int("offset", offset as i64);
            let shape = builder.ty(input).shape;
            builder.op("unpack", attributes.sizes("shape", shape.extents()), &[dy]).map(Some)
        });
        windows.collect()
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = Type::new(inputs[0].dtype(), [attributes.size_of("total")?]);
        let offsets = attributes.sizes_of("offsets")?;
        if ty.dtype.is_float() {
            let mut flat = vec![0.0; ty.shape.elements()];
            for (input, offset) in inputs.iter().zip(offsets) {
                flat[offset..][..input.shape().elements()].copy_from_slice(&input.to_f64());
            }
            return Ok(vec![Tensor::floats(ty, flat)]);
        }
        let mut flat = vec![0; ty.shape.elements()];
        for (input, offset) in inputs.iter().zip(offsets) {
            flat[offset..][..input.shape().elements()].copy_from_slice(&input.to_i64());
        }
        Ok(vec![Tensor::ints(ty, flat)])
    }

    fn samples(&self) -> Vec<Sample> {
        let at = |offsets: &[usize], total: i64| {
            Attributes::new().sizes("offsets", offsets).int("total", total)
        };
        vec![
            Sample::new(
                at(&[0, 8, 11], 16),
                vec![normal([2, 3], 1), normal([3], 2), normal([], 3)],
            ),
            Sample::new(at(&[2], 8), vec![normal([2, 3], 4)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::InputsOfOutput)
    }

    fn slots(
        &self,
        attributes: &Attributes,
        inputs: &[Type],
        output: &Strided,
    ) -> Option<Vec<Strided>> {
        let offsets = attributes.sizes_of("offsets").ok()?;
        let slots = inputs.iter().zip(offsets).map(|(input, offset)| {
            output.slice(0, offset, input.shape.elements()).reshape(&input.shape)
        });
        slots.collect()
    }
}
