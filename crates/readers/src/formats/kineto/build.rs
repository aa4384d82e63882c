//! Joins parsed events into a timeline: names, tracks, launches. Knows no JSON.

use std::collections::HashMap;

use timeline::{Detail, Duration, Kind, Process, Span, SpanId, Time, Timeline, TrackId, TrackKind};

use super::{
    event::{Category, Event, collective_operation, message_bytes},
    json::unescape,
    metadata::Metadata,
};

/// Events of one piece of a file, independent of all others.
#[derive(Debug, Default)]
pub struct Batch {
    /// Position behind the list's closing bracket, where it lies in this piece.
    pub list_end: Option<usize>,
    /// The piece's bytes, where they may be metadata.
    pub all: Vec<u8>,
    spans: Vec<RawSpan>,
    names: Vec<Box<[u8]>>,
    name_index: HashMap<Box<[u8]>, u32>,
    thread_names: Vec<(i64, i64, String)>,
    skipped: Vec<(&'static str, u64)>,
}

#[derive(Debug)]
struct RawSpan {
    category: Category,
    name: u32,
    start: i64,
    duration: i64,
    /// Device and stream, or process and thread.
    place: (i64, i64),
    correlation: i64,
    detail: Option<Box<Detail>>,
    has_shapes: bool,
    own: bool,
}

impl Batch {
    /// Whether no event was found.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.thread_names.is_empty()
    }

    /// Keeps an event.
    pub fn push(&mut self, event: &Event<'_>) {
        let on_device = matches!(
            event.category,
            Category::Kernel | Category::Memcpy | Category::Memset | Category::Synchronisation
        ) && event.own.is_none();
        let place =
            if on_device { (event.device, event.stream) } else { (event.process, event.thread) };
        let name = self.intern(event.name);
        self.spans.push(RawSpan {
            category: event.category,
            name,
            start: event.start,
            duration: event.duration,
            place,
            correlation: event.correlation,
            detail: detail(event).map(Box::new),
            has_shapes: event.input_dims.is_some(),
            own: event.own.is_some(),
        });
    }

    /// Keeps the name of a process (`thread` -1) or thread.
    pub fn name(&mut self, process: i64, thread: i64, name: &[u8]) {
        self.thread_names.push((process, thread, unescape(name)));
    }

    /// Counts something left out.
    pub fn skip(&mut self, reason: &'static str) {
        match self.skipped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.skipped.push((reason, 1)),
        }
    }

    fn intern(&mut self, name: &[u8]) -> u32 {
        if let Some(&index) = self.name_index.get(name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.into());
        self.name_index.insert(name.into(), index);
        index
    }
}

/// Whether a kernel's name is that of a collective library: NCCL, RCCL or MSCCL.
pub fn is_collective(name: &[u8]) -> bool {
    let known = [&b"nccl"[..], b"rccl", b"msccl", b"NCCL"];
    known.iter().any(|text| memchr::memmem::find(name, text).is_some())
}

fn detail(event: &Event<'_>) -> Option<Detail> {
    let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    if let Some(own) = &event.own {
        return match event.category {
            Category::Exchange if !own.operation.is_empty() => Some(Detail::Collective {
                operation: unescape(own.operation),
                group: unescape(own.group),
                ranks: own.ranks.and_then(|ranks| u32::try_from(ranks).ok()),
                bytes: number(own.message_bytes),
                sequence: number(own.sequence),
            }),
            Category::Memcpy | Category::Memset if own.node.is_none() => {
                Some(Detail::Transfer { bytes: u64::try_from(event.bytes).ok()? })
            }
            _ => Some(Detail::Planned {
                node: own.node.and_then(|node| u32::try_from(node).ok())?,
                path: unescape(own.path),
                flops: number(own.flops).unwrap_or(0),
                bytes: u64::try_from(event.bytes).unwrap_or(0),
                predicted_ns: number(own.predicted).unwrap_or(0),
            }),
        };
    }
    match event.category {
        Category::Kernel if event.collective.is_some() || is_collective(event.name) => {
            let fields = event.collective.as_ref();
            Some(Detail::Collective {
                operation: collective_operation(fields, event.name),
                group: fields.map_or(String::new(), |fields| unescape(fields.group)),
                ranks: fields.and_then(|f| f.group_size).and_then(|n| u32::try_from(n).ok()),
                bytes: fields.and_then(message_bytes),
                sequence: fields.and_then(|f| f.sequence).and_then(|n| u64::try_from(n).ok()),
            })
        }
        Category::Memcpy | Category::Memset => {
            Some(Detail::Transfer { bytes: u64::try_from(event.bytes).ok()? })
        }
        _ => None,
    }
}

/// Threads and streams of a recording; more are damage.
const MOST_TRACKS: usize = 4096;

/// Joins batches in order.
#[derive(Debug, Default)]
pub struct Builder {
    timeline: Timeline,
    tracks: HashMap<(u32, bool, i64, i64), TrackId>,
    /// Calls and the operations they launched, by correlation.
    launches: Vec<(i64, SpanId)>,
    launched: Vec<(i64, SpanId)>,
    thread_names: Vec<(i64, i64, String)>,
    host_processes: HashMap<i64, u64>,
    /// Ranks of our engine's recordings, which hold one process each.
    own_processes: HashMap<i64, u32>,
    shapes: u64,
    host_ops: u64,
}

impl Builder {
    /// Appends a batch.
    pub fn merge(&mut self, batch: Batch) {
        if self.timeline.processes.is_empty() {
            self.timeline.add_process(Process::default());
        }
        let names: Vec<_> =
            batch.names.iter().map(|name| self.timeline.names.intern(&unescape(name))).collect();
        for span in batch.spans {
            if self.timeline.spans.is_full() {
                self.timeline.skip("event beyond the most that is read");
                continue;
            }
            let kind = match span.category {
                Category::Kernel
                    if matches!(span.detail.as_deref(), Some(Detail::Collective { .. })) =>
                {
                    Kind::Communication
                }
                Category::Kernel => Kind::Compute,
                Category::Memcpy => Kind::Copy,
                Category::Memset => Kind::Fill,
                Category::Runtime => Kind::Call,
                Category::HostOp => Kind::HostOp,
                Category::Mark => Kind::Mark,
                Category::Overhead => Kind::Overhead,
                Category::Synchronisation | Category::Wait => Kind::Wait,
                Category::Exchange => Kind::Communication,
                Category::Data => Kind::Data,
            };
            let on_device = matches!(
                kind,
                Kind::Compute | Kind::Communication | Kind::Copy | Kind::Fill | Kind::Wait
            );
            let track = if span.own {
                let lane = on_device && kind != Kind::Wait;
                self.own_track(lane, span.place)
            } else {
                self.track(on_device, span.place)
            };
            let id = self.timeline.spans.push(Span {
                track,
                kind,
                name: names[span.name as usize],
                start: Time::from_nanos(span.start),
                duration: Duration::from_nanos(span.duration),
            });
            if span.correlation > 0 {
                if kind == Kind::Call {
                    self.launches.push((span.correlation, id));
                } else if on_device && kind != Kind::Wait {
                    self.launched.push((span.correlation, id));
                }
            }
            if kind == Kind::Call || kind == Kind::HostOp {
                *self.host_processes.entry(span.place.0).or_default() += 1;
            }
            self.host_ops += u64::from(kind == Kind::HostOp);
            self.shapes += u64::from(span.has_shapes);
            if let Some(detail) = span.detail {
                self.timeline.spans.add_detail(id, *detail);
            }
        }
        self.thread_names.extend(batch.thread_names);
        for (reason, count) in batch.skipped {
            self.timeline.skip(reason);
            if let Some(skipped) = self.timeline.skipped.iter_mut().find(|s| s.reason == reason) {
                skipped.count += count - 1;
            }
        }
    }

    /// A track of our engine: its process id is the rank, its thread id the lane.
    fn own_track(&mut self, lane: bool, (rank, lane_id): (i64, i64)) -> TrackId {
        let process = match self.own_processes.get(&rank) {
            Some(&process) => process,
            None if self.own_processes.len() >= MOST_TRACKS => 0,
            None => {
                let first = self.own_processes.is_empty();
                let process = if first { 0 } else { self.timeline.add_process(Process::default()) };
                let own = &mut self.timeline.processes[process as usize];
                own.rank = u32::try_from(rank).ok();
                own.name = format!("rank {rank}");
                self.own_processes.insert(rank, process);
                process
            }
        };
        let key = (process, lane, rank, lane_id);
        if let Some(&track) = self.tracks.get(&key) {
            return track;
        }
        if self.is_full() {
            return TrackId(0);
        }
        let kind = if lane {
            TrackKind::Stream { device: 0, stream: lane_id }
        } else {
            TrackKind::Thread { thread: lane_id }
        };
        let track = self.timeline.track(process, kind, &format!("lane {lane_id}"));
        self.tracks.insert(key, track);
        track
    }

    fn track(&mut self, on_device: bool, place: (i64, i64)) -> TrackId {
        let key = (0, on_device, place.0, place.1);
        if let Some(&track) = self.tracks.get(&key) {
            return track;
        }
        if self.is_full() {
            return TrackId(0);
        }
        let (kind, name) = if on_device {
            let device = u32::try_from(place.0).unwrap_or(0);
            (
                TrackKind::Stream { device, stream: place.1 },
                format!("device {device} stream {}", place.1),
            )
        } else {
            (TrackKind::Thread { thread: place.1 }, format!("thread {}", place.1))
        };
        let track = self.timeline.track(0, kind, &name);
        self.tracks.insert(key, track);
        track
    }

    /// Whether there are as many tracks as are kept; events on others go to the first, where they mean nothing.
    fn is_full(&mut self) -> bool {
        let full = self.tracks.len() >= MOST_TRACKS;
        if full {
            self.timeline.skip("event on more threads and streams than are kept");
        }
        full
    }

    /// Links operations to the last call of their correlation.
    fn link(&mut self) {
        let mut launches = std::mem::take(&mut self.launches);
        // Nearly in order as recorded.
        launches.sort();
        for (correlation, id) in std::mem::take(&mut self.launched) {
            let end = launches.partition_point(|(known, _)| *known <= correlation);
            if let Some(&(known, call)) = launches[..end].last()
                && known == correlation
            {
                self.timeline.spans.set_launcher(id, call);
            }
        }
    }

    /// The timeline, with launches linked and the file's metadata as facts.
    pub fn finish(mut self, metadata: &Metadata) -> Timeline {
        self.link();
        let mut timeline = self.timeline;
        timeline.spans.shrink_to_fit();
        if timeline.processes.is_empty() {
            timeline.add_process(Process::default());
        }
        let pid = self.host_processes.iter().max_by_key(|&(pid, count)| (*count, -*pid));
        if self.own_processes.is_empty() {
            let process = &mut timeline.processes[0];
            process.rank = metadata.rank;
            process.pid = pid.map(|(&pid, _)| pid).filter(|&pid| pid >= 0);
            process.name =
                metadata.rank.map_or_else(|| "process".to_owned(), |r| format!("rank {r}"));
        }
        let names: HashMap<i64, &String> =
            self.thread_names.iter().map(|(_, thread, name)| (*thread, name)).collect();
        for track in &mut timeline.tracks {
            if let TrackKind::Thread { thread } = track.kind
                && let Some(&name) = names.get(&thread)
            {
                track.name.clone_from(name);
            }
        }
        timeline.wall_clock_zero = Some(metadata.base_time.unwrap_or(0));
        facts(&mut timeline, metadata);
        if self.host_ops > 0 {
            timeline.fact(None, "recorded.shapes", i64::from(self.shapes > 0));
        }
        timeline
    }
}

fn facts(timeline: &mut Timeline, metadata: &Metadata) {
    if let Some(size) = metadata.world_size {
        timeline.fact(None, "job.world_size", i64::from(size));
    }
    if let Some(backend) = &metadata.backend {
        timeline.fact(None, "job.backend", backend.as_str());
    }
    if let Some(version) = &metadata.nccl_version {
        timeline.fact(Some(0), "nccl.version", version.as_str());
    }
    for (id, name, multiprocessors) in &metadata.devices {
        timeline.fact(Some(0), &format!("device.{id}.name"), name.as_str());
        if let Some(count) = multiprocessors {
            timeline.fact(Some(0), &format!("device.{id}.multiprocessors"), *count);
        }
    }
    for (name, ranks) in &metadata.groups {
        let list: Vec<String> = ranks.iter().map(i64::to_string).collect();
        timeline.fact(None, &format!("group.{name}.ranks"), list.join(","));
    }
    for (key, version) in &metadata.versions {
        timeline.fact(Some(0), key, version.as_str());
    }
}
