//! Connected elementwise nodes of one shape, with whatever broadcasts to it: one loop instead of one each.
//!
//! Knows classes of operators, no operator. Groups grow along edges as long as they can be computed in one go.

use std::collections::{BTreeMap, BTreeSet};

use graph::{Class, Graph, Kind, NodeId, Origin, Shape, Value};

use super::groups::{Group, Groups, Views};

pub(super) fn chains(graph: &Graph, groups: &mut Groups<'_>) {
    let mut clusters = Clusters::default();
    for id in graph.ids() {
        let takes = groups.free(id) && !fills_slot(graph, groups, id);
        let Some(shape) = elementwise(graph, id).filter(|_| takes) else { continue };
        let part = part(graph, id);
        let mut own = vec![id];
        let producers: BTreeSet<NodeId> =
            graph.node(id).inputs.iter().map(|value| value.node).collect();
        for producer in producers {
            let Some(cluster) = clusters.of(producer) else { continue };
            let fits =
                elementwise(graph, producer) == Some(shape) && self::part(graph, producer) == part;
            if !fits || own.iter().any(|member| cluster.contains(member)) {
                continue;
            }
            let joined: Vec<NodeId> = own.iter().chain(cluster).copied().collect();
            let further = |id| clusters.of(id).map(Vec::as_slice);
            if !groups.leads_back(&joined, Views::Outside, further) {
                own = joined;
            }
        }
        clusters.set(own);
    }
    for members in clusters.members.into_values().filter(|members| members.len() > 1) {
        let mut outputs: Vec<Value> = members
            .iter()
            .flat_map(|&id| graph.outputs(id))
            .filter(|&value| groups.read_outside(value, &members))
            .collect();
        outputs.sort_unstable();
        groups.take(Group { name: "elementwise", members, inputs: vec![], outputs });
    }
}

/// Values computed in one loop live as long as the last reader of any of them, so the forward part does not compute what
/// only the backward part reads.
fn part(graph: &Graph, id: NodeId) -> Origin {
    match graph.node(id).site.origin {
        Origin::Conversion => Origin::Forward,
        Origin::Reduction => Origin::Gradient,
        origin => origin,
    }
}

/// Whether a node sums into a gradient's slot: the producer of a summand may add to the slot itself.
fn fills_slot(graph: &Graph, groups: &Groups<'_>, id: NodeId) -> bool {
    let packed = |value| groups.users(value).iter().any(|&user| graph.node(user).is_op("pack"));
    graph.node(id).is_op("accumulate") && packed(Value::new(id, 0))
}

/// The shape of an elementwise node all of whose inputs broadcast to it.
fn elementwise(graph: &Graph, id: NodeId) -> Option<&Shape> {
    let node = graph.node(id);
    let Kind::Op(op) = &node.kind else { return None };
    let definition = graph.registry().get(&op.name).ok()?;
    let [output] = node.outputs.as_slice() else { return None };
    let fits = |value: &Value| {
        graph.ty(*value).shape.broadcast(&output.shape).as_ref() == Some(&output.shape)
    };
    let takes = definition.class() == Class::Elementwise
        && op.name != "copy"
        && op.name != "dropout"
        && node.inputs.iter().all(fits);
    takes.then_some(&output.shape)
}

/// Groups under construction, named by their first node.
#[derive(Default)]
struct Clusters {
    members: BTreeMap<NodeId, Vec<NodeId>>,
    name: BTreeMap<NodeId, NodeId>,
}

impl Clusters {
    fn of(&self, id: NodeId) -> Option<&Vec<NodeId>> {
        self.members.get(self.name.get(&id)?)
    }

    /// Makes these nodes one group; their former groups end.
    fn set(&mut self, mut members: Vec<NodeId>) {
        members.sort_unstable();
        for id in &members {
            if let Some(former) = self.name.insert(*id, members[0]) {
                self.members.remove(&former);
            }
        }
        self.members.insert(members[0], members);
    }
}
