//! What can be wrong with a graph. Knows no wording of any command.

/// Why an operator refuses its inputs or attributes: a lower-case fragment without the operator's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpError(String);

impl OpError {
    /// An error that says this.
    pub fn new(message: impl Into<String>) -> OpError {
        OpError(message.into())
    }
}

/// What can be wrong with a graph, a program or their files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// An operator refused its inputs.
    #[error("{path}: {op}({inputs}): {source}")]
    Operator {
        /// Module path of the node.
        path: String,
        /// Name of the operator.
        op: String,
        /// Types of the inputs.
        inputs: String,
        /// What the operator said.
        source: OpError,
    },
    /// No operator of this name was handed in.
    #[error("unknown operator {name:?}{}", nearest.as_ref().map_or(String::new(), |n| format!(", nearest is {n:?}")))]
    UnknownOperator {
        /// The name asked for.
        name: String,
        /// The most similar known name.
        nearest: Option<String>,
    },
    /// A node that must have exactly one output has another number.
    #[error("{path}: {op} has {outputs} outputs where one was expected")]
    NotSingle {
        /// Module path of the node.
        path: String,
        /// Name of the operator.
        op: String,
        /// Number of outputs found.
        outputs: usize,
    },
    /// The graph's data contradict themselves.
    #[error("malformed graph: {0}")]
    Malformed(String),
    /// A value has no gradient where one is needed.
    #[error("{path}: {what} cannot be differentiated")]
    NotDifferentiable {
        /// Module path of the node.
        path: String,
        /// The operator or collective.
        what: String,
    },
    /// Several errors found while tracing a model, each a line.
    #[error("{}", .0.join("\n"))]
    Trace(Vec<String>),
}
