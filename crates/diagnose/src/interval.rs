//! Sets of time as sorted disjoint half-open intervals in nanoseconds. Knows nothing of what happens in them.

/// A half-open interval `[start, end)`.
pub type Interval = (i64, i64);

/// Sorted, disjoint, non-empty intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(Vec<Interval>);

impl Set {
    /// No time.
    pub fn empty() -> Set {
        Set::default()
    }

    /// The union of any intervals; empty ones vanish.
    pub fn union_of(intervals: impl IntoIterator<Item = Interval>) -> Set {
        let mut all: Vec<Interval> = vec![];
        for (start, end) in intervals.into_iter().filter(|(s, e)| e > s) {
            // Intervals that come in order need no more room than their union.
            match all.last_mut() {
                Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
                _ => all.push((start, end)),
            }
        }
        all.sort_unstable();
        Set::joined(all)
    }

    /// The union of non-empty intervals that are sorted by start.
    fn joined(mut sorted: Vec<Interval>) -> Set {
        sorted.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        sorted.shrink_to_fit();
        Set(sorted)
    }

    /// One interval.
    pub fn single(start: i64, end: i64) -> Set {
        Set::union_of([(start, end)])
    }

    /// The intervals in order.
    pub fn intervals(&self) -> &[Interval] {
        &self.0
    }

    /// Whether there is no time in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length in nanoseconds.
    pub fn total(&self) -> i64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// This or that.
    pub fn union(&self, other: &Set) -> Set {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        let merged = std::iter::from_fn(|| match (own.peek(), others.peek()) {
            (Some(first), Some(second)) if first <= second => own.next(),
            (_, Some(_)) => others.next(),
            (_, None) => own.next(),
        });
        let mut all = Vec::with_capacity(self.0.len() + other.0.len());
        all.extend(merged);
        Set::joined(all)
    }

    /// This and that.
    pub fn intersect(&self, other: &Set) -> Set {
        let mut both = vec![];
        let mut first = other.first_ending_after(self.0.first().map_or(0, |i| i.0));
        for &(start, end) in &self.0 {
            while first < other.0.len() && other.0[first].1 <= start {
                first += 1;
            }
            let mut at = first;
            while at < other.0.len() && other.0[at].0 < end {
                both.push((start.max(other.0[at].0), end.min(other.0[at].1)));
                at += 1;
            }
        }
        Set(both)
    }

    /// This without that.
    pub fn without(&self, other: &Set) -> Set {
        let mut rest = vec![];
        let mut first = other.first_ending_after(self.0.first().map_or(0, |i| i.0));
        for &(start, end) in &self.0 {
            let mut from = start;
            while first < other.0.len() && other.0[first].1 <= start {
                first += 1;
            }
            let mut at = first;
            while at < other.0.len() && other.0[at].0 < end {
                if other.0[at].0 > from {
                    rest.push((from, other.0[at].0));
                }
                from = from.max(other.0[at].1);
                at += 1;
            }
            if from < end {
                rest.push((from, end));
            }
        }
        Set(rest)
    }

    /// The part inside one interval.
    pub fn clip(&self, start: i64, end: i64) -> Set {
        Set::single(start, end).intersect(self)
    }

    /// Length of the part inside one interval.
    pub fn total_in(&self, start: i64, end: i64) -> i64 {
        let first = self.first_ending_after(start);
        self.0[first..]
            .iter()
            .take_while(|interval| interval.0 < end)
            .map(|interval| interval.1.min(end) - interval.0.max(start))
            .sum()
    }

    /// The intervals that are at least so long.
    pub fn at_least(&self, length: i64) -> Set {
        Set(self.0.iter().copied().filter(|(start, end)| end - start >= length).collect())
    }

    /// The times between the intervals.
    pub fn gaps(&self) -> impl Iterator<Item = Interval> + '_ {
        self.0.windows(2).map(|pair| (pair[0].1, pair[1].0))
    }

    fn first_ending_after(&self, time: i64) -> usize {
        self.0.partition_point(|interval| interval.1 <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sets() -> impl Strategy<Value = Set> {
        proptest::collection::vec((0_i64..60, 0_i64..9), 0..8)
            .prop_map(|v| Set::union_of(v.into_iter().map(|(s, l)| (s, s + l))))
    }

    fn points(set: &Set) -> Vec<bool> {
        (0..80).map(|t| set.intervals().iter().any(|&(s, e)| s <= t && t < e)).collect()
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets_of_points(a in sets(), b in sets(), s in 0_i64..60, l in 0_i64..20) {
            let (pa, pb) = (points(&a), points(&b));
            let both = |f: fn(bool, bool) -> bool| -> Vec<bool> {
                pa.iter().zip(&pb).map(|(&x, &y)| f(x, y)).collect()
            };
            prop_assert_eq!(points(&a.union(&b)), both(|x, y| x || y));
            prop_assert_eq!(points(&a.intersect(&b)), both(|x, y| x && y));
            prop_assert_eq!(points(&a.without(&b)), both(|x, y| x && !y));
            let inside = (s..s + l).filter(|&t| pa[t as usize]).count() as i64;
            prop_assert_eq!(a.total_in(s, s + l), inside);
            prop_assert_eq!(a.clip(s, s + l).total(), inside);
            prop_assert_eq!(a.intersect(&b).total() + a.without(&b).total(), a.total());
        }
    }
}
