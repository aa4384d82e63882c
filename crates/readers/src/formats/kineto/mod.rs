//! Kineto and other Chrome-trace JSON: PyTorch's profiler in every generation, CUDA and ROCm.
//!
//! Streams: a reader thread cuts the bytes between events, workers parse the pieces, the result is joined in order.
//! Knows the format; what a kernel or call means for a step is the diagnosis' matter.

mod build;
mod chunks;
mod event;
mod json;
mod metadata;

pub use build::is_collective;
pub use event::collective_operation;

use std::io::Read;

use timeline::Timeline;

use crate::{
    ReadError, Reader,
    input::{Input, cut_off},
};

/// The reader.
#[derive(Debug)]
pub struct Kineto;

impl Reader for Kineto {
    fn name(&self) -> &'static str {
        "kineto"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
        let has = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
        match first {
            Some(b'{') => {
                has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\""))
            }
            Some(b'[') => has("\"ph\"") && (has("\"ts\"") || has("\"pid\"")),
            _ => false,
        }
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let name = input.name.clone();
        let mut timeline = read(input.into_reader())?;
        if let Some(process) = timeline.processes.first_mut() {
            process.host = process.pid.and_then(|pid| host_in_name(&name, pid));
        }
        if timeline.spans.is_empty() {
            let damaged = timeline.skipped.iter().map(|skipped| match skipped.count {
                1 => skipped.reason.clone(),
                count => format!("{count} times {}", skipped.reason),
            });
            let found: Vec<String> = damaged.collect();
            let found = if found.is_empty() { "no events".to_owned() } else { found.join(", ") };
            let message = format!("no usable event ({found})");
            return Err(ReadError::Nothing { format: "kineto", message });
        }
        Ok(timeline)
    }
}

fn read(bytes: impl Read + Send) -> Result<Timeline, ReadError> {
    let mut builder = build::Builder::default();
    let outside = chunks::parse(bytes, |batch| builder.merge(batch))?;
    let metadata = metadata::Metadata::read(&outside.before, &outside.after);
    let mut timeline = builder.finish(&metadata);
    if let Some(place) = outside.failure {
        let behind = match timeline.spans.len() {
            0 => "before the first event".to_owned(),
            1 => "behind 1 event".to_owned(),
            count => format!("behind {count} events"),
        };
        cut_off(&mut timeline, &format!("{place}, {behind}"));
    }
    if outside.more {
        cut_off(
            &mut timeline,
            "more follows behind the end of this recording: hand each over as a file",
        );
    }
    Ok(timeline)
}

/// The host in a name as PyTorch's trace handler gives it: `HOST_PID.TIME.pt.trace.json`.
fn host_in_name(path: &str, pid: i64) -> Option<String> {
    let name = path.rsplit(['/', '\\']).next()?;
    let end = name.find(&format!("_{pid}."))?;
    let host = &name[..end];
    (!host.is_empty() && name.contains(".pt.trace.json")).then(|| host.to_owned())
}
