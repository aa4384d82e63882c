//! softmax over the last axis and its gradient.
//!
//! Knows rows only.

use super::{
    real::Real,
    reduce::{maximum_of, sum_of, sum_of_pairs},
    rows::{Rows, RowsMut, rows_per_piece},
    workers::{Workers, vectorised},
};

/// `y = exp(x - max) / sum exp(x - max)` for each row.
pub fn softmax<T: Real>(workers: &Workers, x: Rows<T>, y: RowsMut<T>) {
    let piece = rows_per_piece(x.width);
    let elements = x.count * x.width;
    let items: Vec<_> = y.groups(piece).into_iter().enumerate().collect();
    workers.each(items, elements, |(index, mut y)| {
        vectorised(
            #[inline(always)]
            || {
                for r in 0..y.count {
                    let x = x.row(index * piece + r);
                    let y = y.row(r);
                    let largest = maximum_of(x);
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = (x - largest).exponential();
                    }
                    let scale = T::ONE / sum_of(y, |v| v);
                    y.iter_mut().for_each(|y| *y *= scale);
                }
            },
        );
    });
}

/// `dx = y (dy - sum(y dy))` for each row.
pub fn softmax_gradient<T: Real>(workers: &Workers, y: Rows<T>, dy: Rows<T>, dx: RowsMut<T>) {
    let piece = rows_per_piece(y.width);
    let elements = y.count * y.width;
    let items: Vec<_> = dx.groups(piece).into_iter().enumerate().collect();
    workers.each(items, elements, |(index, mut dx)| {
        vectorised(
            #[inline(always)]
            || {
                for r in 0..dx.count {
                    let (y, dy) = (y.row(index * piece + r), dy.row(index * piece + r));
                    let along = sum_of_pairs(y, dy, |y, dy| y * dy);
                    for ((dx, &y), &dy) in dx.row(r).iter_mut().zip(y).zip(dy) {
                        *dx = y * (dy - along);
                    }
                }
            },
        );
    });
}
