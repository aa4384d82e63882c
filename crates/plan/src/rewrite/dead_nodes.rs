//! Drops nodes that no output and no update needs, and states that no function reads or writes.
//!
//! Declared inputs stay: they are the function's signature. Parameters stay: they are the model.

use std::collections::BTreeSet;

use graph::{Function, Kind, Program, StateKind};

use super::{Context, support::Rebuild};
use crate::PlanError;

pub(super) fn run(mut program: Program, _: &Context<'_>) -> Result<Program, PlanError> {
    let mut needed = BTreeSet::new();
    for function in &mut program.functions {
        *function = sweep(function);
        needed.extend(function.updates.iter().map(|update| update.state.clone()));
        needed.extend(function.graph.nodes().iter().filter_map(|node| match &node.kind {
            Kind::State { name } => Some(name.clone()),
            _ => None,
        }));
    }
    program
        .states
        .retain(|state| state.kind == StateKind::Parameter || needed.contains(&state.name));
    Ok(program)
}

/// The function without nodes that nothing needs.
pub(super) fn sweep(function: &Function) -> Function {
    let graph = &function.graph;
    let mut needed = vec![false; graph.nodes().len()];
    let inputs = function.inputs.iter().map(|input| input.value);
    function.roots().chain(inputs).for_each(|value| needed[value.node.index()] = true);
    for id in graph.ids().rev() {
        if needed[id.index()] {
            graph.node(id).inputs.iter().for_each(|value| needed[value.node.index()] = true);
        }
    }
    let mut copy = Rebuild::new(function);
    for id in graph.ids().filter(|id| needed[id.index()]) {
        copy.copy(id);
    }
    copy.finish()
}
