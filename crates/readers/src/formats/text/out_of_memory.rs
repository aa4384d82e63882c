//! PyTorch's message that the device's memory is exhausted, from 1.0 to 2.x.
//!
//! Facts of the process that a launcher's tag names, or of the run: `oom.device`, `oom.requested_bytes`,
//! `oom.total_bytes`, `oom.free_bytes`, `oom.allocated_bytes`, `oom.unallocated_bytes` (reserved but unused),
//! `oom.other_bytes` (of other processes on the device).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, bytes, integer_after},
};

/// The grammar.
#[derive(Debug)]
pub struct OutOfMemory;

impl Grammar for OutOfMemory {
    fn name(&self) -> &'static str {
        "out-of-memory"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let Some(rest) =
            after(text, "CUDA out of memory.").or_else(|| after(text, "HIP out of memory."))
        else {
            return false;
        };
        let process = context.tagged();
        let mut state = |key: &str, value: Option<i64>| {
            if let Some(value) = value {
                context.fact(process, key, value, line);
            }
        };
        state("oom.requested_bytes", after(rest, "Tried to allocate ").and_then(size));
        state("oom.device", integer_after(rest, "GPU "));
        state(
            "oom.total_bytes",
            before(rest, " total capacity").or_else(|| of(rest, "total capac")),
        );
        state("oom.free_bytes", before(rest, " free;").or_else(|| before(rest, " is free")));
        let allocated =
            before(rest, " already allocated").or_else(|| before(rest, " is allocated by PyTorch"));
        state("oom.allocated_bytes", allocated);
        let reserved = before(rest, " reserved in total");
        let unallocated = before(rest, " is reserved by PyTorch but unallocated")
            .or_else(|| Some(reserved?.saturating_sub(allocated?).max(0)));
        state("oom.unallocated_bytes", unallocated);
        let mut others: i64 = 0;
        for part in rest.split("Process ").skip(1).take(64) {
            others = others.saturating_add(after(part, " has ").and_then(size).unwrap_or(0));
        }
        state("oom.other_bytes", (others > 0).then_some(others));
        true
    }
}

/// Bytes of the number and unit at the beginning.
fn size(text: &str) -> Option<i64> {
    let mut words = text.split_whitespace();
    let (number, unit) = (words.next()?, words.next()?);
    bytes(&format!("{number} {}", unit.trim_end_matches(['.', ';', ')', ','])))
}

/// Bytes of the number and unit right before a marker.
fn before(text: &str, marker: &str) -> Option<i64> {
    let (head, _) = text.split_once(marker)?;
    let mut words = head.split_whitespace().rev();
    let (unit, number) = (words.next()?, words.next()?);
    bytes(&format!("{} {unit}", number.trim_start_matches(['(', ';'])))
}

/// `total capacity of 15.75 GiB`, spelt `capacty` in 2.1.
fn of(text: &str, marker: &str) -> Option<i64> {
    after(after(text, marker)?, " of ").and_then(size)
}
