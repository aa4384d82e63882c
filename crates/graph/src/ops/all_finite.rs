//! Whether every element of any number of tensors is finite.
//!
//! Knows float tensors; no gradient.

use super::support::{expect_some, normal, prelude::*};

/// A scalar bool: no element of any input is infinite or NaN.
pub struct AllFinite;

impl Sym {
    /// Whether no element of this tensor and of others is infinite or NaN.
    #[track_caller]
    pub fn all_finite(&self, others: &[&Sym]) -> Sym {
        self.apply("all_finite", Attributes::new(), others)
    }
}

impl OpDefinition for AllFinite {
    fn name(&self) -> &'static str {
        "all_finite"
    }

    fn class(&self) -> Class {
        Class::Reduction
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_some(inputs)?;
        inputs.iter().try_for_each(|ty| expect_float("an input", ty).map(|_| ()))?;
        Ok(vec![Type::scalar(DType::Bool)])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None; call.inputs.len()])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let finite = inputs.iter().all(|x| x.to_f64().into_iter().all(f64::is_finite));
        Ok(vec![Tensor::ints(Type::scalar(DType::Bool), [i64::from(finite)])])
    }

    fn samples(&self) -> Vec<Sample> {
        let with = |value: f64| Tensor::floats(Type::new(DType::F32, [3]), [0.0, value, 1.0]);
        [
            vec![normal([3, 4], 1), normal([70], 2)],
            vec![normal([3], 1), with(f64::INFINITY)],
            vec![with(f64::NAN)],
            vec![normal([5], 3).cast(DType::F16)],
        ]
        .into_iter()
        .map(|inputs| Sample::new(Attributes::new(), inputs).without_gradient())
        .collect()
    }
}
