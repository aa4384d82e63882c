//! The sum of squares of all elements of any number of tensors: the square of a global norm.
//!
//! Knows float tensors of one dtype.

use super::support::{expect_same_dtype, expect_some, normal, prelude::*};

/// A scalar in the accumulation dtype.
pub struct SumOfSquares;

impl Sym {
    /// The sum of squares of all elements of this tensor and of others.
    #[track_caller]
    pub fn sum_of_squares(&self, others: &[&Sym]) -> Sym {
        self.apply("sum_of_squares", Attributes::new(), others)
    }
}

impl OpDefinition for SumOfSquares {
    fn name(&self) -> &'static str {
        "sum_of_squares"
    }

    fn class(&self) -> Class {
        Class::Reduction
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let first = expect_some(inputs)?;
        expect_float("an input", first)?;
        inputs.iter().try_for_each(|ty| expect_same_dtype(first, ty).map(|_| ()))?;
        Ok(vec![Type::scalar(first.dtype.accumulator())])
    }

    /// `dx = 2 x dy`
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(mut dy) = call.output_gradients[0] else {
            return Ok(vec![None; call.inputs.len()]);
        };
        let dtype = builder.ty(call.inputs[0]).dtype;
        if builder.ty(dy).dtype != dtype {
            dy = builder.op("cast", Attributes::new().dtype("dtype", dtype), &[dy])?;
        }
        let twice = builder.scale(dy, 2.0)?;
        call.inputs.iter().map(|&x| builder.binary("mul", x, twice).map(Some)).collect()
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let elements = inputs.iter().map(|ty| ty.shape.elements() as u64);
        let elements = elements.fold(0, u64::saturating_add);
        Cost { flops: elements.saturating_mul(2), ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let squares = inputs.iter().flat_map(Tensor::to_f64).map(|x| x * x);
        let ty = Type::scalar(inputs[0].dtype().accumulator());
        Ok(vec![Tensor::floats(ty, [squares.sum::<f64>()])])
    }

    fn samples(&self) -> Vec<Sample> {
        let low = normal([40], 4).cast(DType::BF16);
        vec![
            Sample::new(Attributes::new(), vec![normal([3, 4], 1), normal([70], 2)]),
            Sample::new(Attributes::new(), vec![normal([5], 3)]),
            Sample::new(Attributes::new(), vec![low]).without_gradient(),
        ]
    }
}
