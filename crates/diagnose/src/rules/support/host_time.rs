//! What the host does between its calls, and the job in which it does not. Knows no cause.

use super::{carriers, milliseconds, saving::Saving, saving_on_the_host};
use crate::{
    device::Device,
    finding::Evidence,
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
};

/// Host time of 1 ms and more between calls that nothing marks, by participant.
pub fn unmarked_stalls(job: &Job) -> Vec<&Set> {
    job.participants.iter().map(|participant| &participant.device.unmarked_stalls).collect()
}

/// What is saved without these times, on ranks where they are at least `share` of the steps.
pub fn saving(job: &Job, times: &[&Set], share: f64) -> Option<Saving> {
    if job.is_host_only() {
        return saving_on_the_host(job, times);
    }
    let carrying = carriers(job, share, |index| times[index].clone());
    super::saving(job, &carrying, &WithoutHostTime { job, times })
}

/// The part of the gap before a call that lies in a set.
pub fn in_gap(device: &Device, call: usize, gap: i64, set: &Set) -> i64 {
    let start = device.calls[call].start;
    set.total_in(start - gap, start)
}

/// How long these participants' hosts were in these times: per counted step, how often, and at most at once.
pub fn stays(
    job: &Job,
    participants: &[usize],
    times: &[&Set],
    text: impl Fn(&Stay) -> String,
) -> Vec<Evidence> {
    let of_participant = |&index: &usize| {
        let participant = &job.participants[index];
        let steps = &job.accounted[index].steps;
        let (start, end) = steps.window()?;
        let inside = times[index].clip(start, end);
        let longest = inside.intervals().iter().map(|(start, end)| end - start).max()?;
        let stay = Stay {
            count: inside.intervals().len(),
            steps: steps.counted.len(),
            per_step: milliseconds(inside.total() as f64 / 1e6 / steps.counted.len() as f64),
            longest: milliseconds(longest as f64 / 1e6),
        };
        let text = format!("rank {}: {}", participant.rank, text(&stay));
        Some(Evidence::counted(job, participant.input, text))
    };
    participants.iter().filter_map(of_participant).collect()
}

/// Figures of what a host did again and again.
#[derive(Clone, Debug)]
pub struct Stay {
    /// Times it did so in the counted steps.
    pub count: usize,
    /// Counted steps.
    pub steps: usize,
    /// Time per step, with its unit.
    pub per_step: String,
    /// The longest, with its unit.
    pub longest: String,
}

/// The job in which hosts do not spend these times between their calls.
#[derive(Clone, Debug)]
pub struct WithoutHostTime<'a> {
    /// The job.
    pub job: &'a Job,
    /// By participant.
    pub times: &'a [&'a Set],
}

impl Scenario for WithoutHostTime<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let device = &self.job.participants[participant].device;
        let spent = in_gap(device, call, recorded.gap, self.times[participant]);
        CallTiming { gap: (recorded.gap - spent).max(0), ..recorded }
    }
}
