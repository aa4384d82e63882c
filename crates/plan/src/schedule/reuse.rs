//! In place: an output takes the memory of an input that nothing needs afterwards.
//!
//! Knows order and last use; which pairs may share is the candidate's statement.

use std::collections::BTreeMap;

use graph::{Collective, Kind, Strided, Value};

use super::{
    layout::{Place, Root, part, same_elements},
    memory::{Lives, Part},
};

/// Moves outputs into the memory of dying inputs, in step order.
pub(super) fn run(part: &mut Part, lives: &mut Lives) {
    let mut members: BTreeMap<Root, Vec<Value>> = BTreeMap::new();
    let graph = &part.laid.function.graph;
    for value in graph.ids().flat_map(|id| graph.outputs(id)) {
        members.entry(part.laid.place(value).root).or_default().push(value);
    }
    for step in 0..part.order.steps.len() {
        for (output, place) in moves(part, lives, step) {
            let old = Root::Value(output);
            for value in members.remove(&old).unwrap_or_default() {
                let at = &mut part.laid.places[value.node.index()][usize::from(value.port)];
                at.root = place.root;
                at.elements.offset += place.elements.offset;
                at.elements.per_rank += place.elements.per_rank;
                members.entry(place.root).or_default().push(value);
            }
            lives.merge(old, place.root);
        }
    }
}

/// Outputs of a step that move, and where to.
fn moves(work: &Part, lives: &Lives, step: usize) -> Vec<(Value, Place)> {
    let laid = &work.laid;
    let graph = &laid.function.graph;
    let ordered = &work.order.steps[step];
    let node = graph.node(ordered.node);
    let mut found: Vec<(Value, Place)> = vec![];
    for &(port, input) in &ordered.work.candidate.reuse {
        let output = Value::new(ordered.node, usize::from(port));
        let Some(&source) = node.inputs.get(usize::from(input)) else { continue };
        let (to, from) = (laid.place(output), laid.place(source));
        let owns = to.root == Root::Value(output) && from.root != to.root;
        let width = |value: Value| graph.ty(value).dtype.bytes();
        let dense = to.elements.is_contiguous() && from.elements.is_contiguous();
        if !owns || !dense || width(output) != width(source) {
            continue;
        }
        let shape = &graph.ty(output).shape;
        let elements = match node.kind {
            Kind::Collective(Collective::ReduceScatter { .. }) => part(&from.elements, shape),
            _ if graph.ty(source).shape == *shape => {
                let own = Strided::contiguous(shape);
                let (offset, per_rank) = (from.elements.offset, from.elements.per_rank);
                Some(Strided { offset, per_rank, ..own })
            }
            _ => None,
        };
        let Some(elements) = elements else { continue };
        let taken = found.iter().any(|(value, place)| *value == output || place.root == from.root);
        if taken || !lives.ends_with(from.root, Root::Value(output), step, &work.order.clocks) {
            continue;
        }
        // Other inputs in the same memory must be the very same window and allowed as well.
        let others = node.inputs.iter().enumerate().filter(|(i, _)| *i != usize::from(input));
        let clear = others.into_iter().all(|(other, &value)| {
            let place = laid.place(value);
            place.root != from.root
                || (same_elements(&place.elements, &from.elements)
                    && ordered.work.candidate.reuse.contains(&(port, other as u16)))
        });
        if clear {
            found.push((output, Place { root: from.root, elements }));
        }
    }
    found
}
