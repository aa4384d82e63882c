//! Sums and maxima over slices with a shape of their own: the same bits whatever the machine and the thread count.
//!
//! A slice is summed in 32 interleaved partial sums, then halved: enough independent chains for every vector unit. Long
//! vectors are cut in chunks of fixed length first. Knows no tensors.

use super::{real::Real, workers::Workers};

const CHAINS: usize = 32;

/// Elements that one partial sum of a whole-tensor reduction covers.
pub const CHUNK: usize = 16_384;

/// The sum of `term(x)` over `x`. Call inside [`super::workers::vectorised`].
#[inline(always)]
pub fn sum_of<T: Real>(x: &[T], term: impl Fn(T) -> T) -> T {
    let mut partial = [T::ZERO; CHAINS];
    let (blocks, rest) = x.as_chunks::<CHAINS>();
    for block in blocks {
        for (p, &value) in partial.iter_mut().zip(block) {
            *p += term(value);
        }
    }
    for (p, &value) in partial.iter_mut().zip(rest) {
        *p += term(value);
    }
    halve(partial, |a, b| a + b)
}

/// The sum of `term(x, y)` over two slices of equal length.
#[inline(always)]
pub fn sum_of_pairs<T: Real>(x: &[T], y: &[T], term: impl Fn(T, T) -> T) -> T {
    let mut partial = [T::ZERO; CHAINS];
    let y = &y[..x.len()];
    let (x_blocks, x_rest) = x.as_chunks::<CHAINS>();
    let (y_blocks, y_rest) = y.as_chunks::<CHAINS>();
    for (x, y) in x_blocks.iter().zip(y_blocks) {
        for ((p, &x), &y) in partial.iter_mut().zip(x).zip(y) {
            *p += term(x, y);
        }
    }
    for ((p, &x), &y) in partial.iter_mut().zip(x_rest).zip(y_rest) {
        *p += term(x, y);
    }
    halve(partial, |a, b| a + b)
}

/// The largest element; negative infinity when there is none. NaN is passed over.
#[inline(always)]
pub fn maximum_of<T: Real>(x: &[T]) -> T {
    let mut partial = [T::NEGATIVE_INFINITY; CHAINS];
    let (blocks, rest) = x.as_chunks::<CHAINS>();
    for block in blocks {
        for (p, &value) in partial.iter_mut().zip(block) {
            *p = if value > *p { value } else { *p };
        }
    }
    for (p, &value) in partial.iter_mut().zip(rest) {
        *p = if value > *p { value } else { *p };
    }
    halve(partial, |a, b| if b > a { b } else { a })
}

#[inline(always)]
fn halve<T: Real>(mut partial: [T; CHAINS], join: impl Fn(T, T) -> T) -> T {
    let mut width = CHAINS / 2;
    while width > 0 {
        for i in 0..width {
            partial[i] = join(partial[i], partial[i + width]);
        }
        width /= 2;
    }
    partial[0]
}

/// The sum of `term(x)` over a whole tensor: chunks of [`CHUNK`] elements, their sums added in order in f64.
pub fn sum_all<T: Real>(workers: &Workers, x: &[T], term: impl Fn(T) -> T + Sync + Copy) -> f64 {
    let sums = workers.map(x.len().div_ceil(CHUNK), x.len(), |index| {
        let chunk = &x[index * CHUNK..x.len().min((index + 1) * CHUNK)];
        super::workers::vectorised(
            #[inline(always)]
            || sum_of(chunk, term).to_f64(),
        )
    });
    sums.into_iter().sum()
}

/// Whether `test` holds for every element.
pub fn all_hold<T: Real>(
    workers: &Workers,
    x: &[T],
    test: impl Fn(T) -> bool + Sync + Copy,
) -> bool {
    let found = workers.map(x.len().div_ceil(CHUNK), x.len(), |index| {
        let chunk = &x[index * CHUNK..x.len().min((index + 1) * CHUNK)];
        super::workers::vectorised(
            #[inline(always)]
            || chunk.iter().fold(true, |all, &value| all & test(value)),
        )
    });
    found.into_iter().all(|holds| holds)
}
