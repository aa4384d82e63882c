//! Scaled dot-product attention, causal or not; the log of each row's sum of exponentials is saved for the gradient.
//!
//! Knows heads as an axis; how scores are tiled is a kernel's matter.

use super::support::{expect_type, normal, prelude::*};

/// `out = softmax(scale q k^T) v` per batch and head over `q, k, v [B, H, T, D]`; with `causal`, position i attends to
/// positions up to i. Outputs `out` (type of q) and `lse [B, H, T]` of the scaled scores (accumulation dtype).
pub struct Attention;

impl Sym {
    /// Attention of these queries over keys and values, all `[batch, heads, time, width]`, scaled by 1/sqrt(width).
    #[track_caller]
    pub fn attention(&self, keys: &Sym, values: &Sym, causal: bool) -> Sym {
        let scale = 1.0 / (self.shape().last() as f64).sqrt();
        let attributes = Attributes::new().bool("causal", causal).float("scale", scale);
        let [out, _] = self.apply_many("attention", attributes, &[keys, values]);
        out
    }
}

/// Checks the operands and yields the type of `lse`.
pub(super) fn expect_heads(q: &Type, k: &Type, v: &Type) -> Result<Type, OpError> {
    expect_float("q", q)?;
    let &[b, h, t, _] = q.shape.extents() else {
        return Err(OpError::new(format!("q is {q}, [batch, heads, time, width] was expected")));
    };
    expect_type("k", k, q)?;
    expect_type("v", v, q)?;
    Ok(Type::new(q.dtype.accumulator(), [b, h, t]))
}

/// One head's operands and the number of keys that a query sees.
pub(super) struct Head<'a> {
    pub(super) q: &'a [f64],
    pub(super) k: &'a [f64],
    pub(super) width: usize,
    pub(super) scale: f64,
    pub(super) causal: bool,
}

impl Head<'_> {
    /// Number of positions.
    pub(super) fn time(&self) -> usize {
        self.q.len() / self.width
    }

    /// Scaled scores of query `i` against the keys it sees.
    pub(super) fn scores(&self, i: usize) -> Vec<f64> {
        let seen = if self.causal { i + 1 } else { self.time() };
        let query = &self.q[i * self.width..][..self.width];
        let keys = self.k.chunks(self.width).take(seen);
        keys.map(|key| self.scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>())
            .collect()
    }
}

impl OpDefinition for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn class(&self) -> Class {
        Class::Attention
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 3)?;
        attributes.flag("causal")?;
        attributes.float_of("scale")?;
        let lse = expect_heads(&inputs[0], &inputs[1], &inputs[2])?;
        Ok(vec![inputs[0].clone(), lse])
    }

    /// One operator for all three: see `attention_gradient`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dout) = call.output_gradients[0] else { return Ok(vec![None; 3]) };
        let mut inputs = call.inputs.to_vec();
        inputs.extend([call.outputs[0], call.outputs[1], dout]);
        let attributes = call.attributes.clone();
        let gradients = builder.op_many("attention_gradient", attributes, &inputs)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    /// Two products of T x T x D per head, half of them with a causal mask.
    fn cost(&self, attributes: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let flops = 2u64.saturating_mul(products(attributes, &inputs[0]));
        Cost { flops, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty();
        let lse_type = expect_heads(ty, inputs[1].ty(), inputs[2].ty())?;
        let (q, k, v) = (inputs[0].to_f64(), inputs[1].to_f64(), inputs[2].to_f64());
        let (width, causal) = (ty.shape.last(), attributes.flag("causal")?);
        let (scale, size) = (attributes.float_of("scale")?, ty.shape.0[2] * width);
        let (mut out, mut all_lse) = (vec![], vec![]);
        for ((q, k), v) in q.chunks(size).zip(k.chunks(size)).zip(v.chunks(size)) {
            let head = Head { q, k, width, scale, causal };
            for i in 0..head.time() {
                let scores = head.scores(i);
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let lse = largest + scores.iter().map(|s| (s - largest).exp()).sum::<f64>().ln();
                let weights: Vec<f64> = scores.iter().map(|score| (score - lse).exp()).collect();
                let mixed = |column: usize| -> f64 {
                    weights.iter().enumerate().map(|(j, w)| w * v[j * width + column]).sum()
                };
                out.extend((0..width).map(mixed));
                all_lse.push(lse);
            }
        }
        Ok(vec![Tensor::floats(ty.clone(), out), Tensor::floats(lse_type, all_lse)])
    }

    fn samples(&self) -> Vec<Sample> {
        samples()
            .into_iter()
            .map(|(attributes, operands)| {
                let low = operands[0].dtype() != DType::F32;
                let sample = Sample::new(attributes, operands);
                if low { sample.without_gradient() } else { sample }
            })
            .collect()
    }

    fn differentiable(&self, output: usize) -> bool {
        output == 0
    }
}

/// Multiplications and additions of one product of all queries with all keys they see.
pub(super) fn products(attributes: &Attributes, q: &Type) -> u64 {
    let whole = (q.shape.elements().saturating_mul(q.shape.0[2]) as u64).saturating_mul(2);
    if attributes.flag("causal").unwrap_or(false) { whole / 2 } else { whole }
}

/// Attributes and q, k, v of samples, for attention and for its gradient.
pub(super) fn samples() -> Vec<(Attributes, Vec<Tensor>)> {
    let attributes = |causal, scale| Attributes::new().bool("causal", causal).float("scale", scale);
    let operands =
        |salt: u64| (0..3).map(|index| normal([2, 2, 5, 4], salt + index)).collect::<Vec<_>>();
    let low = operands(9).iter().map(|tensor| tensor.cast(DType::BF16)).collect();
    vec![
        (attributes(true, 0.5), operands(0)),
        (attributes(false, 0.5), operands(3)),
        (attributes(true, 1.0), operands(6)),
        (attributes(true, 0.5), low),
    ]
}
