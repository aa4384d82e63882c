//! The run's folder: where it is, what its files are called, and that no finished run is written over.
//! Knows no contents.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use train::{Error, checkpoint};

use crate::failure::Mistake;

/// The recipe with all its values.
pub const RECIPE: &str = "recipe.toml";
/// The plan as JSON.
pub const PLAN: &str = "plan.json";
/// One JSON object per step and event.
pub const METRICS: &str = "metrics.jsonl";
/// The last recorded steps, for Perfetto.
pub const TIMELINE: &str = "timeline.json";
/// Where the time went, per rank.
pub const SUMMARY: &str = "summary.json";

/// Held by the run that writes into the folder.
const LOCK: &str = "lock";

/// Creates the folder where it is missing.
///
/// # Errors
/// Where it cannot be created.
pub fn create(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).map_err(|source| Error::file(folder, "create", source))?;
    Ok(folder.to_owned())
}

/// As [`create`], but a folder that holds a run is a mistake.
///
/// # Errors
/// A mistake of the person for a run that is there already.
pub fn create_new(folder: &Path) -> Result<PathBuf> {
    if is_run(folder) {
        let path = folder.display();
        return Err(Mistake(format!(
            "{path}: holds a run; --resume {path} goes on with it, another --out starts a new one"
        ))
        .into());
    }
    create(folder)
}

/// The folder, or the first of `folder-2`, `folder-3` that holds no run yet.
///
/// # Errors
/// As [`create`].
pub fn create_next(folder: &Path) -> Result<PathBuf> {
    let mut candidate = folder.to_owned();
    let mut number = 1;
    while is_run(&candidate) {
        number += 1;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        candidate = folder.with_file_name(format!("{name}-{number}"));
    }
    create(&candidate)
}

/// Held while a run writes into its folder; given up when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

/// Takes the folder for one run.
///
/// # Errors
/// A mistake of the person where another run writes there.
pub fn lock(folder: &Path) -> Result<Lock> {
    let path = folder.join(LOCK);
    let file = fs::File::create(&path).map_err(|source| Error::file(&path, "create", source))?;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            let path = folder.display();
            Err(Mistake(format!("{path}: another run writes here; give this one another --out"))
                .into())
        }
        // A file system without locks cannot tell.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Lock { _file: file }),
    }
}

/// The run's folder that a checkpoint's folder lies in.
pub fn of_checkpoint(checkpoint: &Path) -> PathBuf {
    checkpoint.parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned()
}

fn is_run(folder: &Path) -> bool {
    !checkpoint::list(folder).is_empty()
}
