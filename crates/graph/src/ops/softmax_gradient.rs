//! The gradient of softmax.
//!
//! Knows rows, the result and its gradient.

use super::support::{expect_type, normal, prelude::*, uniform};

/// `dx = y (dy - sum(y dy))` per row; inputs `y, dy`.
pub struct SoftmaxGradient;

impl OpDefinition for SoftmaxGradient {
    fn name(&self) -> &'static str {
        "softmax_gradient"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        expect_float("y", &inputs[0])?;
        expect_type("dy", &inputs[1], &inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 4)
    }

    /// From `dy_i/dx_j = y_i (delta_ij - y_j)`.
    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (y, dy) = (inputs[0].to_f64(), inputs[1].to_f64());
        let width = inputs[0].shape().last().max(1);
        let rows = y.chunks(width).zip(dy.chunks(width)).flat_map(|(y, dy)| {
            let product: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            y.iter().zip(dy).map(move |(y, dy)| y * (dy - product)).collect::<Vec<_>>()
        });
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), rows)])
    }

    fn samples(&self) -> Vec<Sample> {
        let none = Attributes::new;
        vec![
            Sample::new(none(), vec![uniform([2, 3, 5], 0.0, 0.4, 1), normal([2, 3, 5], 2)]),
            Sample::new(none(), vec![uniform([7], 0.0, 0.3, 3), normal([7], 4)]),
        ]
        .into_iter()
        .map(Sample::without_gradient)
        .collect()
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (0, 1)]
    }
}
