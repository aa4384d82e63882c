//! Which nodes with steps must be done before which. Knows data and overwritten states, not lanes.

use graph::NodeId;

use super::{layout::Laid, roles::Role};

/// For each node with a step, the nodes with steps that must be done before it starts.
pub(super) fn of(laid: &Laid) -> Vec<Vec<NodeId>> {
    let graph = &laid.function.graph;
    let writers = writers(laid);
    let mut dependencies: Vec<Vec<NodeId>> = vec![vec![]; graph.nodes().len()];
    for id in graph.ids() {
        let role = laid.roles[id.index()];
        // Filling the padding of a `pack` reads nothing.
        if role.has_step() && !matches!(role, Role::Slots { .. }) {
            let inputs = graph.node(id).inputs.iter();
            dependencies[id.index()] =
                inputs.flat_map(|v| writers[v.node.index()].clone()).collect();
        }
    }
    for &(before, after) in &laid.orders {
        // A reader without a step of its own stands for nothing that reads: its own readers were listed.
        if laid.roles[before.index()].has_step() && laid.roles[after.index()].has_step() {
            dependencies[after.index()].push(before);
        }
    }
    for list in &mut dependencies {
        list.sort();
        list.dedup();
    }
    dependencies
}

/// For each node, the nodes whose steps write its outputs.
fn writers(laid: &Laid) -> Vec<Vec<NodeId>> {
    let graph = &laid.function.graph;
    let mut writers: Vec<Vec<NodeId>> = vec![];
    for id in graph.ids() {
        let inputs = &graph.node(id).inputs;
        let list = match laid.roles[id.index()] {
            Role::State => vec![],
            Role::Input | Role::Work | Role::Collective => vec![id],
            Role::View => writers[inputs[0].node.index()].clone(),
            Role::Folded { .. } => {
                inputs.iter().flat_map(|v| writers[v.node.index()].clone()).collect()
            }
            Role::Slots { padded } => {
                let mut list: Vec<NodeId> =
                    inputs.iter().flat_map(|v| writers[v.node.index()].clone()).collect();
                list.extend(padded.then_some(id));
                list.sort();
                list.dedup();
                list
            }
        };
        writers.push(list);
    }
    writers
}
