//! Some operations of each device, chosen by what they are and what they are called: when they run, the longest of
//! them, and the job in which they take less. Knows no cause.

use super::{
    carriers,
    saving::{Saving, saving},
};
use crate::{
    device::{Device, Operation},
    finding::Evidence,
    interval::Set,
    job::Job,
    replay::Scenario,
};

/// For each participant, whether each of its device's operations is chosen.
#[derive(Clone, Debug)]
pub struct Chosen(Vec<Vec<bool>>);

impl Chosen {
    /// The operations of this kind whose name is wanted.
    pub fn of(job: &Job, is: impl Fn(&Operation) -> bool, wanted: impl Fn(&str) -> bool) -> Chosen {
        let of_device = |index: usize| {
            let timeline = job.timeline(index);
            // Thousands of operations share a name.
            let mut known: Vec<Option<bool>> = vec![None; timeline.names.len()];
            let mut named = |o: &Operation| {
                let name = timeline.spans.get(o.span).name;
                let text = || wanted(timeline.names.text(name));
                *known[name.index()].get_or_insert_with(text)
            };
            let operations = &job.participants[index].device.operations;
            operations.iter().map(|o| is(o) && named(o)).collect()
        };
        Chosen((0..job.participants.len()).map(of_device).collect())
    }

    /// The operations of these flags, by participant.
    pub fn from_flags(flags: Vec<Vec<bool>>) -> Chosen {
        Chosen(flags)
    }

    /// These operations, on some participants only.
    pub fn only(mut self, participants: &[bool]) -> Chosen {
        for (own, _) in self.0.iter_mut().zip(participants).filter(|(_, kept)| !**kept) {
            own.fill(false);
        }
        self
    }

    /// Whether an operation of a participant is chosen.
    pub fn contains(&self, participant: usize, operation: usize) -> bool {
        self.0[participant][operation]
    }

    /// The chosen operations of a participant.
    pub fn operations<'a>(
        &'a self,
        job: &'a Job,
        participant: usize,
    ) -> impl Iterator<Item = &'a Operation> + Clone {
        let operations = &job.participants[participant].device.operations;
        operations.iter().zip(&self.0[participant]).filter(|(_, own)| **own).map(|(o, _)| o)
    }

    /// When a participant's chosen operations run.
    pub fn time(&self, job: &Job, participant: usize) -> Set {
        Set::union_of(self.operations(job, participant).map(|o| (o.start, o.end)))
    }

    /// What all of them cost, where they take at least this share of a rank's counted steps.
    pub fn saving(&self, job: &Job, share: f64) -> Option<Saving> {
        let carrying = carriers(job, share, |index| self.time(job, index));
        saving(job, &carrying, &Without { chosen: self })
    }

    /// The calls that launched chosen operations, by participant.
    pub fn launches(&self, job: &Job) -> Vec<Launches> {
        let devices = job.participants.iter().map(|participant| &participant.device);
        devices.zip(&self.0).map(|(device, chosen)| Launches::of(device, chosen)).collect()
    }

    /// The longest chosen operation of each of these participants, with what to say of it.
    pub fn longest(
        &self,
        job: &Job,
        participants: &[usize],
        text: impl Fn(&Operation) -> String,
    ) -> Vec<Evidence> {
        let of_participant = |&index: &usize| {
            let participant = &job.participants[index];
            let longest = self.operations(job, index).max_by_key(|o| o.end - o.start)?;
            let text = format!("rank {}: {}", participant.rank, text(longest));
            Some(Evidence::span(job, participant.input, longest.span, text))
        };
        participants.iter().filter_map(of_participant).collect()
    }
}

/// `12.3 MB at 4.5 GB/s`, for a copy.
pub fn size_and_rate(copy: &Operation) -> String {
    let time = (copy.end - copy.start).max(1) as f64;
    format!("{:.1} MB at {:.1} GB/s", copy.bytes as f64 / 1e6, copy.bytes as f64 / time)
}

/// For each call of a device, whether it launched one of the chosen operations, or waits within three calls of one.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// The call launched a chosen operation.
    pub starts: Vec<bool>,
    /// The call follows such a call closely.
    pub follows: Vec<bool>,
}

impl Launches {
    fn of(device: &Device, chosen: &[bool]) -> Launches {
        let mut starts = vec![false; device.calls.len()];
        for (operation, _) in device.operations.iter().zip(chosen).filter(|(_, own)| **own) {
            if let Some(launch) = operation.launch {
                starts[launch.get()] = true;
            }
        }
        let near =
            |call: usize| (1..4).any(|back| call.checked_sub(back).is_some_and(|c| starts[c]));
        let follows = (0..starts.len()).map(near).collect();
        Launches { starts, follows }
    }
}

/// The job in which chosen operations take no time.
#[derive(Clone, Debug)]
pub struct Without<'a> {
    /// The operations.
    pub chosen: &'a Chosen,
}

impl Scenario for Without<'_> {
    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        if self.chosen.contains(participant, operation) { 0 } else { recorded }
    }
}
