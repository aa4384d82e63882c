//! Graph to graph: the passes in the order in which they run, each a file of its own.
//!
//! Knows no lanes, windows or memory; what a pass leaves behind is an ordinary program that can be evaluated.

mod autodiff;
mod bucket;
mod common_subexpressions;
mod data_parallel;
mod dead_nodes;
mod fuse;
mod optimizer;
mod precision;
mod recompute;
mod support;

use graph::{Program, optim::Optimizer};

pub use self::precision::{Rule, TABLE as PRECISION};
use crate::{Options, PlanError, Target, options::Strategy};

/// What a pass may look at besides the program.
pub(crate) struct Context<'a> {
    pub(crate) optimizer: &'a dyn Optimizer,
    pub(crate) target: &'a dyn Target,
    pub(crate) options: &'a Options,
}

impl Context<'_> {
    /// Number of ranks among which reduced gradients are divided; 1 where every rank gets all of them.
    fn shards(&self) -> usize {
        let left_out = self.options.without.iter().any(|name| name == "data_parallel");
        match self.options.strategy {
            Strategy::Zero1 if !left_out => self.options.ranks,
            _ => 1,
        }
    }
}

/// One pass: its name in [`Options::without`], what it does, and the doing.
pub struct Pass {
    /// Name, as printed and as in [`Options::without`].
    pub name: &'static str,
    /// What the pass does, in one line.
    pub summary: &'static str,
    run: fn(Program, &Context<'_>) -> Result<Program, PlanError>,
}

/// All rewriting passes in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "precision",
        summary: "retypes values by a table of operators; parameters get low-precision working copies",
        run: precision::run,
    },
    Pass {
        name: "autodiff",
        summary: "adds the gradient of every trainable parameter; splits the step into micro-steps",
        run: autodiff::run,
    },
    Pass {
        name: "data_parallel",
        summary: "adds the collectives that make ranks compute one step together",
        run: data_parallel::run,
    },
    Pass {
        name: "bucket",
        summary: "groups gradients by readiness into flat buckets, and all states of parameters in the same order",
        run: bucket::run,
    },
    Pass {
        name: "optimizer",
        summary: "updates parameters from reduced gradients: groups, clipping, loss scale, skipped steps",
        run: optimizer::run,
    },
    Pass {
        name: "recompute",
        summary: "computes marked groups of forward nodes again for the backward part",
        run: recompute::run,
    },
    Pass {
        name: "fuse",
        summary: "forms the regions that the target has kernels for",
        run: fuse::run,
    },
    Pass {
        name: "common_subexpressions",
        summary: "computes equal nodes once",
        run: common_subexpressions::run,
    },
    Pass {
        name: "dead_nodes",
        summary: "drops nodes and states that nothing needs",
        run: dead_nodes::run,
    },
];

/// Runs all passes that `options` does not leave out.
///
/// # Errors
/// Where a pass meets what it cannot handle, or an option has an impossible value.
pub fn run(
    program: &Program,
    optimizer: &dyn Optimizer,
    target: &dyn Target,
    options: &Options,
) -> Result<Program, PlanError> {
    let mut program = program.clone();
    for pass in PASSES.iter().filter(|pass| !options.without.iter().any(|name| name == pass.name)) {
        program = (pass.run)(program, &Context { optimizer, target, options })?;
        debug_assert_eq!(program.verify(), Ok(()), "after pass {}", pass.name);
    }
    Ok(program)
}
