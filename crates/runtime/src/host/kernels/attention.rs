//! Attention by head, streaming over tiles of keys with a running maximum and sum; the gradient recomputes the weights
//! from the saved log-sum-exp.
//!
//! Reads q, k, v through any strides over batch, head and time. Knows no operators.

use super::{
    matrix::{Matrix, product},
    microkernel::Product,
    reduce::{maximum_of, sum_of, sum_of_pairs},
    strided::Walk,
    workers::{Workers, vectorised},
};

/// Rows of queries handled at once.
const QUERIES: usize = 64;
/// Keys handled at once.
const KEYS: usize = 512;

/// q, k, v or one of their gradients: [batch, head, time, width], the last axis contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, T> {
    /// Starts at element (0, 0, 0, 0).
    pub data: &'a [T],
    /// Batch, heads, time, width.
    pub shape: [usize; 4],
    /// Elements between neighbours along batch, head and time.
    pub strides: [usize; 3],
}

impl<'a, T: Product> Heads<'a, T> {
    /// Rows `start..end` in time of one head as a matrix [rows, width].
    fn rows(&self, index: usize, start: usize, end: usize) -> Matrix<'a, T> {
        let (batch, head) = (index / self.shape[1], index % self.shape[1]);
        let [b, h, t] = self.strides;
        let data = &self.data[(batch * b + head * h + start * t).min(self.data.len())..];
        Matrix::strided(data, end - start, self.shape[3], t)
    }
}

/// A tensor [batch, head, time, width] to write, at any strides.
#[derive(Debug)]
pub struct HeadsMut<'a, T> {
    /// Starts at element (0, 0, 0, 0).
    pub data: &'a mut [T],
    /// Elements between neighbours along the four axes.
    pub strides: [usize; 4],
}

impl<T: Product> HeadsMut<'_, T> {
    fn write(&mut self, heads: usize, index: usize, time: usize, width: usize, values: &[T]) {
        let [b, h, t, w] = self.strides;
        let start = index / heads * b + index % heads * h;
        Walk::new(&[time, width], &[t, w]).scatter(values, &mut self.data[start..]);
    }
}

/// What attention computes besides its operands.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Query i sees keys up to i, counted from the ends of both.
    pub causal: bool,
    /// Factor on the products of queries and keys.
    pub scale: f64,
}

impl Options {
    /// Number of keys that query `row` sees.
    fn visible(&self, row: usize, queries: usize, keys: usize) -> usize {
        if self.causal { (row + 1 + keys).saturating_sub(queries).min(keys) } else { keys }
    }
}

/// `out = softmax(scale q k^T) v` and the log-sum-exp of each row of scores, [batch, head, time] dense.
pub fn attention<T: Product>(
    workers: &Workers,
    [q, k, v]: [Heads<T>; 3],
    options: Options,
    mut out: HeadsMut<T>,
    lse: &mut [T],
) {
    let [batch, heads, time, width] = [q.shape[0], q.shape[1], q.shape[2], v.shape[3]];
    let group = workers.threads() * 4;
    for first in (0..batch * heads).step_by(group) {
        let count = group.min(batch * heads - first);
        let work = count * time * k.shape[2] * width;
        let results = workers.map(count, work, |i| forward_head([q, k, v], first + i, options));
        for (i, (values, sums)) in results.into_iter().enumerate() {
            let index = first + i;
            out.write(heads, index, time, width, &values);
            lse[index * time..(index + 1) * time].copy_from_slice(&sums);
        }
    }
}

fn forward_head<T: Product>(
    [q, k, v]: [Heads<T>; 3],
    index: usize,
    options: Options,
) -> (Vec<T>, Vec<T>) {
    let (queries, keys, width) = (q.shape[2], k.shape[2], v.shape[3]);
    let mut out = vec![T::ZERO; queries * width];
    let mut lse = vec![T::ZERO; queries];
    let mut scores = vec![T::ZERO; QUERIES * KEYS.min(keys)];
    for start in (0..queries).step_by(QUERIES) {
        let end = (start + QUERIES).min(queries);
        let rows = end - start;
        let out = &mut out[start * width..end * width];
        let mut largest = [T::NEGATIVE_INFINITY; QUERIES];
        let mut total = [T::ZERO; QUERIES];
        let seen = options.visible(end - 1, queries, keys);
        for key in (0..seen).step_by(KEYS) {
            let key_end = (key + KEYS).min(seen);
            let tile = key_end - key;
            let scores = &mut scores[..rows * tile];
            let q = q.rows(index, start, end);
            let scale = T::from_f64(options.scale);
            product(q, k.rows(index, key, key_end).transposed(), scores, tile, scale, false);
            vectorised(
                #[inline(always)]
                || {
                    for (r, scores) in scores.chunks_exact_mut(tile).enumerate() {
                        let visible = options.visible(start + r, queries, keys);
                        let (scores, hidden) =
                            scores.split_at_mut(visible.saturating_sub(key).min(tile));
                        hidden.fill(T::ZERO);
                        let now = maximum_of(scores);
                        let new = if now > largest[r] { now } else { largest[r] };
                        if new == T::NEGATIVE_INFINITY {
                            scores.fill(T::ZERO);
                            continue;
                        }
                        for score in scores.iter_mut() {
                            *score = (*score - new).exponential();
                        }
                        if key > 0 {
                            let shrink = (largest[r] - new).exponential();
                            total[r] *= shrink;
                            out[r * width..(r + 1) * width].iter_mut().for_each(|o| *o *= shrink);
                        }
                        total[r] += sum_of(scores, |s| s);
                        largest[r] = new;
                    }
                },
            );
            let weights = Matrix::dense(scores, rows, tile);
            let v = v.rows(index, key, key_end);
            product(weights, v, out, width, T::ONE, key > 0);
        }
        for r in 0..rows {
            let inverse = if total[r] > T::ZERO { T::ONE / total[r] } else { T::ZERO };
            out[r * width..(r + 1) * width].iter_mut().for_each(|o| *o *= inverse);
            lse[start + r] = T::from_f64(largest[r].to_f64() + total[r].to_f64().ln());
        }
    }
    (out, lse)
}

/// With P = exp(scale q k^T - lse), D = rowsum(dout out): `dv = P^T dout`, `dS = P (dout v^T - D) scale`,
/// `dq = dS k`, `dk = dS^T q`.
pub fn attention_gradient<T: Product>(
    workers: &Workers,
    [q, k, v]: [Heads<T>; 3],
    [out, dout]: [Heads<T>; 2],
    lse: &[T],
    options: Options,
    [mut dq, mut dk, mut dv]: [HeadsMut<T>; 3],
) {
    let [batch, heads, time, width] = q.shape;
    let (keys, value_width) = (k.shape[2], v.shape[3]);
    let group = workers.threads() * 4;
    for first in (0..batch * heads).step_by(group) {
        let count = group.min(batch * heads - first);
        let work = count * time * keys * width;
        let results = workers.map(count, work, |i| {
            let index = first + i;
            let lse = &lse[index * time..(index + 1) * time];
            gradient_head([q, k, v], [out, dout], lse, index, options)
        });
        for (i, [gq, gk, gv]) in results.into_iter().enumerate() {
            dq.write(heads, first + i, time, width, &gq);
            dk.write(heads, first + i, keys, width, &gk);
            dv.write(heads, first + i, keys, value_width, &gv);
        }
    }
}

fn gradient_head<T: Product>(
    [q, k, v]: [Heads<T>; 3],
    [out, dout]: [Heads<T>; 2],
    lse: &[T],
    index: usize,
    options: Options,
) -> [Vec<T>; 3] {
    let (queries, keys, width, value_width) = (q.shape[2], k.shape[2], q.shape[3], v.shape[3]);
    let mut dq = vec![T::ZERO; queries * width];
    let mut dk = vec![T::ZERO; keys * width];
    let mut dv = vec![T::ZERO; keys * value_width];
    let tile_elements = QUERIES * KEYS.min(keys);
    let (mut weights, mut slopes) = (vec![T::ZERO; tile_elements], vec![T::ZERO; tile_elements]);
    let scale = T::from_f64(options.scale);
    for start in (0..queries).step_by(QUERIES) {
        let end = (start + QUERIES).min(queries);
        let rows = end - start;
        let (q, dout) = (q.rows(index, start, end), dout.rows(index, start, end));
        let out = out.rows(index, start, end);
        let mut along = [T::ZERO; QUERIES];
        for (r, along) in along.iter_mut().enumerate().take(rows) {
            let row = |m: &Matrix<'_, T>| r * m.row_stride..r * m.row_stride + value_width;
            *along = sum_of_pairs(&dout.data[row(&dout)], &out.data[row(&out)], |a, b| a * b);
        }
        let seen = options.visible(end - 1, queries, keys);
        for key in (0..seen).step_by(KEYS) {
            let key_end = (key + KEYS).min(seen);
            let tile = key_end - key;
            let (weights, slopes) = (&mut weights[..rows * tile], &mut slopes[..rows * tile]);
            let (k, v) = (k.rows(index, key, key_end), v.rows(index, key, key_end));
            product(q, k.transposed(), weights, tile, scale, false);
            product(dout, v.transposed(), slopes, tile, T::ONE, false);
            vectorised(
                #[inline(always)]
                || {
                    let pairs = weights.chunks_exact_mut(tile).zip(slopes.chunks_exact_mut(tile));
                    for (r, (weights, slopes)) in pairs.enumerate() {
                        let row = start + r;
                        let visible =
                            options.visible(row, queries, keys).saturating_sub(key).min(tile);
                        let lse = lse[row];
                        weights[visible..].fill(T::ZERO);
                        slopes[visible..].fill(T::ZERO);
                        let along = along[r];
                        for (w, s) in weights[..visible].iter_mut().zip(&mut slopes[..visible]) {
                            *w = (*w - lse).exponential();
                            *s = *w * (*s - along) * scale;
                        }
                    }
                },
            );
            let (weights, slopes) =
                (Matrix::dense(weights, rows, tile), Matrix::dense(slopes, rows, tile));
            let dv = &mut dv[key * value_width..key_end * value_width];
            product(weights.transposed(), dout, dv, value_width, T::ONE, true);
            let dk = &mut dk[key * width..key_end * width];
            product(slopes.transposed(), q, dk, width, T::ONE, true);
            let dq = &mut dq[start * width..end * width];
            product(slopes, k, dq, width, T::ONE, true);
        }
    }
    [dq, dk, dv]
}
