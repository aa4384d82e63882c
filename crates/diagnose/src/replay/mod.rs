//! Replay: the recorded job run again under rules of dependence, unchanged or with something taken out.
//!
//! A rank is its host's chain of calls; device operations follow their launch, their stream, the waits between
//! streams; a full launch queue and blocking calls hold the host up; a collective ends when the last rank has arrived
//! and the transfer is done. Knows devices and matched collectives; no causes.

mod followers;
mod simulation;

use std::{collections::HashMap, ops::Range};

use rayon::prelude::*;

use crate::{
    align::{Clock, Participant, is_rooted},
    classify::Call,
    device::{Device, Work},
    index::Index,
    steps::Steps,
};
use followers::Followers;

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

/// One operation in launch order: 40 bytes. Positions are those of launch order on the same rank.
#[derive(Clone, Copy, Debug)]
struct Op {
    start: i64,
    end: i64,
    launched: i64,
    /// Its index in [`Device::operations`].
    index: u32,
    /// The previous operation on its stream.
    previous: Option<Index>,
    /// The operation of another stream that it waited for.
    waits: Option<Index>,
    /// Where it is a matched collective: its place among [`Replay::members`].
    member: Option<Index>,
}

impl Op {
    /// What must have ended before it starts.
    fn before(&self) -> impl Iterator<Item = usize> + use<> {
        [self.previous, self.waits].into_iter().flatten().map(Index::get)
    }
}

/// One call of the host's chain: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Chained {
    gap: i64,
    /// Without the time it waited for room in the device's queue.
    duration: i64,
    /// Operations launched up to and with this call: launch order is the order of the calls.
    launched: u32,
    /// Where it waits for the device: its place among [`Rank::blocking`].
    blocking: Option<Index>,
}

/// What a blocking call waited for.
#[derive(Clone, Copy, Debug)]
struct Blocking {
    /// The operation whose end it waited for.
    waited_for: Option<Index>,
    /// From then to its return.
    tail: i64,
}

#[derive(Debug)]
struct Rank {
    first_call: i64,
    calls: Vec<Chained>,
    blocking: Vec<Blocking>,
    ops: Vec<Op>,
    followers: Followers,
    /// Launch-order positions of the first operation of each counted step and of the step after the last.
    bounds: Vec<usize>,
}

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

impl Rank {
    fn new(device: &Device, offset: i64, steps: Option<&Steps>) -> Rank {
        // Operations in the order of their calls, those of one call in the order of their starts.
        let mut order: Vec<(Index, u32)> = (0..)
            .zip(&device.operations)
            .filter_map(|(index, operation)| Some((operation.launch?, index)))
            .collect();
        order.sort_unstable();
        let mut rank = Rank {
            first_call: device.calls.first().map_or(0, |call| call.start - offset),
            calls: Vec::with_capacity(device.calls.len()),
            blocking: vec![],
            ops: Vec::with_capacity(order.len()),
            followers: Followers::default(),
            bounds: vec![],
        };
        let mut order = order.into_iter().peekable();
        let mut last_end: Option<i64> = None;
        let (mut saw_wait, mut last_compute, mut last_collective) = (false, None, None);
        let mut stream_last: HashMap<i64, Index> = HashMap::new();
        for (index, call) in device.calls.iter().enumerate() {
            let (start, end) = (call.start - offset, call.end - offset);
            let gap = last_end.map_or(0, |last| (start - last).max(0));
            last_end = Some(last_end.map_or(end, |last: i64| last.max(end)));
            saw_wait |= call.class == Call::StreamWait;
            let first = rank.ops.len();
            while let Some((_, own)) = order.next_if(|(launch, _)| launch.get() == index) {
                let operation = &device.operations[own as usize];
                let position = Index::new(rank.ops.len());
                let waits = if operation.work == Work::Collective {
                    last_collective = position;
                    last_compute
                } else {
                    last_compute = position;
                    last_collective.filter(|at: &Index| {
                        saw_wait
                            && operation.stream == device.primary_stream
                            && operation.start - offset >= rank.ops[at.get()].end - 2_000
                    })
                };
                saw_wait = false;
                let previous = stream_last.get(&operation.stream).copied();
                stream_last.extend(position.map(|position| (operation.stream, position)));
                rank.ops.push(Op {
                    start: operation.start - offset,
                    end: operation.end - offset,
                    launched: start,
                    index: own,
                    previous,
                    waits,
                    member: None,
                });
            }
            let staged = rank.ops.get(first).is_some_and(|op| {
                device.operations[op.index as usize].pageable && op.end <= end + 2_000
            });
            let blocks = call.class == Call::Synchronise
                || call.class == Call::Free
                || (call.class == Call::Copy && staged && end - start > 30_000);
            let blocking = blocks.then(|| rank.waited_for(start, end));
            rank.blocking.extend(blocking);
            let launching = matches!(call.class, Call::Launch | Call::GraphLaunch);
            let throttled = launching && end - start > 100_000;
            rank.calls.push(Chained {
                gap,
                duration: if throttled { 8_000 } else { end - start },
                launched: rank.ops.len() as u32,
                blocking: blocking.and_then(|_| Index::new(rank.blocking.len() - 1)),
            });
        }
        rank.followers = Followers::of(&rank.ops);
        rank.bounds = rank.step_bounds(device, offset, steps);
        rank
    }

    /// Launch-order positions of the operations that a call launched.
    fn launches(&self, call: usize) -> Range<usize> {
        let first = call.checked_sub(1).map_or(0, |before| self.calls[before].launched);
        first as usize..self.calls[call].launched as usize
    }

    /// What a blocking call between these times waited for: the last end, among operations launched so far, that lies
    /// within it.
    fn waited_for(&self, start: i64, end: i64) -> Blocking {
        let from = self.ops.len().saturating_sub(3_000);
        let waited_for = (from..self.ops.len())
            .filter(|&at| self.ops[at].end <= end + 3_000 && self.ops[at].end >= start - 1)
            .max_by_key(|&at| self.ops[at].end);
        let waited_until = waited_for.map_or(start, |at| self.ops[at].end.max(start));
        Blocking { waited_for: waited_for.and_then(Index::new), tail: end - waited_until }
    }

    /// Launch-order positions of the operations that begin the counted steps, and of the one that ends the last.
    fn step_bounds(&self, device: &Device, offset: i64, steps: Option<&Steps>) -> Vec<usize> {
        let Some(steps) = steps else { return vec![] };
        let mut times: Vec<i64> = steps.counted.iter().map(|step| step.start).collect();
        times.extend(steps.counted.last().map(|step| step.end));
        let mut first_at: HashMap<i64, Option<usize>> =
            times.iter().map(|time| (time - offset, None)).collect();
        for (at, op) in self.ops.iter().enumerate() {
            if let Some(first @ None) = first_at.get_mut(&op.start)
                && device.operations[op.index as usize].stream == device.primary_stream
            {
                *first = Some(at);
            }
        }
        let bounds: Vec<usize> =
            times.iter().filter_map(|time| *first_at.get(&(time - offset))?).collect();
        if bounds.len() == times.len() { bounds } else { vec![] }
    }
}
