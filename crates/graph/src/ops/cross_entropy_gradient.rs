//! The gradient of cross-entropy with respect to the logits.
//!
//! Knows rows and the saved log of the sum of exponentials.

use super::{
    cross_entropy::{counted, expect_rows, options, samples},
    support::{expect_type, prelude::*},
};

/// Inputs `logits, labels, lse, dloss` (gradient of the loss sum, a scalar), output `dlogits` (type of logits).
/// Attributes as for `cross_entropy`.
pub struct CrossEntropyGradient;

impl OpDefinition for CrossEntropyGradient {
    fn name(&self) -> &'static str {
        "cross_entropy_gradient"
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 4)?;
        let [logits, labels, lse, dloss] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]];
        expect_rows(logits, labels)?;
        options(attributes, logits.shape.last())?;
        let scalar = Type::scalar(logits.dtype.accumulator());
        expect_type("lse", lse, &scalar.with_shape(labels.shape.clone()))?;
        expect_type("dloss", dloss, &scalar)?;
        Ok(vec![logits.clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 10)
    }

    /// For a counted row with label t: `dx_c = dloss (e^(x_c - lse) - (1 - s) [c = t] - s/C)`; 0 in padding columns and
    /// in rows that do not count. From `d lse/dx_c = e^(x_c - lse)`.
    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let columns = inputs[0].shape().last();
        let options = options(attributes, columns)?;
        let labels = counted(&inputs[1], &options)?;
        let (logits, dloss) = (inputs[0].to_f64(), inputs[3].at(0));
        let mut dlogits = vec![0.0; logits.len()];
        for (row, label) in labels.into_iter().enumerate() {
            let Some(label) = label else { continue };
            let lse = inputs[2].at(row);
            for class in 0..options.classes {
                let target = if class == label { 1.0 - options.smoothing } else { 0.0 };
                let target = target + options.smoothing / options.classes as f64;
                let index = row * columns + class;
                dlogits[index] = dloss * ((logits[index] - lse).exp() - target);
            }
        }
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), dlogits)])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |(attributes, logits, labels): (Attributes, Tensor, Tensor)| {
            let columns = logits.shape().last();
            let classes = options(&attributes, columns).map_or(columns, |options| options.classes);
            let values = logits.to_f64();
            let lse = values
                .chunks(columns)
                .map(|row| row[..classes].iter().map(|x| x.exp()).sum::<f64>().ln());
            let ty = Type::new(DType::F32, labels.shape().extents());
            let lse = Tensor::floats(ty, lse);
            let dloss = Tensor::scalar(DType::F32, 0.3);
            Sample::new(attributes, vec![logits, labels, lse, dloss]).without_gradient()
        };
        samples().into_iter().map(case).collect()
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}
