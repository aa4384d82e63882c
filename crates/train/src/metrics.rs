//! `metrics.jsonl`: one JSON object per line and event, flushed at once. Knows no meaning of its fields.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::Error;

/// An open metrics file.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    /// Opens `path` for appending; with `resume_at` lines of later steps are dropped first, so that each step has one line.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open(path: &Path, resume_at: Option<u64>) -> Result<Self, Error> {
        let kept = match resume_at {
            None => String::new(),
            Some(step) => {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let until = |line: &&str| {
                    let value: Value = serde_json::from_str(line).unwrap_or_default();
                    value["step"].as_u64().is_some_and(|at| at <= step)
                };
                text.lines().filter(until).flat_map(|line| [line, "\n"]).collect()
            }
        };
        crate::weights::write_text(path, &kept)?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|source| Error::file(path, "open", source))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends one event.
    ///
    /// # Errors
    /// [`Error::File`], for example on a full disk.
    pub fn write(&mut self, event: &Value) -> Result<(), Error> {
        // One call per line: a reader never sees half of one.
        self.file
            .write_all(format!("{event}\n").as_bytes())
            .map_err(|source| Error::file(&self.path, "write", source))
    }
}
