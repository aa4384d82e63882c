//! The plan as a table for people: lanes, buckets, memory by kind, kernels by class. Knows no terminal.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use graph::{Collective, Kind};

use crate::{
    Arena, BufferKind, FunctionPlan, Lane, Plan,
    schedule::simulate::{self, Simulated},
};

/// Displays one function of a plan as tables.
pub struct Table<'a> {
    plan: &'a Plan,
    function: &'a FunctionPlan,
}

impl Plan {
    /// The tables of one function, `None` where the plan has no function of this name.
    pub fn table(&self, function: &str) -> Option<Table<'_>> {
        Some(Table { plan: self, function: self.function(function)? })
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let played = simulate::function(self.function);
        let (plan, function) = (self.plan, self.function);
        writeln!(
            f,
            "{} on {}, {} rank{}: predicted {}, exposed communication {}",
            function.name,
            plan.target,
            plan.ranks,
            if plan.ranks == 1 { "" } else { "s" },
            time(function.predicted_ns),
            time(function.predicted_exposed_ns)
        )?;
        writeln!(f, "\n{}", self.lanes(&played))?;
        let buckets = self.buckets(&played);
        if !buckets.is_empty() {
            writeln!(f, "{buckets}")?;
        }
        writeln!(f, "{}", self.memory())?;
        write!(f, "{}", self.kernels())
    }
}

impl Table<'_> {
    fn lanes(&self, played: &Simulated) -> String {
        let mut rows: BTreeMap<Lane, (usize, u64, usize)> = BTreeMap::new();
        for (step, (lane, start, end)) in self.function.steps.iter().zip(&played.steps) {
            let row = rows.entry(*lane).or_default();
            *row = (row.0 + 1, row.1 + end - start, row.2 + step.waits.len());
        }
        let mut text = format!("{:<18}{:>8}{:>12}{:>8}\n", "lane", "steps", "busy", "waits");
        for (lane, (steps, busy, waits)) in rows {
            let name = lane.to_string();
            let _ = writeln!(text, "{name:<18}{steps:>8}{:>12}{waits:>8}", time(busy));
        }
        text
    }

    fn buckets(&self, played: &Simulated) -> String {
        let Some(program) = self.plan.program.function(&self.function.name) else {
            return String::new();
        };
        let mut text = String::new();
        for (step, (lane, start, end)) in self.function.steps.iter().zip(&played.steps) {
            let node = program.graph.node(step.node);
            let Kind::Collective(collective) = &node.kind else { continue };
            let sends = match collective {
                Collective::AllGather { .. } => &node.outputs[0],
                _ => program.graph.ty(node.inputs[0]),
            };
            let (bytes, name) = (size(sends.bytes()), collective.name());
            let lane = lane.to_string();
            let (start, end) = (time(*start), time(*end));
            let path = &node.site.path;
            let _ = writeln!(text, "{name:<18}{lane:<18}{bytes:>12}{start:>12}{end:>12}  {path}");
        }
        if text.is_empty() {
            return text;
        }
        let head = ["collective", "lane", "bytes", "from", "to"];
        format!(
            "{:<18}{:<18}{:>12}{:>12}{:>12}  of\n{text}",
            head[0], head[1], head[2], head[3], head[4]
        )
    }

    fn memory(&self) -> String {
        let plan = self.plan;
        let mut text = format!("{:<18}{:>12}\n", "memory", "bytes");
        for arena in [Arena::State, Arena::Transient, Arena::Communication] {
            let name = format!("{arena:?}").to_lowercase();
            let _ = writeln!(text, "{name:<18}{:>12}", size(plan.arena_bytes(arena)));
        }
        let _ = writeln!(text, "{:<18}{:>12}", "peak", size(plan.peak_bytes()));
        let _ = writeln!(text, "\n{:<18}{:>12}", "live at the peak", "bytes");
        for (kind, bytes) in self.fullest() {
            let _ = writeln!(text, "{:<18}{:>12}", kind.name(), size(bytes));
        }
        text
    }

    /// Bytes by kind: lasting buffers, and the function's own at the step where most are live.
    fn fullest(&self) -> BTreeMap<BufferKind, usize> {
        let (plan, function) = (self.plan, self.function);
        let mut lasting: BTreeMap<BufferKind, usize> = BTreeMap::new();
        for buffer in plan.buffers.iter().filter(|buffer| buffer.function.is_none()) {
            *lasting.entry(buffer.kind).or_default() += buffer.bytes;
        }
        let Some(program) = plan.program.function(&function.name) else { return lasting };
        let mut lives: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut touch = |buffer: usize, step: usize| {
            let life = lives.entry(buffer).or_insert((step, step));
            *life = (life.0.min(step), life.1.max(step));
        };
        for (index, step) in function.steps.iter().enumerate() {
            let inputs = program.graph.node(step.node).inputs.clone();
            for value in inputs.into_iter().chain(program.graph.outputs(step.node)) {
                if let Some(window) = function.windows.get(&value) {
                    touch(window.buffer.0 as usize, index);
                }
            }
            if let Some(workspace) = step.workspace {
                touch(workspace.0 as usize, index);
            }
        }
        let live = |step: usize| {
            let mut kinds: BTreeMap<BufferKind, usize> = BTreeMap::new();
            for (&buffer, _) in lives.iter().filter(|(_, life)| life.0 <= step && step <= life.1) {
                let buffer = &plan.buffers[buffer];
                if buffer.function.is_some() {
                    *kinds.entry(buffer.kind).or_default() += buffer.bytes;
                }
            }
            kinds
        };
        let steps = (0..function.steps.len()).map(live);
        let own = steps.max_by_key(|kinds| kinds.values().sum::<usize>()).unwrap_or_default();
        for (kind, bytes) in own {
            *lasting.entry(kind).or_default() += bytes;
        }
        lasting
    }

    fn kernels(&self) -> String {
        let Some(program) = self.plan.program.function(&self.function.name) else {
            return String::new();
        };
        let mut rows: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        for step in &self.function.steps {
            let node = program.graph.node(step.node);
            let row = rows.entry(node.name()).or_default();
            let more = [u64::from(step.kernels), step.predicted_ns, step.flops, step.bytes];
            for (sum, value) in row.iter_mut().zip(more) {
                *sum += value;
            }
        }
        let mut rows: Vec<(&str, [u64; 4])> = rows.into_iter().collect();
        rows.sort_by_key(|(name, row)| (std::cmp::Reverse(row[1]), *name));
        let total = rows.iter().fold([0; 4], |mut sum, (_, row)| {
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
            sum
        });
        rows.push(("all", total));
        let mut text =
            format!("{:<30}{:>8}{:>12}{:>10}{:>12}\n", "work", "kernels", "time", "Gflop", "bytes");
        for (name, [kernels, ns, flops, bytes]) in rows {
            let (flops, bytes) = (flops as f64 / 1e9, size(bytes as usize));
            let _ =
                writeln!(text, "{name:<30}{kernels:>8}{:>12}{flops:>10.1}{bytes:>12}", time(ns));
        }
        text
    }
}

/// Nanoseconds for people.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

/// Bytes for people, decimal.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
