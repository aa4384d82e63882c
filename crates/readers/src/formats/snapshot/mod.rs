//! PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`), pickles of plain data.
//!
//! Facts of the run, for each device that holds memory: `memory.device`, then `memory.reserved_bytes`,
//! `memory.allocated_bytes`, `memory.active_bytes`, `memory.non_releasable_bytes` (free parts of segments in use),
//! `memory.reserved_segments`, `memory.largest_free_bytes`; from its trace `memory.allocated_peak_bytes`, `memory.ooms`,
//! `memory.segment_frees`; `memory.setting` ("NAME=VALUE"). Knows the snapshot's shape; nothing is executed.

mod pickle;

use std::{collections::BTreeMap, io::Read};

use timeline::Timeline;

use self::pickle::{Document, Node};
use crate::{ReadError, Reader, input::Input};

/// The reader.
#[derive(Debug)]
pub struct Snapshot;

/// Devices of a host.
const MOST_DEVICES: usize = 1024;
/// Segments, and blocks of all of them.
const MOST_BLOCKS: usize = 12_000_000;
/// Larger pickles are left alone: their objects would take more than a gigabyte.
const MOST_BYTES: u64 = 192 << 20;

impl Reader for Snapshot {
    fn name(&self) -> &'static str {
        "memory-snapshot"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        matches!(head, [0x80, 2..=5, 0x95 | b'}' | b']' | b'(' | b'c', ..])
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let nothing = |message: String| ReadError::Nothing { format: "memory-snapshot", message };
        let mut bytes = vec![];
        input.into_reader().take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(nothing(format!("larger than {} MiB", MOST_BYTES >> 20)));
        }
        let document = Document::read(&bytes).map_err(nothing)?;
        let timeline = facts(&document);
        if timeline.facts.is_empty() {
            return Err(nothing("a pickle that is no memory snapshot".to_owned()));
        }
        Ok(timeline)
    }
}

/// What is summed over the segments of a device.
#[derive(Debug, Default)]
struct Held {
    reserved: i64,
    allocated: i64,
    active: i64,
    non_releasable: i64,
    segments: i64,
    largest_free: i64,
}

fn facts(document: &Document<'_>) -> Timeline {
    let mut timeline = Timeline::new();
    let root = document.root();
    // Older versions dump the list of segments alone.
    let segments = document.get(root, "segments").unwrap_or(root);
    let mut devices: BTreeMap<i64, Held> = BTreeMap::new();
    let mut blocks_left = MOST_BLOCKS;
    for &segment in document.items(segments).iter().take(MOST_BLOCKS) {
        let number = |key: &str| document.get(segment, key).and_then(|value| document.int(value));
        let (Some(device), Some(total)) = (number("device"), number("total_size")) else {
            timeline.skip("segment without device or size");
            continue;
        };
        if devices.len() >= MOST_DEVICES && !devices.contains_key(&device) {
            timeline.skip("segment of more devices than there are");
            continue;
        }
        let held = devices.entry(device).or_default();
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        add(&mut held.reserved, total);
        let allocated = number("allocated_size").unwrap_or(0);
        add(&mut held.allocated, allocated);
        add(&mut held.active, number("active_size").unwrap_or(allocated));
        held.segments += 1;
        for &block in
            document.get(segment, "blocks").map_or(&[][..], |blocks| document.items(blocks))
        {
            // The same segment may be named a million times.
            if blocks_left == 0 {
                break;
            }
            blocks_left -= 1;
            let free = document
                .get(block, "state")
                .is_some_and(|state| document.text(state) == b"inactive");
            let size = document.get(block, "size").and_then(|size| document.int(size)).unwrap_or(0);
            if free {
                held.largest_free = held.largest_free.max(size);
                if size < total {
                    add(&mut held.non_releasable, size);
                }
            }
        }
    }
    let traces =
        document.get(root, "device_traces").map_or(&[][..], |traces| document.items(traces));
    for (device, held) in devices {
        timeline.fact(None, "memory.device", device);
        timeline.fact(None, "memory.reserved_bytes", held.reserved);
        timeline.fact(None, "memory.allocated_bytes", held.allocated);
        timeline.fact(None, "memory.active_bytes", held.active);
        timeline.fact(None, "memory.non_releasable_bytes", held.non_releasable);
        timeline.fact(None, "memory.reserved_segments", held.segments);
        timeline.fact(None, "memory.largest_free_bytes", held.largest_free);
        let trace = usize::try_from(device).ok().and_then(|device| traces.get(device));
        if let Some(events) = trace.map(|&trace| document.items(trace)).filter(|e| !e.is_empty()) {
            history(document, events, held.allocated, &mut timeline);
        }
    }
    if let Some(Node::Dict(settings)) =
        document.get(root, "allocator_settings").map(|s| document.node(s))
    {
        for &(name, value) in settings {
            let name = String::from_utf8_lossy(document.text(name)).into_owned();
            let value = match document.node(value) {
                Node::Int(number) => number.to_string(),
                Node::Bool(on) => on.to_string(),
                Node::Float(number) => number.to_string(),
                Node::Text(_) => String::from_utf8_lossy(document.text(value)).into_owned(),
                _ => continue,
            };
            timeline.fact(None, "memory.setting", format!("{name}={value}"));
        }
    }
    timeline
}

/// Walks the recorded events of a device; the peak is counted back from what is allocated at the end.
fn history(document: &Document<'_>, events: &[u32], at_end: i64, timeline: &mut Timeline) {
    let (mut now, mut most, mut ooms, mut frees) = (0_i64, 0_i64, 0_i64, 0_i64);
    for &event in events {
        let size = document.get(event, "size").and_then(|size| document.int(size)).unwrap_or(0);
        let action = document.get(event, "action").map_or(&b""[..], |action| document.text(action));
        match action {
            b"alloc" => now = now.saturating_add(size),
            b"free_completed" | b"free" => now = now.saturating_sub(size),
            b"oom" => ooms += 1,
            b"segment_free" | b"segment_unmap" => frees += 1,
            _ => {}
        }
        most = most.max(now);
    }
    let peak = at_end.saturating_add(most.saturating_sub(now));
    timeline.fact(None, "memory.allocated_peak_bytes", peak.max(at_end));
    timeline.fact(None, "memory.ooms", ooms);
    timeline.fact(None, "memory.segment_frees", frees);
}
