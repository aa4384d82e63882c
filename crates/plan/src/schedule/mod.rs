//! Graph to plan: where every value lies, what runs on which lane in which order, what waits for what.
//!
//! Knows the target only through its data and nothing of how a plan is carried out.

pub(crate) mod check;
pub(crate) mod clocks;
mod copies;
pub(crate) mod cost;
mod dependencies;
pub(crate) mod intersect;
mod lanes;
mod layout;
mod memory;
mod place;
mod reuse;
pub(crate) mod roles;
pub(crate) mod simulate;

use graph::Program;

use crate::{FunctionPlan, Options, Plan, PlanError, Step, Target};

pub use check::check;
pub use roles::padding;
pub use simulate::Prediction;

/// The passes of this half in order: name and what it does.
pub const PASSES: [(&str, &str); 4] = [
    (
        "layout",
        "gives every value a window; inserts a copy where an engine cannot read or write strides",
    ),
    ("schedule", "orders work on lanes by predicted time and finds the fewest waits"),
    (
        "memory",
        "shares bytes between buffers that never live at once; decides what is updated in place",
    ),
    ("check", "proves that everything that touches the same bytes is ordered"),
];

/// Makes the plan of a rewritten program. A pure function of its arguments.
///
/// # Errors
/// Where the target cannot carry out a node, the graph is malformed, or the checker finds a fault.
pub fn run(program: &Program, target: &dyn Target, options: &Options) -> Result<Plan, PlanError> {
    let mut parts = vec![];
    for function in &program.functions {
        let laid = layout::run(program, function, target, options.ranks)?;
        let order = lanes::run(&laid, options.overlap)?;
        parts.push(memory::Part { laid, order });
    }
    let placement = memory::run(program, &mut parts, target, options.ranks)?;
    let mut functions = vec![];
    let mut rewritten = Program { states: program.states.clone(), functions: vec![] };
    for ((part, windows), workspaces) in
        parts.into_iter().zip(placement.windows).zip(placement.workspaces)
    {
        let steps = part.order.steps.iter().zip(workspaces).map(|(step, workspace)| Step {
            node: step.node,
            lane: step.lane,
            waits: step.waits.clone(),
            candidate: step.work.candidate.id.clone(),
            workspace,
            accumulates: part.laid.accumulating(step.node),
            kernels: step.work.candidate.kernels,
            flops: step.work.cost.flops,
            bytes: step.work.cost.bytes,
            predicted_ns: step.work.candidate.nanoseconds,
        });
        functions.push(FunctionPlan {
            name: part.laid.function.name.clone(),
            steps: steps.collect(),
            windows,
            predicted_ns: part.order.prediction.total_ns,
            predicted_exposed_ns: part.order.prediction.exposed_ns,
        });
        rewritten.functions.push(part.laid.function);
    }
    let plan = Plan {
        version: Plan::VERSION,
        target: target.name().to_owned(),
        ranks: options.ranks,
        program: rewritten,
        buffers: placement.buffers,
        states: placement.states,
        functions,
        passes: vec![],
    };
    if !options.without.iter().any(|name| name == "check") {
        check(&plan, target)?;
    }
    Ok(plan)
}
