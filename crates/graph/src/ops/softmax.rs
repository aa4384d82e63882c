//! Softmax over the last axis.
//!
//! Knows rows.

use super::support::{normal, prelude::*};

/// `y = e^(x - max) / sum e^(x - max)` per row.
pub struct Softmax;

impl Sym {
    /// Softmax over the last axis.
    #[track_caller]
    pub fn softmax(&self) -> Sym {
        self.apply("softmax", Attributes::new(), &[])
    }
}

impl OpDefinition for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        if inputs[0].shape.rank() == 0 {
            return Err(OpError::new(format!("x is {}, at least one axis expected", inputs[0])));
        }
        Ok(vec![inputs[0].clone()])
    }

    /// See `softmax_gradient`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        Ok(vec![Some(builder.binary("softmax_gradient", call.outputs[0], dy)?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 12)
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (x, ty) = (inputs[0].to_f64(), inputs[0].ty().clone());
        let mut y = vec![];
        for row in x.chunks(ty.shape.last().max(1)) {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            y.extend(powers.into_iter().map(|power| power / sum));
        }
        Ok(vec![Tensor::floats(ty, y)])
    }

    fn samples(&self) -> Vec<Sample> {
        let none = Attributes::new;
        vec![
            Sample::new(none(), vec![normal([2, 3, 5], 1)]),
            Sample::new(none(), vec![normal([7], 2)]),
            Sample::new(none(), vec![normal([3, 5], 3).cast(DType::BF16)]).without_gradient(),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
