//! The gradient of the Gaussian error linear unit.
//!
//! Knows one tensor and the gradient of the result; the derivatives stand in `gelu`.

use super::{
    gelu::form,
    support::{expect_type, normal, prelude::*},
};

/// `dx = f'(x) dy`; inputs `x, dy`; attribute `form` as for `gelu`.
pub struct GeluGradient;

impl OpDefinition for GeluGradient {
    fn name(&self) -> &'static str {
        "gelu_gradient"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        expect_float("x", &inputs[0])?;
        expect_type("dy", &inputs[1], &inputs[0])?;
        form(attributes)?;
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
        Cost::streaming(inputs, outputs, 24)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let form = form(attributes)?;
        let values = inputs[0].to_f64().into_iter().zip(inputs[1].to_f64());
        let ty = inputs[0].ty().clone();
        Ok(vec![Tensor::floats(ty, values.map(|(x, dy)| form.derivative(x) * dy))])
    }

    fn samples(&self) -> Vec<Sample> {
        ["erf", "tanh"]
            .into_iter()
            .map(|form| {
                let attributes = Attributes::new().text("form", form);
                Sample::new(attributes, vec![normal([3, 33], 1), normal([3, 33], 2)])
                    .without_gradient()
            })
            .collect()
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (0, 1)]
    }
}
