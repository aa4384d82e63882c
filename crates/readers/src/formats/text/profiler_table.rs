//! PyTorch's `key_averages().table()` and the lines by which programs sum it up.
//!
//! Facts of the run, one set per row: `profile.operator` (its name), `profile.self_cpu_ns`, `profile.cpu_ns`,
//! `profile.self_device_ns`, `profile.device_ns`, `profile.calls`; `profile.total_cpu_ns`, `profile.total_device_ns`;
//! `profile.part` with `profile.part.cpu_ns` and `profile.part.device_ns` (`NAME: cpu 138 ms gpu 13 ms`).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, nanoseconds},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct ProfilerTable {
    columns: Vec<&'static str>,
}

impl Grammar for ProfilerTable {
    fn name(&self) -> &'static str {
        "profiler-table"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("Name") && trimmed.contains("Self CPU") {
            self.columns = cells(trimmed).iter().map(|cell| column(cell)).collect();
            return true;
        }
        for (start, key) in [
            ("Self CPU time total:", "profile.total_cpu_ns"),
            ("Self CUDA time total:", "profile.total_device_ns"),
        ] {
            if let Some(value) = trimmed.strip_prefix(start).and_then(nanoseconds) {
                context.fact(None, key, value, line);
                return true;
            }
        }
        if part(trimmed, line, context).is_some() {
            return true;
        }
        if self.columns.is_empty() {
            return false;
        }
        if trimmed.starts_with("----") {
            return true;
        }
        let values = cells(trimmed);
        if values.len() != self.columns.len() {
            return false;
        }
        for (&column, value) in self.columns.iter().zip(&values) {
            match column {
                "" => {}
                "profile.operator" => context.fact(None, column, *value, line),
                "profile.calls" => {
                    if let Ok(calls) = value.parse::<i64>() {
                        context.fact(None, column, calls, line);
                    }
                }
                column => {
                    if let Some(time) = nanoseconds(value) {
                        context.fact(None, column, time, line);
                    }
                }
            }
        }
        true
    }
}

/// Cells are at least two spaces apart; names hold single ones.
fn cells(text: &str) -> Vec<&str> {
    text.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).take(32).collect()
}

fn column(name: &str) -> &'static str {
    match name {
        "Name" => "profile.operator",
        "Self CPU" => "profile.self_cpu_ns",
        "CPU total" => "profile.cpu_ns",
        "Self CUDA" | "Self XPU" | "Self GPU" => "profile.self_device_ns",
        "CUDA total" | "XPU total" | "GPU total" => "profile.device_ns",
        "# of Calls" => "profile.calls",
        _ => "",
    }
}

/// `NAME: cpu 138 ms gpu 13 ms`.
fn part(text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
    let (name, rest) = text.split_once(": cpu ")?;
    let time = |text: &str| {
        let mut words = text.split_whitespace();
        nanoseconds(&format!("{}{}", words.next()?, words.next()?))
    };
    let cpu = time(rest)?;
    context.fact(None, "profile.part", name, line);
    context.fact(None, "profile.part.cpu_ns", cpu, line);
    if let Some(device) = after(rest, "gpu ").and_then(time) {
        context.fact(None, "profile.part.device_ns", device, line);
    }
    Some(())
}
