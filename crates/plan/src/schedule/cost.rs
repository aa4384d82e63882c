//! What a node costs and which of the target's candidates carries it out. Knows no lanes.

use graph::{Cost, Graph, Kind, NodeId};

use super::roles::{self, Role, input_types};
use crate::{Candidate, PlanError, Request, Target};

/// One node's work: its candidate and its cost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    /// The candidate chosen.
    pub candidate: Candidate,
    /// Flops, and bytes moved; for collectives bytes on the wire per rank.
    pub cost: Cost,
}

/// The preferred candidate of a node that has a step.
///
/// # Errors
/// Where the target has none.
pub(crate) fn work(
    graph: &Graph,
    id: NodeId,
    target: &dyn Target,
    ranks: usize,
) -> Result<Work, PlanError> {
    let (candidates, cost) = candidates(graph, id, target, ranks)?;
    match candidates.into_iter().next() {
        Some(candidate) => Ok(Work { candidate, cost }),
        None => {
            let node = graph.node(id);
            let types: Vec<String> = input_types(graph, id).iter().map(|t| t.to_string()).collect();
            Err(PlanError::NoCandidate {
                target: target.name().to_owned(),
                operation: node.name().to_owned(),
                path: if node.site.path.is_empty() { "the step" } else { &node.site.path }
                    .to_owned(),
                reason: format!("no kernel takes ({})", types.join(", ")),
            })
        }
    }
}

/// All candidates of a node and its cost.
///
/// # Errors
/// Where the graph holds an unknown operator.
pub(crate) fn candidates(
    graph: &Graph,
    id: NodeId,
    target: &dyn Target,
    ranks: usize,
) -> Result<(Vec<Candidate>, Cost), PlanError> {
    let cost = cost(graph, id, ranks)?;
    let inputs = input_types(graph, id);
    let request = Request {
        node: graph.node(id),
        inputs: &inputs,
        flops: cost.flops,
        bytes: cost.bytes,
        ranks,
    };
    Ok((target.candidates(&request), cost))
}

/// Flops and bytes of one node. A region reads its inputs and writes its outputs once, whatever its body holds.
pub(crate) fn cost(graph: &Graph, id: NodeId, ranks: usize) -> Result<Cost, PlanError> {
    let node = graph.node(id);
    let inputs = input_types(graph, id);
    Ok(match &node.kind {
        // What is left of a `pack` is filling the padding.
        Kind::Op(_) if matches!(roles::role(graph, id)?, Role::Slots { .. }) => {
            let elements: usize =
                roles::padding(graph, id).iter().map(ExactSizeIterator::len).sum();
            Cost { flops: 0, bytes: (elements * node.outputs[0].dtype.bytes()) as u64 }
        }
        Kind::Op(op) => {
            graph.registry().get(&op.name)?.cost(&op.attributes, &inputs, &node.outputs)
        }
        Kind::Collective(collective) => {
            let bytes = inputs.first().map_or(0, |ty| collective.wire_bytes(ty, ranks));
            Cost { flops: 0, bytes }
        }
        Kind::Region(region) => {
            let mut flops = 0;
            for inner in region.body.ids() {
                flops += cost(&region.body, inner, ranks)?.flops;
            }
            Cost { flops, ..Cost::streaming(&inputs, &node.outputs, 0) }
        }
        Kind::Input { .. } => Cost::streaming(&[], &node.outputs, 0),
        Kind::State { .. } => Cost::default(),
    })
}
