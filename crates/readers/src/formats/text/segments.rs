//! A printed segment of PyTorch's allocator, as `torch.cuda.memory_snapshot()` shows it in a Python session.
//!
//! Facts of the run: `segment.total_bytes`, `segment.active_bytes`, `segment.largest_free_bytes`, all at the line with
//! the segment's total.

use timeline::Line;

use super::{Context, Grammar, support::integer_after};

/// The grammar.
#[derive(Debug, Default)]
pub struct Segments {
    active: Option<i64>,
    largest_free: i64,
    lines: u32,
}

impl Grammar for Segments {
    fn name(&self) -> &'static str {
        "memory-segment"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let mut known = false;
        for part in text.split('{').skip(1).take(4096) {
            let Some(size) = integer_after(part, "'size': ") else { continue };
            known = true;
            if part.contains("'inactive'") {
                self.largest_free = self.largest_free.max(size);
            }
        }
        if let Some(size) = integer_after(text, "'active_size': ") {
            self.active = Some(size);
            self.lines = 0;
            known = true;
        }
        self.lines += 1;
        if let (Some(active), Some(total)) = (self.active, integer_after(text, "'total_size': ")) {
            context.fact(None, "segment.total_bytes", total, line);
            context.fact(None, "segment.active_bytes", active, line);
            context.fact(None, "segment.largest_free_bytes", self.largest_free, line);
            *self = Segments::default();
            return true;
        }
        known && self.active.is_some()
    }
}
