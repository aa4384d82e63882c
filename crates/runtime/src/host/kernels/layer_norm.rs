//! layer_norm over the last axis and its gradient.
//!
//! Two passes for mean and variance, in the number format of computation. Knows rows only.

use super::{
    real::Real,
    reduce::{sum_of, sum_of_pairs},
    rows::{Rows, RowsMut, rows_per_piece},
    workers::{Workers, vectorised},
};

/// `y = (x - mean) rstd gamma + beta`, `rstd = 1 / sqrt(variance + epsilon)`; `mean` and `rstd` hold one value a row.
#[expect(clippy::too_many_arguments, reason = "the operands of the operator")]
pub fn layer_norm<T: Real>(
    workers: &Workers,
    x: Rows<T>,
    gamma: &[T],
    beta: &[T],
    epsilon: f64,
    y: RowsMut<T>,
    mean: &mut [T],
    rstd: &mut [T],
) {
    let piece = rows_per_piece(x.width);
    let elements = x.count * x.width;
    let share = T::from_f64(1.0 / x.width as f64);
    let epsilon = T::from_f64(epsilon);
    let items: Vec<_> = y
        .groups(piece)
        .into_iter()
        .zip(mean.chunks_mut(piece).zip(rstd.chunks_mut(piece)))
        .enumerate()
        .collect();
    workers.each(items, elements, |(index, (mut y, (mean, rstd)))| {
        vectorised(
            #[inline(always)]
            || {
                for r in 0..y.count {
                    let x = x.row(index * piece + r);
                    let centre = sum_of(x, |v| v) * share;
                    let variance = sum_of(x, |v| (v - centre) * (v - centre)) * share;
                    let scale = T::ONE / (variance + epsilon).square_root();
                    for (((y, &x), &gamma), &beta) in
                        y.row(r).iter_mut().zip(x).zip(gamma).zip(beta)
                    {
                        *y = (x - centre) * scale * gamma + beta;
                    }
                    mean[r] = centre;
                    rstd[r] = scale;
                }
            },
        );
    });
}

/// With n = (x - mean) rstd and g = dy gamma: `dx = rstd (g - avg(g) - n avg(g n))`, `dgamma = sum dy n`, `dbeta = sum dy`.
///
/// The sums over rows are taken piece by piece (a length fixed by the shape), pieces in order.
#[expect(clippy::too_many_arguments, reason = "the operands of the operator")]
pub fn layer_norm_gradient<T: Real>(
    workers: &Workers,
    dy: Rows<T>,
    x: Rows<T>,
    gamma: &[T],
    mean: &[T],
    rstd: &[T],
    dx: RowsMut<T>,
    dgamma: &mut [T],
    dbeta: &mut [T],
) {
    let width = x.width;
    let piece = rows_per_piece(width);
    let share = T::from_f64(1.0 / width as f64);
    let pieces = x.count.div_ceil(piece);
    let mut partial = vec![T::ZERO; pieces * 2 * width];
    let items: Vec<_> =
        dx.groups(piece).into_iter().zip(partial.chunks_mut(2 * width)).enumerate().collect();
    workers.each(items, x.count * width, |(index, (mut dx, partial))| {
        let (gammas, betas) = partial.split_at_mut(width);
        vectorised(
            #[inline(always)]
            || {
                for r in 0..dx.count {
                    let row = index * piece + r;
                    let (x, dy) = (x.row(row), dy.row(row));
                    let (centre, scale) = (mean[row], rstd[row]);
                    // dx holds n until it is overwritten.
                    let dx = dx.row(r);
                    for ((((n, &x), &dy), gammas), betas) in
                        dx.iter_mut().zip(x).zip(dy).zip(gammas.iter_mut()).zip(betas.iter_mut())
                    {
                        *n = (x - centre) * scale;
                        *gammas += dy * *n;
                        *betas += dy;
                    }
                    let average = sum_of_pairs(dy, gamma, |dy, gamma| dy * gamma) * share;
                    let along = triple(dy, gamma, dx) * share;
                    for ((dx, &dy), &gamma) in dx.iter_mut().zip(dy).zip(gamma) {
                        *dx = scale * (dy * gamma - average - *dx * along);
                    }
                }
            },
        );
    });
    dgamma.fill(T::ZERO);
    dbeta.fill(T::ZERO);
    for partial in partial.chunks(2 * width) {
        for (out, part) in [(&mut *dgamma, &partial[..width]), (&mut *dbeta, &partial[width..])] {
            out.iter_mut().zip(part).for_each(|(out, &part)| *out += part);
        }
    }
}

/// The sum of a b c over three rows of equal length.
#[inline(always)]
fn triple<T: Real>(a: &[T], b: &[T], c: &[T]) -> T {
    const CHAINS: usize = 32;
    let mut partial = [T::ZERO; CHAINS];
    let (b, c) = (&b[..a.len()], &c[..a.len()]);
    for ((a, b), c) in a.chunks(CHAINS).zip(b.chunks(CHAINS)).zip(c.chunks(CHAINS)) {
        for (((p, &a), &b), &c) in partial.iter_mut().zip(a).zip(b).zip(c) {
            *p += a * b * c;
        }
    }
    sum_of(&partial, |v| v)
}
