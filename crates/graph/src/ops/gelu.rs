//! The Gaussian error linear unit, exact or by its tanh approximation.
//!
//! Knows one tensor.

use super::support::{normal, prelude::*};

/// `x Phi(x)` with the normal distribution function (attribute `form` = "erf"), or
/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` ("tanh"); D. Hendrycks, K. Gimpel, "Gaussian error linear units",
/// 2016.
pub struct Gelu;

/// Which of the two formulas.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Erf,
    Tanh,
}

pub(super) fn form(attributes: &Attributes) -> Result<Form, OpError> {
    match attributes.text_of("form")? {
        "erf" => Ok(Form::Erf),
        "tanh" => Ok(Form::Tanh),
        other => Err(OpError::new(format!("form is {other:?}, \"erf\" or \"tanh\" was expected"))),
    }
}

impl Form {
    /// The function's value.
    pub(super) fn value(self, x: f64) -> f64 {
        match self {
            Form::Erf => x * 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Form::Tanh => 0.5 * x * (1.0 + inner(x).tanh()),
        }
    }

    /// The function's derivative: `Phi(x) + x phi(x)` with the normal density, or the approximation's own derivative
    /// `(1 + t)/2 + x/2 (1 - t^2) u'` with `t = tanh u`.
    pub(super) fn derivative(self, x: f64) -> f64 {
        match self {
            Form::Erf => {
                let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
                0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
            }
            Form::Tanh => {
                let t = inner(x).tanh();
                let slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope
            }
        }
    }
}

/// `sqrt(2/pi) (x + 0.044715 x^3)`
fn inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

impl Sym {
    /// Gaussian error linear unit, exact.
    #[track_caller]
    pub fn gelu(&self) -> Sym {
        self.apply("gelu", Attributes::new().text("form", "erf"), &[])
    }

    /// Gaussian error linear unit by its tanh approximation, as GPT-2.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Sym {
        self.apply("gelu", Attributes::new().text("form", "tanh"), &[])
    }
}

impl OpDefinition for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        form(attributes)?;
        Ok(vec![inputs[0].clone()])
    }

    /// See `gelu_gradient`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let dx = builder.op("gelu_gradient", call.attributes.clone(), &[call.inputs[0], dy])?;
        Ok(vec![Some(dx)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 16)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let form = form(attributes)?;
        let values = inputs[0].to_f64().into_iter().map(|x| form.value(x));
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), values)])
    }

    fn samples(&self) -> Vec<Sample> {
        ["erf", "tanh"]
            .into_iter()
            .flat_map(|form| {
                let attributes = || Attributes::new().text("form", form);
                let low = normal([9], 2).cast(DType::BF16);
                [
                    Sample::new(attributes(), vec![normal([3, 33], 1)]),
                    Sample::new(attributes(), vec![low]).without_gradient(),
                ]
            })
            .collect()
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
