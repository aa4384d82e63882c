//! The account: each nanosecond of a device's steps in exactly one leaf. Sums are exact by construction.
//!
//! Knows one device whose collectives have been matched; nothing of costs.

use crate::{
    classify::Call,
    device::{Device, Operation, STALL, Work},
    index::Index,
    interval::Set,
    leaf::{Account, Leaf},
    steps::Step,
};

/// Between queued operations, up to this many nanoseconds are a short gap.
const SHORT_GAP: i64 = 20_000;
/// A blocking call that ended at most this long before a gap drained the queue.
const DRAIN: i64 = 200_000;
/// How long after a draining call the host may still be catching up.
const REFILL: i64 = 2_000_000;

/// When the device was in which leaf, over the whole recording.
#[derive(Clone, Debug)]
pub struct Parts(Vec<(Leaf, Set)>);

/// Totals beside the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Any operation ran.
    pub busy: i64,
    /// Any collective ran.
    pub communication: i64,
    /// A collective ran under computing after all had arrived.
    pub communication_hidden: i64,
    /// A collective waited under computing.
    pub wait_hidden: i64,
    /// Copies ran under computing or communication.
    pub copy_hidden: i64,
}

impl Parts {
    /// Divides the recording of a device among the leaves.
    pub fn of(device: &Device) -> Parts {
        let operations = &device.operations;
        if operations.is_empty() {
            return host_alone(device);
        }
        let mut parts: Vec<(Leaf, Set)> = vec![];
        let mut taken = Set::empty();
        let mut take = |leaf: Leaf, set: Set, taken: &mut Set| {
            parts.push((leaf, set.without(taken)));
            *taken = taken.union(&set);
        };
        for leaf in Leaf::COMPUTE {
            let set = spans(operations, |o| o.work == Work::Compute(leaf), |o| (o.start, o.end));
            take(leaf, set, &mut taken);
        }
        let collective = |o: &Operation| o.work == Work::Collective;
        let transfer = spans(
            operations,
            |o| collective(o) && o.all_arrived().is_some(),
            |o| (o.all_arrived().unwrap_or(o.start), o.end),
        );
        let wait = spans(
            operations,
            |o| collective(o) && o.all_arrived().is_some(),
            |o| (o.start, o.all_arrived().unwrap_or(o.end)),
        );
        let unsplit =
            spans(operations, |o| collective(o) && o.all_arrived().is_none(), |o| (o.start, o.end));
        take(Leaf::Transfer, transfer, &mut taken);
        take(Leaf::CommWait, wait, &mut taken);
        take(Leaf::Unsplit, unsplit, &mut taken);
        let copies =
            spans(operations, |o| matches!(o.work, Work::Copy | Work::Fill), |o| (o.start, o.end));
        take(Leaf::CopyDevice, copies, &mut taken);
        parts.extend(idle(device, &taken));
        Parts(parts)
    }

    /// The time of a leaf.
    pub fn leaf(&self, leaf: Leaf) -> Set {
        self.0
            .iter()
            .filter(|(own, _)| *own == leaf)
            .fold(Set::empty(), |all, (_, set)| all.union(set))
    }

    /// The account of one step.
    pub fn account(&self, step: Step) -> Account {
        let mut account = Account::default();
        for (leaf, set) in &self.0 {
            account.add(*leaf, set.total_in(step.start, step.end));
        }
        account.add(Leaf::Unknown, step.end - step.start - account.total());
        account
    }
}

/// Divides the steps of a rank that trains on the host: what the stepping thread did.
fn host_alone(device: &Device) -> Parts {
    let steps = device.host_steps.iter().map(|step| (step.start, step.end));
    let mut rest = Set::union_of(steps);
    let mut parts = vec![];
    for (leaf, set) in [
        (Leaf::HostData, &device.loader),
        (Leaf::HostGc, &device.collections),
        (Leaf::OtherCompute, &device.host_ops),
        (Leaf::Unsplit, &device.exchanges),
    ] {
        parts.push((leaf, rest.intersect(set)));
        rest = rest.without(set);
    }
    parts.push((Leaf::HostOther, rest));
    Parts(parts)
}

/// Totals beside the account, in one window.
pub fn beside(device: &Device, start: i64, end: i64) -> Beside {
    let operations = &device.operations;
    let all = |keep: fn(&Operation) -> bool| {
        spans(operations, keep, |o| (o.start, o.end)).clip(start, end)
    };
    let busy = all(|_| true);
    let compute = all(|o| matches!(o.work, Work::Compute(_)));
    let communication = all(|o| o.work == Work::Collective);
    let copies = all(|o| matches!(o.work, Work::Copy | Work::Fill));
    let waiting = spans(
        operations,
        |o| o.work == Work::Collective && o.all_arrived().is_some(),
        |o| (o.start, o.all_arrived().unwrap_or(o.start)),
    )
    .clip(start, end);
    let hidden = communication.intersect(&compute);
    let wait_hidden = waiting.intersect(&compute).total();
    Beside {
        busy: busy.total(),
        communication: communication.total(),
        communication_hidden: hidden.total() - wait_hidden,
        wait_hidden,
        copy_hidden: copies.intersect(&compute.union(&communication)).total(),
    }
}

/// Unions over a whole recording, edges and all: what other analysers report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// From the first start to the last end.
    pub span: i64,
    /// Any operation ran.
    pub busy: i64,
    /// Any computing kernel ran.
    pub compute: i64,
    /// Any collective ran.
    pub communication: i64,
    /// A collective ran and no computing.
    pub communication_exposed: i64,
    /// Any copy or fill ran.
    pub copies: i64,
    /// A copy or fill ran, and neither computing nor a collective.
    pub copies_exposed: i64,
}

/// Unions over a whole recording of a device.
pub fn recording(device: &Device) -> Recording {
    let all = |keep: fn(&Operation) -> bool| spans(&device.operations, keep, |o| (o.start, o.end));
    let busy = all(|_| true);
    let compute = all(|o| matches!(o.work, Work::Compute(_)));
    let communication = all(|o| o.work == Work::Collective);
    let copies = all(|o| matches!(o.work, Work::Copy | Work::Fill));
    let exposed = communication.without(&compute);
    let ends = busy.intervals();
    let span = ends.first().zip(ends.last()).map_or(0, |(first, last)| last.1 - first.0);
    Recording {
        span,
        busy: busy.total(),
        compute: compute.total(),
        communication: communication.total(),
        communication_exposed: exposed.total(),
        copies: copies.total(),
        copies_exposed: copies.without(&compute).without(&communication).total(),
    }
}

fn spans(
    operations: &[Operation],
    keep: impl Fn(&Operation) -> bool,
    interval: impl Fn(&Operation) -> (i64, i64),
) -> Set {
    Set::union_of(operations.iter().filter(|o| keep(o)).map(interval))
}

/// What the launching chain did, as sets of time.
struct Chain {
    allocate: Set,
    copy: Set,
    synchronise: Set,
    load: Set,
    /// Inside an operator of the framework, but in no call.
    operator: Set,
    /// Anything marked at all.
    marked: Set,
    /// Ends of calls that waited for the device, sorted.
    blocking_ends: Vec<i64>,
}

impl Chain {
    fn of(device: &Device) -> Chain {
        let class = |wanted: Call| {
            let calls = device.calls.iter().filter(move |call| call.class == wanted);
            Set::union_of(calls.map(|call| (call.start, call.end)))
        };
        let all = Set::union_of(device.calls.iter().map(|call| (call.start, call.end)));
        let pageable: Vec<Index> =
            device.operations.iter().filter(|o| o.pageable).filter_map(|o| o.launch).collect();
        let mut blocking_ends: Vec<i64> = device
            .calls
            .iter()
            .filter(|call| call.class == Call::Synchronise)
            .chain(pageable.iter().map(|call| &device.calls[call.get()]))
            .map(|call| call.end)
            .collect();
        blocking_ends.sort_unstable();
        let marked = all
            .union(&device.host_ops)
            .union(&device.loader)
            .union(&device.collections)
            .union(&device.profiler);
        Chain {
            allocate: class(Call::Allocate).union(&class(Call::Free)),
            copy: class(Call::Copy),
            synchronise: class(Call::Synchronise),
            load: class(Call::Load),
            operator: device.host_ops.without(&all),
            marked,
            blocking_ends,
        }
    }
}

/// Divides the times in which nothing runs, by what the next operation waited for.
fn idle(device: &Device, busy: &Set) -> Vec<(Leaf, Set)> {
    let chain = Chain::of(device);
    let mut parts: Vec<(Leaf, Vec<(i64, i64)>)> =
        Leaf::ALL.into_iter().map(|leaf| (leaf, vec![])).collect();
    let mut give = |leaf: Leaf, set: &Set| parts[leaf as usize].1.extend(set.intervals());
    let mut refill_until = i64::MIN;
    let mut at = 0;
    for (start, end) in busy.gaps() {
        // The next operation: the first by start, then end, as the list is sorted.
        while at < device.operations.len() && device.operations[at].start < end {
            at += 1;
        }
        let gap = Set::single(start, end);
        let Some(next) = device.operations.get(at) else {
            give(Leaf::Unknown, &gap);
            continue;
        };
        let Some(launch) = device.launch(next) else {
            // Without a launch record, a stay in the loader is still what the device waited for.
            let loading = gap.intersect(&device.loader);
            give(Leaf::HostData, &loading);
            give(Leaf::Unknown, &gap.without(&loading));
            continue;
        };
        if launch.start <= start {
            give(queued_gap(device, at, end - start), &gap);
            continue;
        }
        let launched = launch.start.min(end);
        give(Leaf::HostLaunch, &Set::single(launched, end));
        let mut rest = Set::single(start, launched);
        for (leaf, set) in [
            (Leaf::HostData, &device.loader),
            (Leaf::HostAlloc, &chain.allocate),
            (Leaf::CopyStaging, &chain.copy),
            (Leaf::HostSync, &chain.synchronise),
            (Leaf::HostCompile, &chain.load),
            (Leaf::HostGc, &device.collections),
            (Leaf::Profiler, &device.profiler),
        ] {
            let taken = rest.intersect(set);
            if !taken.is_empty() {
                give(leaf, &taken);
                rest = rest.without(&taken);
            }
        }
        let holes = rest.without(&chain.marked).at_least(STALL);
        give(Leaf::HostOther, &holes);
        rest = rest.without(&holes);
        let inside = rest.intersect(&chain.operator).at_least(STALL);
        give(Leaf::HostCompile, &inside);
        rest = rest.without(&inside);
        let before = chain.blocking_ends.partition_point(|&time| time <= launched);
        let drained = before.checked_sub(1).map_or(i64::MIN, |index| chain.blocking_ends[index]);
        let fresh = drained >= start.saturating_sub(DRAIN);
        if fresh {
            refill_until = refill_until.max(drained.saturating_add(REFILL));
        }
        let refilling = fresh || start < refill_until;
        give(if refilling { Leaf::HostSync } else { Leaf::HostLaunch }, &rest);
    }
    parts
        .into_iter()
        .filter(|(_, intervals)| !intervals.is_empty())
        .map(|(leaf, intervals)| (leaf, Set::union_of(intervals)))
        .collect()
}

/// A gap before an operation that was launched before the gap began.
fn queued_gap(device: &Device, next: usize, length: i64) -> Leaf {
    let operation = &device.operations[next];
    let graph = device.launch(operation).is_some_and(|call| call.class == Call::GraphLaunch);
    let previous = next.checked_sub(1).and_then(|index| device.operations[index].launch);
    if graph && previous == operation.launch {
        Leaf::GapGraph
    } else if length <= SHORT_GAP {
        Leaf::GapShort
    } else {
        Leaf::GapLong
    }
}
