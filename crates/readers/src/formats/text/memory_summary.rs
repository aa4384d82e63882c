//! `torch.cuda.memory_summary()` of all generations.
//!
//! Facts of the run: `memory.device`; `memory.ooms`, `memory.retries`; `memory.NAME_bytes` and `memory.NAME_peak_bytes`
//! for allocated, active, requested, reserved and non_releasable; `memory.reserved_segments`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{bytes, integer_after},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct MemorySummary {
    inside: bool,
}

const ROWS: &[(&str, &str)] = &[
    ("Allocated memory", "allocated"),
    ("Active memory", "active"),
    ("Requested memory", "requested"),
    ("GPU reserved memory", "reserved"),
    ("Non-releasable memory", "non_releasable"),
];

impl Grammar for MemorySummary {
    fn name(&self) -> &'static str {
        "memory-summary"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.contains("PyTorch CUDA memory summary") {
            self.inside = true;
            if let Some(device) = integer_after(trimmed, "device ID ") {
                context.fact(None, "memory.device", device, line);
            }
            return true;
        }
        if trimmed.starts_with("|====") {
            return true;
        }
        if !self.inside || !trimmed.starts_with('|') {
            return false;
        }
        if trimmed.contains("CUDA OOMs:") {
            for (name, key) in [("OOMs:", "memory.ooms"), ("retries:", "memory.retries")] {
                if let Some(count) = integer_after(trimmed, name) {
                    context.fact(None, key, count, line);
                }
            }
            return true;
        }
        let cells: Vec<&str> = trimmed.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(name), Some(current)) = (cells.first(), cells.get(1)) else { return true };
        if let Some((_, key)) = ROWS.iter().find(|(row, _)| row == name) {
            for (suffix, cell) in [("bytes", Some(current)), ("peak_bytes", cells.get(2))] {
                if let Some(value) = cell.and_then(|cell| bytes(cell)) {
                    context.fact(None, &format!("memory.{key}_{suffix}"), value, line);
                }
            }
        } else if *name == "GPU reserved segments"
            && let Ok(count) = current.parse::<i64>()
        {
            context.fact(None, "memory.reserved_segments", count, line);
        }
        true
    }
}
