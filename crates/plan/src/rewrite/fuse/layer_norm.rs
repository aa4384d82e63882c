//! Layer norm with the residual stream around it, both ways: one pass over a row.
//!
//! Knows operators by name, no kernel.

use graph::{Graph, NodeId, Value};

use super::{
    groups::{Group, Groups},
    linear::column_sum,
};

/// `(a, b, gamma, beta) -> (a + b, y, mean, rstd)`; a cast of `y` may follow.
pub(super) fn add(graph: &Graph, groups: &mut Groups<'_>) {
    for id in graph.ids().filter(|&id| graph.node(id).is_op("layer_norm")) {
        let [sum, gamma, beta] = graph.node(id).inputs[..] else { continue };
        let node = graph.node(sum.node);
        let [a, b] = node.inputs[..] else { continue };
        if !node.is_op("add") || graph.ty(a).shape != graph.ty(b).shape {
            continue;
        }
        let mut members = vec![sum.node, id];
        let y = with_cast(graph, groups, Value::new(id, 0), &mut members);
        let outputs = vec![sum, y, Value::new(id, 1), Value::new(id, 2)];
        let inputs = vec![a, b, gamma, beta];
        groups.take(Group { name: "add_layer_norm", members, inputs, outputs });
    }
}

/// `(dy, x, gamma, mean, rstd, other) -> (dx + other, dgamma, dbeta [, dbias])`, the last being the column sum of the
/// first: the bias gradient of the product that was added to the residual stream. Casts of `dgamma` and `dbeta` into
/// their slots may follow.
pub(super) fn gradient_add(graph: &Graph, groups: &mut Groups<'_>) {
    for id in graph.ids().filter(|&id| graph.node(id).is_op("layer_norm_gradient")) {
        let [dx, dgamma, dbeta] = [0, 1, 2].map(|port| Value::new(id, port));
        let Some(sum) = groups.only_user(dx).filter(|&user| graph.node(user).is_op("accumulate"))
        else {
            continue;
        };
        let terms = &graph.node(sum).inputs;
        let others: Vec<Value> = terms.iter().copied().filter(|&term| term != dx).collect();
        if others.len() + 1 != terms.len() || others.len() != 1 {
            continue;
        }
        let inputs = [graph.node(id).inputs.as_slice(), &others].concat();
        let total = Value::new(sum, 0);
        let mut members = vec![id, sum];
        let dgamma = with_cast(graph, groups, dgamma, &mut members);
        let dbeta = with_cast(graph, groups, dbeta, &mut members);
        let mut outputs = vec![total, dgamma, dbeta];
        let plain = (members.clone(), outputs.clone());
        if let Some(bias) = column_sum(graph, groups, total) {
            members.push(bias);
            outputs.push(Value::new(bias, 0));
        }
        let name = "layer_norm_gradient_add";
        if !groups.take(Group { name, members, inputs: inputs.clone(), outputs }) {
            let (members, outputs) = plain;
            groups.take(Group { name, members, inputs, outputs });
        }
    }
}

/// The cast that alone reads a value, taken into the group; the value itself otherwise.
fn with_cast(graph: &Graph, groups: &Groups<'_>, value: Value, members: &mut Vec<NodeId>) -> Value {
    match groups.only_user(value) {
        Some(user) if graph.node(user).is_op("cast") && groups.free(user) => {
            members.push(user);
            Value::new(user, 0)
        }
        _ => value,
    }
}
