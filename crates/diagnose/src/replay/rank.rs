//! One rank made ready for the replay: its host's chain of calls, its operations in launch order, what each waits for.
//!
//! Knows one device and its steps; not the other ranks.

use std::{collections::HashMap, ops::Range};

use super::followers::Followers;
use crate::{
    classify::Call,
    device::{Device, Work},
    index::Index,
    steps::Steps,
};

/// One operation in launch order: 40 bytes. Positions are those of launch order on the same rank.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Start as recorded, on the job's clock.
    pub start: i64,
    /// End as recorded.
    pub end: i64,
    /// When the call that launched it began.
    pub launched: i64,
    /// Its index in [`Device::operations`].
    pub index: u32,
    /// The previous operation on its stream.
    pub previous: Option<Index>,
    /// The operation of another stream that it waited for.
    pub waits: Option<Index>,
    /// Where it is a matched collective: its place among the replay's members.
    pub member: Option<Index>,
}

impl Op {
    /// What must have ended before it starts.
    pub fn before(&self) -> impl Iterator<Item = usize> + use<> {
        [self.previous, self.waits].into_iter().flatten().map(Index::get)
    }
}

/// One call of the host's chain: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Chained {
    /// From the return of all calls before it to its beginning.
    pub gap: i64,
    /// Without the time it waited for room in the device's queue.
    pub duration: i64,
    /// Operations launched up to and with this call: launch order is the order of the calls.
    pub launched: u32,
    /// Where it waits for the device: its place among [`Rank::blocking`].
    pub blocking: Option<Index>,
}

/// What a blocking call waited for.
#[derive(Clone, Copy, Debug)]
pub struct Blocking {
    /// The operation whose end it waited for.
    pub waited_for: Option<Index>,
    /// From then to its return.
    pub tail: i64,
}

/// A rank ready to be replayed.
#[derive(Debug)]
pub struct Rank {
    /// When the first call began.
    pub first_call: i64,
    /// The host's chain, in the order of [`Device::calls`].
    pub calls: Vec<Chained>,
    /// What the blocking calls among them waited for.
    pub blocking: Vec<Blocking>,
    /// Launched operations in launch order.
    pub ops: Vec<Op>,
    /// What waits for each of them.
    pub followers: Followers,
    /// Launch-order positions of the first operation of each counted step and of the step after the last.
    pub bounds: Vec<usize>,
}

impl Rank {
    /// From a device and its steps; `offset` is how far its clock is ahead of the job's.
    pub fn new(device: &Device, offset: i64, steps: Option<&Steps>) -> Rank {
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
    pub fn launches(&self, call: usize) -> Range<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{HostCall, Operation};

    #[test]
    fn what_a_recording_holds_by_the_million_is_small() {
        let documented = [
            ("Operation", size_of::<Operation>(), 56),
            ("HostCall", size_of::<HostCall>(), 24),
            ("Op", size_of::<Op>(), 40),
            ("Chained", size_of::<Chained>(), 24),
        ];
        for (name, bytes, expected) in documented {
            assert_eq!(bytes, expected, "{name}");
        }
    }
}
