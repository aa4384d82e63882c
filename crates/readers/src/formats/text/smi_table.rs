//! nvidia-smi's plain table, old and new.
//!
//! Facts of the run: `driver.version`, `driver.cuda_version`; `gpu.N.name`; `gpu.N.temperature_c`, `gpu.N.power_w`,
//! `gpu.N.power_limit_w`, `gpu.N.utilisation_percent`, `gpu.N.memory_used_bytes`, `gpu.N.memory_bytes`;
//! `gpu.N.process` ("PID NAME BYTES", one each).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, bytes, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct SmiTable {
    device: Option<i64>,
    processes: bool,
}

impl Grammar for SmiTable {
    fn name(&self) -> &'static str {
        "nvidia-smi"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if let Some(rest) = after(trimmed, "Driver Version:") {
            versions(rest, line, context);
            return true;
        }
        if !trimmed.starts_with('|') {
            return trimmed.starts_with("+-") && trimmed.ends_with('+');
        }
        if trimmed.contains("Processes:") {
            self.processes = true;
            self.device = None;
            return true;
        }
        let cells: Vec<&str> = trimmed.trim_matches('|').split('|').map(str::trim).collect();
        if self.processes {
            return process(cells.first().copied().unwrap_or(""), line, context).is_some();
        }
        if cells.len() < 3 {
            return false;
        }
        let mut words = cells[0].split_whitespace();
        if let Some(Ok(index)) = words.next().map(str::parse::<i64>)
            && cells[1].contains(':')
        {
            self.device = Some(index);
            let name: Vec<&str> = words.take_while(|w| !["On", "Off"].contains(w)).collect();
            context.fact(None, &format!("gpu.{index}.name"), name.join(" "), line);
            return true;
        }
        let Some(index) = self.device.take() else {
            return cells[0].starts_with("GPU  ") || cells[0].starts_with("Fan ");
        };
        let mut state = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                context.fact(None, &format!("gpu.{index}.{name}"), value, line);
            }
        };
        let celsius = cells[0]
            .split_whitespace()
            .find(|word| word.ends_with('C') && word[..word.len() - 1].parse::<f64>().is_ok());
        state("temperature_c", celsius.and_then(leading_number));
        if let Some((power, limit)) = cells[0].rsplit_once('/') {
            let power = power.split_whitespace().last().and_then(leading_number);
            state("power_w", power);
            state("power_limit_w", leading_number(limit));
        }
        if let Some((used, all)) = cells[1].split_once('/') {
            state("memory_used_bytes", bytes(used).map(|b| b as f64));
            state("memory_bytes", bytes(all).map(|b| b as f64));
        }
        state("utilisation_percent", cells[2].split('%').next().and_then(leading_number));
        true
    }
}

fn versions(rest: &str, line: &Line, context: &mut Context<'_>) {
    if let Some(version) = rest.split_whitespace().next() {
        context.fact(None, "driver.version", version, line);
    }
    let cuda = after(rest, "CUDA Version:").and_then(|rest| rest.split_whitespace().next());
    if let Some(version) = cuda.filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    {
        context.fact(None, "driver.cuda_version", version, line);
    }
}

/// `0   N/A  N/A   1234   C   python   1024MiB`.
fn process(cell: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
    let words: Vec<&str> = cell.split_whitespace().collect();
    let device: i64 = words.first()?.parse().ok()?;
    let kind = words.iter().position(|word| ["C", "G", "C+G", "M+C"].contains(word))?;
    let pid: i64 = words.get(kind.checked_sub(1)?)?.parse().ok()?;
    let used = words.last().and_then(|word| bytes(word)).unwrap_or(0);
    let name = words.get(kind + 1).copied().unwrap_or("");
    context.fact(None, &format!("gpu.{device}.process"), format!("{pid} {name} {used}"), line);
    Some(())
}
