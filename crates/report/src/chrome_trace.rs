//! A timeline as Chrome-trace JSON, which Perfetto and chrome://tracing open: written event by event.
//!
//! pid is the rank (or the process where there is none), tid the track, times are microseconds with three decimals. Knows
//! no recorder.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use timeline::{Detail, Kind, Process, SpanId, Timeline};

/// What a recorded timeline states first.
pub const TIMELINE: &str = "counterpoint.timeline/1";

/// Writes the whole timeline under the name of a schema.
///
/// # Errors
/// Those of `out`.
pub fn write(timeline: &Timeline, schema: &str, out: &mut impl Write) -> io::Result<()> {
    let mut events = Events { out, first: true };
    let head = format!("{{\"schema\":\"{schema}\",\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    events.out.write_all(head.as_bytes())?;
    metadata(timeline, &mut events)?;
    for id in timeline.spans.ids() {
        let span = timeline.spans.get(id);
        events.put(
            json!({"ph": "X", "name": timeline.name_of(id), "cat": category(span.kind),
                   "pid": pid(timeline, timeline.process_of(id)), "tid": span.track.0,
                   "args": arguments(timeline, id)}),
            &[("ts", span.start.nanos()), ("dur", span.duration.nanos())],
        )?;
    }
    let launches =
        timeline.spans.ids().filter_map(|id| timeline.spans.launcher(id).map(|from| (from, id)));
    for (number, (from, to)) in timeline.flows.iter().copied().chain(launches).enumerate() {
        // A flow event binds to the slice that encloses its time on its track.
        for (phase, id) in [("s", from), ("f", to)] {
            let span = timeline.spans.get(id);
            let mut event = json!({"ph": phase, "name": "depends", "cat": "flow", "id": number,
                "pid": pid(timeline, timeline.process_of(id)), "tid": span.track.0});
            if phase == "f" {
                event["bp"] = json!("e");
            }
            events.put(event, &[("ts", span.start.nanos())])?;
        }
    }
    for counter in &timeline.counters {
        let process = timeline.tracks[counter.track.0 as usize].process;
        events.put(
            json!({"ph": "C", "name": timeline.names.text(counter.name),
                   "pid": pid(timeline, process), "args": {"value": counter.value}}),
            &[("ts", counter.time.nanos())],
        )?;
    }
    let skipped: Map<String, Value> =
        timeline.skipped.iter().map(|s| (s.reason.clone(), json!(s.count))).collect();
    let skipped = Value::Object(skipped);
    write!(events.out, "\n],\"otherData\":{{\"skipped\":{skipped}}}}}\n")
}

/// The rank; a process without one gets a number behind all ranks.
fn pid(timeline: &Timeline, process: u32) -> u32 {
    let rank = |index: u32| timeline.processes.get(index as usize).and_then(|own| own.rank);
    let free =
        || timeline.processes.iter().filter_map(|own| own.rank).max().map_or(0, |rank| rank + 1);
    rank(process).unwrap_or_else(|| free() + process)
}

fn metadata(timeline: &Timeline, events: &mut Events<impl Write>) -> io::Result<()> {
    for (index, process) in timeline.processes.iter().enumerate() {
        let pid = pid(timeline, index as u32);
        for (name, args) in [
            ("process_name", json!({"name": process_name(process)})),
            ("process_sort_index", json!({"sort_index": pid})),
        ] {
            events.put(json!({"ph": "M", "name": name, "pid": pid, "args": args}), &[])?;
        }
    }
    for (index, track) in timeline.tracks.iter().enumerate() {
        let pid = pid(timeline, track.process);
        for (name, args) in [
            ("thread_name", json!({"name": track.name})),
            ("thread_sort_index", json!({"sort_index": index})),
        ] {
            events.put(
                json!({"ph": "M", "name": name, "pid": pid, "tid": index, "args": args}),
                &[],
            )?;
        }
    }
    Ok(())
}

fn process_name(process: &Process) -> String {
    match (process.rank, &process.host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, _) => process.name.clone(),
    }
}

fn category(kind: Kind) -> &'static str {
    match kind {
        Kind::Compute => "compute",
        Kind::Communication => "communication",
        Kind::Copy => "copy",
        Kind::Fill => "fill",
        Kind::Call => "call",
        Kind::HostOp => "host operator",
        Kind::Mark => "mark",
        Kind::Wait => "wait",
        Kind::Data => "data",
        Kind::Overhead => "overhead",
        Kind::Other => "other",
    }
}

fn arguments(timeline: &Timeline, span: SpanId) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| {
        all.insert(key.to_owned(), value);
    };
    for detail in timeline.spans.details(span) {
        match detail {
            Detail::Collective { operation, group, ranks, bytes, sequence } => {
                put("operation", json!(operation));
                put("group", json!(group));
                put("ranks", json!(ranks));
                put("message_bytes", json!(bytes));
                put("sequence", json!(sequence));
            }
            Detail::Transfer { bytes } => put("bytes", json!(bytes)),
            Detail::Planned { node, path, flops, bytes, predicted_ns } => {
                put("node", json!(node));
                put("path", json!(path));
                put("flops", json!(flops));
                put("bytes", json!(bytes));
                put("predicted_ns", json!(predicted_ns));
            }
            Detail::Number { key, value } => put(key, json!(value)),
            _ => {}
        }
    }
    all
}

struct Events<'w, W> {
    out: &'w mut W,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    /// One event; times in nanoseconds are written as exact decimal microseconds.
    fn put(&mut self, event: Value, times: &[(&str, i64)]) -> io::Result<()> {
        if !self.first {
            self.out.write_all(b",\n")?;
        }
        self.first = false;
        let text = event.to_string();
        let body = text.strip_suffix('}').unwrap_or(&text);
        self.out.write_all(body.as_bytes())?;
        for (key, nanoseconds) in times {
            let sign = if *nanoseconds < 0 { "-" } else { "" };
            let (whole, rest) =
                (nanoseconds.unsigned_abs() / 1000, nanoseconds.unsigned_abs() % 1000);
            write!(self.out, ",\"{key}\":{sign}{whole}.{rest:03}")?;
        }
        self.out.write_all(b"}")
    }
}
