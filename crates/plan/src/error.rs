//! Why a plan cannot be made or read. Knows no wording of any command.

use graph::GraphError;

/// What can be wrong while planning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A graph was refused.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The target has no way to carry out a node.
    #[error("{target} cannot carry out {operation} of {path}: {reason}")]
    NoCandidate {
        /// Name of the target.
        target: String,
        /// Operator, collective or region.
        operation: String,
        /// Module path of the node.
        path: String,
        /// Why.
        reason: String,
    },
    /// An option has an impossible value.
    #[error("{option}: {found}, expected {expected}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The value found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// No pass of this name.
    #[error("unknown pass {name:?}, passes are {}", known.join(", "))]
    UnknownPass {
        /// The name asked for.
        name: String,
        /// All passes in order.
        known: Vec<String>,
    },
    /// The checker found a fault.
    #[error("the plan is wrong: {0}")]
    Check(String),
    /// A plan's file cannot be read.
    #[error("not a plan: {0}")]
    File(String),
    /// A pass met something it cannot handle.
    #[error("pass {pass}: {message}")]
    Pass {
        /// Name of the pass.
        pass: &'static str,
        /// What it met.
        message: String,
    },
}
