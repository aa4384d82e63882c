//! Reverse-mode differentiation: graph in, the same graph with gradient nodes out.
//!
//! Knows how gradients flow along edges; what an operator's gradient is, its definition says. Runs before fusing:
//! regions have no gradient.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Attributes, Call, Collective, GradientBuilder, Graph, GraphError, Kind, NodeId, Origin,
    Reduction, Value,
};

/// Adds the gradients of a scalar L with respect to `wanted`, given `seeds`: pairs of a value and the value that holds
/// the gradient of L with respect to it. Yields one value per wanted one, `None` where L does not depend on it.
///
/// With collectives in the graph, L is the sum of all ranks' scalars. A value with several readers gets one n-ary
/// `accumulate`, in the order in which the backward part yields the summands (last reader first).
///
/// # Errors
/// [`GraphError::NotDifferentiable`] where a gradient arrives at an operator, collective, region or output that passes
/// none on, and [`GraphError::Malformed`] where a seed's type is not that of its value.
pub fn gradients(
    graph: &mut Graph,
    seeds: &[(Value, Value)],
    wanted: &[Value],
) -> Result<Vec<Option<Value>>, GraphError> {
    let Some(last) = seeds.iter().map(|(value, _)| value.node).max() else {
        return Ok(vec![None; wanted.len()]);
    };
    let active = dependent_on(graph, wanted, last);
    let mut arrived: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for &(value, seed) in seeds {
        if graph.ty(value) != graph.ty(seed) {
            let (found, expected) = (graph.ty(seed), graph.ty(value));
            return Err(GraphError::Malformed(format!(
                "the seed of {value} is {found}, {expected} was expected"
            )));
        }
        arrived.entry(value).or_default().push(seed);
    }
    let mut known: BTreeMap<Value, Value> = BTreeMap::new();
    for node in (0..=last.0).rev().map(NodeId) {
        let outputs = graph.outputs(node);
        for &output in &outputs {
            if let Some(summands) = arrived.remove(&output) {
                let sum = sum(graph, output, &summands)?;
                known.insert(output, sum);
            }
        }
        let output_gradients: Vec<Option<Value>> =
            outputs.iter().map(|output| known.get(output).copied()).collect();
        let inputs = graph.node(node).inputs.clone();
        let flows = output_gradients.iter().any(Option::is_some);
        if !flows || !inputs.iter().any(|input| active.contains(input)) {
            continue;
        }
        let input_gradients = rule(graph, node, &inputs, &outputs, &output_gradients)?;
        for (input, gradient) in inputs.into_iter().zip(input_gradients) {
            if let (Some(gradient), true) = (gradient, active.contains(&input)) {
                arrived.entry(input).or_default().push(gradient);
            }
        }
    }
    Ok(wanted.iter().map(|value| known.get(value).copied()).collect())
}

/// All values that depend on a wanted one, among nodes up to `last`.
fn dependent_on(graph: &Graph, wanted: &[Value], last: NodeId) -> BTreeSet<Value> {
    let mut active: BTreeSet<Value> = wanted.iter().copied().collect();
    for node in (0..=last.0).map(NodeId) {
        if graph.node(node).inputs.iter().any(|input| active.contains(input)) {
            let floats = graph.outputs(node).into_iter().filter(|&v| graph.ty(v).dtype.is_float());
            active.extend(floats);
        }
    }
    active
}

/// One value for the summands of the gradient of `value`.
fn sum(graph: &mut Graph, value: Value, summands: &[Value]) -> Result<Value, GraphError> {
    if let [only] = summands {
        return Ok(*only);
    }
    let site = graph.node(value.node).site.with_origin(Origin::Gradient);
    let accumulator = graph.ty(value).dtype.accumulator();
    let attributes = Attributes::new().dtype("accumulate", accumulator);
    graph.op1("accumulate", attributes, summands, site)
}

/// The gradients of a node's inputs.
fn rule(
    graph: &mut Graph,
    node: NodeId,
    inputs: &[Value],
    outputs: &[Value],
    output_gradients: &[Option<Value>],
) -> Result<Vec<Option<Value>>, GraphError> {
    let site = graph.node(node).site.clone();
    let refused = |what: &str| GraphError::NotDifferentiable {
        path: site.path.clone(),
        what: what.to_owned(),
    };
    match graph.node(node).kind.clone() {
        Kind::Op(op) => {
            let definition = graph.registry().get(&op.name)?.clone();
            for (port, gradient) in output_gradients.iter().enumerate() {
                if gradient.is_some() && !definition.differentiable(port) {
                    return Err(refused(&format!("output {port} of {}", op.name)));
                }
            }
            let mut builder = GradientBuilder::new(graph, &site);
            let call = Call { attributes: &op.attributes, inputs, outputs, output_gradients };
            let gradients = definition.gradient(&mut builder, call)?;
            if gradients.len() == inputs.len() {
                return Ok(gradients);
            }
            let (found, expected) = (gradients.len(), inputs.len());
            Err(GraphError::Malformed(format!(
                "the gradient of {} yields {found} values for {expected} inputs",
                op.name
            )))
        }
        Kind::Collective(collective) => {
            let adjoint = adjoint(collective).ok_or_else(|| refused(collective.name()))?;
            let Some(dy) = output_gradients[0] else { return Ok(vec![None]) };
            let dx = graph.collective(adjoint, dy, site.with_origin(Origin::Gradient))?;
            Ok(vec![Some(dx)])
        }
        Kind::Region(region) => Err(refused(&format!("region {}", region.name))),
        Kind::Input { .. } | Kind::State { .. } => Ok(vec![]),
    }
}

/// The adjoint of a linear collective, as a map from all ranks' tensors to all ranks' tensors: that of a sum over ranks
/// handed to all is itself; scattering a sum and gathering are each other's; all-to-all is a permutation and its own
/// inverse. A root's or a pair's adjoint treats ranks unequally and is no single collective.
fn adjoint(collective: Collective) -> Option<Collective> {
    let reduction = Reduction::Sum;
    match collective {
        Collective::AllReduce { reduction: Reduction::Sum } => {
            Some(Collective::AllReduce { reduction })
        }
        Collective::ReduceScatter { reduction: Reduction::Sum, ranks } => {
            Some(Collective::AllGather { ranks })
        }
        Collective::AllGather { ranks } => Some(Collective::ReduceScatter { reduction, ranks }),
        Collective::AllToAll { ranks } => Some(Collective::AllToAll { ranks }),
        _ => None,
    }
}
