//! The tables of an export as a timeline: calls first, then what they launched. Knows the tables' columns.

use std::collections::HashMap;

use rusqlite::Connection;
use timeline::{Detail, Duration, Kind, Process, Span, SpanId, Time, Timeline, TrackId, TrackKind};

use super::table::{Table, Values};
use crate::formats::kineto::{collective_operation, is_collective};

/// Bytes of texts that are kept.
const MOST_TEXT: usize = 256 << 20;
/// More spans than this are left out: about 1 GiB.
const MOST_SPANS: usize = 16_000_000;

/// Reads all tables.
///
/// # Errors
/// Where the schema cannot be read.
pub fn timeline(connection: &Connection) -> rusqlite::Result<Timeline> {
    let mut builder = Builder::new(connection)?;
    builder.process_names()?;
    builder.calls()?;
    builder.kernels()?;
    builder.transfers()?;
    builder.waits()?;
    builder.ranges()?;
    builder.overhead()?;
    builder.facts()?;
    Ok(builder.timeline)
}

struct Builder<'c> {
    connection: &'c Connection,
    timeline: Timeline,
    texts: HashMap<i64, String>,
    /// Names of processes, by the global id without its thread; only those with events become processes.
    programs: HashMap<i64, String>,
    /// By the serialized global id without its thread.
    processes: HashMap<i64, u32>,
    tracks: HashMap<(u32, TrackKind), TrackId>,
    /// Calls by process and correlation.
    launches: HashMap<(u32, i64), SpanId>,
    /// Calls by correlation alone, for exports whose operations name no process.
    any_launch: HashMap<i64, SpanId>,
}

impl<'c> Builder<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Builder<'c>> {
        let mut timeline = Timeline::new();
        let mut texts = HashMap::new();
        if let Some(table) = Table::find(connection, "StringIds", &["id", "value"], 2)? {
            let mut room = MOST_TEXT;
            table.each(connection, &mut timeline, |timeline, row| {
                if let (Some(id), Some(text)) = (row.int(0), row.text(1)) {
                    if text.len() > room {
                        timeline.skip("text beyond the most that is read");
                        return;
                    }
                    // The text, and its place in the table.
                    room -= text.len().min(room);
                    room = room.saturating_sub(64);
                    texts.insert(id, text.to_owned());
                }
            });
        }
        Ok(Builder {
            connection,
            timeline,
            texts,
            programs: HashMap::new(),
            processes: HashMap::new(),
            tracks: HashMap::new(),
            launches: HashMap::new(),
            any_launch: HashMap::new(),
        })
    }

    /// Calls `row` for each row of a table that exists and has the first two columns.
    fn each(
        &mut self,
        name: &'static str,
        columns: &'static [&'static str],
        mut row: impl FnMut(&mut Self, Values<'_>),
    ) -> rusqlite::Result<bool> {
        let Some(table) = Table::find(self.connection, name, columns, 2)? else { return Ok(false) };
        let connection = self.connection;
        let mut timeline = std::mem::take(&mut self.timeline);
        table.each(connection, &mut timeline, |timeline, values| {
            std::mem::swap(&mut self.timeline, timeline);
            row(self, values);
            std::mem::swap(&mut self.timeline, timeline);
        });
        self.timeline = timeline;
        Ok(table.has(columns[0]))
    }

    /// The process of a serialized global id: hardware, machine, process (24 bits) and thread (24 bits).
    fn process(&mut self, global: Option<i64>) -> u32 {
        let key = global.map_or(-1, |global| global >> 24);
        if let Some(&process) = self.processes.get(&key) {
            return process;
        }
        // Operations without a process are those of the only one there is.
        if key < 0
            && let [only] = self.processes.values().copied().collect::<Vec<_>>()[..]
        {
            return only;
        }
        let pid = global.map(|global| (global >> 24) & 0xff_ffff);
        let name = pid.map_or_else(|| "process".to_owned(), |pid| format!("process {pid}"));
        let process = self.timeline.add_process(Process { pid, name, ..Process::default() });
        self.processes.insert(key, process);
        process
    }

    fn track(&mut self, process: u32, kind: TrackKind) -> TrackId {
        if let Some(&track) = self.tracks.get(&(process, kind.clone())) {
            return track;
        }
        let name = match &kind {
            TrackKind::Stream { device, stream } => format!("device {device} stream {stream}"),
            TrackKind::Thread { thread } => format!("thread {thread}"),
            _ => "marks".to_owned(),
        };
        let track = self.timeline.track(process, kind.clone(), &name);
        self.tracks.insert((process, kind), track);
        track
    }

    fn thread(&mut self, global: Option<i64>) -> (u32, TrackId) {
        let process = self.process(global);
        let thread = global.map_or(0, |global| global & 0xff_ffff);
        (process, self.track(process, TrackKind::Thread { thread }))
    }

    /// Adds the span of a row; `None` where its times make none, which is counted.
    fn span(&mut self, row: Values<'_>, track: TrackId, kind: Kind, name: &str) -> Option<SpanId> {
        let Some((start, length)) = row.times() else {
            self.timeline.skip("row without a start and an end");
            return None;
        };
        if self.timeline.spans.len() >= MOST_SPANS {
            self.timeline.skip("row beyond the most that is read");
            return None;
        }
        let name = self.timeline.names.intern(name);
        let (start, duration) = (Time::from_nanos(start), Duration::from_nanos(length));
        Some(self.timeline.spans.push(Span { track, kind, name, start, duration }))
    }

    fn text(&self, id: Option<i64>) -> String {
        id.and_then(|id| self.texts.get(&id)).cloned().unwrap_or_default()
    }

    fn process_names(&mut self) -> rusqlite::Result<()> {
        let mut names: HashMap<i64, String> = HashMap::new();
        self.each("PROCESSES", &["globalPid", "name"], |_, row| {
            if let (Some(global), Some(name)) = (row.int(0), row.text(1)) {
                names.insert(global >> 24, name.to_owned());
            }
        })?;
        self.programs = names;
        Ok(())
    }

    fn calls(&mut self) -> rusqlite::Result<()> {
        const COLUMNS: &[&str] = &["start", "end", "globalTid", "correlationId", "nameId"];
        for table in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
            self.each(table, COLUMNS, |own, row| {
                let (process, track) = own.thread(row.int(2));
                let name = own.text(row.int(4));
                let Some(id) = own.span(row, track, Kind::Call, bare_call(&name)) else { return };
                if let Some(correlation) = row.int(3) {
                    own.launches.insert((process, correlation), id);
                    own.any_launch.insert(correlation, id);
                }
            })?;
        }
        Ok(())
    }

    /// Adds a device operation and links it to its call.
    fn operation(
        &mut self,
        row: Values<'_>,
        place: Place,
        kind: Kind,
        name: &str,
    ) -> Option<SpanId> {
        let launcher = match place.global_pid {
            Some(_) => {
                let process = self.process(place.global_pid);
                place.correlation.and_then(|c| self.launches.get(&(process, c)).copied())
            }
            None => place.correlation.and_then(|c| self.any_launch.get(&c).copied()),
        };
        let process = match (place.global_pid, launcher) {
            (None, Some(call)) => self.timeline.process_of(call),
            (global, _) => self.process(global),
        };
        let device = u32::try_from(place.device.unwrap_or(0)).unwrap_or(0);
        let stream = place.stream.unwrap_or(0);
        let track = self.track(process, TrackKind::Stream { device, stream });
        let id = self.span(row, track, kind, name)?;
        if let Some(call) = launcher {
            self.timeline.spans.set_launcher(id, call);
        }
        Some(id)
    }

    fn kernels(&mut self) -> rusqlite::Result<()> {
        const COLUMNS: &[&str] = &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
        ];
        self.each("CUPTI_ACTIVITY_KIND_KERNEL", COLUMNS, |own, row| {
            let short = own.text(row.int(7));
            let full = own.text(row.int(6));
            let name = if full.is_empty() { &short } else { &full };
            let outer = if short.is_empty() { name } else { &short };
            let collective = is_collective(outer.as_bytes());
            let kind = if collective { Kind::Communication } else { Kind::Compute };
            let Some(id) = own.operation(row, Place::of(row), kind, name) else { return };
            if collective {
                let operation = collective_operation(None, outer.as_bytes());
                let detail = Detail::Collective {
                    operation,
                    group: String::new(),
                    ranks: None,
                    bytes: None,
                    sequence: None,
                };
                own.timeline.spans.add_detail(id, detail);
            }
        })?;
        // Where graphs were recorded whole, their kernels are in no other table.
        const GRAPHS: &[&str] =
            &["start", "end", "deviceId", "streamId", "correlationId", "globalPid"];
        self.each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPHS, |own, row| {
            own.operation(row, Place::of(row), Kind::Compute, "CUDA graph");
        })?;
        Ok(())
    }

    fn transfers(&mut self) -> rusqlite::Result<()> {
        const COPIES: &[&str] = &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
        ];
        self.each("CUPTI_ACTIVITY_KIND_MEMCPY", COPIES, |own, row| {
            let name = copy_name(row.int(7), row.int(8), row.int(9));
            let Some(id) = own.operation(row, Place::of(row), Kind::Copy, &name) else { return };
            own.moves(id, row.int(6));
        })?;
        const FILLS: &[&str] =
            &["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"];
        self.each("CUPTI_ACTIVITY_KIND_MEMSET", FILLS, |own, row| {
            let Some(id) = own.operation(row, Place::of(row), Kind::Fill, "Memset (Device)") else {
                return;
            };
            own.moves(id, row.int(6));
        })?;
        Ok(())
    }

    fn moves(&mut self, id: SpanId, bytes: Option<i64>) {
        if let Some(bytes) = bytes.and_then(|bytes| u64::try_from(bytes).ok()) {
            self.timeline.spans.add_detail(id, Detail::Transfer { bytes });
        }
    }

    fn waits(&mut self) -> rusqlite::Result<()> {
        const COLUMNS: &[&str] = &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "syncType",
            "eventSyncId",
        ];
        self.each("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", COLUMNS, |own, row| {
            let name = match row.int(6) {
                Some(1) => "Event Sync",
                Some(2) => "Stream Wait Event",
                Some(3) => "Stream Sync",
                Some(4) => "Context Sync",
                _ => "Sync",
            };
            let Some(id) = own.operation(row, Place::of(row), Kind::Wait, name) else { return };
            if let Some(value) = row.int(7) {
                own.timeline.spans.add_detail(id, Detail::Number { key: "event_sync_id", value });
            }
        })?;
        Ok(())
    }

    /// NVTX ranges: operators of a framework by their form, everything else a mark.
    fn ranges(&mut self) -> rusqlite::Result<()> {
        const COLUMNS: &[&str] = &["start", "end", "globalTid", "eventType", "text", "textId"];
        const RANGES: [i64; 4] = [59, 60, 70, 71];
        self.each("NVTX_EVENTS", COLUMNS, |own, row| {
            if row.int(3).is_some_and(|kind| !RANGES.contains(&kind)) {
                own.timeline.skip("NVTX event that is no range");
                return;
            }
            if row.int(1).is_none() {
                own.timeline.skip("NVTX range without an end");
                return;
            }
            let (_, track) = own.thread(row.int(2));
            let stored;
            let text = match row.text(4) {
                Some(text) => text,
                None => {
                    stored = own.text(row.int(5));
                    &stored
                }
            };
            let (name, operator) = bare_range(text);
            let kind = if operator { Kind::HostOp } else { Kind::Mark };
            own.span(row, track, kind, name);
        })?;
        Ok(())
    }

    fn overhead(&mut self) -> rusqlite::Result<()> {
        const COLUMNS: &[&str] = &["start", "end", "globalTid", "nameId"];
        for table in ["CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"] {
            self.each(table, COLUMNS, |own, row| {
                let (_, track) = own.thread(row.int(2));
                let name = own.text(row.int(3));
                own.span(row, track, Kind::Overhead, &name);
            })?;
        }
        Ok(())
    }

    fn facts(&mut self) -> rusqlite::Result<()> {
        if self.timeline.processes.is_empty() {
            self.timeline.add_process(Process::default());
        }
        for (&key, &process) in &self.processes {
            if let Some(name) = self.programs.get(&key) {
                let own = &mut self.timeline.processes[process as usize];
                own.name = format!("{name} {}", own.pid.unwrap_or(0));
            }
        }
        let mut names: HashMap<i64, String> = HashMap::new();
        self.each("TARGET_INFO_GPU", &["id", "name"], |_, row| {
            if let (Some(id), Some(name)) = (row.int(0), row.text(1)) {
                names.insert(id, name.to_owned());
            }
        })?;
        let count = self.timeline.processes.len() as u32;
        let mut devices: Vec<(Option<i64>, i64, i64, Option<i64>)> = vec![];
        const DEVICES: &[&str] = &["gpuId", "cudaId", "pid", "numMultiprocessors"];
        self.each("TARGET_INFO_CUDA_DEVICE", DEVICES, |_, row| {
            if let (Some(gpu), Some(number)) = (row.int(0), row.int(1)) {
                devices.push((row.int(2), number, gpu, row.int(3)));
            }
        })?;
        if devices.is_empty() {
            devices = names.keys().map(|&id| (None, id, id, None)).collect();
            devices.sort_unstable();
        }
        for process in 0..count {
            let pid = self.timeline.processes[process as usize].pid;
            for (owner, number, gpu, multiprocessors) in &devices {
                if owner.is_some() && pid.is_some() && *owner != pid {
                    continue;
                }
                if let Some(name) = names.get(gpu) {
                    let key = format!("device.{number}.name");
                    self.timeline.fact(Some(process), &key, name.as_str());
                }
                if let Some(number_of) = multiprocessors {
                    let key = format!("device.{number}.multiprocessors");
                    self.timeline.fact(Some(process), &key, *number_of);
                }
            }
        }
        let mut zero = None;
        self.each("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs", "utcEpochNs"], |_, row| {
            zero = row.int(0);
        })?;
        self.timeline.wall_clock_zero = Some(zero.unwrap_or(0));
        Ok(())
    }
}

/// Where an operation ran, from the columns that all tables of operations begin with.
#[derive(Clone, Copy)]
struct Place {
    device: Option<i64>,
    stream: Option<i64>,
    correlation: Option<i64>,
    global_pid: Option<i64>,
}

impl Place {
    fn of(row: Values<'_>) -> Place {
        Place {
            device: row.int(2),
            stream: row.int(3),
            correlation: row.int(4),
            global_pid: row.int(5),
        }
    }
}

/// `cudaLaunchKernel_v7000` as `cudaLaunchKernel`.
fn bare_call(name: &str) -> &str {
    let bare = match name.rsplit_once("_v") {
        Some((bare, version)) if version.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => name,
    };
    bare.trim_end_matches("_ptsz").trim_end_matches("_ptds")
}

/// A range's name without the numbers PyTorch appends, and whether it is an operator.
fn bare_range(text: &str) -> (&str, bool) {
    let end = [", op_id = ", ", seq = ", ", sizes = ", ", input_op_ids = "]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let name = &text[..end.unwrap_or(text.len())];
    (name, name.contains("::"))
}

/// The name that the other recorders give such a copy.
fn copy_name(kind: Option<i64>, source: Option<i64>, destination: Option<i64>) -> String {
    let direction = match kind {
        Some(1 | 3 | 11) => "HtoD",
        Some(2 | 4 | 12) => "DtoH",
        Some(5..=8 | 13) => "DtoD",
        Some(9) => "HtoH",
        Some(10) => "PtoP",
        _ => return "Memcpy".to_owned(),
    };
    let memory = |kind: Option<i64>| match kind {
        Some(0) => Some("Pageable"),
        Some(1) => Some("Pinned"),
        Some(2 | 5) => Some("Device"),
        Some(3) => Some("Array"),
        Some(4 | 6) => Some("Managed"),
        _ => None,
    };
    match (memory(source), memory(destination)) {
        (Some(from), Some(to)) => format!("Memcpy {direction} ({from} -> {to})"),
        _ => format!("Memcpy {direction}"),
    }
}
