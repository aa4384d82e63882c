//! Happens-before for every pair of accesses to a common byte, and that each read sees what it names.
//!
//! Knows accesses and clocks. A pair whose order is right needs no look at its bytes; only the others are intersected.

use graph::Value;

use super::{
    Subject,
    accesses::{Access, What},
    structure,
};
use crate::schedule::{intersect::intersect, roles::Role};

/// Checks every pair.
pub(super) fn run(subject: &Subject<'_>, accesses: Vec<Access>) -> Result<(), String> {
    let contents = contents(subject);
    for (index, first) in accesses.iter().enumerate() {
        let rest = accesses[index + 1..].iter();
        for second in rest.take_while(|a| a.arena == first.arena && a.start < first.end) {
            let fault = fault(subject, &contents, first, second)?;
            if let Some(fault) = fault
                && intersect(&first.bytes, &second.bytes, subject.plan.ranks)
            {
                return Err(fault);
            }
        }
    }
    written_before_read(subject, &contents)
}

/// What a value consists of.
struct Content {
    /// Values whose writing makes it, in order; empty for the old value of a state.
    origins: Vec<Value>,
    /// Per lane, how many of its steps are done at least when any step that writes it starts.
    start: Vec<u32>,
}

/// Per node the content of its outputs; outputs of one node differ only in the port of their own origin.
fn contents(subject: &Subject<'_>) -> Vec<Content> {
    let graph = &subject.function.graph;
    let mut contents: Vec<Content> = vec![];
    for id in graph.ids() {
        let inputs = &graph.node(id).inputs;
        let of = |value: &Value| match subject.roles[value.node.index()] {
            Role::Work | Role::Collective | Role::Input => vec![*value],
            _ => contents[value.node.index()].origins.clone(),
        };
        let origins = match subject.roles[id.index()] {
            Role::State => vec![],
            Role::View => of(&inputs[0]),
            Role::Folded { .. } => {
                let mut list: Vec<Value> = inputs.iter().flat_map(of).collect();
                list.sort();
                list
            }
            Role::Slots { padded } => {
                let mut list: Vec<Value> = inputs.iter().flat_map(of).collect();
                list.extend(padded.then_some(Value::new(id, 0)));
                list.sort();
                list.dedup();
                list
            }
            _ => vec![Value::new(id, 0)],
        };
        let mut start = vec![u32::MAX; subject.clocks.width()];
        for origin in &origins {
            if let Some(step) = subject.steps[origin.node.index()] {
                for (own, at) in start.iter_mut().zip(subject.clocks.start(step)) {
                    *own = (*own).min(*at);
                }
            }
        }
        contents.push(Content { origins, start });
    }
    contents
}

/// Whether writing `written` is part of making `value`.
fn makes(subject: &Subject<'_>, contents: &[Content], written: Value, value: Value) -> bool {
    match subject.roles[value.node.index()] {
        Role::Work | Role::Collective | Role::Input => written == value,
        _ => contents[value.node.index()].origins.binary_search(&written).is_ok(),
    }
}

/// What is wrong with a pair if it has a common byte.
fn fault(
    subject: &Subject<'_>,
    contents: &[Content],
    a: &Access,
    b: &Access,
) -> Result<Option<String>, String> {
    let reads = |access: &Access| matches!(access.what, What::Read(..) | What::Adds(..));
    let keeps = |access: &Access| access.what == What::Keeps;
    let stays =
        |access: &Access| format!("{} writes a state that stays", subject.name(access.step));
    match (a, b) {
        _ if (reads(a) || keeps(a)) && (reads(b) || keeps(b)) => Ok(None),
        _ if keeps(a) => Ok(Some(stays(b))),
        _ if keeps(b) => Ok(Some(stays(a))),
        _ if reads(a) => read_against(subject, contents, a, b),
        _ if reads(b) => read_against(subject, contents, b, a),
        _ if a.step != b.step && (before(subject, a, b) || before(subject, b, a)) => Ok(None),
        _ => Ok(Some(format!(
            "{} and {} write the same memory in no order",
            subject.name(a.step),
            subject.name(b.step)
        ))),
    }
}

/// Whether one access is over when another begins; what the caller reads comes after every step.
fn before(subject: &Subject<'_>, first: &Access, second: &Access) -> bool {
    let last = subject.schedule.steps.len();
    first.step != last && (second.step == last || subject.clocks.before(first.step, second.step))
}

fn read_against(
    subject: &Subject<'_>,
    contents: &[Content],
    read: &Access,
    write: &Access,
) -> Result<Option<String>, String> {
    let (What::Read(value, _) | What::Adds(value, _)) = read.what else { return Ok(None) };
    let reader = |step: usize| match step == subject.schedule.steps.len() {
        true => "the caller".to_owned(),
        false => subject.name(step),
    };
    let overwritten = || {
        let (by, reader) = (subject.name(write.step), reader(read.step));
        Some(format!("{by} overwrites {value}, which {reader} still needs"))
    };
    if let What::Write(written) = write.what {
        if makes(subject, contents, written, value) {
            if before(subject, write, read) {
                return Ok(None);
            }
            let (by, reader) = (subject.name(write.step), reader(read.step));
            return Ok(Some(format!("{reader} reads {value} before {by} has written it")));
        }
        if write.step == read.step {
            let shared = match read.what {
                What::Adds(_, port) => port == written.port,
                What::Read(_, Some(input)) => {
                    structure::may_share(subject, write.step, written.port, input)?
                }
                _ => false,
            };
            return Ok(if shared { None } else { overwritten() });
        }
    } else if write.step == read.step {
        return Ok(overwritten());
    }
    // Overwritten afterwards, or before the value was made.
    let content = &contents[value.node.index()];
    let lane = subject.clocks.lane(write.step);
    let earlier =
        !content.origins.is_empty() && content.start[lane] > subject.clocks.position(write.step);
    Ok(if earlier || before(subject, read, write) { None } else { overwritten() })
}

/// Whether every read comes after the steps that write what it reads.
fn written_before_read(subject: &Subject<'_>, contents: &[Content]) -> Result<(), String> {
    for (step, planned) in subject.schedule.steps.iter().enumerate() {
        if matches!(subject.roles[planned.node.index()], Role::Slots { .. }) {
            continue;
        }
        for value in &subject.function.graph.node(planned.node).inputs {
            for origin in &contents[value.node.index()].origins {
                let writer = subject.steps[origin.node.index()];
                if writer.is_none_or(|writer| !subject.clocks.before(writer, step)) {
                    let name = subject.name(step);
                    return Err(format!("{name} reads {value} before all of it is written"));
                }
            }
        }
    }
    Ok(())
}
