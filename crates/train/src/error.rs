//! What can go wrong for the person who trains, each as one line that names the file, the key, what was found and
//! what was expected. Knows no operator, device or terminal.

use std::{fmt, io, path::PathBuf};

/// One mistake in a recipe: where, which key, what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `file:line`, `file` or the `--set` argument.
    pub place: String,
    /// The dotted key, empty when the text itself cannot be read.
    pub key: String,
    /// What was found, what was expected, the nearest valid name.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.place, self.message),
            key => write!(f, "{}: {key}: {}", self.place, self.message),
        }
    }
}

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Mistakes in a recipe, one line each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Recipe(Vec<Problem>),
    /// A file could not be opened, read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A data file does not hold what its format promises.
    #[error("{}: {message}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        message: String,
    },
    /// A checkpoint cannot be used.
    #[error("{}: {message}", path.display())]
    Checkpoint {
        /// The checkpoint's folder or one of its files.
        path: PathBuf,
        /// What was found and what was expected.
        message: String,
    },
    /// Tensors that do not fit the program.
    #[error("{0}")]
    Mismatch(String),
    /// The device or another rank failed.
    #[error(transparent)]
    Device(#[from] runtime::RuntimeError),
    /// Something that no input explains.
    #[error("{0}")]
    Internal(String),
    /// The loss or an update is not finite and the recipe says `stop`.
    #[error(
        "step {step}: {}; train.nan = \"stop\" ends the run{saved}", not_finite(*loss)
    )]
    NotANumber {
        /// The step, counted from 1.
        step: u64,
        /// The loss as printed by the host.
        loss: f64,
        /// Where the state is, and from where a run can go on: `; ...`, or nothing.
        saved: String,
    },
}

/// What is not finite: the loss, or with a finite loss a gradient or what the optimizer made of it.
fn not_finite(loss: f64) -> String {
    if loss.is_finite() {
        format!("the loss is {loss}, but a gradient or its update is not finite")
    } else {
        format!("the loss is {loss}")
    }
}

impl Error {
    /// Wraps an input/output error of `path`.
    pub fn file(path: impl Into<PathBuf>, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.into(), action, source }
    }

    /// An error about what a data file holds.
    pub fn data(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Data { path: path.into(), message: message.into() }
    }

    /// An error about a checkpoint.
    pub fn checkpoint(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Checkpoint { path: path.into(), message: message.into() }
    }
}
