//! Every read and write of every step as a set of bytes. Knows no order.

use graph::{Strided, Value};

use super::Subject;
use crate::{
    Arena,
    schedule::{
        intersect::ByteSet,
        roles::{self, Role},
    },
};

/// What a step does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Reads a value as its input of this index; `None` for the caller reading at the end.
    Read(Value, Option<u16>),
    /// Adds its output of this port to a value in place.
    Adds(Value, u16),
    /// Writes a value.
    Write(Value),
    /// Uses scratch memory.
    Scratch,
    /// A state that the function does not update: nothing may write it.
    Keeps,
}

/// One access to memory.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The step; one past the last for what the caller and the next call read.
    pub step: usize,
    pub what: What,
    pub arena: Arena,
    pub bytes: ByteSet,
    pub start: usize,
    pub end: usize,
}

/// All accesses of a function, sorted by arena and first byte.
pub(super) fn of(subject: &Subject<'_>) -> Result<Vec<Access>, String> {
    let graph = &subject.function.graph;
    let mut accesses = vec![];
    for (step, planned) in subject.schedule.steps.iter().enumerate() {
        let node = graph.node(planned.node);
        if matches!(subject.roles[planned.node.index()], Role::Slots { .. }) {
            let value = Value::new(planned.node, 0);
            let window = subject.window(value)?;
            if !window.elements.is_contiguous() {
                return Err(format!("{} fills a window with strides", subject.name(step)));
            }
            for gap in roles::padding(graph, planned.node) {
                let elements = Strided {
                    offset: window.elements.offset + gap.start,
                    per_rank: window.elements.per_rank,
                    shape: graph::Shape(vec![gap.len()]),
                    strides: vec![1],
                };
                push(subject, &mut accesses, step, What::Write(value), &elements)?;
            }
        } else {
            for (index, &value) in node.inputs.iter().enumerate() {
                let elements = &subject.window(value)?.elements;
                push(
                    subject,
                    &mut accesses,
                    step,
                    What::Read(value, Some(index as u16)),
                    elements,
                )?;
            }
            for value in graph.outputs(planned.node) {
                let elements = &subject.window(value)?.elements;
                push(subject, &mut accesses, step, What::Write(value), elements)?;
            }
        }
        for (port, base) in super::sums(subject, step) {
            let elements = &subject.window(base)?.elements;
            push(subject, &mut accesses, step, What::Adds(base, port), elements)?;
        }
        if let Some(id) = planned.workspace {
            let buffer = subject.plan.buffer(id);
            let set = ByteSet::range(buffer.offset, buffer.bytes);
            add(subject, &mut accesses, step, What::Scratch, buffer.arena, set);
        }
    }
    let last = subject.schedule.steps.len();
    for value in subject.function.roots() {
        let elements = &subject.window(value)?.elements;
        push(subject, &mut accesses, last, What::Read(value, None), elements)?;
    }
    for placement in &subject.plan.states {
        let updates = &subject.function.updates;
        if updates.iter().all(|update| update.state != placement.state) {
            let buffer = subject.plan.buffer(placement.window.buffer);
            let set = ByteSet::range(buffer.offset, buffer.bytes);
            add(subject, &mut accesses, last, What::Keeps, buffer.arena, set);
        }
    }
    accesses.sort_by_key(|access| (access.arena, access.start));
    Ok(accesses)
}

fn push(
    subject: &Subject<'_>,
    accesses: &mut Vec<Access>,
    step: usize,
    what: What,
    elements: &Strided,
) -> Result<(), String> {
    let (What::Read(value, _) | What::Adds(value, _) | What::Write(value)) = what else {
        return Ok(());
    };
    let buffer = subject.plan.buffer(subject.window(value)?.buffer);
    let width = subject.function.graph.ty(value).dtype.bytes();
    let set = ByteSet::new(buffer.offset, elements, width);
    add(subject, accesses, step, what, buffer.arena, set);
    Ok(())
}

fn add(
    subject: &Subject<'_>,
    accesses: &mut Vec<Access>,
    step: usize,
    what: What,
    arena: Arena,
    set: Option<ByteSet>,
) {
    if let Some(bytes) = set {
        let (start, end) = bytes.span(subject.plan.ranks);
        accesses.push(Access { step, what, arena, bytes, start, end });
    }
}
