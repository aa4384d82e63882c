//! One device of one rank, ready for the account: operations with their launches, the host's calls and marks.
//!
//! Knows timelines; not the other ranks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use timeline::{Detail, Kind, SpanId, Timeline, TrackId, TrackKind};

use crate::{
    classify::{self, Call},
    index::Index,
    interval::Set,
    leaf::Leaf,
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

/// A step as the host marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// The program's number of the step.
    pub number: i64,
    /// Start of the mark.
    pub start: i64,
    /// End of the mark.
    pub end: i64,
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
    let (clock, spans) = (WallClock::of(timeline), &timeline.spans);
    let at = |id: SpanId| clock.times(id);
    let mut kernel_leaves: HashMap<usize, Leaf> = HashMap::new();
    // Devices are told apart by process too: each process may see one device and call it 0.
    let mut by_device: BTreeMap<(u32, u32), Vec<Operation>> = BTreeMap::new();
    let mut launching: BTreeMap<(u32, u32), Vec<TrackId>> = BTreeMap::new();
    for id in spans.ids() {
        let span = spans.get(id);
        let track = &timeline.tracks[span.track.0 as usize];
        let TrackKind::Stream { device, stream } = track.kind else { continue };
        let device = (track.process, device);
        let work = match span.kind {
            Kind::Compute => Work::Compute(
                *kernel_leaves
                    .entry(span.name.index())
                    .or_insert_with(|| classify::kernel(timeline.names.text(span.name))),
            ),
            Kind::Communication => Work::Collective,
            Kind::Copy => Work::Copy,
            Kind::Fill => Work::Fill,
            _ => continue,
        };
        let (start, end) = at(id);
        if let Some(call) = spans.launcher(id) {
            let threads = launching.entry(device).or_default();
            let track = spans.get(call).track;
            if !threads.contains(&track) {
                threads.push(track);
            }
        }
        let bytes = spans.details(id).find_map(|detail| match detail {
            Detail::Transfer { bytes } => Some(*bytes),
            Detail::Collective { bytes, .. } => *bytes,
            _ => None,
        });
        let operation = Operation {
            start,
            end,
            span: id,
            work,
            stream,
            launch: None,
            bytes: bytes.unwrap_or(0),
            pageable: work == Work::Copy
                && timeline.names.text(span.name).to_lowercase().contains("pageable"),
            matched: None,
            waited: 0,
        };
        by_device.entry(device).or_default().push(operation);
    }
    let mut hosts: BTreeMap<u32, Host> = BTreeMap::new();
    by_device
        .into_iter()
        .map(|(device, operations)| {
            let threads = launching.remove(&device).unwrap_or_default();
            let host = hosts.entry(device.0).or_insert_with(|| Host::read(timeline, &at, device.0));
            host.device(timeline, &at, device, operations, &threads)
        })
        .collect()
}

/// A rank that trains on the host: marked steps, and framework operators on the thread that steps, but no operation of
/// a device. `None` for any other recording.
pub fn host_only(timeline: &Timeline) -> Option<Device> {
    let (clock, spans) = (WallClock::of(timeline), &timeline.spans);
    let at = |id: SpanId| clock.times(id);
    let stepping = spans.ids().find_map(|id| {
        let span = spans.get(id);
        let is_step = span.kind == Kind::Mark && step_number(timeline.name_of(id)).is_some();
        is_step.then_some(span.track)
    })?;
    let process = timeline.tracks[stepping.0 as usize].process;
    let host = Host::read(timeline, &at, process);
    let mut device = host.device(timeline, &at, (process, 0), vec![], &[stepping]);
    device.exchanges = Set::union_of(
        spans.ids().filter(|&id| classify::is_host_exchange(timeline.name_of(id))).map(at),
    );
    (host.steps.len() > 1 && !device.host_op_spans.is_empty()).then_some(device)
}

/// Marks of the host that all devices of a rank share.
struct Host {
    steps: Vec<HostStep>,
    step_source: &'static str,
    loader: Vec<(TrackId, i64, i64)>,
    saves: Vec<(TrackId, i64, i64)>,
    collections: Set,
    profiler: Set,
}

impl Host {
    fn read(timeline: &Timeline, at: &impl Fn(SpanId) -> (i64, i64), process: u32) -> Host {
        let (mut steps, mut loader, mut saves) = (vec![], vec![], vec![]);
        let (mut collections, mut profiler) = (vec![], vec![]);
        let mut source = "none";
        let meanings: Vec<Meaning> = timeline.names.iter().map(Meaning::of).collect();
        for id in timeline.spans.ids() {
            let span = timeline.spans.get(id);
            let meaning = meanings[span.name.index()];
            if timeline.tracks[span.track.0 as usize].process != process {
                continue;
            }
            match (span.kind, meaning) {
                (Kind::Overhead, Meaning::FullQueue) => {}
                (Kind::Overhead, _) => profiler.push(at(id)),
                (Kind::Data, _) | (Kind::Mark | Kind::HostOp, Meaning::Loader) => {
                    let (start, end) = at(id);
                    loader.push((span.track, start, end));
                }
                (Kind::Mark, Meaning::Save) => {
                    let (start, end) = at(id);
                    saves.push((span.track, start, end));
                }
                (Kind::Mark, Meaning::Collection) => collections.push(at(id)),
                (Kind::Mark, Meaning::Step(number, from)) => {
                    let (start, end) = at(id);
                    source = from;
                    steps.push(HostStep { number, start, end });
                }
                _ => {}
            }
        }
        steps.sort_by_key(|step| step.start);
        Host {
            steps,
            step_source: source,
            loader,
            saves,
            collections: Set::union_of(collections),
            profiler: Set::union_of(profiler),
        }
    }

    fn device(
        &self,
        timeline: &Timeline,
        at: &impl Fn(SpanId) -> (i64, i64),
        (process, number): (u32, u32),
        mut operations: Vec<Operation>,
        threads: &[TrackId],
    ) -> Device {
        let spans = &timeline.spans;
        let (mut calls, mut host_op_spans) = (vec![], vec![]);
        let mut classes: HashMap<usize, Call> = HashMap::new();
        for id in spans.ids() {
            let span = spans.get(id);
            if !threads.contains(&span.track) {
                continue;
            }
            match span.kind {
                Kind::Call => {
                    let class = *classes
                        .entry(span.name.index())
                        .or_insert_with(|| classify::call(timeline.names.text(span.name)));
                    let (start, end) = at(id);
                    calls.push(HostCall { start, end, span: id, class });
                }
                Kind::HostOp => host_op_spans.push(id),
                _ => {}
            }
        }
        calls.shrink_to_fit();
        host_op_spans.shrink_to_fit();
        let key = |call: &HostCall| (call.start, call.end, call.span);
        calls.sort_unstable_by_key(key);
        for operation in &mut operations {
            operation.launch = spans.launcher(operation.span).and_then(|id| {
                let (start, end) = at(id);
                Index::new(calls.binary_search_by_key(&(start, end, id), key).ok()?)
            });
        }
        operations.sort_unstable_by_key(|o| (o.start, o.end, o.span));
        operations.shrink_to_fit();
        host_op_spans.sort_by_key(|&id| {
            let (start, end) = at(id);
            (start, Reverse(end))
        });
        let mut computing: BTreeMap<i64, i64> = BTreeMap::new();
        for operation in &operations {
            if matches!(operation.work, Work::Compute(_)) {
                let time = computing.entry(operation.stream).or_default();
                *time = time.saturating_add(operation.end - operation.start);
            }
        }
        let busiest = computing.iter().max_by_key(|&(stream, total)| (*total, -*stream));
        let primary_stream = busiest
            .map(|(&stream, _)| stream)
            .or_else(|| operations.first().map(|operation| operation.stream))
            .unwrap_or(0);
        // Marks count on launching threads; where those have none, on any thread of the rank.
        let counted = |marks: &[(TrackId, i64, i64)]| {
            let own =
                marks.iter().filter(|(track, ..)| threads.is_empty() || threads.contains(track));
            Set::union_of(own.map(|&(_, start, end)| (start, end)))
        };
        let (loader, saves) = (counted(&self.loader), counted(&self.saves));
        let host_ops = Set::union_of(host_op_spans.iter().map(|&id| at(id)));
        let marked = Set::union_of(calls.iter().map(|call| (call.start, call.end)))
            .union(&host_ops)
            .union(&loader)
            .union(&saves)
            .union(&self.collections)
            .union(&self.profiler);
        let stalls = marked.gaps().filter(|(start, end)| end - start >= STALL);
        Device {
            process,
            number,
            operations,
            calls,
            primary_stream,
            host_steps: self.steps.clone(),
            step_source: self.step_source,
            loader,
            saves,
            collections: self.collections.clone(),
            host_ops,
            host_op_spans,
            unmarked_stalls: Set::union_of(stalls),
            profiler: self.profiler.clone(),
            exchanges: Set::empty(),
        }
    }
}

/// What a name means wherever it occurs.
#[derive(Clone, Copy)]
enum Meaning {
    Loader,
    Save,
    Collection,
    Step(i64, &'static str),
    /// "Command Buffer Full": the device is behind, not the profiler.
    FullQueue,
    Nothing,
}

impl Meaning {
    fn of(name: &str) -> Meaning {
        if classify::is_loader(name) {
            Meaning::Loader
        } else if classify::is_save(name) {
            Meaning::Save
        } else if classify::is_collection(name) {
            Meaning::Collection
        } else if name.contains("Command Buffer Full") {
            Meaning::FullQueue
        } else {
            step_number(name).map_or(Meaning::Nothing, |(number, from)| Meaning::Step(number, from))
        }
    }
}

/// The number of a step's mark and who makes such marks.
pub fn step_number(name: &str) -> Option<(i64, &'static str)> {
    let (number, source) = if let Some(number) = name.strip_prefix("ProfilerStep#") {
        (number, "ProfilerStep")
    } else if let Some(number) = name.strip_prefix("counterpoint.step#") {
        (number, "engine")
    } else {
        (name.strip_prefix("step ").or_else(|| name.strip_prefix("iteration "))?, "nvtx")
    };
    Some((number.trim().parse().ok()?, source))
}
