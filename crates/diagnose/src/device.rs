//! One device of one rank, ready for the account: operations with their launches, the host's calls and marks.
//!
//! Knows timelines; not the other ranks.

use std::{cmp::Reverse, collections::BTreeMap};

use timeline::{Detail, Kind, SpanId, Timeline, TrackId, TrackKind};

use crate::{
    classify::{self, Call},
    index::Index,
    interval::Set,
    leaf::Leaf,
    marks::{HostStep, Mark, Marks, step_number},
    wall_clock::WallClock,
};

/// From this many nanoseconds on, host time that nothing marks is a stall rather than issuing.
pub const STALL: i64 = 1_000_000;

/// What a device operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A computing kernel and its leaf.
    Compute(Leaf),
    /// A collective.
    Collective,
    /// A copy.
    Copy,
    /// A fill.
    Fill,
}

/// One operation of the device: 56 bytes, of which a recording holds hundreds of thousands. Times are nanoseconds of
/// the rank's wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// The span it was read from.
    pub span: SpanId,
    /// What it is.
    pub work: Work,
    /// Stream number.
    pub stream: i64,
    /// The call in [`Device::calls`] that launched it, where recorded.
    pub launch: Option<Index>,
    /// Bytes moved or sent; 0 where unknown.
    pub bytes: u64,
    /// Whether a copy's host side is pageable memory.
    pub pageable: bool,
    /// For a matched collective: index into the job's matched collectives.
    pub matched: Option<Index>,
    /// For a matched collective: from its start until the last rank had arrived.
    pub waited: i64,
}

impl Operation {
    /// For a matched collective: when the last rank had arrived, in this rank's clock.
    pub fn all_arrived(&self) -> Option<i64> {
        self.matched.map(|_| self.start + self.waited)
    }
}

/// One call of the runtime or driver by a launching thread: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub struct HostCall {
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// The span it was read from.
    pub span: SpanId,
    /// What it does.
    pub class: Call,
}

impl HostCall {
    fn key(&self) -> (i64, i64, SpanId) {
        (self.start, self.end, self.span)
    }
}

/// One device of one rank.
#[derive(Debug, Default)]
pub struct Device {
    /// Index of the process among the recording's.
    pub process: u32,
    /// Device number within the rank's process.
    pub number: u32,
    /// Operations by start, then end.
    pub operations: Vec<Operation>,
    /// Calls of the launching threads by start.
    pub calls: Vec<HostCall>,
    /// The stream with most computing.
    pub primary_stream: i64,
    /// Steps marked by the host, in order.
    pub host_steps: Vec<HostStep>,
    /// Who marked the steps: `ProfilerStep`, `nvtx`, `engine` or `none`.
    pub step_source: &'static str,
    /// When the host was in the loader.
    pub loader: Set,
    /// When the host collected garbage.
    pub collections: Set,
    /// When the host wrote a checkpoint, as a mark says.
    pub saves: Set,
    /// When the host was inside an operator of the framework.
    pub host_ops: Set,
    /// The operators themselves on the launching threads, by start, outer ones first.
    pub host_op_spans: Vec<SpanId>,
    /// Host time of 1 ms and more between calls that nothing marks.
    pub unmarked_stalls: Set,
    /// When the profiler worked, full launch queues excepted.
    pub profiler: Set,
    /// When a host's backend such as gloo exchanged between ranks; empty where the device does that.
    pub exchanges: Set,
}

impl Device {
    /// The call that launched an operation of this device, where recorded.
    pub fn launch(&self, operation: &Operation) -> Option<&HostCall> {
        self.calls.get(operation.launch?.get())
    }
}

/// All devices of a rank's timeline that carried out operations.
pub fn devices(timeline: &Timeline) -> Vec<Device> {
    let clock = WallClock::of(timeline);
    assemble(timeline, &clock, queues(timeline, &clock))
}

/// A rank that trains on the host: marked steps, and framework operators on the thread that steps, but no operation of
/// a device. `None` for any other recording.
pub fn host_only(timeline: &Timeline) -> Option<Device> {
    let (clock, spans) = (WallClock::of(timeline), &timeline.spans);
    let stepping = spans.ids().find_map(|id| {
        let span = spans.get(id);
        let is_step = span.kind == Kind::Mark && step_number(timeline.name_of(id)).is_some();
        is_step.then_some(span.track)
    })?;
    let process = timeline.tracks[stepping.0 as usize].process;
    let alone = Queue { operations: vec![], threads: vec![stepping] };
    let queues = BTreeMap::from([((process, 0), alone)]);
    let mut device = assemble(timeline, &clock, queues).pop()?;
    let exchanges = spans.ids().filter(|&id| classify::is_host_exchange(timeline.name_of(id)));
    device.exchanges = Set::union_of(exchanges.map(|id| clock.times(id)));
    (device.host_steps.len() > 1 && !device.host_op_spans.is_empty()).then_some(device)
}

/// What a device carried out, and the threads that launched it.
#[derive(Debug, Default)]
struct Queue {
    operations: Vec<Operation>,
    threads: Vec<TrackId>,
}

/// The operations of each process's devices: each process may see one device and call it 0.
fn queues(timeline: &Timeline, clock: &WallClock<'_>) -> BTreeMap<(u32, u32), Queue> {
    let spans = &timeline.spans;
    let mut leaves: Vec<Option<Leaf>> = vec![None; timeline.names.len()];
    let mut queues: BTreeMap<(u32, u32), Queue> = BTreeMap::new();
    for id in spans.ids() {
        let span = spans.get(id);
        let track = &timeline.tracks[span.track.0 as usize];
        let TrackKind::Stream { device, stream } = track.kind else { continue };
        let name = timeline.names.text(span.name);
        let work = match span.kind {
            Kind::Compute => {
                let leaf = &mut leaves[span.name.index()];
                Work::Compute(*leaf.get_or_insert_with(|| classify::kernel(name)))
            }
            Kind::Communication => Work::Collective,
            Kind::Copy => Work::Copy,
            Kind::Fill => Work::Fill,
            _ => continue,
        };
        let queue = queues.entry((track.process, device)).or_default();
        if let Some(call) = spans.launcher(id) {
            let thread = spans.get(call).track;
            if !queue.threads.contains(&thread) {
                queue.threads.push(thread);
            }
        }
        let (start, end) = clock.times(id);
        let bytes = spans.details(id).find_map(|detail| match detail {
            Detail::Transfer { bytes } => Some(*bytes),
            Detail::Collective { bytes, .. } => *bytes,
            _ => None,
        });
        queue.operations.push(Operation {
            start,
            end,
            span: id,
            work,
            stream,
            launch: None,
            bytes: bytes.unwrap_or(0),
            pageable: work == Work::Copy && name.to_lowercase().contains("pageable"),
            matched: None,
            waited: 0,
        });
    }
    queues
}

/// What the launching threads of a device did.
#[derive(Debug, Default)]
struct Chain {
    calls: Vec<HostCall>,
    operators: Vec<SpanId>,
}

/// The chains of all devices, read in one pass however many there are.
fn chains(timeline: &Timeline, clock: &WallClock<'_>, threads: &[&[TrackId]]) -> Vec<Chain> {
    let spans = &timeline.spans;
    let mut launching_for: Vec<Vec<usize>> = vec![vec![]; timeline.tracks.len()];
    for (device, threads) in threads.iter().enumerate() {
        for thread in *threads {
            launching_for[thread.0 as usize].push(device);
        }
    }
    let mut classes: Vec<Option<Call>> = vec![None; timeline.names.len()];
    let mut chains: Vec<Chain> = threads.iter().map(|_| Chain::default()).collect();
    for id in spans.ids() {
        let span = spans.get(id);
        for &device in &launching_for[span.track.0 as usize] {
            match span.kind {
                Kind::Call => {
                    let name = timeline.names.text(span.name);
                    let class = &mut classes[span.name.index()];
                    let class = *class.get_or_insert_with(|| classify::call(name));
                    let (start, end) = clock.times(id);
                    chains[device].calls.push(HostCall { start, end, span: id, class });
                }
                Kind::HostOp => chains[device].operators.push(id),
                _ => {}
            }
        }
    }
    for chain in &mut chains {
        chain.calls.shrink_to_fit();
        chain.calls.sort_unstable_by_key(HostCall::key);
        chain.operators.shrink_to_fit();
        chain.operators.sort_by_key(|&id| {
            let (start, end) = clock.times(id);
            (start, Reverse(end))
        });
    }
    chains
}

/// Devices from their queues, with what their hosts did and marked.
fn assemble(
    timeline: &Timeline,
    clock: &WallClock<'_>,
    queues: BTreeMap<(u32, u32), Queue>,
) -> Vec<Device> {
    let threads: Vec<&[TrackId]> = queues.values().map(|queue| &queue.threads[..]).collect();
    let chains = chains(timeline, clock, &threads);
    let marks = Marks::by_process(timeline, clock);
    let device = |(((process, number), queue), chain): (((u32, u32), Queue), Chain)| {
        let Queue { mut operations, threads } = queue;
        let Chain { calls, operators } = chain;
        for operation in &mut operations {
            operation.launch = timeline.spans.launcher(operation.span).and_then(|id| {
                let (start, end) = clock.times(id);
                Index::new(calls.binary_search_by_key(&(start, end, id), HostCall::key).ok()?)
            });
        }
        operations.sort_unstable_by_key(|o| (o.start, o.end, o.span));
        operations.shrink_to_fit();
        let marks = &marks[process as usize];
        let (loader, saves) = (on(&threads, &marks.loader), on(&threads, &marks.saves));
        let host_ops = Set::union_of(operators.iter().map(|&id| clock.times(id)));
        let marked = Set::union_of(calls.iter().map(|call| (call.start, call.end)))
            .union(&host_ops)
            .union(&loader)
            .union(&saves)
            .union(&marks.collections)
            .union(&marks.profiler);
        let stalls = marked.gaps().filter(|(start, end)| end - start >= STALL);
        Device {
            process,
            number,
            primary_stream: primary_stream(&operations),
            operations,
            calls,
            host_steps: marks.steps.clone(),
            step_source: marks.step_source,
            loader,
            saves,
            collections: marks.collections.clone(),
            host_ops,
            host_op_spans: operators,
            unmarked_stalls: Set::union_of(stalls),
            profiler: marks.profiler.clone(),
            exchanges: Set::empty(),
        }
    };
    queues.into_iter().zip(chains).map(device).collect()
}

/// Marks count on launching threads; where a device has none, on any thread of the process.
fn on(threads: &[TrackId], marks: &[Mark]) -> Set {
    let own = marks.iter().filter(|mark| threads.is_empty() || threads.contains(&mark.track));
    Set::union_of(own.map(|mark| (mark.start, mark.end)))
}

/// The stream with most computing; the first of all where nothing computes.
fn primary_stream(operations: &[Operation]) -> i64 {
    let mut computing: BTreeMap<i64, i64> = BTreeMap::new();
    for operation in operations.iter().filter(|o| matches!(o.work, Work::Compute(_))) {
        let time = computing.entry(operation.stream).or_default();
        *time = time.saturating_add(operation.end - operation.start);
    }
    let busiest = computing.iter().max_by_key(|&(stream, total)| (*total, -*stream));
    let first = || operations.first().map_or(0, |operation| operation.stream);
    busiest.map_or_else(first, |(&stream, _)| stream)
}
