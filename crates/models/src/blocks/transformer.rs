//! The pre-norm transformer block of GPT-2: causal attention and a two-layer perceptron, each added to the residual stream.
//!
//! Knows GPT-2's parameter names; knows no embeddings and no head.

use graph::{
    Initial,
    trace::{Context, LayerNorm, Linear, Parameters, Sym},
};

/// Sizes of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockShape {
    /// Width of the residual stream.
    pub width: usize,
    /// Attention heads; a divisor of the width.
    pub heads: usize,
    /// Width of the perceptron's middle.
    pub inner: usize,
    /// Blocks in the model: the projections into the residual stream start smaller by sqrt(2 layers).
    pub layers: usize,
    /// Probability of dropping an element of a branch before it is added.
    pub dropout: f64,
    /// Added to the variance in layer norms.
    pub epsilon: f64,
}

/// One block.
#[derive(Debug, Clone)]
pub struct Block {
    shape: BlockShape,
    ln_1: LayerNorm,
    c_attn: Linear,
    attn_c_proj: Linear,
    ln_2: LayerNorm,
    c_fc: Linear,
    mlp_c_proj: Linear,
}

impl Block {
    /// Declares `ln_1`, `attn.c_attn`, `attn.c_proj`, `ln_2`, `mlp.c_fc` and `mlp.c_proj` below `parameters`. Weights are
    /// stored `[inputs, outputs]`.
    pub fn declare(parameters: &Parameters, shape: BlockShape) -> Self {
        let BlockShape { width, inner, .. } = shape;
        let weights = |std: f64| parameters.weights(Initial::Normal { std });
        let (plain, small) = (weights(0.02), weights(0.02 / (2.0 * shape.layers as f64).sqrt()));
        let norm = |name| LayerNorm { epsilon: shape.epsilon, ..plain.layer_norm(name, width) };
        Self {
            shape,
            ln_1: norm("ln_1"),
            c_attn: plain.sub("attn").linear("c_attn", width, 3 * width),
            attn_c_proj: small.sub("attn").linear("c_proj", width, width),
            ln_2: norm("ln_2"),
            c_fc: plain.sub("mlp").linear("c_fc", width, inner),
            mlp_c_proj: small.sub("mlp").linear("c_proj", inner, width),
        }
    }

    /// From the residual stream `[batch, length, width]` to the residual stream.
    pub fn forward(&self, context: &Context, x: &Sym) -> Sym {
        let attended = self.attention(context, &x.layer_norm(&self.ln_1));
        let x = x + self.drop(context, "attn", &attended.linear(&self.attn_c_proj));
        let middle = x.layer_norm(&self.ln_2).linear(&self.c_fc);
        let middle = context.scope("mlp", || middle.gelu_tanh());
        &x + self.drop(context, "mlp", &middle.linear(&self.mlp_c_proj))
    }

    fn attention(&self, context: &Context, x: &Sym) -> Sym {
        let [batch, length, width] = x.dims();
        let heads = self.shape.heads;
        let packed = x.linear(&self.c_attn);
        context.scope("attn", || {
            let [q, k, v] = packed.split(2).map(|part| {
                part.reshape(&[batch, length, heads, width / heads]).permute(&[0, 2, 1, 3])
            });
            q.attention(&k, &v, true).permute(&[0, 2, 1, 3]).reshape(&[batch, length, width])
        })
    }

    fn drop(&self, context: &Context, branch: &str, x: &Sym) -> Sym {
        context.scope(branch, || context.scope("resid_dropout", || x.dropout(self.shape.dropout)))
    }
}
