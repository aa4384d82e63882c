//! The gradient of gather: gradients added at the places they were read from.
//!
//! Knows indices and gradients; this file defines the order of summation.

use super::{
    gather::{expect_within, places},
    support::{accumulating, expect_axis, expect_type, ints, normal, prelude::*},
};

/// Inputs `index, dy`; attributes `axis`, `shape` (of the result), `accumulate`. Summands of one place are added in
/// row-major order of the index, each addition rounded to `accumulate`, the sum to the dtype of dy.
pub struct GatherGradient;

impl OpDefinition for GatherGradient {
    fn name(&self) -> &'static str {
        "gather_gradient"
    }

    fn class(&self) -> Class {
        Class::Indexed
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let [index, dy] = [&inputs[0], &inputs[1]];
        expect_float("dy", dy)?;
        let output = dy.with_shape(Shape(attributes.sizes_of("shape")?));
        attributes.dtype_or("accumulate", dy.dtype.accumulator())?;
        expect_within(expect_axis(attributes.size_of("axis")?, &output)?, &output, index)?;
        expect_type("dy", dy, &dy.with_shape(index.shape.clone()))?;
        Ok(vec![output])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let output = inputs[1].ty().with_shape(Shape(attributes.sizes_of("shape")?));
        let accumulate = attributes.dtype_or("accumulate", output.dtype.accumulator())?;
        let places = places(attributes.size_of("axis")?, &output.shape, &inputs[0])?;
        let mut sums = vec![0.0; output.shape.elements()];
        for (place, dy) in places.into_iter().zip(inputs[1].to_f64()) {
            sums[place] = accumulate.round(sums[place] + dy);
        }
        Ok(vec![Tensor::floats(output, sums)])
    }

    fn samples(&self) -> Vec<Sample> {
        let into = |axis: i64, shape: &[usize]| {
            accumulating(DType::F32).int("axis", axis).sizes("shape", shape)
        };
        let wide = ints(DType::I64, [2, 3], &[0, 4, 0, 2, 2, 1]);
        vec![
            Sample::new(into(1, &[2, 5]), vec![wide, normal([2, 3], 1)]),
            Sample::new(
                into(0, &[4, 2, 3]),
                vec![ints(DType::I32, [1, 2, 2], &[3, 0, 1, 1]), normal([1, 2, 2], 2)],
            ),
        ]
        .into_iter()
        .map(Sample::without_gradient)
        .collect()
    }
}
