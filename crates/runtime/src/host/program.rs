//! The steps of a plan's functions prepared for one rank: kernels bound to memory, collectives, waits.
//!
//! Knows the plan and the memory; not threads.

use std::{collections::BTreeMap, ops::Range};

use graph::{Collective, Kind, Type, Value};
use plan::{FunctionPlan, Lane, Plan, Step, Window};

use super::{
    memory::Memory,
    operand::{Bound, Operand},
    operators,
};
use crate::RuntimeError;

/// What a step does.
pub enum Work {
    /// Copies a handed tensor into its window.
    Input {
        /// Name of the input.
        name: String,
        /// Where it goes.
        target: Operand,
    },
    /// Runs a kernel.
    Kernel(Box<Bound>),
    /// Takes part in a collective.
    Collective {
        /// Which.
        collective: Collective,
        /// Type of the input.
        ty: Type,
        /// What this rank contributes.
        input: Operand,
        /// Where the result goes.
        output: Operand,
        /// The communicator.
        lane: u8,
    },
    /// Zeroes bytes of a block that no other step writes.
    Zero {
        /// The block.
        block: usize,
        /// Bytes within the block.
        ranges: Vec<Range<usize>>,
    },
}

/// A step with everything to run and record it.
pub struct Prepared {
    /// What it does.
    pub work: Work,
    /// For each wait: the lane's index and how many of its steps must be done.
    pub waits: Vec<(usize, usize)>,
    /// Whether another lane waits for it.
    pub awaited: bool,
    /// Position in the function's list.
    pub step: usize,
}

/// One function for one rank.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Steps by lane, in the order of [`lanes`].
    pub lanes: Vec<Vec<Prepared>>,
    /// Inputs and their types.
    pub inputs: Vec<(String, Type)>,
    /// Outputs and where they lie.
    pub outputs: Vec<(String, Type, Operand)>,
}

/// All lanes that any function uses; the compute lane comes first and is always there.
pub fn lanes(plan: &Plan) -> Vec<Lane> {
    let mut lanes = vec![Lane::Compute];
    for step in plan.functions.iter().flat_map(|function| &function.steps) {
        if !lanes.contains(&step.lane) {
            lanes.push(step.lane);
        }
    }
    lanes[1..].sort();
    lanes
}

/// Prepares every function.
///
/// # Errors
/// Where the plan contradicts itself or an operator has no kernel.
pub fn prepare(plan: &Plan, memory: &Memory, rank: usize) -> Result<Vec<Function>, RuntimeError> {
    let lanes = lanes(plan);
    plan.functions
        .iter()
        .map(|function| prepare_function(plan, function, memory, rank, &lanes))
        .collect()
}

fn prepare_function(
    plan: &Plan,
    schedule: &FunctionPlan,
    memory: &Memory,
    rank: usize,
    lanes: &[Lane],
) -> Result<Function, RuntimeError> {
    let malformed = |what: String| RuntimeError::Plan { path: schedule.name.clone(), what };
    let function = plan
        .program
        .function(&schedule.name)
        .ok_or_else(|| malformed("is scheduled but not in the program".to_owned()))?;
    let graph = &function.graph;
    let states: BTreeMap<&str, &Window> =
        plan.states.iter().map(|placed| (placed.state.as_str(), &placed.window)).collect();
    let operand = |value: Value| -> Result<Operand, RuntimeError> {
        let state = match &graph.node(value.node).kind {
            Kind::State { name } => states.get(name.as_str()).copied(),
            _ => None,
        };
        let window = schedule.windows.get(&value).or(state);
        window
            .and_then(|window| Operand::new(memory, window, graph.ty(value), rank))
            .ok_or_else(|| malformed(format!("{value} has no memory")))
    };
    // Lane and position on it of each step.
    let mut counts = vec![0usize; lanes.len()];
    let places: Vec<(usize, usize)> = schedule
        .steps
        .iter()
        .map(|step| {
            let lane = lanes.iter().position(|lane| *lane == step.lane).unwrap_or(0);
            counts[lane] += 1;
            (lane, counts[lane])
        })
        .collect();
    let awaited: Vec<bool> = (0..schedule.steps.len() as u32)
        .map(|id| schedule.steps.iter().any(|step| step.waits.iter().any(|wait| wait.0 == id)))
        .collect();
    let mut by_lane: Vec<Vec<Prepared>> = lanes.iter().map(|_| vec![]).collect();
    for (index, step) in schedule.steps.iter().enumerate() {
        let waits: Option<Vec<(usize, usize)>> =
            step.waits.iter().map(|wait| places.get(wait.0 as usize).copied()).collect();
        let waits =
            waits.ok_or_else(|| malformed("waits for a step that is not there".to_owned()))?;
        let node = graph.node(step.node);
        let work = work(step, &operand, graph, memory).map_err(|error| match error {
            RuntimeError::Plan { what, .. } => RuntimeError::Plan {
                path: format!("{}: {} ({})", schedule.name, node.site.path, node.name()),
                what,
            },
            other => other,
        })?;
        by_lane[places[index].0].push(Prepared {
            work,
            waits,
            awaited: awaited[index],
            step: index,
        });
    }
    let inputs =
        function.inputs.iter().map(|i| (i.name.clone(), graph.ty(i.value).clone())).collect();
    let outputs = function
        .outputs
        .iter()
        .map(|o| Ok((o.name.clone(), graph.ty(o.value).clone(), operand(o.value)?)))
        .collect::<Result<_, RuntimeError>>()?;
    Ok(Function { name: schedule.name.clone(), lanes: by_lane, inputs, outputs })
}

fn work(
    step: &Step,
    operand: &dyn Fn(Value) -> Result<Operand, RuntimeError>,
    graph: &graph::Graph,
    memory: &Memory,
) -> Result<Work, RuntimeError> {
    let node = graph.node(step.node);
    let value = |port: usize| Value::new(step.node, port);
    match &node.kind {
        Kind::Input { name } => Ok(Work::Input { name: name.clone(), target: operand(value(0))? }),
        Kind::Collective(collective) => {
            let lane = match step.lane {
                Lane::Communication(lane) => lane,
                _ => 0,
            };
            let input = operand(node.inputs[0])?;
            let (ty, output) = (graph.ty(node.inputs[0]).clone(), operand(value(0))?);
            Ok(Work::Collective { collective: *collective, ty, input, output, lane })
        }
        Kind::Op(op) if op.name == "pack" => {
            let types: Vec<Type> = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
            let output = operand(value(0))?;
            let size = output.dtype.bytes();
            let offsets = op.attributes.sizes_of("offsets").unwrap_or_default();
            let gaps = gaps(&offsets, &types, output.walk.len());
            let ranges = gaps
                .into_iter()
                .map(|gap| output.start + gap.start * size..output.start + gap.end * size)
                .collect();
            Ok(Work::Zero { block: output.block, ranges })
        }
        _ => {
            let types: Vec<Type> = node.inputs.iter().map(|&v| graph.ty(v).clone()).collect();
            let kernel = operators::prepare(node, &types, graph.registry())?;
            let inputs: Vec<Operand> =
                node.inputs.iter().map(|&v| operand(v)).collect::<Result<_, _>>()?;
            // Outputs that nobody reads have no window in the plan: they get memory of their own nowhere.
            let outputs: Vec<Operand> = (0..node.outputs.len())
                .map(|port| operand(value(port)))
                .collect::<Result<_, _>>()?;
            let accumulate =
                (0..outputs.len()).map(|port| step.accumulates.contains(&(port as u16))).collect();
            let _ = memory;
            Ok(Work::Kernel(Box::new(Bound::new(kernel, inputs, outputs, accumulate))))
        }
    }
}

/// Elements of a flat tensor that none of its parts covers.
fn gaps(offsets: &[usize], parts: &[Type], total: usize) -> Vec<Range<usize>> {
    let mut taken: Vec<Range<usize>> =
        offsets.iter().zip(parts).map(|(&o, ty)| o..o + ty.shape.elements()).collect();
    taken.sort_by_key(|range| range.start);
    let mut gaps = vec![];
    let mut at = 0;
    for range in taken {
        if range.start > at {
            gaps.push(at..range.start);
        }
        at = at.max(range.end);
    }
    if at < total {
        gaps.push(at..total);
    }
    gaps
}
