//! What can be wrong with a model's settings or its trace. Knows no files.

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A setting that does not fit the others.
    #[error("{setting}: {message}")]
    Setting {
        /// Name of the setting.
        setting: String,
        /// What was found and what was expected.
        message: String,
    },
    /// The trace of the model has errors.
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
}
