//! What rules share: which ranks carry a cause, what it costs, and how to say so. Knows no cause.

pub mod between_hosts;
pub mod chosen;
pub mod host_time;
mod saving;

pub use saving::{confidence, saving, saving_on_the_host};

pub use crate::wording::{between, counted, milliseconds, ranks_text};

use crate::{interval::Set, job::Job};

/// A saving below this share of the step is not worth a finding.
pub const WORTH: f64 = 0.02;

/// Participants in whose host chain the given time makes up at least `share` of their counted steps.
pub fn carriers(job: &Job, share: f64, time: impl Fn(usize) -> Set) -> Vec<usize> {
    (0..job.participants.len())
        .filter(|&index| {
            let Some((start, end)) = job.accounted[index].steps.window() else { return false };
            time(index).total_in(start, end) as f64 >= share * (end - start) as f64
        })
        .collect()
}

/// The ranks of participants, which come in the order of ranks; one that has several devices once.
pub fn ranks_of(job: &Job, participants: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let ranks = participants.into_iter().map(|index| job.participants[index].rank);
    let mut ranks: Vec<u32> = ranks.collect();
    ranks.dedup();
    ranks
}
