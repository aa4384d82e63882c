//! The sum of any number of tensors in input order: how gradients of one value meet.
//!
//! Knows tensors of one type.

use super::support::{expect_some, expect_type, normal, prelude::*};

/// `((x0 + x1) + x2) + ..`, each addition in the dtype of attribute `accumulate` (default: `f32`, `f64` for `f64`),
/// rounded to the inputs' dtype at the end.
pub struct Accumulate;

impl Sym {
    /// The sum of this tensor and others of its type, in order.
    #[track_caller]
    pub fn accumulate(&self, others: &[&Sym]) -> Sym {
        let attributes = Attributes::new().dtype("accumulate", self.dtype().accumulator());
        self.apply("accumulate", attributes, others)
    }
}

impl OpDefinition for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let first = expect_some(inputs)?;
        expect_float("the first input", first)?;
        attributes.dtype_or("accumulate", first.dtype.accumulator())?;
        for (index, input) in inputs.iter().enumerate() {
            expect_type(&format!("input {index}"), input, first)?;
        }
        Ok(vec![first.clone()])
    }

    /// Every `dx = dy`.
    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![call.output_gradients[0]; call.inputs.len()])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, inputs.len() as u64)
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty().clone();
        let accumulator = attributes.dtype_or("accumulate", ty.dtype.accumulator())?;
        let sum = |i: usize| {
            inputs[1..].iter().fold(inputs[0].at(i), |sum, x| accumulator.round(sum + x.at(i)))
        };
        let elements = ty.shape.elements();
        Ok(vec![Tensor::floats(ty, (0..elements).map(sum))])
    }

    fn samples(&self) -> Vec<Sample> {
        let attributes = || Attributes::new().dtype("accumulate", DType::F32);
        let of = |count: u64| (0..count).map(|salt| normal([3, 4], salt)).collect::<Vec<_>>();
        let low = of(4).iter().map(|x| x.cast(DType::BF16)).collect();
        vec![
            Sample::new(attributes(), of(2)),
            Sample::new(attributes(), of(5)),
            Sample::new(attributes(), of(1)),
            Sample::new(attributes(), low).without_gradient(),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
