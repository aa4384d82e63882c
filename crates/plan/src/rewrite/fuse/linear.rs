//! Matrix products with what their epilogue can do: bias and GELU, a summand, the gradient of GELU, bias gradients.
//!
//! Knows operators by name, no library.

use graph::{Graph, Kind, NodeId, Value};

use super::groups::{Group, Groups};

/// `(x, w, bias) -> (gelu(y), y)`; without the second output where nobody reads `y`. Only the tanh form.
pub(super) fn gelu(graph: &Graph, groups: &mut Groups<'_>) {
    for id in graph.ids().filter(|&id| tanh_form(graph, id, "gelu")) {
        let before = graph.node(id).inputs[0];
        let product = graph.node(before.node);
        if !product.is_op("linear") || product.inputs.len() != 3 {
            continue;
        }
        let members = vec![before.node, id];
        let mut outputs = vec![Value::new(id, 0)];
        if groups.read_outside(before, &members) {
            outputs.push(before);
        }
        let inputs = product.inputs.clone();
        groups.take(Group { name: "linear_gelu", members, inputs, outputs });
    }
}

/// `(x, w, [bias], residual) -> linear + residual`; a cast of the product may stand between.
pub(super) fn add(graph: &Graph, groups: &mut Groups<'_>) {
    for id in graph.ids().filter(|&id| graph.node(id).is_op("add")) {
        let inputs = graph.node(id).inputs.clone();
        for (product, other) in [(inputs[0], inputs[1]), (inputs[1], inputs[0])] {
            if graph.ty(product).shape != graph.ty(other).shape {
                continue;
            }
            let Some(mut members) = single_product(graph, groups, product) else { continue };
            let mut inputs = graph.node(members[0]).inputs.clone();
            members.push(id);
            inputs.push(other);
            let outputs = vec![Value::new(id, 0)];
            if groups.take(Group { name: "linear_add", members, inputs, outputs }) {
                break;
            }
        }
    }
}

/// `(dy, w, pre) -> dpre`. Only the tanh form.
pub(super) fn gelu_gradient(graph: &Graph, groups: &mut Groups<'_>) {
    gelu_gradients(graph, groups, false);
}

/// `(dy, w, pre) -> (dpre, dbias)`, the bias gradient being the column sum of `dpre`. Only the tanh form.
pub(super) fn gelu_gradient_bias(graph: &Graph, groups: &mut Groups<'_>) {
    gelu_gradients(graph, groups, true);
}

fn gelu_gradients(graph: &Graph, groups: &mut Groups<'_>, bias: bool) {
    for id in graph.ids().filter(|&id| tanh_form(graph, id, "gelu_gradient")) {
        let [pre, gradient] = graph.node(id).inputs[..] else { continue };
        let product = graph.node(gradient.node);
        let fits = product.is_op("linear") && product.inputs.len() == 2;
        if !fits || groups.only_user(gradient) != Some(id) {
            continue;
        }
        let inputs = vec![product.inputs[0], product.inputs[1], pre];
        let result = Value::new(id, 0);
        let mut members = vec![gradient.node, id];
        let mut outputs = vec![result];
        let name = if bias { "linear_gelu_gradient_bias" } else { "linear_gelu_gradient" };
        if bias {
            let Some(sum) = column_sum(graph, groups, result) else { continue };
            members.push(sum);
            outputs.push(Value::new(sum, 0));
        }
        groups.take(Group { name, members, inputs, outputs });
    }
}

/// `(x, dy) -> (dw, dbias)`: a weight's gradient and the column sum of the same `dy`.
pub(super) fn bias_gradient(graph: &Graph, groups: &mut Groups<'_>) {
    let sums: Vec<NodeId> =
        graph.ids().filter(|&id| groups.free(id) && is_column_sum(graph, id)).collect();
    for sum in sums {
        let dy = graph.node(sum).inputs[0];
        let product = groups.users(dy).iter().copied().find(|&user| {
            let node = graph.node(user);
            let Kind::Op(op) = &node.kind else { return false };
            let flag = |name: &str| op.attributes.flag(name).unwrap_or(false);
            node.is_op("matmul") && flag("transpose_a") && !flag("transpose_b") && groups.free(user)
        });
        let Some(product) = product else { continue };
        let operands = &graph.node(product).inputs;
        let x = if operands[1] == dy { operands[0] } else { operands[1] };
        groups.take(Group {
            name: "linear_bias_gradient",
            members: vec![product, sum],
            inputs: vec![x, dy],
            outputs: vec![Value::new(product, 0), Value::new(sum, 0)],
        });
    }
}

/// The free node that sums a value over all axes but the last, seen as rows or not.
pub(super) fn column_sum(graph: &Graph, groups: &Groups<'_>, value: Value) -> Option<NodeId> {
    let rows = groups
        .users(value)
        .iter()
        .filter(|&&user| graph.node(user).is_op("reshape"))
        .map(|&user| Value::new(user, 0));
    [value]
        .into_iter()
        .chain(rows)
        .flat_map(|seen| groups.users(seen).iter().copied())
        .find(|&user| groups.free(user) && is_column_sum(graph, user))
        .filter(|&sum| {
            graph.ty(graph.node(sum).inputs[0]).shape.last() == graph.ty(value).shape.last()
        })
}

fn is_column_sum(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let Kind::Op(op) = &node.kind else { return false };
    let Ok(axes) = op.attributes.sizes_of("axes") else { return false };
    let rank = graph.ty(node.inputs[0]).shape.rank();
    op.name == "reduce_sum" && rank >= 2 && axes.into_iter().eq(0..rank - 1)
}

/// A linear node that only the value's reader needs, followed by the cast between them, if there is one.
fn single_product(graph: &Graph, groups: &Groups<'_>, value: Value) -> Option<Vec<NodeId>> {
    groups.only_user(value)?;
    let node = graph.node(value.node);
    if node.is_op("linear") {
        return Some(vec![value.node]);
    }
    let before = *node.inputs.first().filter(|_| node.is_op("cast"))?;
    groups.only_user(before)?;
    graph.node(before.node).is_op("linear").then(|| vec![before.node, value.node])
}

fn tanh_form(graph: &Graph, id: NodeId, name: &str) -> bool {
    let Kind::Op(op) = &graph.node(id).kind else { return false };
    op.name == name && op.attributes.text_of("form") == Ok("tanh")
}
