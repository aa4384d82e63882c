//! Plays a schedule in time: every lane in order, every step after its waits. Knows durations, not what runs.

use crate::{FunctionPlan, Lane, StepId};

/// When each step starts and ends, in nanoseconds from the call's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Simulated {
    /// Lane, start and end of each step.
    pub steps: Vec<(Lane, u64, u64)>,
}

/// The two figures that plans print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// From start to the end of the last step.
    pub total_ns: u64,
    /// Time in which a communication lane is busy and the compute lane is not.
    pub exposed_ns: u64,
}

/// Plays steps given as lane, waits and duration, in list order.
pub(crate) fn run(steps: &[(Lane, &[StepId], u64)]) -> Simulated {
    let mut played: Vec<(Lane, u64, u64)> = vec![];
    for &(lane, waits, duration) in steps {
        let free = played.iter().rev().find(|(l, ..)| *l == lane).map_or(0, |&(_, _, end)| end);
        let ready = waits.iter().filter_map(|wait| played.get(wait.0 as usize)).map(|step| step.2);
        let start = ready.fold(free, u64::max);
        played.push((lane, start, start + duration));
    }
    Simulated { steps: played }
}

/// Plays the schedule of a function of a finished plan.
pub(crate) fn function(schedule: &FunctionPlan) -> Simulated {
    let steps = schedule.steps.iter();
    let times: Vec<_> =
        steps.map(|step| (step.lane, step.waits.as_slice(), step.predicted_ns)).collect();
    run(&times)
}

impl Simulated {
    /// Total and exposed time.
    pub fn prediction(&self) -> Prediction {
        let on = |want: fn(&Lane) -> bool| {
            union(self.steps.iter().filter(|(l, ..)| want(l)).map(|&(_, s, e)| (s, e)).collect())
        };
        let computing = on(|lane| *lane == Lane::Compute);
        let communicating = on(|lane| matches!(lane, Lane::Communication(_)));
        let length =
            |spans: &[(u64, u64)]| spans.iter().map(|(start, end)| end - start).sum::<u64>();
        let all = union(computing.iter().chain(&communicating).copied().collect());
        Prediction {
            total_ns: self.steps.iter().map(|step| step.2).max().unwrap_or(0),
            exposed_ns: length(&all) - length(&computing),
        }
    }
}

/// Overlapping and touching spans joined, in order.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort();
    let mut joined: Vec<(u64, u64)> = vec![];
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}
