//! Power with a constant exponent.
//!
//! Knows one tensor; the exponent is an attribute.

use super::support::{prelude::*, uniform};

/// `x^p`, `p` the attribute `exponent`.
pub struct Power;

impl Sym {
    /// Every element to the power `exponent`.
    #[track_caller]
    pub fn power(&self, exponent: f64) -> Sym {
        self.apply("power", Attributes::new().float("exponent", exponent), &[])
    }
}

impl OpDefinition for Power {
    fn name(&self) -> &'static str {
        "power"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        attributes.float_of("exponent")?;
        Ok(vec![inputs[0].clone()])
    }

    /// `dx = p x^(p-1) dy`
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let exponent = call
            .attributes
            .float_of("exponent")
            .map_err(|_| builder.not_differentiable("power"))?;
        let lower = Attributes::new().float("exponent", exponent - 1.0);
        let power = builder.op("power", lower, &[call.inputs[0]])?;
        let slope = builder.scale(power, exponent)?;
        Ok(vec![Some(builder.binary("mul", dy, slope)?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 20)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let exponent = attributes.float_of("exponent")?;
        let values = inputs[0].to_f64().into_iter().map(|x| x.powf(exponent));
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), values)])
    }

    fn samples(&self) -> Vec<Sample> {
        [3.0, -0.75]
            .into_iter()
            .map(|exponent| {
                let attributes = Attributes::new().float("exponent", exponent);
                Sample::new(attributes, vec![uniform([3, 5], 0.4, 2.0, 1)])
            })
            .collect()
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
