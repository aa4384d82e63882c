//! What must hold for single buffers, windows and steps. Knows no order.

use graph::{Collective, Kind, Strided, Value};

use super::Subject;
use crate::{
    Arena, Lane, MemoryModel, Plan, Target, Window,
    schedule::{
        layout::{part, same_elements},
        roles::{self, Role},
    },
};

/// Buffers that live across calls share bytes with nothing; blocks are shared whole.
pub(super) fn buffers(plan: &Plan, target: &dyn Target) -> Result<(), String> {
    let mut order: Vec<usize> = (0..plan.buffers.len()).collect();
    order.sort_by_key(|&id| (plan.buffers[id].arena, plan.buffers[id].offset));
    let blocks = target.memory_model() == MemoryModel::Blocks;
    let mut lasting_end = (Arena::State, 0);
    let mut end = (Arena::State, 0, 0);
    for id in order {
        let buffer = &plan.buffers[id];
        let (arena, start, stop) = (buffer.arena, buffer.offset, buffer.offset + buffer.bytes);
        if start % target.alignment().max(1) != 0 {
            return Err(format!("buffer {id} starts at {start}, off the alignment"));
        }
        if buffer.bytes == 0 {
            continue;
        }
        let lasting = buffer.function.is_none();
        let inside_lasting = lasting_end.0 == arena && start < lasting_end.1;
        let over_others = lasting && end.0 == arena && start < end.2;
        if inside_lasting || over_others {
            return Err(format!("buffer {id} shares bytes with one that lives across calls"));
        }
        if blocks && end.0 == arena && start < end.2 && start != end.1 {
            return Err(format!("buffer {id} shares a part of a block"));
        }
        if lasting {
            lasting_end = (arena, stop);
        }
        if end.0 != arena || stop > end.2 || start != end.1 {
            end = (arena, start, stop.max(if end.0 == arena { end.2 } else { 0 }));
        }
    }
    Ok(())
}

/// Windows, views, states and steps of one function.
pub(super) fn function(subject: &Subject<'_>) -> Result<(), String> {
    let graph = &subject.function.graph;
    for id in graph.ids() {
        let role = subject.roles[id.index()];
        if role.has_step() != subject.steps[id.index()].is_some() {
            return Err(format!(
                "%{} ({}) has a step too many or too few",
                id.0,
                graph.node(id).name()
            ));
        }
        for value in graph.outputs(id) {
            window(subject, value)?;
        }
        match role {
            Role::View => view(subject, id)?,
            Role::Slots { .. } => slots(subject, id)?,
            Role::State => state(subject, id)?,
            Role::Folded { added } => folded(subject, id, added)?,
            _ => {}
        }
    }
    for (index, update) in subject.function.updates.iter().enumerate() {
        let earlier = &subject.function.updates[..index];
        if earlier.iter().any(|other| other.state == update.state) {
            return Err(format!("state {} is updated twice", update.state));
        }
        if subject.window(update.value)? != placement(subject, &update.state)? {
            return Err(format!("the update of {} does not lie in the state", update.state));
        }
    }
    for step in 0..subject.schedule.steps.len() {
        step_is_able(subject, step)?;
    }
    Ok(())
}

fn window(subject: &Subject<'_>, value: Value) -> Result<(), String> {
    let (window, ty) = (subject.window(value)?, subject.function.graph.ty(value));
    let elements = &window.elements;
    let Some(buffer) = subject.plan.buffers.get(window.buffer.0 as usize) else {
        return Err(format!("{value} lies in a buffer that does not exist"));
    };
    if elements.shape != ty.shape || elements.strides.len() != ty.shape.rank() {
        return Err(format!("{value} is {ty}, its window has shape {}", elements.shape));
    }
    let last = elements.end() + elements.per_rank * subject.plan.ranks.saturating_sub(1);
    if ty.shape.elements() > 0 && last * ty.dtype.bytes() > buffer.bytes {
        return Err(format!("the window of {value} leaves its buffer of {} bytes", buffer.bytes));
    }
    if buffer.function.as_ref().is_some_and(|name| *name != subject.function.name) {
        return Err(format!("{value} lies in a buffer of another function"));
    }
    Ok(())
}

fn placement<'a>(subject: &Subject<'a>, state: &str) -> Result<&'a Window, String> {
    let found = subject.plan.states.iter().find(|placement| placement.state == state);
    found.map(|p| &p.window).ok_or_else(|| format!("state {state} has no place"))
}

fn state(subject: &Subject<'_>, id: graph::NodeId) -> Result<(), String> {
    let Kind::State { name } = &subject.function.graph.node(id).kind else { return Ok(()) };
    if subject.window(Value::new(id, 0))? == placement(subject, name)? {
        return Ok(());
    }
    Err(format!("state {name} is read elsewhere than where it lies"))
}

fn view(subject: &Subject<'_>, id: graph::NodeId) -> Result<(), String> {
    let graph = &subject.function.graph;
    let input = subject.window(graph.node(id).inputs[0])?;
    let output = subject.window(Value::new(id, 0))?;
    let expected = roles::view_window(graph, id, &input.elements);
    let right = expected.is_some_and(|window| same_elements(&window, &output.elements));
    if right && input.buffer == output.buffer {
        return Ok(());
    }
    Err(format!("%{} ({}) is no window over its input", id.0, graph.node(id).name()))
}

fn slots(subject: &Subject<'_>, id: graph::NodeId) -> Result<(), String> {
    let graph = &subject.function.graph;
    let output = subject.window(Value::new(id, 0))?;
    let expected = roles::slot_windows(graph, id, &output.elements).unwrap_or_default();
    let inputs = &graph.node(id).inputs;
    let fault = |input: usize| {
        Err(format!("input {input} of %{} ({}) is not in its slot", id.0, graph.node(id).name()))
    };
    if expected.len() != inputs.len() {
        return fault(0);
    }
    for (index, (&value, slot)) in inputs.iter().zip(&expected).enumerate() {
        let window = subject.window(value)?;
        if window.buffer != output.buffer || !same_elements(&window.elements, slot) {
            return fault(index);
        }
    }
    Ok(())
}

/// Both terms of a folded sum lie where the sum lies; what is added has no other reader.
fn folded(subject: &Subject<'_>, id: graph::NodeId, added: usize) -> Result<(), String> {
    let graph = &subject.function.graph;
    let inputs = &graph.node(id).inputs;
    let output = subject.window(Value::new(id, 0))?;
    for &value in inputs {
        let window = subject.window(value)?;
        let same = same_elements(&window.elements, &output.elements);
        if inputs.len() != 2 || window.buffer != output.buffer || !same {
            return Err(format!("{value} does not lie where its sum %{} lies", id.0));
        }
    }
    let (mut value, mut reader) = (inputs[added], id);
    loop {
        let reads = |node: &graph::Node| node.inputs.iter().filter(|&&v| v == value).count();
        let readers: usize = graph.nodes().iter().map(reads).sum();
        let yielded = subject.function.roots().any(|root| root == value);
        if readers != 1 || yielded || !graph.node(reader).inputs.contains(&value) {
            return Err(format!("{value} is added to %{} and read elsewhere", id.0));
        }
        if subject.roles[value.node.index()] != Role::View {
            return Ok(());
        }
        (reader, value) = (value.node, graph.node(value.node).inputs[0]);
    }
}

/// Lane, strides and arenas of one step.
fn step_is_able(subject: &Subject<'_>, step: usize) -> Result<(), String> {
    let (planned, candidate) = (&subject.schedule.steps[step], &subject.candidates[step]);
    let node = subject.function.graph.node(planned.node);
    let role = subject.roles[planned.node.index()];
    let right_lane = match role {
        Role::Input => planned.lane == Lane::Copy,
        Role::Collective => matches!(planned.lane, Lane::Communication(_)),
        _ => planned.lane == Lane::Compute,
    };
    if !right_lane {
        return Err(format!("{} is on the wrong lane", subject.name(step)));
    }
    let sums = super::sums(subject, step);
    let able = planned.accumulates.iter().all(|port| candidate.accumulates.contains(port));
    if !able || sums.len() != planned.accumulates.len() {
        return Err(format!("{} adds to what no sum starts from", subject.name(step)));
    }
    let workspace = planned.workspace.and_then(|id| subject.plan.buffers.get(id.0 as usize));
    if workspace.map_or(0, |buffer| buffer.bytes) < candidate.workspace {
        return Err(format!("{} has too little workspace", subject.name(step)));
    }
    if matches!(role, Role::Slots { .. }) {
        return Ok(());
    }
    let outputs = subject.function.graph.outputs(planned.node);
    let sides = [(&node.inputs, &candidate.strided_inputs), (&outputs, &candidate.strided_outputs)];
    for (values, strided) in sides {
        for (index, &value) in values.iter().enumerate() {
            let window = subject.window(value)?;
            if !window.elements.is_contiguous() && !strided.contains(&(index as u16)) {
                let name = subject.name(step);
                return Err(format!("{name} cannot read or write the strides of {value}"));
            }
            let arena = subject.plan.buffer(window.buffer).arena;
            if role == Role::Collective && arena != Arena::Communication {
                let name = subject.name(step);
                return Err(format!("{name} uses memory outside the communication arena"));
            }
        }
    }
    Ok(())
}

/// Whether an output may lie where an input of the same step lies.
pub(super) fn may_share(
    subject: &Subject<'_>,
    step: usize,
    output: u16,
    input: u16,
) -> Result<bool, String> {
    let node = subject.function.graph.node(subject.schedule.steps[step].node);
    let written =
        subject.window(Value { node: subject.schedule.steps[step].node, port: output })?;
    let read = subject.window(node.inputs[usize::from(input)])?;
    let allowed = subject.candidates[step].reuse.contains(&(output, input));
    let (to, from) = (&written.elements, &read.elements);
    let is_part = |whole: &Strided, own: &Strided| {
        part(whole, &own.shape).is_some_and(|expected| same_elements(&expected, own))
    };
    let same = match node.kind {
        Kind::Collective(Collective::AllGather { .. }) => is_part(to, from),
        Kind::Collective(Collective::ReduceScatter { .. }) => is_part(from, to),
        _ => same_elements(to, from),
    };
    Ok(allowed && same && written.buffer == read.buffer)
}
