//! The gradient of attention with respect to queries, keys and values.
//!
//! Knows what the forward part saved: the result and the log of each row's sum of exponentials.

use super::{
    attention::{Head, expect_heads, products, samples},
    support::{expect_type, normal, prelude::*},
};

/// Inputs `q, k, v, out, lse, dout`; outputs `dq, dk, dv`. Attributes as for `attention`.
pub struct AttentionGradient;

impl OpDefinition for AttentionGradient {
    fn name(&self) -> &'static str {
        "attention_gradient"
    }

    fn class(&self) -> Class {
        Class::Attention
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 6)?;
        attributes.flag("causal")?;
        attributes.float_of("scale")?;
        let q = &inputs[0];
        let lse = expect_heads(q, &inputs[1], &inputs[2])?;
        expect_type("out", &inputs[3], q)?;
        expect_type("lse", &inputs[4], &lse)?;
        expect_type("dout", &inputs[5], q)?;
        Ok(vec![q.clone(), q.clone(), q.clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    /// Five products of T x T x D per head (the scores once more, dP, dV, dQ, dK), half of them with a causal mask.
    fn cost(&self, attributes: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let flops = 5u64.saturating_mul(products(attributes, &inputs[0]));
        Cost { flops, ..Cost::streaming(inputs, outputs, 0) }
    }

    /// With S the scaled scores and `P = e^(S - lse)`: `dV = P^T dO`, `dP = dO V^T`, `dS = P (dP - rowsum(dO O))`,
    /// `dQ = scale dS K`, `dK = scale dS^T Q` (T. Dao and others, "FlashAttention", 2022, algorithm 4).
    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty();
        let operands: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let (width, time) = (ty.shape.last(), ty.shape.0[2]);
        let (scale, causal) = (attributes.float_of("scale")?, attributes.flag("causal")?);
        let size = time * width;
        let mut gradients = [0, 1, 2].map(|_| vec![0.0; ty.shape.elements()]);
        for start in (0..ty.shape.elements()).step_by(size.max(1)) {
            let of = |index: usize| &operands[index][start..][..size];
            let head = Head { q: of(0), k: of(1), width, scale, causal };
            let (v, out, dout) = (of(2), of(3), of(5));
            for i in 0..time {
                let row = |tensor: &'_ [f64]| tensor[i * width..][..width].to_vec();
                let (out, dout) = (row(out), row(dout));
                let delta: f64 = out.iter().zip(&dout).map(|(out, dout)| out * dout).sum();
                let lse = operands[4][start / width + i];
                for (j, score) in head.scores(i).into_iter().enumerate() {
                    let p = (score - lse).exp();
                    let dp: f64 = (0..width).map(|c| dout[c] * v[j * width + c]).sum();
                    let ds = p * (dp - delta);
                    for c in 0..width {
                        gradients[0][start + i * width + c] += scale * ds * head.k[j * width + c];
                        gradients[1][start + j * width + c] += scale * ds * head.q[i * width + c];
                        gradients[2][start + j * width + c] += p * dout[c];
                    }
                }
            }
        }
        Ok(gradients.into_iter().map(|values| Tensor::floats(ty.clone(), values)).collect())
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |(attributes, mut operands): (Attributes, Vec<Tensor>)| {
            let context = EvaluationContext::default();
            let forward = super::attention::Attention.evaluate(&attributes, &operands, context);
            operands.extend(forward.ok()?);
            operands.push(normal([2, 2, 5, 4], 99).cast(operands[0].dtype()));
            Some(Sample::new(attributes, operands).without_gradient())
        };
        samples().into_iter().filter_map(case).collect()
    }
}
