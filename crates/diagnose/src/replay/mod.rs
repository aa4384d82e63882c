//! Replay: the recorded job run again under rules of dependence, unchanged or with something taken out.
//!
//! A rank is its host's chain of calls; device operations follow their launch, their stream, the waits between
//! streams; a full launch queue and blocking calls hold the host up; a collective ends when the last rank has arrived
//! and the transfer is done. Knows devices and matched collectives; no causes.

mod simulation;

use std::collections::HashMap;

use rayon::prelude::*;

use crate::{
    align::{Clock, Participant},
    classify::Call,
    device::{Device, Work},
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

/// One operation in launch order.
#[derive(Clone, Debug)]
struct Op {
    index: usize,
    start: i64,
    end: i64,
    launched: i64,
    /// The previous operation on its stream, by launch order.
    previous: Option<usize>,
    /// Operations of other streams it waited for.
    waits: [Option<usize>; 1],
    matched: Option<usize>,
    /// Transfer time on this rank, where matched.
    transfer: i64,
    /// The root of a rooted collective waits for nobody.
    root: bool,
    /// Operations that cannot start before this one has ended: the next on its stream, and those that wait for it.
    followers: Vec<u32>,
}

/// One call of the host's chain.
#[derive(Clone, Debug)]
struct Chained {
    call: usize,
    gap: i64,
    duration: i64,
    blocks: bool,
    throttled: bool,
    /// Operations launched, as positions in launch order.
    launches: std::ops::Range<usize>,
    /// For a blocking call: the operation whose end it waited for, and the time from then to its return.
    waited_for: Option<usize>,
    tail: i64,
}

#[derive(Debug)]
struct Rank {
    first_call: i64,
    calls: Vec<Chained>,
    ops: Vec<Op>,
    /// Launch-order positions of the first operation of each counted step and of the step after the last.
    bounds: Vec<usize>,
}

/// A job ready to be replayed.
#[derive(Debug)]
pub struct Replay {
    ranks: Vec<Rank>,
    /// For each matched collective its members as `(participant, launch-order position)`.
    meetings: Vec<Vec<(usize, usize)>>,
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
        let ranks: Vec<Rank> = participants
            .par_iter()
            .enumerate()
            .map(|(number, participant)| {
                let offset = clock.relation(number).offset;
                let mut rank = Rank::new(&participant.device, offset, steps.get(number));
                for op in &mut rank.ops {
                    let operation = &participant.device.operations[op.index];
                    let (Some(matched), Some(arrived)) = (operation.matched, operation.all_arrived)
                    else {
                        continue;
                    };
                    let matched = matched as usize;
                    let rooted = matches!(
                        clock.matched[matched].operation.as_str(),
                        "broadcast" | "reduce" | "send_receive"
                    );
                    op.root = rooted && arrived == operation.start;
                    op.matched = Some(matched);
                    op.transfer = (operation.end - arrived).max(0);
                }
                rank
            })
            .collect();
        let mut meetings = vec![vec![]; clock.matched.len()];
        for (number, rank) in ranks.iter().enumerate() {
            for (position, op) in rank.ops.iter().enumerate() {
                if let Some(matched) = op.matched {
                    meetings[matched].push((number, position));
                }
            }
        }
        Replay { ranks, meetings }
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

impl Rank {
    fn new(device: &Device, offset: i64, steps: Option<&Steps>) -> Rank {
        let mut launched_by: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, operation) in device.operations.iter().enumerate() {
            if let Some(launch) = operation.launch {
                launched_by.entry(launch.call).or_default().push(index);
            }
        }
        let mut rank = Rank {
            first_call: device.calls.first().map_or(0, |call| call.start - offset),
            calls: Vec::with_capacity(device.calls.len()),
            ops: vec![],
            bounds: vec![],
        };
        let mut last_end: Option<i64> = None;
        let (mut saw_wait, mut last_compute, mut last_collective) = (false, None, None);
        let mut stream_last: HashMap<i64, usize> = HashMap::new();
        for (index, call) in device.calls.iter().enumerate() {
            let (start, end) = (call.start - offset, call.end - offset);
            let gap = last_end.map_or(0, |last| (start - last).max(0));
            last_end = Some(last_end.map_or(end, |last: i64| last.max(end)));
            saw_wait |= call.class == Call::StreamWait;
            let own = launched_by.remove(&(index as u32)).unwrap_or_default();
            let first = rank.ops.len();
            for operation_index in own {
                let operation = &device.operations[operation_index];
                let position = rank.ops.len();
                let mut waits = [None];
                if operation.work == Work::Collective {
                    waits[0] = last_compute;
                    last_collective = Some(position);
                } else {
                    let after_collective = last_collective.filter(|&at: &usize| {
                        saw_wait
                            && operation.stream == device.primary_stream
                            && operation.start - offset >= rank.ops[at].end - 2_000
                    });
                    waits[0] = after_collective;
                    last_compute = Some(position);
                }
                saw_wait = false;
                rank.ops.push(Op {
                    index: operation_index,
                    start: operation.start - offset,
                    end: operation.end - offset,
                    launched: start,
                    previous: stream_last.insert(operation.stream, position),
                    waits,
                    matched: None,
                    transfer: 0,
                    root: false,
                    followers: vec![],
                });
            }
            let launches = first..rank.ops.len();
            let staged = rank
                .ops
                .get(first)
                .is_some_and(|op| device.operations[op.index].pageable && op.end <= end + 2_000);
            let blocks = call.class == Call::Synchronise
                || call.class == Call::Free
                || (call.class == Call::Copy && staged && end - start > 30_000);
            let (mut waited_for, mut tail) = (None, 0);
            if blocks {
                let from = rank.ops.len().saturating_sub(3_000);
                waited_for = (from..rank.ops.len())
                    .filter(|&at| rank.ops[at].end <= end + 3_000 && rank.ops[at].end >= start - 1)
                    .max_by_key(|&at| rank.ops[at].end);
                let waited_until = waited_for.map_or(start, |at| rank.ops[at].end.max(start));
                tail = end - waited_until;
            }
            let launching = matches!(call.class, Call::Launch | Call::GraphLaunch);
            rank.calls.push(Chained {
                call: index,
                gap,
                duration: end - start,
                blocks,
                throttled: launching && end - start > 100_000,
                launches,
                waited_for,
                tail,
            });
        }
        for at in 0..rank.ops.len() {
            let before = [rank.ops[at].previous, rank.ops[at].waits[0]];
            for before in before.into_iter().flatten() {
                rank.ops[before].followers.push(at as u32);
            }
        }
        rank.bounds = rank.step_bounds(device, offset, steps);
        rank
    }

    /// Launch-order positions of the operations that begin the counted steps, and of the one that ends the last.
    fn step_bounds(&self, device: &Device, offset: i64, steps: Option<&Steps>) -> Vec<usize> {
        let Some(steps) = steps else { return vec![] };
        let begins = |time: i64| {
            (0..self.ops.len()).find(|&at| {
                let op = &self.ops[at];
                op.start == time - offset
                    && device.operations[op.index].stream == device.primary_stream
            })
        };
        let mut times: Vec<i64> = steps.counted.iter().map(|step| step.start).collect();
        times.extend(steps.counted.last().map(|step| step.end));
        let bounds: Vec<usize> = times.into_iter().filter_map(begins).collect();
        if bounds.len() == steps.counted.len() + 1 { bounds } else { vec![] }
    }
}
