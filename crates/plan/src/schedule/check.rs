//! Proves that a finished plan is safe, from the plan alone: whatever touches a common byte is ordered, every value is
//! read after it was written and before anything else takes its place, no window leaves its buffer, collectives use
//! memory of their own arena, states come out where they went in.
//!
//! Does not know how the plan was made: it derives everything again from graph, windows, lanes and waits.

mod accesses;
mod order;
mod structure;

use graph::Value;

use super::{clocks::Clocks, roles};
use crate::{FunctionPlan, Plan, PlanError, Target};

/// Checks a plan against the abilities its target states.
///
/// # Errors
/// [`PlanError::Check`] with the first fault found.
pub fn check(plan: &Plan, target: &dyn Target) -> Result<(), PlanError> {
    structure::buffers(plan, target).map_err(PlanError::Check)?;
    for (function, program) in plan.functions.iter().zip(&plan.program.functions) {
        let work = || -> Result<(), String> {
            let subject = Subject::new(plan, function, program, target)?;
            structure::function(&subject)?;
            order::run(&subject, accesses::of(&subject)?)
        };
        let named = |fault| PlanError::Check(format!("function {}: {fault}", function.name));
        work().map_err(named)?;
    }
    Ok(())
}

/// One function under examination.
struct Subject<'a> {
    plan: &'a Plan,
    schedule: &'a FunctionPlan,
    function: &'a graph::Function,
    roles: Vec<roles::Role>,
    clocks: Clocks,
    /// Per step its candidate.
    candidates: Vec<crate::Candidate>,
    /// Per node its step.
    steps: Vec<Option<usize>>,
}

impl<'a> Subject<'a> {
    fn new(
        plan: &'a Plan,
        schedule: &'a FunctionPlan,
        function: &'a graph::Function,
        target: &dyn Target,
    ) -> Result<Subject<'a>, String> {
        let graph = &function.graph;
        let roles: Result<Vec<_>, _> = graph.ids().map(|id| roles::role(graph, id)).collect();
        let lanes = schedule.steps.iter().map(|step| (step.lane, step.waits.as_slice()));
        let clocks = Clocks::new(lanes).map_err(|(step, wait)| {
            format!("step {step} waits for step {}, which does not come before it", wait.0)
        })?;
        let mut steps = vec![None; graph.nodes().len()];
        let mut candidates = vec![];
        for (index, step) in schedule.steps.iter().enumerate() {
            match steps.get_mut(step.node.index()) {
                Some(at @ None) => *at = Some(index),
                _ => return Err(format!("%{} has two steps or does not exist", step.node.0)),
            }
            let (list, _) = super::cost::candidates(graph, step.node, target, plan.ranks)
                .map_err(|error| error.to_string())?;
            let found = list.into_iter().find(|candidate| candidate.id == step.candidate);
            candidates.push(found.ok_or_else(|| {
                format!("step {index}: {} has no candidate {}", target.name(), step.candidate)
            })?);
        }
        let mut roles = roles.map_err(|error| error.to_string())?;
        // A sum without a step is folded into the producer of one of its terms.
        for id in graph.ids().filter(|&id| graph.node(id).is_op("accumulate")) {
            if steps[id.index()].is_none() {
                let adds = |value: &Value| {
                    let writer = roles::written_value(graph, &roles, *value);
                    let step = steps[writer.node.index()].map(|step| &schedule.steps[step]);
                    step.is_some_and(|step| step.accumulates.contains(&writer.port))
                };
                let added = graph.node(id).inputs.iter().position(adds);
                let added = added.ok_or_else(|| format!("nothing adds up %{}", id.0))?;
                roles[id.index()] = roles::Role::Folded { added };
            }
        }
        Ok(Subject { plan, schedule, function, roles, clocks, candidates, steps })
    }

    fn window(&self, value: Value) -> Result<&'a crate::Window, String> {
        self.schedule.windows.get(&value).ok_or_else(|| format!("{value} has no window"))
    }

    /// A step as people find it: number, lane, operator, path.
    fn name(&self, step: usize) -> String {
        let planned = &self.schedule.steps[step];
        let node = self.function.graph.node(planned.node);
        let path = if node.site.path.is_empty() { "" } else { " of " };
        format!("step {step} ({}, {}{path}{})", planned.lane, node.name(), node.site.path)
    }
}

/// For each output of a step that is added to memory, the output and what it is added to.
fn sums(subject: &Subject<'_>, step: usize) -> Vec<(u16, Value)> {
    let planned = &subject.schedule.steps[step];
    if planned.accumulates.is_empty() {
        return vec![];
    }
    let graph = &subject.function.graph;
    let folded = graph.ids().filter_map(|id| match subject.roles[id.index()] {
        roles::Role::Folded { added } => Some((id, added)),
        _ => None,
    });
    folded
        .filter_map(|(id, added)| {
            let inputs = &graph.node(id).inputs;
            let writer = roles::written_value(graph, &subject.roles, inputs[added]);
            let own = writer.node == planned.node && planned.accumulates.contains(&writer.port);
            let base = *inputs.get(1 - added.min(1))?;
            own.then_some((writer.port, base))
        })
        .collect()
}
