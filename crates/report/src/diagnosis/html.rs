//! A diagnosis as one self-contained page: account, findings, zoomable timeline, collectives. No network.
//!
//! Knows what the page needs as data; `page.html` draws it.

use std::collections::HashMap;

use diagnose::{device::Work, diagnosis::Diagnosis, job::Job};
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
    let offset = job.clock.offsets.get(index).copied().flatten().unwrap_or(0);
    let (start, end) = job.accounted[index].steps.window().unwrap_or((i64::MIN, i64::MAX));
    let margin = (end.saturating_sub(start)) / 20;
    let (start, end) = (start.saturating_sub(margin), end.saturating_add(margin));
    let zero = timeline.wall_clock_zero.unwrap_or(0);
    // Times are relative to the first participant's first operation, so that numbers stay exact in the page.
    let origin = job.participants[0].device.operations.first().map_or(0, |first| first.start);
    let relative = |time: i64| time - offset - origin;
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
            .map(|operation| {
                let kind = match operation.work {
                    Work::Compute(_) => 0,
                    Work::Collective => 1,
                    Work::Copy | Work::Fill => 2,
                };
                let name = names.of(timeline.name_of(operation.span));
                json!([relative(operation.start), operation.end - operation.start, kind, name])
            })
            .collect();
        tracks.push(json!({
            "name": format!("rank {} stream {stream}", participant.rank),
            "file": file,
            "zero": zero - offset - origin,
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
            "zero": zero - offset - origin,
            "spans": calls,
        }));
    }
    inside.len().saturating_sub(SPANS)
}
