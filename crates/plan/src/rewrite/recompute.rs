//! Computes the values of marked groups of forward nodes a second time for the backward part, so that they need not be
//! kept: gradient nodes read the second computation.
//!
//! Which groups are marked is the model's choice at tracing; randomness is keyed, so the second computation draws the
//! same. Knows no memory: the values die because nothing reads them any more.

use std::collections::{BTreeMap, BTreeSet};

use graph::{Function, Kind, NodeId, Origin, Program, Value};

use super::{Context, support::Rebuild};
use crate::PlanError;

pub(super) fn run(mut program: Program, _: &Context<'_>) -> Result<Program, PlanError> {
    for function in &mut program.functions {
        if function.graph.nodes().iter().any(|node| node.site.recompute.is_some()) {
            *function = recompute(function);
        }
    }
    Ok(program)
}

fn recompute(function: &Function) -> Function {
    let graph = &function.graph;
    let mut copy = Rebuild::new(function);
    let groups = Groups::new(function);
    // Old node of a group to its second computation, made just before the first gradient node that reads it.
    let mut again: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        if node.site.origin != Origin::Gradient {
            copy.copy(id);
            continue;
        }
        for value in &node.inputs {
            groups.compute_again(function, &mut copy, &mut again, value.node);
        }
        let inputs: Vec<Value> =
            node.inputs.iter().map(|&value| second(&copy, &again, value)).collect();
        let (kind, outputs, site) = (node.kind.clone(), node.outputs.clone(), node.site.clone());
        let new = copy.graph.push(kind, inputs, outputs, site).node;
        copy.follow(id, new);
    }
    copy.finish()
}

fn second(copy: &Rebuild<'_>, again: &BTreeMap<NodeId, NodeId>, value: Value) -> Value {
    match again.get(&value.node) {
        Some(&node) => Value { node, port: value.port },
        None => copy.value(value),
    }
}

/// The group of every node whose value is not kept.
struct Groups(Vec<Option<u32>>);

impl Groups {
    /// Values that leave their group in the forward part, or the function, are kept: they are where recomputation of the
    /// next group begins.
    fn new(function: &Function) -> Groups {
        let graph = &function.graph;
        let group = |id: NodeId| {
            let node = graph.node(id);
            node.site.recompute.filter(|_| {
                let work = matches!(node.kind, Kind::Op(_) | Kind::Region(_));
                work && node.site.origin == Origin::Forward
            })
        };
        let mut groups: Vec<Option<u32>> = graph.ids().map(group).collect();
        for id in graph.ids().filter(|&id| graph.node(id).site.origin == Origin::Forward) {
            for value in &graph.node(id).inputs {
                if group(value.node) != group(id) {
                    groups[value.node.index()] = None;
                }
            }
        }
        function.roots().for_each(|value| groups[value.node.index()] = None);
        Groups(groups)
    }

    /// Adds the second computation of a node and of all it reads within its group.
    fn compute_again(
        &self,
        function: &Function,
        copy: &mut Rebuild<'_>,
        again: &mut BTreeMap<NodeId, NodeId>,
        id: NodeId,
    ) {
        let graph = &function.graph;
        let Some(group) = self.0[id.index()] else { return };
        let mut needed = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let dropped = self.0[id.index()] == Some(group) && !again.contains_key(&id);
            if dropped && needed.insert(id) {
                open.extend(graph.node(id).inputs.iter().map(|value| value.node));
            }
        }
        for id in needed {
            let node = graph.node(id).clone();
            let inputs: Vec<Value> =
                node.inputs.iter().map(|&value| second(copy, again, value)).collect();
            let site = node.site.with_origin(Origin::Recompute);
            let new = copy.graph.push(node.kind, inputs, node.outputs, site).node;
            again.insert(id, new);
        }
    }
}
