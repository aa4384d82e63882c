//! Replay: the recorded job run again under rules of dependence, unchanged or with something taken out.
//!
//! A rank is its host's chain of calls; device operations follow their launch, their stream, the waits between
//! streams; a full launch queue and blocking calls hold the host up; a collective ends when the last rank has arrived
//! and the transfer is done. Knows devices and matched collectives; no causes.

mod followers;
mod rank;
mod simulation;

use std::ops::Range;

use rayon::prelude::*;

use self::rank::Rank;
use crate::{
    align::{Clock, Participant, is_rooted},
    index::Index,
    steps::Steps,
};

/// From a launch call's start to the operation's start on an idle stream, in nanoseconds.
const LAUNCH_LATENCY: i64 = 4_500;
/// Launches a device's queue holds before the host must wait.
const QUEUE_DEPTH: usize = 1_024;
/// The usual distance of two queued operations.
const QUEUED_GAP: i64 = 900;

/// What a scenario makes of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallTiming {
    /// Host time between the previous call's return and this call.
    pub gap: i64,
    /// Length of the call itself, waiting for the device excepted.
    pub duration: i64,
    /// Whether a call that blocks returns at once.
    pub returns_at_once: bool,
}

/// What is different from the recorded run. Every method changes nothing by default.
pub trait Scenario {
    /// Timing of a call of a participant.
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let _ = (participant, call);
        recorded
    }

    /// Duration of an operation of a participant.
    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        let _ = (participant, operation);
        recorded
    }

    /// Transfer of a matched collective on one rank, from the last arrival to the end.
    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        let _ = matched;
        recorded
    }
}

/// The recorded run.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged;

impl Scenario for Unchanged {}

/// One rank's part in a matched collective.
#[derive(Clone, Copy, Debug)]
struct Member {
    participant: u32,
    /// Launch-order position of its operation.
    position: u32,
    /// Index into the job's matched collectives.
    matched: u32,
    /// The root of a rooted collective waits for nobody.
    root: bool,
    /// From the last arrival to the end on this rank.
    transfer: i64,
}

/// A job ready to be replayed.
#[derive(Debug)]
pub struct Replay {
    ranks: Vec<Rank>,
    /// Sorted by matched collective, participant and launch order.
    members: Vec<Member>,
    /// For each matched collective its range of `members`.
    meetings: Vec<Range<usize>>,
}

/// Mean lengths of the counted steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// As recorded, over all ranks, in nanoseconds.
    pub observed: f64,
    /// As replayed.
    pub replayed: f64,
    /// The largest relative difference of any counted step on any rank.
    pub error: f64,
}

impl Replay {
    /// Prepares the job. `steps` are those of each participant.
    pub fn new(participants: &[Participant], clock: &Clock, steps: &[Steps]) -> Replay {
        let mut ranks: Vec<Rank> = participants
            .par_iter()
            .enumerate()
            .map(|(number, participant)| {
                let offset = clock.relation(number).offset;
                Rank::new(&participant.device, offset, steps.get(number))
            })
            .collect();
        let mut members: Vec<Member> = vec![];
        for (number, (rank, participant)) in ranks.iter().zip(participants).enumerate() {
            for (position, op) in rank.ops.iter().enumerate() {
                let operation = &participant.device.operations[op.index as usize];
                let (Some(matched), Some(arrived)) = (operation.matched, operation.all_arrived())
                else {
                    continue;
                };
                members.push(Member {
                    participant: number as u32,
                    position: position as u32,
                    matched: matched.get() as u32,
                    root: is_rooted(&clock.matched[matched.get()].operation)
                        && arrived == operation.start,
                    transfer: (operation.end - arrived).max(0),
                });
            }
        }
        members.sort_by_key(|member| member.matched);
        for (place, member) in members.iter().enumerate() {
            let rank = &mut ranks[member.participant as usize];
            rank.ops[member.position as usize].member = Index::new(place);
        }
        let before = |matched: usize| members.partition_point(|m| (m.matched as usize) < matched);
        let meetings = (0..clock.matched.len()).map(|matched| before(matched)..before(matched + 1));
        let meetings = meetings.collect();
        Replay { ranks, members, meetings }
    }

    /// Replays the job.
    pub fn run(&self, scenario: &dyn Scenario) -> Outcome {
        let states = simulation::run(self, scenario);
        self.outcome(&states)
    }

    fn outcome(&self, states: &[Vec<(i64, i64)>]) -> Outcome {
        let (mut observed, mut replayed, mut count, mut error) = (0.0, 0.0, 0.0, 0.0_f64);
        for (rank, state) in self.ranks.iter().zip(states) {
            for pair in rank.bounds.windows(2) {
                let seen = (rank.ops[pair[1]].start - rank.ops[pair[0]].start) as f64;
                let again = (state[pair[1]].0 - state[pair[0]].0) as f64;
                observed += seen;
                replayed += again;
                count += 1.0;
                if seen > 0.0 {
                    error = error.max((again / seen - 1.0).abs());
                }
            }
        }
        if count == 0.0 {
            return Outcome { observed: 0.0, replayed: 0.0, error: f64::INFINITY };
        }
        Outcome { observed: observed / count, replayed: replayed / count, error }
    }
}
