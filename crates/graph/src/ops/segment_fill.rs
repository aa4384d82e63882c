//! One number per segment of a flat tensor: hyperparameters of parameter groups by element.
//!
//! Knows its attributes and, where the tensor is a shard, the rank.

use super::support::prelude::*;

/// Element i has the value of the last segment that starts at or before i. Attributes: `n` (elements), `starts`
/// (ascending, the first is 0), `values`, `dtype` (default `f32`), and `ranks` (default 1): with more, the output is
/// this rank's range of `n` among `ranks * n` elements, and starts count within the whole.
pub struct SegmentFill;

fn starts_of(attributes: &Attributes) -> Result<Vec<usize>, OpError> {
    let starts = attributes.sizes_of("starts")?;
    let values = attributes.floats_of("values")?;
    if starts.first() != Some(&0) || starts.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(OpError::new(format!("starts are {starts:?}, ascending from 0 was expected")));
    }
    if starts.len() != values.len() {
        let (found, expected) = (values.len(), starts.len());
        return Err(OpError::new(format!("{found} values found, {expected} expected")));
    }
    Ok(starts)
}

impl OpDefinition for SegmentFill {
    fn name(&self) -> &'static str {
        "segment_fill"
    }

    fn class(&self) -> Class {
        Class::Source
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 0)?;
        starts_of(attributes)?;
        let dtype = attributes.dtype_or("dtype", DType::F32)?;
        if attributes.get("ranks").is_some() && attributes.size_of("ranks")? == 0 {
            return Err(OpError::new("ranks is 0, at least 1 was expected"));
        }
        Ok(vec![Type::new(dtype, [attributes.size_of("n")?])])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        _: &[Tensor],
        context: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = self.infer(attributes, &[])?.remove(0);
        let (starts, values) = (starts_of(attributes)?, attributes.floats_of("values")?);
        let sharded = attributes.get("ranks").is_some() && attributes.size_of("ranks")? > 1;
        let n = ty.shape.elements();
        let first = if sharded { context.rank * n } else { 0 };
        let value = |i: usize| values[starts.partition_point(|&start| start <= first + i) - 1];
        Ok(vec![Tensor::from_f64(ty, (0..n).map(value))])
    }

    fn samples(&self) -> Vec<Sample> {
        let base = Attributes::new().int("n", 10).sizes("starts", &[0, 4, 9]);
        let base = base.floats("values", &[0.1, 0.0, -2.5]);
        vec![
            Sample::new(base.clone(), vec![]),
            Sample::new(base.clone().dtype("dtype", DType::BF16), vec![]),
            Sample::new(base.int("n", 5).int("ranks", 2), vec![]),
        ]
    }
}
