//! Turns the traced training function into one step, or into the first, middle and last of several micro-steps.
//!
//! The gradient's seed is `loss_scale / count`: averaging over elements, micro-steps and ranks, and the loss scale, cost
//! nothing afterwards. Knows neither ranks (the count is made global by `data_parallel`) nor buckets: each parameter's
//! gradient becomes a state of its own, which later passes merge and consume.

use std::collections::BTreeSet;

use graph::{
    Attributes, DType, Function, FunctionInput, Graph, Initial, InputKind, Kind, NodeId, Op,
    Origin, Program, Site, State, StateKind, Type, Update, Value, names,
};

use super::{
    Context, dead_nodes,
    support::{GRADIENT, GRADIENT_SUM, cast, constant},
};
use crate::{
    PlanError,
    options::{LossMean, LossScale},
};

/// Which part of a step a function carries out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Step,
    First,
    Middle,
    Last,
}

pub(super) fn run(mut program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    let Some(place) = program.functions.iter().position(|f| f.name == names::TRAIN) else {
        return Ok(program);
    };
    let parts: &[(Part, &str)] = match cx.options.accumulation {
        0 => return Err(impossible_accumulation()),
        1 => &[(Part::Step, names::STEP)],
        _ => {
            &[(Part::First, names::FIRST), (Part::Middle, names::MIDDLE), (Part::Last, names::LAST)]
        }
    };
    let train = program.functions.remove(place);
    if let Some(scale) = cx.options.loss_scale {
        declare_loss_scale(&mut program, scale)?;
    }
    if parts.len() > 1 {
        program.states.push(scalar_state(names::GLOBAL_COUNT, DType::F32, 0.0));
    }
    let mut differentiated = BTreeSet::new();
    for (offset, &(part, name)) in parts.iter().enumerate() {
        let mut function = train.clone();
        name.clone_into(&mut function.name);
        differentiated.extend(differentiate(&program, &mut function, part, cx)?);
        // Sums in another dtype were replaced.
        function = dead_nodes::sweep(&function);
        program.functions.insert(place + offset, function);
    }
    declare_gradients(&mut program, &differentiated, parts.len() > 1, cx);
    Ok(program)
}

fn impossible_accumulation() -> PlanError {
    PlanError::Option {
        option: "accumulation",
        found: "0".to_owned(),
        expected: "at least 1".to_owned(),
    }
}

pub(super) fn scalar_state(name: &str, dtype: DType, value: f64) -> State {
    State::new(name, Type::scalar(dtype), StateKind::Scalar, Initial::Constant(value))
}

fn declare_loss_scale(program: &mut Program, scale: LossScale) -> Result<(), PlanError> {
    let refuse = |option, found: String, expected: &str| {
        Err(PlanError::Option { option, found, expected: expected.to_owned() })
    };
    let initial = scale.initial;
    if !(initial > 0.0 && initial.is_finite() && initial.log2().fract() == 0.0) {
        return refuse("loss_scale.initial", initial.to_string(), "a power of two");
    }
    if scale.growth_interval == 0 {
        return refuse("loss_scale.growth_interval", "0".to_owned(), "at least 1 step");
    }
    program.states.push(scalar_state(names::LOSS_SCALE, DType::F32, initial));
    program.states.push(scalar_state(names::GOOD_STEPS, DType::I64, 0.0));
    Ok(())
}

/// The dtype in which the gradient of a parameter is kept and reduced.
fn slot_dtype(parameter: DType, cx: &Context<'_>) -> DType {
    if parameter == DType::F64 { DType::F64 } else { cx.options.precision.gradient }
}

fn declare_gradients(
    program: &mut Program,
    differentiated: &BTreeSet<String>,
    sums: bool,
    cx: &Context<'_>,
) {
    let mut states = vec![];
    for parameter in program.states.iter().filter(|state| differentiated.contains(&state.name)) {
        let ty = parameter.ty.with_dtype(slot_dtype(parameter.ty.dtype, cx));
        for suffix in [GRADIENT].into_iter().chain(sums.then_some(GRADIENT_SUM)) {
            let name = format!("{}{suffix}", parameter.name);
            let kind = StateKind::Gradient { of: parameter.name.clone() };
            states.push(State::new(&name, ty.clone(), kind, Initial::Zeros));
        }
    }
    program.states.extend(states);
}

/// Adds gradients and their updates; yields the names of the parameters that have one.
fn differentiate(
    program: &Program,
    function: &mut Function,
    part: Part,
    cx: &Context<'_>,
) -> Result<Vec<String>, PlanError> {
    let loss = function.output(names::LOSS_SUM).ok_or_else(|| PlanError::Pass {
        pass: "autodiff",
        message: format!("function {} has no output {}", names::TRAIN, names::LOSS_SUM),
    })?;
    let seed = seed(function, loss, part, cx)?;
    let graph = &mut function.graph;
    let parameters: Vec<&State> = program
        .states
        .iter()
        .filter(|state| state.kind == StateKind::Parameter && state.trainable)
        .collect();
    let readings: Vec<Vec<Value>> =
        parameters.iter().map(|state| readings(program, graph, &state.name)).collect();
    let flat: Vec<Value> = readings.iter().flatten().copied().collect();
    let mut gradients = graph::autodiff::gradients(graph, &[(loss, seed)], &flat)?.into_iter();
    let mut found = vec![];
    for (parameter, values) in parameters.into_iter().zip(&readings) {
        let terms: Vec<Value> = gradients.by_ref().take(values.len()).flatten().collect();
        if terms.is_empty() {
            continue;
        }
        let dtype = slot_dtype(parameter.ty.dtype, cx);
        let mut gradient = in_slot(graph, &terms, dtype, &parameter.name)?;
        let name = |suffix: &str| format!("{}{suffix}", parameter.name);
        if matches!(part, Part::Middle | Part::Last) {
            let so_far = graph.state(&name(GRADIENT_SUM), graph.ty(gradient).clone());
            let site = Site::new(&parameter.name, Origin::Reduction);
            gradient = graph.op1("accumulate", Attributes::new(), &[so_far, gradient], site)?;
        }
        let mut update = |suffix| {
            function.updates.push(Update { state: name(suffix), value: gradient });
        };
        if part != Part::Step {
            update(GRADIENT_SUM);
        }
        if matches!(part, Part::Step | Part::Last) {
            update(GRADIENT);
        }
        found.push(parameter.name.clone());
    }
    Ok(found)
}

/// The values under which a function reads a parameter: its own and that of its low-precision copy.
fn readings(program: &Program, graph: &Graph, parameter: &str) -> Vec<Value> {
    let stands_for = |name: &str| {
        name == parameter
            || program.state(name).is_some_and(
                |state| matches!(&state.kind, StateKind::WorkingCopy { of } if of == parameter),
            )
    };
    graph
        .ids()
        .filter(|&id| matches!(&graph.node(id).kind, Kind::State { name } if stands_for(name)))
        .map(|id| Value::new(id, 0))
        .collect()
}

/// `loss_scale / count`, in the loss's dtype. The count is that of the whole step: of this rank here, of all ranks after
/// `data_parallel`; with [`LossMean::Local`] this rank's times the number of ranks, which makes the sum over ranks the
/// mean of their means.
fn seed(
    function: &mut Function,
    loss: Value,
    part: Part,
    cx: &Context<'_>,
) -> Result<Value, PlanError> {
    let site = Site::new("loss", Origin::Gradient);
    let graph = &mut function.graph;
    let count = match part {
        Part::Step | Part::First => {
            let ty = Type::scalar(DType::F32);
            let value = graph.input(names::LOCAL_COUNT, ty, site.clone());
            function.inputs.push(FunctionInput {
                name: names::LOCAL_COUNT.to_owned(),
                value,
                kind: InputKind::Scalar,
            });
            let mut count = value;
            if cx.options.loss_mean == LossMean::Local {
                let ranks = constant(graph, cx.options.ranks as f64, DType::F32, &site)?;
                count = graph.op1("mul", Attributes::new(), &[count, ranks], site.clone())?;
            }
            if part == Part::First {
                function
                    .updates
                    .push(Update { state: names::GLOBAL_COUNT.to_owned(), value: count });
            }
            count
        }
        Part::Middle | Part::Last => graph.state(names::GLOBAL_COUNT, Type::scalar(DType::F32)),
    };
    // A step without a single counted element has the gradient 0, not NaN.
    let one = constant(graph, 1.0, DType::F32, &site)?;
    let count = graph.op1("maximum", Attributes::new(), &[count, one], site.clone())?;
    let scale = match cx.options.loss_scale {
        Some(_) => graph.state(names::LOSS_SCALE, Type::scalar(DType::F32)),
        None => one,
    };
    let dtype = graph.ty(loss).dtype;
    let (scale, count) = (cast(graph, scale, dtype, &site)?, cast(graph, count, dtype, &site)?);
    Ok(graph.op1("div", Attributes::new(), &[scale, count], site)?)
}

/// The sum of `terms` in the slot's dtype. Producers that can yield that dtype are changed to do so, where they stand, so
/// that nothing is rounded on the way.
fn in_slot(
    graph: &mut Graph,
    terms: &[Value],
    dtype: DType,
    parameter: &str,
) -> Result<Value, PlanError> {
    let site = Site::new(parameter, Origin::Reduction);
    let mut summands = vec![];
    for &term in terms {
        let node = graph.node(term.node);
        let (parts, reader) = match node.is_op("accumulate") && node.outputs[0].dtype != dtype {
            true => (node.inputs.clone(), Some(term.node)),
            false => (vec![term], None),
        };
        for part in parts {
            summands.push(in_dtype(graph, part, dtype, reader, &site)?);
        }
    }
    match summands.as_slice() {
        [single] => Ok(*single),
        _ => Ok(graph.op1("accumulate", Attributes::new(), &summands, site)?),
    }
}

/// The value in another dtype. `reader` reads it so far and will be gone.
fn in_dtype(
    graph: &mut Graph,
    value: Value,
    dtype: DType,
    reader: Option<NodeId>,
    site: &Site,
) -> Result<Value, PlanError> {
    if graph.ty(value).dtype == dtype || yields(graph, value.node, dtype, reader) {
        return Ok(value);
    }
    Ok(cast(graph, value, dtype, site)?)
}

/// Makes a node with one output yield `dtype`, where its operator has the attribute `output` and nobody else reads it.
fn yields(graph: &mut Graph, id: NodeId, dtype: DType, reader: Option<NodeId>) -> bool {
    let node = graph.node(id);
    let reads = |other: NodeId| graph.node(other).inputs.iter().any(|value| value.node == id);
    let read_elsewhere = graph.ids().filter(|&other| Some(other) != reader).any(reads);
    let Kind::Op(op) = &node.kind else { return false };
    if node.outputs.len() != 1 || read_elsewhere {
        return false;
    }
    let changed = Op::new(&op.name, op.attributes.clone().dtype("output", dtype));
    let types: Vec<Type> = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
    let Ok(outputs) = graph.registry().infer(&changed, &types, &node.site) else { return false };
    let fits = outputs.len() == 1 && outputs[0].dtype == dtype;
    if fits {
        let node = graph.node_mut(id);
        (node.kind, node.outputs) = (Kind::Op(changed), outputs);
    }
    fits
}
