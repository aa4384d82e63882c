//! The recipe of a run: a TOML file with sections, `--set` on the command line, and one checked, typed result.
//!
//! Knows keys, ranges and relations between them; knows no model, no device, no data on disk.

mod fields;
mod print;
mod resolve;
mod schema;
mod sections;

use std::path::{Path, PathBuf};

pub use fields::fields;
pub use resolve::{Origin, Resolved, nearest, resolve};
pub use schema::{Family, Field, Group, Kind, Value};
pub use sections::{
    Checkpoint, Data, LossMean, LossScale, Model, NotFinite, Optimizer, OptimizerKind, Output,
    Parallel, Precision, Schedule, ScheduleKind, Strategy, Training, Validation,
};

use crate::{Error, Problem};

/// A recipe whose every value is known, of the right kind and in range.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// `[model]`.
    pub model: Model,
    /// `[data]`.
    pub data: Data,
    /// `[train]`.
    pub train: Training,
    /// `[optimizer]`.
    pub optimizer: Optimizer,
    /// `[schedule]`.
    pub schedule: Schedule,
    /// `[parallel]`.
    pub parallel: Parallel,
    /// `[precision]`.
    pub precision: Precision,
    /// `[validation]`.
    pub validation: Validation,
    /// `[checkpoint]`.
    pub checkpoint: Checkpoint,
    /// `[output]`.
    pub output: Output,
    resolved: Resolved,
}

impl Recipe {
    /// Reads the recipe `path` and applies the `--set` arguments `sets`. `families` says what `[model]` may hold.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read, [`Error::Recipe`] with every mistake in it.
    pub fn read(path: &Path, sets: &[String], families: &[Family]) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::file(path, "read", source))?;
        let name = path.display().to_string();
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let message = format!("not UTF-8 text: byte {valid} of the file");
            Error::Recipe(vec![Problem { place: name.clone(), key: String::new(), message }])
        })?;
        Self::parse(path, &text, sets, families)
    }

    /// As [`Recipe::read`] for a recipe whose text is at hand; `path` names it and anchors its relative paths.
    ///
    /// # Errors
    /// [`Error::Recipe`] with every mistake.
    pub fn parse(
        path: &Path,
        text: &str,
        sets: &[String],
        families: &[Family],
    ) -> Result<Self, Error> {
        let resolved = resolve(&path.display().to_string(), text, sets, &fields(), families)?;
        sections::build(resolved, path)
    }

    /// An error that names where `key` got its value.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> Error {
        Error::Recipe(vec![Problem {
            place: self.resolved.place(key),
            key: key.to_owned(),
            message: message.into(),
        }])
    }

    /// All values with their origins.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// The run's folder: `output.folder`, or `runs/<name of the recipe's file>`.
    pub fn folder(&self) -> PathBuf {
        self.output.folder.clone()
    }
}
