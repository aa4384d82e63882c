//! Conversion of the element type.
//!
//! Knows one tensor. Floats round to nearest, ties to even; to integers they are truncated.

use super::support::{ints, normal, prelude::*};

/// The same numbers in the dtype of attribute `dtype`.
pub struct Cast;

impl Sym {
    /// The same numbers in another dtype; the symbol itself where it has that dtype.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Sym {
        if self.ty().is_some_and(|ty| ty.dtype == dtype) {
            return self.clone();
        }
        self.apply("cast", Attributes::new().dtype("dtype", dtype), &[])
    }
}

impl OpDefinition for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        Ok(vec![inputs[0].with_dtype(attributes.dtype_of("dtype")?)])
    }

    /// `dx` is `dy` in the dtype of x. Between floats the derivative of rounding is taken as 1.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let dtype = builder.ty(call.inputs[0]).dtype;
        match call.output_gradients[0] {
            Some(dy) if dtype.is_float() => Ok(vec![Some(builder.op(
                "cast",
                Attributes::new().dtype("dtype", dtype),
                &[dy],
            )?)]),
            _ => Ok(vec![None]),
        }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![inputs[0].cast(attributes.dtype_of("dtype")?)])
    }

    fn samples(&self) -> Vec<Sample> {
        let to = |dtype| Attributes::new().dtype("dtype", dtype);
        let small = normal([2, 7], 1);
        let mut samples = vec![
            Sample::new(to(DType::F32), vec![small.clone()]),
            Sample::new(to(DType::I64), vec![ints(DType::I32, [3], &[-1, 0, 7])]),
            Sample::new(to(DType::F32), vec![ints(DType::Bool, [3], &[1, 0, 1])]),
            Sample::new(to(DType::F32), vec![ints(DType::I64, [2], &[-3, 1 << 20])]),
            Sample::new(to(DType::Bool), vec![ints(DType::U8, [3], &[2, 0, 1])]),
            Sample::new(to(DType::I32), vec![normal([5], 2)]).without_gradient(),
        ];
        for dtype in [DType::BF16, DType::F16] {
            samples.push(Sample::new(to(dtype), vec![small.clone()]).without_gradient());
            samples.push(Sample::new(to(DType::F32), vec![small.cast(dtype)]).without_gradient());
        }
        samples
    }
}
