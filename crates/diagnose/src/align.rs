//! Ranks on one clock: collectives matched per process group, clock offsets from their ends, arrivals.
//!
//! Knows devices; nothing of accounts or causes.

use std::collections::BTreeMap;

use rayon::prelude::*;
use timeline::{Detail, FactValue, Timeline};

use crate::device::{Device, Operation, Work};

/// One device of one rank in the job.
#[derive(Debug)]
pub struct Participant {
    /// Rank number.
    pub rank: u32,
    /// Index of the rank's recording among the job's inputs.
    pub input: usize,
    /// Its device.
    pub device: Device,
}

/// A collective that was found on several ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// Process group.
    pub group: String,
    /// Operation.
    pub operation: String,
    /// Bytes of one rank's message.
    pub bytes: u64,
    /// Ranks of the group as stated; at least those found.
    pub group_size: u32,
    /// `(participant, operation index)` of each rank found.
    pub members: Vec<(usize, usize)>,
    /// From the last arrival to the end, on the rank where it was longest.
    pub transfer: i64,
    /// The longest time any rank waited in it.
    pub wait: i64,
}

/// How the ranks' clocks relate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// For each participant: nanoseconds its clock is ahead of the first participant's; `None` where nothing matched.
    pub offsets: Vec<Option<i64>>,
    /// Median absolute deviation of the ends after correction.
    pub residual: i64,
    /// Collectives matched.
    pub matched: Vec<Matched>,
    /// `full`, `partial`, `one_rank` or `unmatched`.
    pub split: &'static str,
}

/// A collective as one participant saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    index: usize,
    /// Index among the job's names of operations.
    operation: u32,
    together: bool,
    bytes: Option<u64>,
    sequence: Option<u64>,
    group_size: Option<u32>,
    end: i64,
    launched: bool,
}

/// Pairs whose ends mark one moment: everybody leaves together.
fn ends_together(operation: &str) -> bool {
    matches!(operation, "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier")
}

/// A process group: its name, and its ranks where stated, since different groups may bear one name.
type Group = (String, String);

/// The participants that have collectives of a group, and their collectives in order.
#[derive(Debug, Default)]
struct Members {
    seen: Vec<(usize, Vec<Seen>)>,
    /// Position in `seen` of the one with most collectives: a recording that was cut off must not decide.
    reference: usize,
    /// How each of `seen` corresponds to the reference.
    pairings: Vec<Option<Pairing>>,
}

/// Matches the collectives of all participants and marks when all had arrived.
///
/// `timelines` are the job's recordings, indexed by [`Participant::input`].
pub fn align(participants: &mut [Participant], timelines: &[&Timeline]) -> Clock {
    let mut operations: Vec<String> = vec![];
    let mut groups: BTreeMap<Group, Members> = BTreeMap::new();
    for (index, participant) in participants.iter().enumerate() {
        let found = seen(participant, timelines[participant.input], &mut operations);
        for (group, seen) in found {
            groups.entry(group).or_default().seen.push((index, seen));
        }
    }
    groups.values_mut().collect::<Vec<_>>().into_par_iter().for_each(Members::pair);
    let mut clock = Clock { offsets: vec![None; participants.len()], ..Clock::default() };
    if let Some(first) = clock.offsets.first_mut() {
        *first = Some(0);
    }
    // Clock differences between each group's reference and the others; those from rooted operations only where no
    // better one leads there.
    let links = |strong: bool| -> Vec<(usize, usize, i64)> {
        groups
            .values()
            .flat_map(|members| {
                let reference = members.seen[members.reference].0;
                members.seen.iter().zip(&members.pairings).filter_map(
                    move |((other, _), pairing)| {
                        let pairing = pairing.as_ref()?;
                        (pairing.strong == strong && *other != reference).then_some((
                            reference,
                            *other,
                            pairing.offset,
                        ))
                    },
                )
            })
            .collect()
    };
    let mut all = links(true);
    spread(&mut clock.offsets, &all);
    all.extend(links(false));
    spread(&mut clock.offsets, &all);
    restart(&mut clock.offsets, &all);
    let mut residuals: Vec<i64> = vec![];
    for ((group, _), members) in &groups {
        let (reference, own) = &members.seen[members.reference];
        let zero = clock.offsets[*reference].unwrap_or(0);
        for (position, seen) in own.iter().enumerate() {
            let mut found = vec![];
            for ((participant, others), pairing) in members.seen.iter().zip(&members.pairings) {
                if participant == reference {
                    found.push((*participant, seen.index));
                } else if let Some(at) = pairing.as_ref().and_then(|p| p.partner(position)) {
                    found.push((*participant, others[at].index));
                }
            }
            if found.len() > 1 {
                let stated = seen.group_size.unwrap_or(0);
                clock.matched.push(Matched {
                    group: group.clone(),
                    operation: operations[seen.operation as usize].clone(),
                    bytes: seen.bytes.unwrap_or(0),
                    group_size: stated.max(found.len() as u32),
                    members: found,
                    transfer: 0,
                    wait: 0,
                });
            }
        }
        for ((other, _), pairing) in members.seen.iter().zip(&members.pairings) {
            let Some(pairing) = pairing.as_ref().filter(|_| other != reference) else { continue };
            let known = clock.offsets[*other].unwrap_or(pairing.offset);
            residuals.extend(pairing.differences.iter().map(|d| (d - known + zero).abs()));
        }
    }
    clock.residual = median(&mut residuals).unwrap_or(0);
    arrivals(participants, &mut clock);
    clock.split = match (participants.len(), clock.matched.is_empty()) {
        (0 | 1, _) => "one_rank",
        (_, true) => "unmatched",
        _ if clock.matched.iter().all(|m| m.members.len() as u32 == m.group_size) => "full",
        _ => "partial",
    };
    clock
}

impl Members {
    fn pair(&mut self) {
        let most = (0..self.seen.len()).rev().max_by_key(|&position| self.seen[position].1.len());
        self.reference = most.unwrap_or(0);
        let reference = &self.seen[self.reference].1;
        self.pairings = (0..self.seen.len())
            .map(|position| {
                (position != self.reference).then(|| pair(reference, &self.seen[position].1))?
            })
            .collect();
    }
}

fn seen(
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
struct Pairing {
    /// `(position in the first, position in the second)`, rising.
    pairs: Vec<(usize, usize)>,
    /// Nanoseconds the second's clock is ahead.
    offset: i64,
    /// Differences of the ends of operations that end together.
    differences: Vec<i64>,
    /// Whether there were any: a broadcast's root leaves early, so its ends are no clock.
    strong: bool,
}

impl Pairing {
    /// Mean distance of the differences from the offset.
    fn deviation(&self) -> i64 {
        let total: i128 = self.differences.iter().map(|d| i128::from(*d - self.offset).abs()).sum();
        i64::try_from(total / self.differences.len().max(1) as i128).unwrap_or(i64::MAX / 8)
    }

    fn partner(&self, position: usize) -> Option<usize> {
        let found = self.pairs.binary_search_by_key(&position, |pair| pair.0).ok()?;
        Some(self.pairs[found].1)
    }
}

fn pair(first: &[Seen], second: &[Seen]) -> Option<Pairing> {
    if let Some(pairing) = pair_by_sequence(first, second) {
        return Some(pairing);
    }
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
        let pairing = measured(a, b, pairs.collect());
        // Equal collectives in bursts: one off, all but the pairs at a burst's edge agree as well, those not at all.
        let distance =
            pairing.offset.abs().saturating_add(4 * pairing.deviation().min(i64::MAX / 8));
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

fn pair_by_sequence(first: &[Seen], second: &[Seen]) -> Option<Pairing> {
    let numbered = |seen: &[Seen]| -> Option<BTreeMap<u64, usize>> {
        let numbers: Option<Vec<u64>> = seen.iter().map(|s| s.sequence).collect();
        let map: BTreeMap<u64, usize> = numbers?.into_iter().zip(0..).collect();
        (map.len() == seen.len()).then_some(map)
    };
    let (a, b) = (numbered(first)?, numbered(second)?);
    let pairs: Vec<(usize, usize)> =
        a.iter().filter_map(|(number, &i)| Some((i, *b.get(number)?))).collect();
    if pairs.is_empty() {
        return None;
    }
    let mut pairs = pairs;
    pairs.sort_unstable();
    Some(measured(first, second, pairs))
}

fn measured(first: &[Seen], second: &[Seen], pairs: Vec<(usize, usize)>) -> Pairing {
    let difference = |&(i, j): &(usize, usize)| second[j].end - first[i].end;
    let mut differences: Vec<i64> =
        pairs.iter().filter(|(i, _)| first[*i].together).map(difference).collect();
    let strong = !differences.is_empty();
    if differences.is_empty() {
        // Only rooted or pairwise operations: their ends are a weak clock, better than none.
        differences = pairs.iter().map(difference).collect();
    }
    let offset = median(&mut differences.clone()).unwrap_or(0);
    Pairing { pairs, offset, differences, strong }
}

/// Spreads known offsets over the links between participants.
fn spread(offsets: &mut [Option<i64>], links: &[(usize, usize, i64)]) {
    loop {
        let mut changed = false;
        for &(from, to, offset) in links {
            match (offsets[from], offsets[to]) {
                (Some(own), None) => offsets[to] = Some(own + offset),
                (None, Some(others)) => offsets[from] = Some(others - offset),
                _ => continue,
            }
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// Parts of the job that share no group with the first: their own first member is their clock.
fn restart(offsets: &mut [Option<i64>], links: &[(usize, usize, i64)]) {
    while let Some(&(from, _, _)) = links.iter().find(|(from, ..)| offsets[*from].is_none()) {
        offsets[from] = Some(0);
        spread(offsets, links);
    }
}

/// Marks on every member of a matched collective when the last rank had arrived, in that member's clock.
fn arrivals(participants: &mut [Participant], clock: &mut Clock) {
    let offsets: Vec<i64> = clock.offsets.iter().map(|offset| offset.unwrap_or(0)).collect();
    for (number, matched) in clock.matched.iter_mut().enumerate() {
        let operation = |&(participant, index): &(usize, usize)| -> Operation {
            participants[participant].device.operations[index]
        };
        let common = |member: &(usize, usize), time: i64| time - offsets[member.0];
        let last = matched.members.iter().map(|m| common(m, operation(m).start)).max();
        let Some(last) = last else { continue };
        // The root of a rooted operation leaves when its own part is done and waits for nobody.
        let rooted = matches!(matched.operation.as_str(), "broadcast" | "reduce" | "send_receive");
        let root = rooted
            .then(|| matched.members.iter().min_by_key(|m| common(m, operation(m).end)))
            .flatten()
            .copied();
        for &member in &matched.members {
            let offset = offsets[member.0];
            let own = &mut participants[member.0].device.operations[member.1];
            let arrived = if Some(member) == root { own.start } else { last + offset };
            let arrived = arrived.clamp(own.start, own.end);
            own.matched = Some(number as u32);
            own.all_arrived = Some(arrived);
            matched.transfer = matched.transfer.max(own.end - arrived);
            matched.wait = matched.wait.max(arrived - own.start);
        }
    }
}

/// The median, the lower of two middle ones.
pub fn median(values: &mut [i64]) -> Option<i64> {
    if values.is_empty() {
        return None;
    }
    let middle = (values.len() - 1) / 2;
    Some(*values.select_nth_unstable(middle).1)
}
