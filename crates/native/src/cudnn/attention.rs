//! Scaled dot-product attention, forward and backward, spelled out as the graphs that cuDNN's fused engines
//! recognise. Knows windows into larger buffers; knows no projections and no dropout.
//!
//! Forward, for each batch and head, with `S = scale q k^T` (masked to `-inf` above the diagonal where causal):
//! `lse = log sum_j exp(S_ij)`, `P = exp(S - lse)`, `o = P v`.
//!
//! Backward, with `D_i = sum_e do_ie o_ie` and `dP = do v^T`:
//! `dv = P^T do`, `dS = P (dP - D) scale`, `dq = dS k`, `dk = dS^T q`.

use super::{
    graph::{Graph, Tensor, TensorDescription},
    operations::{Pointwise, Reduction},
};
use crate::{DataType, Result};

/// Sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Elements of q, k, v, o and their gradients.
    pub data_type: DataType,
    /// Sequences.
    pub batch: i64,
    /// Heads.
    pub heads: i64,
    /// Tokens of a sequence.
    pub length: i64,
    /// Elements of a head.
    pub head: i64,
    /// Whether a token sees only itself and earlier ones.
    pub causal: bool,
    /// Factor of the scores, usually `1 / sqrt(head)`.
    pub scale: f32,
}

/// How `[batch, token, head, element]` lies in memory: elements of a head are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements from one sequence to the next.
    pub batch: i64,
    /// Elements from one token to the next.
    pub token: i64,
    /// Elements from one head to the next.
    pub head: i64,
}

impl Window {
    /// A `[batch, token, head, element]` tensor of its own.
    pub fn dense(shape: &AttentionShape) -> Window {
        Window::columns(shape, shape.heads * shape.head)
    }

    /// Columns of a `[batch * token, width]` matrix; q, k and v of a packed projection have
    /// `width = 3 * heads * head` and lie `heads * head` elements apart.
    pub fn columns(shape: &AttentionShape, width: i64) -> Window {
        Window { batch: shape.length * width, token: width, head: shape.head }
    }
}

/// The tensors of a forward graph.
#[derive(Debug, Clone, Copy)]
pub struct AttentionForward {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Result, written.
    pub o: Tensor,
    /// Log of the sum of exponentials, fp32 `[batch, heads, length]`, written.
    pub statistics: Tensor,
}

/// The tensors of a backward graph.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackward {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Forward's result.
    pub o: Tensor,
    /// Its gradient.
    pub d_o: Tensor,
    /// Forward's statistics.
    pub statistics: Tensor,
    /// Scratch, fp32 `[batch, heads, length]`.
    pub row_sum: Tensor,
    /// Scratch, fp32 `[batch, heads, length, head]`; some engines add into it, so it must be zero before.
    pub dq_accumulator: Tensor,
    /// Gradient of the queries, written.
    pub dq: Tensor,
    /// Gradient of the keys, written.
    pub dk: Tensor,
    /// Gradient of the values, written.
    pub dv: Tensor,
}

impl AttentionShape {
    /// Multiplications and additions of the forward pass; half of the square where causal.
    pub fn operations(&self) -> f64 {
        let square = (self.batch * self.heads * self.length * self.length * self.head) as f64;
        4.0 * square * if self.causal { 0.5 } else { 1.0 }
    }

    fn tokens(&self, window: &Window) -> TensorDescription {
        let dimensions = [self.batch, self.heads, self.length, self.head];
        let strides = [window.batch, window.head, window.token, 1];
        TensorDescription::strided(self.data_type, &dimensions, &strides)
    }

    /// The same memory with tokens and elements exchanged.
    fn tokens_transposed(&self, window: &Window) -> TensorDescription {
        let dimensions = [self.batch, self.heads, self.head, self.length];
        let strides = [window.batch, window.head, 1, window.token];
        TensorDescription::strided(self.data_type, &dimensions, &strides)
    }

    fn square(&self, data_type: DataType) -> TensorDescription {
        let dimensions = [self.batch, self.heads, self.length, self.length];
        TensorDescription::row_major(data_type, &dimensions)
    }

    fn square_transposed(&self, data_type: DataType) -> TensorDescription {
        let mut square = self.square(data_type);
        square.strides.swap(2, 3);
        square
    }

    fn rows(&self) -> TensorDescription {
        let dimensions = [self.batch, self.heads, self.length, 1];
        TensorDescription::row_major(DataType::F32, &dimensions)
    }

    /// The forward graph; `qkv` is the layout of q, k and v, `o` that of the result.
    pub fn forward(&self, qkv: &Window, o: &Window) -> Result<(Graph, AttentionForward)> {
        let mut g = Graph::new();
        let square = self.square(DataType::F32);
        let rows = self.rows();
        let t = AttentionForward {
            q: g.tensor(&self.tokens(qkv))?,
            k: g.tensor(&self.tokens_transposed(qkv))?,
            v: g.tensor(&self.tokens(qkv))?,
            o: g.tensor(&self.tokens(o))?,
            statistics: g.tensor(&rows)?,
        };
        let scale = g.scalar(self.scale)?;
        let products = g.virtual_tensor(&square)?;
        g.matmul(t.q, t.k, products)?;
        let mut scores = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Multiply, products, Some(scale), scores)?;
        if self.causal {
            scores = self.masked(&mut g, scores)?;
        }
        let greatest = g.virtual_tensor(&rows)?;
        g.reduce(Reduction::Maximum, scores, greatest)?;
        let shifted = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Subtract, scores, Some(greatest), shifted)?;
        let exponentials = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Exponential, shifted, None, exponentials)?;
        let sum = g.virtual_tensor(&rows)?;
        g.reduce(Reduction::Add, exponentials, sum)?;
        let logarithm = g.virtual_tensor(&rows)?;
        g.pointwise(Pointwise::Logarithm, sum, None, logarithm)?;
        g.pointwise(Pointwise::Add, greatest, Some(logarithm), t.statistics)?;
        let probabilities = g.virtual_tensor(&self.square(self.data_type))?;
        g.pointwise(Pointwise::Divide, exponentials, Some(sum), probabilities)?;
        g.matmul(probabilities, t.v, t.o)?;
        Ok((g, t))
    }

    /// The backward graph; `qkv` is the layout of q, k, v and their gradients, `o` that of the result and its
    /// gradient.
    pub fn backward(&self, qkv: &Window, o: &Window) -> Result<(Graph, AttentionBackward)> {
        let mut g = Graph::new();
        let square = self.square(DataType::F32);
        let rows = self.rows();
        let heads_first = [self.batch, self.heads, self.length, self.head];
        let accumulator = TensorDescription::row_major(DataType::F32, &heads_first);
        let t = AttentionBackward {
            q: g.tensor(&self.tokens(qkv))?,
            k: g.tensor(&self.tokens_transposed(qkv))?,
            v: g.tensor(&self.tokens_transposed(qkv))?,
            o: g.tensor(&self.tokens(o))?,
            d_o: g.tensor(&self.tokens(o))?,
            statistics: g.tensor(&rows)?,
            row_sum: g.tensor(&rows)?,
            dq_accumulator: g.tensor(&accumulator)?,
            dq: g.tensor(&self.tokens(qkv))?,
            dk: g.tensor(&self.tokens(qkv))?,
            dv: g.tensor(&self.tokens(qkv))?,
        };
        let (scale, one) = (g.scalar(self.scale)?, g.scalar(1.0)?);

        // D = rows of do * o
        let products = g.virtual_tensor(&accumulator)?;
        g.pointwise(Pointwise::Multiply, t.d_o, Some(t.o), products)?;
        let sums = g.virtual_tensor(&rows)?;
        g.reduce(Reduction::Add, products, sums)?;
        g.pointwise(Pointwise::Multiply, sums, Some(one), t.row_sum)?;

        // P = exp(scale q k^T - lse)
        let scores = g.virtual_tensor(&square)?;
        g.matmul(t.q, t.k, scores)?;
        let scaled = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Multiply, scores, Some(scale), scaled)?;
        let mut shifted = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Subtract, scaled, Some(t.statistics), shifted)?;
        if self.causal {
            shifted = self.masked(&mut g, shifted)?;
        }
        let p = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Exponential, shifted, None, p)?;

        // dv = P^T do
        let p_transposed = g.virtual_tensor(&self.square_transposed(self.data_type))?;
        g.reshape(p, p_transposed)?;
        g.matmul(p_transposed, t.d_o, t.dv)?;

        // dS = P (do v^T - D) scale
        let dp = g.virtual_tensor(&square)?;
        g.matmul(t.d_o, t.v, dp)?;
        let centred = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Subtract, dp, Some(t.row_sum), centred)?;
        let weighted = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Multiply, centred, Some(p), weighted)?;
        let ds = g.virtual_tensor(&square)?;
        g.pointwise(Pointwise::Multiply, weighted, Some(scale), ds)?;

        // dk = dS^T q, dq = dS k
        let ds_transposed = g.virtual_tensor(&self.square_transposed(self.data_type))?;
        g.reshape(ds, ds_transposed)?;
        g.matmul(ds_transposed, t.q, t.dk)?;
        let k = g.virtual_tensor(&self.tokens(qkv))?;
        g.reshape(t.k, k)?;
        g.matmul(ds, k, t.dq_accumulator)?;
        g.pointwise(Pointwise::Identity, t.dq_accumulator, None, t.dq)?;
        Ok((g, t))
    }

    /// `x` where the column is at most the row, else `-inf`.
    fn masked(&self, g: &mut Graph, x: Tensor) -> Result<Tensor> {
        let (rows, columns) = (
            g.virtual_tensor(&self.square(DataType::I32))?,
            g.virtual_tensor(&self.square(DataType::I32))?,
        );
        g.index(2, x, rows)?;
        g.index(3, x, columns)?;
        let visible = g.virtual_tensor(&self.square(DataType::Boolean))?;
        g.at_least(rows, columns, visible)?;
        let hidden = g.scalar(f32::NEG_INFINITY)?;
        let y = g.virtual_tensor(&self.square(DataType::F32))?;
        g.select(x, hidden, visible, y)?;
        Ok(y)
    }
}
