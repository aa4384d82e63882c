//! Tables that `nsys stats` prints, by titles old and new.
//!
//! Facts of the run, one set per row: `nsys.api`, `nsys.kernel`, `nsys.copy` or `nsys.fill` (its name) with
//! `nsys.share_percent`, `nsys.total_ns`, `nsys.count`, `nsys.average_ns`. A rule joins them by their line.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{grouped_integer, leading_number, scaled},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct NsysStats {
    table: &'static str,
    columns: Vec<String>,
}

impl Grammar for NsysStats {
    fn name(&self) -> &'static str {
        "nsys-stats"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        let title = trimmed.trim_start_matches('*').trim();
        let table =
            match title.to_lowercase() {
                t if !t.ends_with(':') || t.len() > 120 => "",
                t if t.contains("cuda api") => "nsys.api",
                t if t.contains("memops") || t.contains("memory operation") => {
                    if t.contains("size") { "nsys.size" } else { "nsys.copy" }
                }
                t if t.contains("kernel") && t.contains("cuda gpu") => "nsys.kernel",
                t if t.contains("kernel statistics") => "nsys.kernel",
                _ => "",
            };
        if !table.is_empty() {
            self.table = table;
            self.columns.clear();
            return true;
        }
        if self.table.is_empty() {
            return false;
        }
        if trimmed.starts_with("Time (%)")
            || trimmed.starts_with("Time(%)")
            || trimmed.starts_with("Total (MB)")
        {
            let cells = trimmed.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
            self.columns = cells.take(24).map(|cell| cell.to_lowercase()).collect();
            return true;
        }
        if trimmed.starts_with("-----") {
            return true;
        }
        let known = self.row(trimmed, line, context).is_some();
        if !known {
            self.table = "";
        }
        known
    }
}

impl NsysStats {
    fn row(&self, text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
        let columns = self.columns.len().checked_sub(1).filter(|count| *count > 2)?;
        if self.table == "nsys.size" {
            return leading_number(text).map(|_| ());
        }
        let mut rest = text;
        let mut cells = vec![];
        for _ in 0..columns {
            let trimmed = rest.trim_start();
            let end = trimmed.find(char::is_whitespace)?;
            cells.push(&trimmed[..end]);
            rest = &trimmed[end..];
        }
        let share = leading_number(cells.first()?)?;
        let at = |starts: &[&str]| {
            let column =
                self.columns.iter().position(|c| starts.iter().any(|s| c.starts_with(s)))?;
            cells.get(column).copied()
        };
        context.fact(None, self.table, rest.trim(), line);
        context.fact(None, "nsys.share_percent", share, line);
        if let Some(total) = at(&["total time"]).and_then(grouped_integer) {
            context.fact(None, "nsys.total_ns", total, line);
        }
        if let Some(count) =
            at(&["num calls", "instances", "count", "operations"]).and_then(grouped_integer)
        {
            context.fact(None, "nsys.count", count, line);
        }
        if let Some(average) = at(&["avg", "average"]).and_then(|cell| scaled(cell, 0)) {
            context.fact(None, "nsys.average_ns", average, line);
        }
        Some(())
    }
}
