//! Ranks on one clock: collectives matched per process group, clock offsets and drift from their ends, arrivals.
//!
//! Knows devices; nothing of accounts or causes.

mod clock;
mod pairing;

use std::collections::BTreeMap;

use rayon::prelude::*;
use timeline::Timeline;

pub use self::clock::Relation;
use self::{
    clock::{Link, restart, spread},
    pairing::{Pairing, Seen, pair, seen},
};
use crate::{
    device::{Device, Operation},
    index::Index,
};

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
    /// Each participant's clock against the first participant's; `None` where nothing matched.
    pub relations: Vec<Option<Relation>>,
    /// Median absolute deviation of the ends after correction.
    pub residual: i64,
    /// Ranks of the largest process group, as stated; 0 where nothing states any.
    pub largest_group: u32,
    /// Collectives matched.
    pub matched: Vec<Matched>,
    /// `full`, `partial`, `one_rank` or `unmatched`.
    pub split: &'static str,
}

/// Operations whose root leaves when its own part is done and waits for nobody.
pub fn is_rooted(operation: &str) -> bool {
    matches!(operation, "broadcast" | "reduce" | "send_receive")
}

/// A process group: its name, and its ranks where stated, since different groups may bear one name.
pub type Group = (String, String);

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
    let mut clock = Clock { relations: vec![None; participants.len()], ..Clock::default() };
    if let Some(first) = clock.relations.first_mut() {
        *first = Some(Relation::default());
    }
    // Clocks against each group's reference; those from rooted operations only where no better one leads there.
    let links = |strong: bool| -> Vec<Link> {
        let of_group = |members: &Members| -> Vec<Link> {
            let reference = members.seen[members.reference].0;
            let pairings = members.seen.iter().zip(&members.pairings);
            let known =
                pairings.filter_map(|((other, _), pairing)| Some((*other, pairing.as_ref()?)));
            let wanted = known.filter(|(_, pairing)| pairing.strong == strong);
            wanted.map(|(other, pairing)| (reference, other, pairing.relation)).collect()
        };
        groups.values().flat_map(of_group).collect()
    };
    let mut all = links(true);
    spread(&mut clock.relations, &all);
    all.extend(links(false));
    spread(&mut clock.relations, &all);
    restart(&mut clock.relations, &all);
    let mut residuals: Vec<i64> = vec![];
    for ((group, _), members) in &groups {
        let (reference, own) = &members.seen[members.reference];
        let sizes = members.seen.iter().flat_map(|(_, seen)| seen).filter_map(|s| s.group_size);
        clock.largest_group = clock.largest_group.max(sizes.max().unwrap_or(0));
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
        let zero = clock.relation(*reference);
        for ((other, _), pairing) in members.seen.iter().zip(&members.pairings) {
            let Some(pairing) = pairing.as_ref() else { continue };
            let known = clock.relation(*other);
            let expected = |time: i64| known.local(zero.reference(time));
            let distance = |&(time, ahead): &(i64, i64)| (time + ahead - expected(time)).abs();
            residuals.extend(pairing.moments.iter().map(distance));
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

impl Clock {
    /// A participant's clock against the first's; as if they were one where nothing matched.
    pub fn relation(&self, participant: usize) -> Relation {
        self.relations.get(participant).copied().flatten().unwrap_or_default()
    }
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

/// Marks on every member of a matched collective when the last rank had arrived, in that member's clock.
fn arrivals(participants: &mut [Participant], clock: &mut Clock) {
    let relations: Vec<Relation> = (0..participants.len()).map(|p| clock.relation(p)).collect();
    for (number, matched) in clock.matched.iter_mut().enumerate() {
        let operation = |&(participant, index): &(usize, usize)| -> Operation {
            participants[participant].device.operations[index]
        };
        let common = |member: &(usize, usize), time: i64| relations[member.0].reference(time);
        let last = matched.members.iter().map(|m| common(m, operation(m).start)).max();
        let Some(last) = last else { continue };
        let root = is_rooted(&matched.operation)
            .then(|| matched.members.iter().min_by_key(|m| common(m, operation(m).end)))
            .flatten()
            .copied();
        for &member in &matched.members {
            let last = relations[member.0].local(last);
            let own = &mut participants[member.0].device.operations[member.1];
            let arrived = if Some(member) == root { own.start } else { last };
            let arrived = arrived.clamp(own.start, own.end);
            own.matched = Index::new(number);
            own.waited = arrived - own.start;
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
