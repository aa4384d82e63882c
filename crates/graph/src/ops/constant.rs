//! A tensor of one number.
//!
//! Knows its attributes only.

use super::support::prelude::*;

/// Every element equals attribute `value`; attributes `shape` and `dtype` say the type. A scalar's shape is empty.
pub struct Constant;

impl OpDefinition for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn class(&self) -> Class {
        Class::Source
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 0)?;
        attributes.float_of("value")?;
        let shape = Shape(attributes.sizes_of("shape")?);
        Ok(vec![Type { dtype: attributes.dtype_of("dtype")?, shape }])
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 0)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        _: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = self.infer(attributes, &[])?.remove(0);
        Ok(vec![Tensor::full(ty, attributes.float_of("value")?)])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |value: f64, dtype: DType, shape: &[usize]| {
            let attributes = Attributes::new().float("value", value).dtype("dtype", dtype);
            Sample::new(attributes.sizes("shape", shape), vec![])
        };
        vec![
            case(0.1, DType::F32, &[2, 3]),
            case(0.1, DType::BF16, &[]),
            case(7.0, DType::I64, &[2]),
            case(1.0, DType::Bool, &[2]),
        ]
    }
}
