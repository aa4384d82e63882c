//! What lanes record while they run, and the timeline made of it later.
//!
//! A lane writes a few numbers per step into memory of its own. Knows the plan's expectations.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use graph::Kind as NodeKind;
use plan::{Lane, Plan};
use timeline::{Detail, Duration, Kind, Process, SpanId, Time, Timeline, TrackId, TrackKind};

/// Nanoseconds since the first call in this process: all ranks of a process share the zero.
pub fn now() -> i64 {
    i64::try_from(origin().0.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

fn origin() -> &'static (Instant, i64) {
    static ORIGIN: OnceLock<(Instant, i64)> = OnceLock::new();
    ORIGIN.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), i64::try_from(wall.as_nanos()).unwrap_or(0))
    })
}

/// One step as a lane saw it, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StepRecord {
    /// Number of the call.
    pub call: u64,
    /// Index of the function.
    pub function: usize,
    /// Index of the lane.
    pub lane: usize,
    /// Position in the function's list.
    pub step: usize,
    /// When the lane began to wait for other lanes.
    pub waiting_since: i64,
    /// When the work began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
}

/// Something the host did, as told by the training loop.
#[derive(Clone, Debug)]
pub struct HostRecord {
    /// What its time was spent on.
    pub kind: Kind,
    /// What to show.
    pub name: String,
    /// Its first moment.
    pub start: Instant,
    /// The moment after its last.
    pub end: Instant,
}

/// Waits shorter than this are not worth a span.
const SHORTEST_WAIT: i64 = 1_000;

/// The timeline of one rank's records.
pub fn timeline(
    plan: &Plan,
    lanes: &[Lane],
    rank: usize,
    records: &[StepRecord],
    host: &[HostRecord],
) -> Timeline {
    let mut timeline = Timeline::new();
    timeline.wall_clock_zero = Some(origin().1);
    let name = format!("rank {rank}");
    let process =
        timeline.add_process(Process { rank: Some(rank as u32), host: None, pid: None, name });
    let tracks: Vec<TrackId> = lanes
        .iter()
        .zip(0..)
        .map(|(lane, index)| timeline.track(process, TrackKind::Lane { index }, &lane.to_string()))
        .collect();
    let mut records = records.to_vec();
    records.sort_by_key(|record| (record.call, record.step));
    let mut spans: BTreeMap<(u64, usize), SpanId> = BTreeMap::new();
    for record in &records {
        let track = tracks[record.lane];
        if let Some(id) = add_step(&mut timeline, plan, track, record, &spans) {
            spans.insert((record.call, record.step), id);
        }
    }
    let track = timeline.track(process, TrackKind::Other, "host");
    for HostRecord { kind, name, start, end } in host {
        span(&mut timeline, track, *kind, name, nanoseconds(*start), nanoseconds(*end));
    }
    timeline
}

fn nanoseconds(at: Instant) -> i64 {
    let since = at.saturating_duration_since(origin().0).as_nanos();
    i64::try_from(since).unwrap_or(i64::MAX)
}

fn span(
    timeline: &mut Timeline,
    track: TrackId,
    kind: Kind,
    name: &str,
    from: i64,
    to: i64,
) -> SpanId {
    timeline.add(
        track,
        kind,
        name,
        Time::from_nanos(from),
        Duration::from_nanos((to - from).max(0)),
    )
}

fn add_step(
    timeline: &mut Timeline,
    plan: &Plan,
    track: TrackId,
    record: &StepRecord,
    spans: &BTreeMap<(u64, usize), SpanId>,
) -> Option<SpanId> {
    let schedule = plan.functions.get(record.function)?;
    let step = schedule.steps.get(record.step)?;
    let graph = &plan.program.function(&schedule.name)?.graph;
    let node = graph.node(step.node);
    if record.start - record.waiting_since >= SHORTEST_WAIT {
        span(timeline, track, Kind::Wait, "wait", record.waiting_since, record.start);
    }
    let kind = match &node.kind {
        NodeKind::Collective(_) => Kind::Communication,
        NodeKind::Input { .. } => Kind::Copy,
        _ => Kind::Compute,
    };
    let id = span(timeline, track, kind, node.name(), record.start, record.end);
    if let NodeKind::Collective(collective) = &node.kind {
        let input = node.inputs.first().map(|&value| graph.ty(value).bytes() as u64);
        let group = step.lane.to_string();
        let ranks = Some(plan.ranks as u32);
        let operation = collective.name().to_owned();
        let detail = Detail::Collective { operation, group, ranks, bytes: input, sequence: None };
        timeline.spans.add_detail(id, detail);
    }
    timeline.spans.add_detail(
        id,
        Detail::Planned {
            node: step.node.0,
            path: node.site.path.clone(),
            flops: step.flops,
            bytes: step.bytes,
            predicted_ns: step.predicted_ns,
        },
    );
    for wait in &step.waits {
        if let Some(&from) = spans.get(&(record.call, wait.0 as usize)) {
            timeline.flows.push((from, id));
        }
    }
    Some(id)
}
