//! Reference evaluation: what a graph and a program mean, on all ranks in lockstep. Plans and devices are tested
//! against it.
//!
//! Slow and obvious; knows no plan, no memory and no device.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    EvaluationContext, Graph, GraphError, Kind, Node, NodeId, Program, Tensor, Value,
    initial::initial_tensor,
};

/// Tensors by name.
pub type Named = BTreeMap<String, Tensor>;

/// Evaluates `wanted` on one rank; `inputs` holds function inputs and states by name.
///
/// # Errors
/// Where an input is missing or of another type, or an operator refuses its values.
pub fn evaluate(
    graph: &Graph,
    inputs: &Named,
    wanted: &[Value],
) -> Result<Vec<Tensor>, GraphError> {
    let mut ranks = evaluate_ranks(graph, std::slice::from_ref(inputs), wanted)?;
    Ok(ranks.remove(0))
}

/// Evaluates `wanted` on as many ranks as there are sets of inputs: every node on all ranks before the next node,
/// collectives by their specification. Yields the values of each rank.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_ranks(
    graph: &Graph,
    inputs: &[Named],
    wanted: &[Value],
) -> Result<Vec<Vec<Tensor>>, GraphError> {
    let source = |rank: usize, node: &Node| match &node.kind {
        Kind::Input { name } | Kind::State { name } => named(&inputs[rank], name, node),
        _ => Err(GraphError::Malformed(format!("{} is no source", node.name()))),
    };
    run(graph, inputs.len(), wanted, &source)
}

/// A program's states on every rank, and calls that update them.
#[derive(Clone, Debug)]
pub struct Evaluator<'p> {
    program: &'p Program,
    states: Vec<Named>,
}

impl<'p> Evaluator<'p> {
    /// The program's states at their initial values: a function of the seed.
    ///
    /// # Errors
    /// Where an initial value names an unknown state.
    pub fn new(program: &'p Program, ranks: usize, seed: u64) -> Result<Evaluator<'p>, GraphError> {
        let states = (0..ranks)
            .map(|rank| {
                let of = |state: &crate::State| {
                    Ok((state.name.clone(), initial_tensor(program, state, seed, rank)?))
                };
                program.states.iter().map(of).collect()
            })
            .collect::<Result<Vec<Named>, GraphError>>()?;
        Ok(Evaluator { program, states })
    }

    /// Calls a function with each rank's inputs: yields each rank's outputs and updates the states.
    ///
    /// # Errors
    /// Where there is no such function, an input is missing, or an operator refuses its values; states then keep their
    /// values.
    pub fn call(&mut self, function: &str, inputs: &[Named]) -> Result<Vec<Named>, GraphError> {
        let Some(function) = self.program.function(function) else {
            return Err(GraphError::Malformed(format!("there is no function {function:?}")));
        };
        if inputs.len() != self.states.len() {
            let (found, expected) = (inputs.len(), self.states.len());
            return Err(GraphError::Malformed(format!(
                "inputs of {found} ranks, {expected} ranks were expected"
            )));
        }
        let wanted: Vec<Value> = function.roots().collect();
        let source = |rank: usize, node: &Node| match &node.kind {
            Kind::State { name } => named(&self.states[rank], name, node),
            Kind::Input { name } => named(&inputs[rank], name, node),
            _ => Err(GraphError::Malformed(format!("{} is no source", node.name()))),
        };
        let results = run(&function.graph, inputs.len(), &wanted, &source)?;
        let mut outputs = vec![];
        for (states, values) in self.states.iter_mut().zip(results) {
            let mut values = values.into_iter();
            let names = function.outputs.iter().map(|output| output.name.clone());
            outputs.push(names.zip(values.by_ref()).collect::<Named>());
            let updated = function.updates.iter().map(|update| update.state.clone());
            states.extend(updated.zip(values));
        }
        Ok(outputs)
    }

    /// A state's value on a rank.
    pub fn state(&self, rank: usize, name: &str) -> Option<&Tensor> {
        self.states.get(rank)?.get(name)
    }

    /// Replaces a state's value on a rank.
    pub fn set_state(&mut self, rank: usize, name: &str, value: Tensor) {
        if let Some(states) = self.states.get_mut(rank) {
            states.insert(name.to_owned(), value);
        }
    }
}

fn named(tensors: &Named, name: &str, node: &Node) -> Result<Tensor, GraphError> {
    match tensors.get(name) {
        Some(tensor) if *tensor.ty() == node.outputs[0] => Ok(tensor.clone()),
        Some(tensor) => Err(GraphError::Malformed(format!(
            "{name} is {}, {} was expected",
            tensor.ty(),
            node.outputs[0]
        ))),
        None => Err(GraphError::Malformed(format!("{name} is not given"))),
    }
}

/// A source node's value on a rank.
type Source<'a> = dyn Fn(usize, &Node) -> Result<Tensor, GraphError> + 'a;

fn run(
    graph: &Graph,
    ranks: usize,
    wanted: &[Value],
    source: &Source<'_>,
) -> Result<Vec<Vec<Tensor>>, GraphError> {
    let needed = needed(graph, wanted);
    let mut values: Vec<BTreeMap<Value, Tensor>> = vec![BTreeMap::new(); ranks];
    for id in graph.ids().filter(|id| needed.contains(id)) {
        let node = graph.node(id);
        let inputs: Vec<Vec<Tensor>> = values
            .iter()
            .map(|known| node.inputs.iter().map(|value| known[value].clone()).collect())
            .collect();
        let outputs = evaluate_node(graph, node, inputs, source)?;
        for (known, tensors) in values.iter_mut().zip(outputs) {
            known.extend(graph.outputs(id).into_iter().zip(tensors));
        }
    }
    Ok(values
        .iter()
        .map(|known| wanted.iter().map(|value| known[value].clone()).collect())
        .collect())
}

fn evaluate_node(
    graph: &Graph,
    node: &Node,
    inputs: Vec<Vec<Tensor>>,
    source: &Source<'_>,
) -> Result<Vec<Vec<Tensor>>, GraphError> {
    let ranks = inputs.len();
    let refused = |error, tensors: &[Tensor]| GraphError::Operator {
        path: node.site.path.clone(),
        op: node.name().to_owned(),
        inputs: tensors.iter().map(|t| t.ty().to_string()).collect::<Vec<_>>().join(", "),
        source: error,
    };
    match &node.kind {
        Kind::Input { .. } | Kind::State { .. } => {
            (0..ranks).map(|rank| Ok(vec![source(rank, node)?])).collect()
        }
        Kind::Op(op) => {
            let definition = graph.registry().get(&op.name)?;
            let one = |(rank, tensors): (usize, Vec<Tensor>)| {
                definition
                    .evaluate(&op.attributes, &tensors, EvaluationContext { rank })
                    .map_err(|error| refused(error, &tensors))
            };
            inputs.into_iter().enumerate().map(one).collect()
        }
        Kind::Collective(collective) => {
            let tensors: Vec<Tensor> = inputs.into_iter().flatten().collect();
            let results =
                collective.specification(&tensors).map_err(|error| refused(error, &tensors))?;
            Ok(results.into_iter().map(|tensor| vec![tensor]).collect())
        }
        Kind::Region(region) => {
            let places: BTreeMap<String, usize> = region
                .inputs()
                .enumerate()
                .map(|(index, value)| (input_name(region.body.node(value.node)), index))
                .collect();
            let bound = |rank: usize, inner: &Node| {
                places
                    .get(&input_name(inner))
                    .and_then(|&index| inputs[rank].get(index).cloned())
                    .ok_or_else(|| GraphError::Malformed(format!("region {}", region.name)))
            };
            run(&region.body, ranks, &region.outputs, &bound)
        }
    }
}

fn input_name(node: &Node) -> String {
    if let Kind::Input { name } = &node.kind { name.clone() } else { String::new() }
}

/// The nodes that the wanted values depend on.
fn needed(graph: &Graph, wanted: &[Value]) -> BTreeSet<NodeId> {
    let mut needed = BTreeSet::new();
    let mut open: Vec<NodeId> = wanted.iter().map(|value| value.node).collect();
    while let Some(id) = open.pop() {
        if needed.insert(id) {
            open.extend(graph.node(id).inputs.iter().map(|value| value.node));
        }
    }
    needed
}
