//! Inserts copies into a function's graph where `layout` found that a value cannot lie where it is needed.
//!
//! Knows where copies go, not why.

use std::collections::BTreeMap;

use graph::{Attributes, Function, Graph, NodeId, Origin, Value};

use crate::PlanError;

/// A place where a copy is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    /// This input of this node must be row-major. Several readers of one value share the copy.
    Read(NodeId, usize),
    /// This input of this node must lie in its slot.
    Slot(NodeId, usize),
    /// The update of this index must be copied into its state.
    Update(usize),
    /// The output of this index reads a state that is overwritten.
    Output(usize),
}

/// The function with the copies, and where each node went.
pub(super) fn insert(
    function: &Function,
    wanted: &[Wanted],
) -> Result<(Function, Vec<NodeId>), PlanError> {
    let old = &function.graph;
    // Copies made right after a value exists: (value, who asked).
    let mut after: BTreeMap<NodeId, Vec<(Value, Wanted)>> = BTreeMap::new();
    let mut reads: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for &want in wanted {
        let value = match want {
            Wanted::Read(node, input) => {
                reads.entry(node).or_default().push(input);
                continue;
            }
            Wanted::Slot(node, input) => old.node(node).inputs[input],
            Wanted::Update(index) => function.updates[index].value,
            Wanted::Output(index) => function.outputs[index].value,
        };
        after.entry(value.node).or_default().push((value, want));
    }

    let mut graph = Graph::new(old.registry());
    let mut map: Vec<NodeId> = vec![];
    let mut copied: BTreeMap<Wanted, Value> = BTreeMap::new();
    let mut shared: BTreeMap<Value, Value> = BTreeMap::new();
    for id in old.ids() {
        let node = old.node(id);
        let site = node.site.with_origin(Origin::Conversion);
        let mut inputs = vec![];
        for (index, value) in node.inputs.iter().enumerate() {
            let moved = Value { node: map[value.node.index()], port: value.port };
            inputs.push(match copied.get(&Wanted::Slot(id, index)) {
                Some(&copy) => copy,
                None if reads.get(&id).is_some_and(|list| list.contains(&index)) => {
                    match shared.get(&moved) {
                        Some(&copy) => copy,
                        None => {
                            let copy = copy_node(&mut graph, moved, site.clone())?;
                            shared.insert(moved, copy);
                            copy
                        }
                    }
                }
                None => moved,
            });
        }
        let new =
            graph.push(node.kind.clone(), inputs, node.outputs.clone(), node.site.clone()).node;
        map.push(new);
        for &(value, want) in after.get(&id).into_iter().flatten() {
            let moved = Value { node: new, port: value.port };
            let site = match want {
                Wanted::Slot(consumer, _) => {
                    old.node(consumer).site.with_origin(Origin::Conversion)
                }
                _ => site.clone(),
            };
            copied.insert(want, copy_node(&mut graph, moved, site)?);
        }
    }

    let moved = |value: Value| Value { node: map[value.node.index()], port: value.port };
    let mut result = Function { graph, ..function.clone() };
    for input in &mut result.inputs {
        input.value = moved(input.value);
    }
    for (index, output) in result.outputs.iter_mut().enumerate() {
        let copy = copied.get(&Wanted::Output(index));
        output.value = copy.copied().unwrap_or_else(|| moved(output.value));
    }
    for (index, update) in result.updates.iter_mut().enumerate() {
        let copy = copied.get(&Wanted::Update(index));
        update.value = copy.copied().unwrap_or_else(|| moved(update.value));
    }
    Ok((result, map))
}

fn copy_node(graph: &mut Graph, value: Value, site: graph::Site) -> Result<Value, PlanError> {
    Ok(graph.op1("copy", Attributes::new(), &[value], site)?)
}
