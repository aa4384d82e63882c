//! cross_entropy over integer labels with label smoothing, and its gradient.
//!
//! Columns from `classes` on are padding: they count as negative infinity. Knows rows and labels only.

use super::{
    real::Real,
    reduce::{maximum_of, sum_of},
    rows::{Rows, RowsMut, rows_per_piece},
    workers::{Workers, vectorised},
};

/// The attributes of the loss.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Rows with this label count for nothing.
    pub ignore_index: i64,
    /// Share of the target that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// Columns that are classes.
    pub classes: usize,
}

/// A label that is neither ignored nor a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLabel {
    /// The row it was found in.
    pub row: usize,
    /// Its value.
    pub label: i64,
}

/// `lse[r] = ln sum exp(logits[r])`; returns the sum over counted rows of
/// `lse - (1-s) logits[label] - s mean(logits)`, and the number of counted rows.
pub fn cross_entropy<T: Real>(
    workers: &Workers,
    logits: Rows<T>,
    labels: &[i64],
    loss: Loss,
    lse: &mut [T],
) -> Result<(f64, f64), BadLabel> {
    check(labels, loss)?;
    let piece = rows_per_piece(logits.width);
    let pieces = logits.count.div_ceil(piece);
    let mut sums = vec![0.0f64; pieces];
    let items: Vec<_> = lse.chunks_mut(piece).zip(&mut sums).enumerate().collect();
    workers.each(items, logits.count * logits.width, |(index, (lse, sum))| {
        for (r, lse) in lse.iter_mut().enumerate() {
            let row = index * piece + r;
            let x = &logits.row(row)[..loss.classes];
            let (largest, total, all) = vectorised(
                #[inline(always)]
                || {
                    let largest = maximum_of(x);
                    let total = sum_of(x, |v| (v - largest).exponential());
                    let all = if loss.label_smoothing > 0.0 { sum_of(x, |v| v) } else { T::ZERO };
                    (largest, total, all)
                },
            );
            let value = largest.to_f64() + total.to_f64().ln();
            *lse = T::from_f64(value);
            if labels[row] != loss.ignore_index {
                let target = x[labels[row] as usize].to_f64();
                let smoothing = loss.label_smoothing;
                *sum += value
                    - (1.0 - smoothing) * target
                    - smoothing * all.to_f64() / loss.classes as f64;
            }
        }
    });
    let count = labels.iter().filter(|&&label| label != loss.ignore_index).count();
    Ok((sums.into_iter().sum(), count as f64))
}

/// `dlogits = dloss (softmax - (1-s) onehot - s / classes)` for counted rows; 0 for the others and for padding.
pub fn cross_entropy_gradient<T: Real>(
    workers: &Workers,
    logits: Rows<T>,
    labels: &[i64],
    lse: &[T],
    dloss: f64,
    loss: Loss,
    dlogits: RowsMut<T>,
) -> Result<(), BadLabel> {
    check(labels, loss)?;
    let piece = rows_per_piece(logits.width);
    let elements = logits.count * logits.width;
    let items: Vec<_> = dlogits.groups(piece).into_iter().enumerate().collect();
    let scale = T::from_f64(dloss);
    let even = T::from_f64(dloss * loss.label_smoothing / loss.classes as f64);
    let target = T::from_f64(dloss * (1.0 - loss.label_smoothing));
    workers.each(items, elements, |(index, mut dlogits)| {
        for r in 0..dlogits.count {
            let row = index * piece + r;
            let (out, padding) = dlogits.row(r).split_at_mut(loss.classes);
            padding.fill(T::ZERO);
            if labels[row] == loss.ignore_index {
                out.fill(T::ZERO);
                continue;
            }
            let x = &logits.row(row)[..loss.classes];
            let lse = lse[row];
            vectorised(
                #[inline(always)]
                || {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = (x - lse).exponential() * scale - even;
                    }
                },
            );
            let hit = &mut out[labels[row] as usize];
            *hit -= target;
        }
    });
    Ok(())
}

fn check(labels: &[i64], loss: Loss) -> Result<(), BadLabel> {
    let bad = labels
        .iter()
        .position(|&l| l != loss.ignore_index && !(0..loss.classes as i64).contains(&l));
    bad.map_or(Ok(()), |row| Err(BadLabel { row, label: labels[row] }))
}
