//! Whether two strided sets of bytes have a byte in common, exactly: interleaved columns of one buffer overlap as
//! ranges and are disjoint as sets.
//!
//! Knows numbers only. A window is a start and axes `(stride, extent)`, the innermost being the bytes of one element;
//! two windows meet where `sum x_k * w_k = t` has a solution with `0 <= x_k < n_k` over the axes of both.

use graph::Strided;

/// A set of bytes: `start + rank * per_rank + sum i_k * stride_k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteSet {
    start: usize,
    per_rank: usize,
    /// Pairs of stride and extent, both positive, without axes of extent 1.
    axes: Vec<(usize, usize)>,
}

impl ByteSet {
    /// The bytes of a window whose buffer starts at `base`, elements being `width` bytes; `None` where it is empty.
    pub fn new(base: usize, elements: &Strided, width: usize) -> Option<ByteSet> {
        if elements.shape.elements() == 0 || width == 0 {
            return None;
        }
        let axes = elements.shape.0.iter().zip(&elements.strides);
        let mut axes: Vec<(usize, usize)> =
            axes.map(|(&extent, &stride)| (stride * width, extent)).collect();
        axes.push((1, width));
        axes.retain(|&(stride, extent)| stride > 0 && extent > 1);
        let (start, per_rank) = (base + elements.offset * width, elements.per_rank * width);
        Some(ByteSet { start, per_rank, axes })
    }

    /// A range of bytes; `None` where it is empty.
    pub fn range(start: usize, bytes: usize) -> Option<ByteSet> {
        let axes = if bytes > 1 { vec![(1, bytes)] } else { vec![] };
        (bytes > 0).then_some(ByteSet { start, per_rank: 0, axes })
    }

    /// First byte and one past the last, over all ranks.
    pub fn span(&self, ranks: usize) -> (usize, usize) {
        let reach: usize = self.axes.iter().map(|(stride, extent)| stride * (extent - 1)).sum();
        (self.start, self.start + self.per_rank * ranks.saturating_sub(1) + reach + 1)
    }
}

/// Whether some rank sees a common byte.
pub(crate) fn intersect(a: &ByteSet, b: &ByteSet, ranks: usize) -> bool {
    let at = |set: &ByteSet, rank: usize| (set.start + set.per_rank * rank) as i128;
    let ranks = if a.per_rank == b.per_rank { 1 } else { ranks };
    let mut axes: Vec<(i128, i128)> =
        a.axes.iter().chain(&b.axes).map(|&(w, n)| (w as i128, n as i128)).collect();
    // i over a and m - 1 - j over b: all weights are positive.
    let shift: i128 = b.axes.iter().map(|&(w, n)| (w * (n - 1)) as i128).sum();
    merge(&mut axes);
    axes.reverse();
    let mut reach = vec![0; axes.len() + 1];
    let mut divisor = vec![0; axes.len() + 1];
    for k in (0..axes.len()).rev() {
        reach[k] = reach[k + 1] + axes[k].0 * (axes[k].1 - 1);
        divisor[k] = gcd(divisor[k + 1], axes[k].0);
    }
    let system = System { axes, reach, divisor };
    (0..ranks).any(|rank| {
        let mut budget = BUDGET;
        system.solve(0, at(b, rank) - at(a, rank) + shift, &mut budget)
    })
}

/// Joins axes exactly: `x1 * k * w + x2 * w` with `x2 < n2` and `k <= n2` covers every multiple of `w` in its range.
/// Leaves axes in rising order of weight.
fn merge(axes: &mut Vec<(i128, i128)>) {
    axes.sort_unstable();
    let mut at = 0;
    while at + 1 < axes.len() {
        let ((w, n), (next, extent)) = (axes[at], axes[at + 1]);
        if next % w == 0 && next / w <= n {
            axes[at].1 = (extent - 1) * (next / w) + n;
            axes.remove(at + 1);
        } else {
            at += 1;
        }
    }
}

/// Branches of the search after which two windows count as overlapping: a plan may be refused, never wrongly accepted.
const BUDGET: u32 = 200_000;

struct System {
    /// Weight and extent, largest weight first.
    axes: Vec<(i128, i128)>,
    /// Largest sum from an axis on.
    reach: Vec<i128>,
    /// Greatest common divisor of weights from an axis on.
    divisor: Vec<i128>,
}

impl System {
    fn solve(&self, axis: usize, total: i128, budget: &mut u32) -> bool {
        if total < 0 || total > self.reach[axis] {
            return false;
        }
        let Some(&(weight, extent)) = self.axes.get(axis) else { return total == 0 };
        if total % self.divisor[axis] != 0 {
            return false;
        }
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        let rest = self.reach[axis + 1];
        let first = (total - rest + weight - 1).max(0) / weight;
        let last = (total / weight).min(extent - 1);
        (first..=last).any(|x| self.solve(axis + 1, total - x * weight, budget))
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if a == 0 { b } else { gcd(b % a, a) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graph::Shape;
    use proptest::prelude::*;

    use super::*;

    fn bytes(base: usize, window: &Strided, width: usize, rank: usize) -> BTreeSet<usize> {
        let elements = 0..window.shape.elements();
        let first = |index| base + (window.position(index) + window.per_rank * rank) * width;
        elements
            .flat_map(|index| (0..width).map(move |byte| (index, byte)))
            .map(|(index, byte)| first(index) + byte)
            .collect()
    }

    fn window() -> impl Strategy<Value = (usize, Strided, usize)> {
        let axes = prop::collection::vec((1_usize..5, 0_usize..14), 0..4);
        let numbers =
            (0_usize..60, 0_usize..20, prop::sample::select(vec![0, 0, 7, 16]), 1_usize..5);
        (axes, numbers).prop_map(|(axes, (base, offset, per_rank, width))| {
            let (extents, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            (base, Strided { offset, per_rank, shape: Shape(extents), strides }, width)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn exact_against_brute_force(a in window(), b in window()) {
            let ranks = 3;
            let sets = [&a, &b].map(|(base, w, width)| ByteSet::new(*base, w, *width).unwrap());
            let expected = (0..ranks).any(|rank| {
                let own = bytes(a.0, &a.1, a.2, rank);
                bytes(b.0, &b.1, b.2, rank).iter().any(|byte| own.contains(byte))
            });
            prop_assert_eq!(intersect(&sets[0], &sets[1], ranks), expected);
        }
    }

    #[test]
    fn columns_of_packed_projections_are_disjoint() {
        let (batch, time, heads, width) = (32, 1024, 12, 64);
        let packed = Strided::contiguous(&Shape::from([batch, time, 3, heads, width]));
        let column = |index: usize| {
            let own = packed.slice(2, index, 1).permute(&[0, 3, 1, 4, 2]);
            ByteSet::new(4096, &own, 2).unwrap()
        };
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            assert!(!intersect(&column(i), &column(j), 2));
        }
        assert!(intersect(&column(1), &column(1), 2));
        let mut wrong = packed.slice(2, 1, 1).permute(&[0, 3, 1, 4, 2]);
        wrong.strides[1] += 1;
        assert!(intersect(&column(2), &ByteSet::new(4096, &wrong, 2).unwrap(), 2));
    }
}
