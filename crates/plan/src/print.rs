//! The plan as text: exact, one line per step, for snapshots and for reading. Knows no terminal.

mod table;

use std::fmt::{self, Write as _};

use graph::{Graph, Kind, Strided, Value};

use crate::{Buffer, FunctionPlan, Plan, Step, Window};

pub use table::Table;

impl fmt::Display for Plan {
    /// States, then each function with a line per step: number, lane, node, operator, candidate, windows read and
    /// written, waits; then the buffers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
        writeln!(f, "plan for {}, {} {ranks}", self.target, self.ranks)?;
        writeln!(f, "passes {}", self.passes.join(" "))?;
        for placement in &self.states {
            let ty = self.program.state(&placement.state).map(|state| state.ty.to_string());
            let window = window_text(&placement.window);
            writeln!(f, "state {} {} @ {window}", placement.state, ty.unwrap_or_default())?;
        }
        for (function, program) in self.functions.iter().zip(&self.program.functions) {
            writeln!(
                f,
                "function {}: {} steps, predicted {} ns, exposed communication {} ns",
                function.name,
                function.steps.len(),
                function.predicted_ns,
                function.predicted_exposed_ns
            )?;
            for (index, step) in function.steps.iter().enumerate() {
                writeln!(f, "  {index} {}", step_text(function, &program.graph, step))?;
            }
            for output in &program.outputs {
                let window = function.windows.get(&output.value).map(window_text);
                writeln!(f, "  yields {} @ {}", output.name, window.unwrap_or_default())?;
            }
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            writeln!(f, "buffer b{index} {}", buffer_text(buffer))?;
        }
        Ok(())
    }
}

fn step_text(function: &FunctionPlan, graph: &Graph, step: &Step) -> String {
    let node = graph.node(step.node);
    let at = |value: Value| match function.windows.get(&value) {
        Some(window) => format!("{value}@{}", window_text(window)),
        None => value.to_string(),
    };
    let list = |values: Vec<Value>| values.into_iter().map(at).collect::<Vec<_>>().join(" ");
    let fills = node.is_op("pack");
    let inputs = if fills { String::new() } else { list(node.inputs.clone()) };
    let outputs: Vec<String> = graph
        .outputs(step.node)
        .into_iter()
        .map(|value| format!("{} {}", at(value), graph.ty(value)))
        .collect();
    let name = match &node.kind {
        Kind::Input { name } => format!("input {name}"),
        _ if fills => "pack, padding".to_owned(),
        _ => node.name().to_owned(),
    };
    let mut text =
        format!("{}: {name} [{}] ({inputs}) -> {}", step.lane, step.candidate, outputs.join(", "));
    if let Some(workspace) = step.workspace {
        let _ = write!(text, " workspace b{}", workspace.0);
    }
    if !step.accumulates.is_empty() {
        let ports: Vec<String> = step.accumulates.iter().map(u16::to_string).collect();
        let _ = write!(text, " adds {}", ports.join(" "));
    }
    if !step.waits.is_empty() {
        let waits: Vec<String> = step.waits.iter().map(|wait| wait.0.to_string()).collect();
        let _ = write!(text, " waits {}", waits.join(" "));
    }
    if !node.site.path.is_empty() {
        let _ = write!(text, "  # {}", node.site.path);
    }
    text
}

/// `b3+64`, `b3+64+r*128` where the rank decides, `b3+64[12, 1]` where strides are not row-major.
fn window_text(window: &Window) -> String {
    let Strided { offset, per_rank, strides, .. } = &window.elements;
    let mut text = format!("b{}+{offset}", window.buffer.0);
    if *per_rank > 0 {
        let _ = write!(text, "+r*{per_rank}");
    }
    if !window.elements.is_contiguous() {
        let _ = write!(text, "{strides:?}");
    }
    text
}

fn buffer_text(buffer: &Buffer) -> String {
    let Buffer { arena, offset, bytes, kind, function } = buffer;
    let name = format!("{arena:?}").to_lowercase();
    let mut text = format!("{name} {offset} {bytes} {}", kind.name());
    if let Some(function) = function {
        let _ = write!(text, " {function}");
    }
    text
}
