//! A diagnosis as one self-contained page: account, findings, zoomable timeline, collectives. No network.
//!
//! Knows what the page needs as data; `page.html` draws it.

use std::collections::HashMap;

use diagnose::{device::Work, diagnosis::Diagnosis, job::Job, wall_clock::WallClock};
use serde_json::{Value, json};

use super::json;

/// Devices drawn at most; further ranks are told apart by the account alone.
const DEVICES: usize = 8;
/// Spans drawn at most for one device.
const SPANS: usize = 20_000;

/// The page.
pub fn page(job: &Job, diagnosis: &Diagnosis) -> String {
    let mut names = Names::default();
    let mut tracks = vec![];
    let mut dropped = 0;
    for index in 0..job.participants.len().min(DEVICES) {
        dropped += device_tracks(job, index, &mut names, &mut tracks);
    }
    let further = job.participants.len().saturating_sub(DEVICES);
    let left_out = match (further, dropped) {
        (0, 0) => None,
        (0, _) => Some(format!(
            "{dropped} operations beyond the first {SPANS} of a device are not drawn."
        )),
        _ => Some(format!(
            "The first {DEVICES} devices are drawn; {further} more are in the account."
        )),
    };
    let data = json!({
        "document": json::document(job, diagnosis),
        "tracks": tracks,
        "names": names.texts,
        "left_out": left_out,
    });
    // A text inside a script element must not close it.
    let text = data.to_string().replace("</", "<\\/");
    include_str!("page.html").replace("/*DATA*/", &text)
}

#[derive(Default)]
struct Names {
    texts: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    fn of(&mut self, text: &str) -> usize {
        if let Some(&index) = self.index.get(text) {
            return index;
        }
        self.texts.push(text.to_owned());
        self.index.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// Adds the streams and the host of a device; yields how many operations were too many.
fn device_tracks(job: &Job, index: usize, names: &mut Names, tracks: &mut Vec<Value>) -> usize {
    let participant = &job.participants[index];
    let timeline = job.timeline(index);
    let clock = job.clock.relation(index);
    let (start, end) = job.accounted[index].steps.window().unwrap_or((i64::MIN, i64::MAX));
    let margin = (end.saturating_sub(start)) / 20;
    let (start, end) = (start.saturating_sub(margin), end.saturating_add(margin));
    let zero = timeline.wall_clock_zero.unwrap_or(0);
    // Times are relative to the first participant's first operation, so that numbers stay exact in the page.
    let reference = &job.participants[0].device;
    let first_step = reference.host_steps.first().map_or(0, |step| step.start);
    let origin = reference.operations.first().map_or(first_step, |first| first.start);
    let relative = |time: i64| clock.reference(time) - origin;
    let zero = zero.saturating_sub(clock.offset).saturating_sub(origin);
    let inside: Vec<_> = participant
        .device
        .operations
        .iter()
        .filter(|operation| operation.end > start && operation.start < end)
        .collect();
    let mut streams: Vec<i64> = inside.iter().map(|operation| operation.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let file = &job.inputs[participant.input].name;
    for stream in streams {
        let spans: Vec<Value> = inside
            .iter()
            .take(SPANS)
            .filter(|operation| operation.stream == stream)
            .flat_map(|operation| {
                let name = names.of(timeline.name_of(operation.span));
                let (start, end) = (operation.start, operation.end);
                let span =
                    |from: i64, to: i64, kind: u8| json!([relative(from), to - from, kind, name]);
                match (operation.work, operation.all_arrived()) {
                    (Work::Compute(_), _) => vec![span(start, end, 0)],
                    // Until the last rank has arrived it waits.
                    (Work::Collective, Some(arrived)) if arrived > start && arrived < end => {
                        vec![span(start, arrived, 4), span(arrived, end, 1)]
                    }
                    (Work::Collective, _) => vec![span(start, end, 1)],
                    (Work::Copy | Work::Fill, _) => vec![span(start, end, 2)],
                }
            })
            .collect();
        tracks.push(json!({
            "name": format!("rank {} stream {stream}", participant.rank),
            "file": file,
            "zero": zero,
            "spans": spans,
        }));
    }
    let calls: Vec<Value> = participant
        .device
        .calls
        .iter()
        .filter(|call| call.end > start && call.start < end)
        .take(SPANS)
        .map(|call| {
            let name = names.of(timeline.name_of(call.span));
            json!([relative(call.start), call.end - call.start, 3, name])
        })
        .collect();
    if !calls.is_empty() {
        tracks.push(json!({
            "name": format!("rank {} host", participant.rank),
            "file": file,
            "zero": zero,
            "spans": calls,
        }));
    }
    if job.is_host_only() {
        let (device, wall) = (&participant.device, WallClock::of(timeline));
        let operators = device.host_op_spans.iter().map(|&span| {
            let (start, end) = wall.times(span);
            (start, end, 0, timeline.name_of(span))
        });
        let loader = device.loader.intervals().iter().map(|&(s, e)| (s, e, 3, "data loader"));
        let mut spans: Vec<(i64, i64, i32, &str)> =
            operators.chain(loader).filter(|(from, to, ..)| *to > start && *from < end).collect();
        spans.sort_by_key(|&(start, end, ..)| (start, -end));
        let spans: Vec<Value> = spans
            .into_iter()
            .take(SPANS)
            .map(|(start, end, kind, name)| {
                json!([relative(start), end - start, kind, names.of(name)])
            })
            .collect();
        tracks.push(json!({
            "name": format!("rank {} host", participant.rank),
            "file": file,
            "zero": zero,
            "spans": spans,
        }));
    }
    inside.len().saturating_sub(SPANS)
}
