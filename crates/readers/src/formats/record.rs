//! What `counterpoint record` writes about a process beside its trace: one JSON object per file, `counterpoint.record/1`.
//!
//! Yields every key under `facts` as it stands: job.launcher, job.world_size, job.backend, process.local_rank,
//! process.local_size, process.affinity, binding.cores, binding.machine_cores, record.steps_seen, steps.unrecorded_ns
//! (median of the steps after the recorded ones), limits.memlock_kb, limits.open_files, limits.stack_kb, python.version,
//! torch.version, torch.cudnn_benchmark, cuda.version, device.N.name, memory.peak_bytes. Knows the shape of the file; not
//! what wrote it.

use serde_json::Value;
use timeline::{FactValue, Process, Timeline};

use crate::{ReadError, Reader, input::Input};

/// Files are small; more is not read.
const MOST_BYTES: u64 = 1 << 20;

/// The reader.
#[derive(Debug)]
pub struct Record;

impl Reader for Record {
    fn name(&self) -> &'static str {
        "record"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        let start = &head[..head.len().min(200)];
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'{') && memchr::memmem::find(start, b"\"counterpoint.record/1\"").is_some()
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let nothing = |message: String| ReadError::Nothing { format: "record", message };
        let document = super::json_document(input, self.name(), MOST_BYTES)?;
        let mut timeline = Timeline::new();
        let rank = document["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
        timeline.add_process(Process {
            rank,
            host: document["host"].as_str().map(str::to_owned),
            pid: document["pid"].as_i64(),
            name: rank.map_or_else(|| "process".to_owned(), |rank| format!("rank {rank}")),
        });
        for (key, value) in document["facts"].as_object().into_iter().flatten() {
            let value = match value {
                Value::String(text) => FactValue::Text(text.clone()),
                Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                    (Some(whole), _) => FactValue::Int(whole),
                    (None, Some(number)) => FactValue::Float(number),
                    _ => continue,
                },
                _ => {
                    timeline.skip("fact that is neither text nor number");
                    continue;
                }
            };
            timeline.fact(Some(0), key, value);
        }
        if timeline.facts.is_empty() {
            return Err(nothing("no fact inside".to_owned()));
        }
        Ok(timeline)
    }
}
