//! Forms regions: groups of nodes that a target has one kernel for. Only patterns that the target names are formed, in the
//! order of the list here; a node belongs to the first that takes it.
//!
//! Knows shapes of groups, no kernels: whether a group pays, the target's predicted times say. A region's meaning is its
//! body, so numbers do not change.

mod cross_entropy;
mod elementwise;
mod embedding;
mod groups;
mod judge;
mod layer_norm;
mod linear;
mod tiles;

use graph::{Graph, Program};

use self::{groups::Groups, judge::Judge};
use super::{Context, dead_nodes};
use crate::PlanError;

/// A pattern: the region's name and what finds its members.
struct Pattern {
    name: &'static str,
    find: fn(&Graph, &mut Groups<'_>),
}

const PATTERNS: &[Pattern] = &[
    Pattern { name: "cross_entropy_with_gradient", find: cross_entropy::with_gradient },
    Pattern { name: "embedding_add", find: embedding::add },
    Pattern { name: "linear_gelu", find: linear::gelu },
    Pattern { name: "linear_add", find: linear::add },
    Pattern { name: "add_layer_norm", find: layer_norm::add },
    Pattern { name: "layer_norm_gradient_add", find: layer_norm::gradient_add },
    Pattern { name: "linear_gelu_gradient_bias", find: linear::gelu_gradient_bias },
    Pattern { name: "linear_gelu_gradient", find: linear::gelu_gradient },
    Pattern { name: "linear_bias_gradient", find: linear::bias_gradient },
    Pattern { name: "elementwise", find: elementwise::chains },
];

pub(super) fn run(program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    let known = cx.target.patterns();
    let mut program = program;
    for function in &mut program.functions {
        *function = tiles::join(function)?;
    }
    // Readers that nothing needs would keep groups apart.
    let mut program = dead_nodes::run(program, cx)?;
    for function in &mut program.functions {
        let mut groups =
            Groups::new(function, Judge { target: cx.target, ranks: cx.options.ranks });
        for pattern in PATTERNS.iter().filter(|p| known.iter().any(|name| name == p.name)) {
            (pattern.find)(&function.graph, &mut groups);
        }
        *function = groups.contract()?;
    }
    Ok(program)
}
