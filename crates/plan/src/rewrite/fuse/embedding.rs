//! A looked-up table with what is added to it, such as positions: one pass.
//!
//! Knows operators by name, no kernel.

use graph::{Graph, Value};

use super::groups::{Group, Groups};

/// `(table, ids, other) -> embedding + other`; `other` may broadcast.
pub(super) fn add(graph: &Graph, groups: &mut Groups<'_>) {
    for id in graph.ids().filter(|&id| graph.node(id).is_op("add")) {
        let [a, b] = graph.node(id).inputs[..] else { continue };
        let sum = Value::new(id, 0);
        let looked_up = |value: Value| {
            graph.node(value.node).is_op("embedding")
                && groups.only_user(value) == Some(id)
                && graph.ty(value) == graph.ty(sum)
        };
        let (embedding, other) = match (looked_up(a), looked_up(b)) {
            (true, _) => (a, b),
            (false, true) => (b, a),
            (false, false) => continue,
        };
        let inputs = [graph.node(embedding.node).inputs.as_slice(), &[other]].concat();
        groups.take(Group {
            name: "embedding_add",
            members: vec![embedding.node, id],
            inputs,
            outputs: vec![sum],
        });
    }
}
