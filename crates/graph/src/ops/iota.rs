//! The integers from zero.
//!
//! Knows its attributes only.

use super::support::prelude::*;

/// Element i is i; attributes `n` (number of elements) and `dtype`.
pub struct Iota;

impl OpDefinition for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn class(&self) -> Class {
        Class::Source
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 0)?;
        Ok(vec![Type::new(attributes.dtype_of("dtype")?, [attributes.size_of("n")?])])
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
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = self.infer(attributes, &[])?.remove(0);
        let elements = ty.shape.elements();
        Ok(vec![Tensor::from_f64(ty, (0..elements).map(|i| i as f64))])
    }

    fn samples(&self) -> Vec<Sample> {
        [DType::I32, DType::I64, DType::F32]
            .into_iter()
            .map(|dtype| Sample::new(Attributes::new().int("n", 5).dtype("dtype", dtype), vec![]))
            .collect()
    }
}
