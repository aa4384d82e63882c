//! The collectives of two ranks, matched: by sequence number where recorded, else in order.
//!
//! Knows one process group of two participants; nothing of the others.

use std::collections::BTreeMap;

use timeline::{Detail, FactValue, Timeline};

use super::{
    Group, Participant,
    clock::{Moment, Relation},
};
use crate::device::Work;

/// A collective as one participant saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Index among the device's operations.
    pub index: usize,
    /// Index among the job's names of operations.
    pub operation: u32,
    /// Bytes of one rank's message.
    pub bytes: Option<u64>,
    /// Ranks of the group as stated.
    pub group_size: Option<u32>,
    together: bool,
    sequence: Option<u64>,
    end: i64,
    launched: bool,
}

/// Pairs whose ends mark one moment: everybody leaves together.
fn ends_together(operation: &str) -> bool {
    matches!(operation, "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier")
}

/// The collectives of a participant by group, each group's in order; `operations` collects the names of operations.
pub fn seen(
    participant: &Participant,
    timeline: &Timeline,
    operations: &mut Vec<String>,
) -> BTreeMap<Group, Vec<Seen>> {
    let mut by_name: BTreeMap<&str, Vec<Seen>> = BTreeMap::new();
    for (index, operation) in participant.device.operations.iter().enumerate() {
        if operation.work != Work::Collective {
            continue;
        }
        let detail = timeline.spans.details(operation.span).find_map(|d| match d {
            Detail::Collective { operation, group, ranks, bytes, sequence } => {
                Some((operation.as_str(), group.as_str(), *ranks, *bytes, *sequence))
            }
            _ => None,
        });
        let (name, group, ranks, bytes, sequence) = detail.unwrap_or_default();
        let known = operations.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            operations.push(name.to_owned());
            operations.len() - 1
        });
        by_name.entry(group).or_default().push(Seen {
            index,
            operation: number as u32,
            together: ends_together(name),
            bytes,
            sequence,
            group_size: ranks,
            end: operation.end,
            launched: operation.launch.is_some(),
        });
    }
    by_name
        .into_iter()
        .map(|(name, seen)| {
            let key = format!("group.{name}.ranks");
            let ranks = timeline.find_fact(None, &key).map_or(String::new(), |fact| match fact {
                FactValue::Text(ranks) => ranks.clone(),
                _ => String::new(),
            });
            ((name.to_owned(), ranks), seen)
        })
        .collect()
}

/// How the collectives of one rank correspond to those of another.
#[derive(Debug)]
pub struct Pairing {
    /// `(position in the first, position in the second)`, rising.
    pairs: Vec<(usize, usize)>,
    /// The second's clock against the first's.
    pub relation: Relation,
    /// Ends of operations that end together.
    pub moments: Vec<Moment>,
    /// Whether there were any: a broadcast's root leaves early, so its ends are no clock.
    pub strong: bool,
}

impl Pairing {
    fn of(first: &[Seen], second: &[Seen], pairs: Vec<(usize, usize)>) -> Pairing {
        let moment =
            |&(i, j): &(usize, usize)| (first[i].end, second[j].end.saturating_sub(first[i].end));
        let mut moments: Vec<Moment> =
            pairs.iter().filter(|(i, _)| first[*i].together).map(moment).collect();
        let strong = !moments.is_empty();
        if moments.is_empty() {
            // Only rooted or pairwise operations: their ends are a weak clock, better than none.
            moments = pairs.iter().map(moment).collect();
        }
        Pairing { pairs, relation: Relation::constant(&moments), moments, strong }
    }

    /// Mean distance of the moments from a constant offset.
    fn deviation(&self) -> i64 {
        let offset = self.relation.offset;
        let total: i128 = self.moments.iter().map(|m| i128::from(m.1 - offset).abs()).sum();
        i64::try_from(total / self.moments.len().max(1) as i128).unwrap_or(i64::MAX / 8)
    }

    /// The position in the second of the operation at a position of the first.
    pub fn partner(&self, position: usize) -> Option<usize> {
        let found = self.pairs.binary_search_by_key(&position, |pair| pair.0).ok()?;
        Some(self.pairs[found].1)
    }
}

/// Matches the collectives of two participants of one group.
pub fn pair(first: &[Seen], second: &[Seen]) -> Option<Pairing> {
    let mut pairing = by_sequence(first, second).or_else(|| by_order(first, second))?;
    if pairing.strong {
        pairing.relation = pairing.relation.with_drift(&pairing.moments);
    }
    Some(pairing)
}

fn by_sequence(first: &[Seen], second: &[Seen]) -> Option<Pairing> {
    let numbered = |seen: &[Seen]| -> Option<BTreeMap<u64, usize>> {
        let numbers: Option<Vec<u64>> = seen.iter().map(|s| s.sequence).collect();
        let map: BTreeMap<u64, usize> = numbers?.into_iter().zip(0..).collect();
        (map.len() == seen.len()).then_some(map)
    };
    let (a, b) = (numbered(first)?, numbered(second)?);
    let mut pairs: Vec<(usize, usize)> =
        a.iter().filter_map(|(number, &i)| Some((i, *b.get(number)?))).collect();
    if pairs.is_empty() {
        return None;
    }
    pairs.sort_unstable();
    Some(Pairing::of(first, second, pairs))
}

fn by_order(first: &[Seen], second: &[Seen]) -> Option<Pairing> {
    // Leading operations without a launch record were launched before recording began; the other rank may have
    // fewer of them. Then the shift whose sizes agree and whose offset is smallest and steady: wall clocks agree to
    // milliseconds.
    let lead = |seen: &[Seen]| seen.iter().position(|s| s.launched).unwrap_or(0);
    let (skip_first, skip_second) = (lead(first), lead(second));
    let (a, b) = (&first[skip_first..], &second[skip_second..]);
    let reach = a.len().max(b.len()).min(256) as i64;
    let least = (a.len().min(b.len()) * 3).div_ceil(5).max(1);
    let mut best: Option<(i64, Pairing)> = None;
    for shift in -reach..=reach {
        let from = usize::try_from(-shift).unwrap_or(0);
        let to = usize::try_from(b.len() as i64 - shift).unwrap_or(0).min(a.len());
        let pairs =
            (from..to).map(|i| (i, usize::try_from(i as i64 + shift).unwrap_or(usize::MAX)));
        let alike =
            |(i, j): (usize, usize)| a[i].operation == b[j].operation && a[i].bytes == b[j].bytes;
        if to.saturating_sub(from) < least || !pairs.clone().all(alike) {
            continue;
        }
        let pairing = Pairing::of(a, b, pairs.collect());
        // Equal collectives in bursts: one off, all but the pairs at a burst's edge agree as well, those not at all.
        let distance = pairing
            .relation
            .offset
            .saturating_abs()
            .saturating_add(4 * pairing.deviation().min(i64::MAX / 8));
        if best.as_ref().is_none_or(|(least, _)| distance < *least) {
            best = Some((distance, pairing));
        }
    }
    let (_, mut pairing) = best?;
    for pair in &mut pairing.pairs {
        *pair = (pair.0 + skip_first, pair.1 + skip_second);
    }
    Some(pairing)
}
