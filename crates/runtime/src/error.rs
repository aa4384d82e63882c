//! What can go wrong while a plan is loaded or carried out. Knows no wording of any command.

use graph::GraphError;

/// What can go wrong at run time.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A graph was refused.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The plan was made for another number of ranks.
    #[error("the plan is for {planned} ranks, {found} run it")]
    RankCount {
        /// Ranks of the plan.
        planned: usize,
        /// Ranks of the communicator.
        found: usize,
    },
    /// The plan cannot be carried out by this device.
    #[error("{path}: {what}")]
    Plan {
        /// Module path of the node or name of the state.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// Ranks made different plans.
    #[error("rank {rank} has another plan than rank 0: {difference}")]
    PlansDiffer {
        /// The first rank that differs.
        rank: usize,
        /// The first difference.
        difference: String,
    },
    /// No function of this name.
    #[error("the plan has no function {name:?}, it has {}", known.join(", "))]
    UnknownFunction {
        /// The name asked for.
        name: String,
        /// All functions.
        known: Vec<String>,
    },
    /// No state or segment of this name.
    #[error("the plan has no state {name:?}{}", nearest.as_ref().map_or(String::new(), |n| format!(", nearest is {n:?}")))]
    UnknownState {
        /// The name asked for.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// A tensor has another type than the function or state.
    #[error("{name} is {found}, expected {expected}")]
    WrongType {
        /// Name of the input or state.
        name: String,
        /// The type found.
        found: String,
        /// The type expected.
        expected: String,
    },
    /// An input was left out or is unknown.
    #[error("function {function}: input {name:?} is {problem}")]
    Input {
        /// The function.
        function: String,
        /// Name of the input.
        name: String,
        /// `missing` or `unknown`.
        problem: &'static str,
    },
    /// A step met impossible values, such as an index beyond its table.
    #[error("rank {rank}: {path} ({operation}): {reason}")]
    Step {
        /// The rank.
        rank: usize,
        /// Module path of the node.
        path: String,
        /// The operation.
        operation: String,
        /// What is wrong.
        reason: String,
    },
    /// Another rank failed; this one could not go on.
    #[error("rank {rank} failed: {reason}")]
    RankFailed {
        /// The rank that failed.
        rank: usize,
        /// What it said.
        reason: String,
    },
    /// Another rank ended while this one waited for it.
    #[error("rank {rank} ended before it took part in {operation}")]
    RankLeft {
        /// The rank that ended.
        rank: usize,
        /// What was waited for.
        operation: String,
    },
    /// Ranks did not arrive in time.
    #[error("waited {seconds} s for rank {} in {operation}", ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Timeout {
        /// What was waited for.
        operation: String,
        /// Ranks that did not arrive.
        ranks: Vec<usize>,
        /// Seconds waited.
        seconds: u64,
    },
    /// Ranks called different collectives.
    #[error("rank {rank} called {found}, rank {other} called {expected}")]
    CollectivesDiffer {
        /// The rank that differs.
        rank: usize,
        /// What it called.
        found: String,
        /// The rank it differs from.
        other: usize,
        /// What that one called.
        expected: String,
    },
    /// A thread of the device ended unexpectedly.
    #[error("rank {rank}: the device stopped: {reason}")]
    Stopped {
        /// The rank.
        rank: usize,
        /// What is known.
        reason: String,
    },
}
