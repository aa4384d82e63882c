//! The loss together with the gradient of its logits: one pass over a row of logits yields both. Legal at forward time
//! because the seed of the gradient does not depend on the loss.

use graph::{Graph, Value};

use super::groups::{Group, Groups};

/// `(logits, labels, dloss) -> (loss_sum, count, dlogits)`.
pub(super) fn with_gradient(graph: &Graph, groups: &mut Groups<'_>) {
    for gradient in graph.ids().filter(|&id| graph.node(id).is_op("cross_entropy_gradient")) {
        let [logits, labels, statistics, seed] = graph.node(gradient).inputs[..] else { continue };
        let forward = statistics.node;
        let node = graph.node(forward);
        if !node.is_op("cross_entropy") || node.inputs[..] != [logits, labels] {
            continue;
        }
        let outputs = vec![Value::new(forward, 0), Value::new(forward, 1), Value::new(gradient, 0)];
        groups.take(Group {
            name: "cross_entropy_with_gradient",
            members: vec![forward, gradient],
            inputs: vec![logits, labels, seed],
            outputs,
        });
    }
}
