//! Joins the gradients of slices that tile a tensor: a sum of `concat(0, d, 0)` becomes one `concat` of the parts, so that
//! each part is written where it belongs (the gradient of packed queries, keys and values).
//!
//! Knows slices, no attention. Adding zero changes no number.

use graph::{Attributes, Function, Graph, Kind, NodeId, Value};

use crate::{PlanError, rewrite::support::Rebuild};

pub(super) fn join(function: &Function) -> Result<Function, PlanError> {
    let graph = &function.graph;
    let mut copy = Rebuild::new(function);
    for id in graph.ids() {
        match tiles(graph, id) {
            None => {
                copy.copy(id);
            }
            Some((axis, parts)) => {
                let parts: Vec<Value> = parts.iter().map(|&part| copy.value(part)).collect();
                let attributes = Attributes::new().int("axis", axis);
                let site = copy.site(id);
                let joined = copy.graph.op1("concat", attributes, &parts, site)?;
                copy.set(Value::new(id, 0), joined);
            }
        }
    }
    Ok(copy.finish())
}

/// Axis and parts in order, where a node sums padded parts that cover its output exactly.
fn tiles(graph: &Graph, id: NodeId) -> Option<(i64, Vec<Value>)> {
    let node = graph.node(id);
    if !node.is_op("accumulate") || node.inputs.len() < 2 {
        return None;
    }
    let mut parts: Vec<(usize, usize, Value)> = vec![];
    let mut common = None;
    for &input in &node.inputs {
        let (axis, start, part) = padded(graph, input)?;
        if *common.get_or_insert(axis) != axis {
            return None;
        }
        let extent = graph.ty(part).shape.0[usize::try_from(axis).ok()?];
        parts.push((start, extent, part));
    }
    let axis = common?;
    parts.sort_unstable();
    let mut end = 0;
    for &(start, extent, _) in &parts {
        if start != end {
            return None;
        }
        end = start + extent;
    }
    let whole = node.outputs[0].shape.0[usize::try_from(axis).ok()?];
    (end == whole).then(|| (axis, parts.into_iter().map(|(_, _, part)| part).collect()))
}

/// Axis, start and part of a `concat` whose other pieces are zeros.
fn padded(graph: &Graph, value: Value) -> Option<(i64, usize, Value)> {
    let node = graph.node(value.node);
    let Kind::Op(op) = &node.kind else { return None };
    if op.name != "concat" {
        return None;
    }
    let axis = op.attributes.int_of("axis").ok()?;
    let mut start = 0;
    let mut found = None;
    for &piece in &node.inputs {
        if is_zero(graph, piece) {
            if found.is_none() {
                start += graph.ty(piece).shape.0[usize::try_from(axis).ok()?];
            }
        } else if found.replace(piece).is_some() {
            return None;
        }
    }
    found.map(|part| (axis, start, part))
}

fn is_zero(graph: &Graph, value: Value) -> bool {
    let Kind::Op(op) = &graph.node(value.node).kind else { return false };
    op.name == "constant" && op.attributes.float_of("value") == Ok(0.0)
}
