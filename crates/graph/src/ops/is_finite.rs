//! Which elements are neither infinite nor NaN.
//!
//! Knows one float tensor; no gradient.

use super::support::prelude::*;

/// `x` is finite, elementwise.
pub struct IsFinite;

impl Sym {
    /// Whether each element is neither infinite nor NaN.
    #[track_caller]
    pub fn is_finite(&self) -> Sym {
        self.apply("is_finite", Attributes::new(), &[])
    }
}

impl OpDefinition for IsFinite {
    fn name(&self) -> &'static str {
        "is_finite"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        Ok(vec![inputs[0].with_dtype(DType::Bool)])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let truth = inputs[0].to_f64().into_iter().map(|x| i64::from(x.is_finite()));
        Ok(vec![Tensor::ints(inputs[0].ty().with_dtype(DType::Bool), truth)])
    }

    fn samples(&self) -> Vec<Sample> {
        let values = [1.0, f64::INFINITY, -3.0, f64::NAN, f64::NEG_INFINITY, 0.0];
        let x = Tensor::floats(Type::new(DType::F32, [2, 3]), values);
        vec![Sample::new(Attributes::new(), vec![x]).without_gradient()]
    }
}
