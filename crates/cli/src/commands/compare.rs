//! `counterpoint compare`: two runs side by side, or one job at several sizes. Knows no leaf and no rule.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ::diagnose::diagnosis;
use anyhow::{Context, Result};
use report::{comparison, diagnosis::json};
use serde_json::Value;

use crate::{failure::Mistake, inputs, output};

/// Arguments of `counterpoint compare`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint compare before/ after/ --changed \"num_workers 2 -> 8\"
  counterpoint compare before.json after.json --json         saved by counterpoint diagnose --json
  counterpoint compare --scaling run1/ run8/ run64/          the first is the measure

Where AFTER is a folder, a line with what changed, what was predicted and what was measured is added to its
experiments.jsonl.")]
pub struct Arguments {
    /// Folders or files of recordings, or diagnoses saved with --json: BEFORE AFTER, or with --scaling two and more.
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// What changed in code; may be repeated. With more than one change none is credited.
    #[arg(long, value_name = "TEXT")]
    changed: Vec<String>,
    /// One job at several sizes: efficiency against the first, and the leaf that took most of the rest.
    #[arg(long, conflicts_with = "changed")]
    scaling: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the comparison.
///
/// # Errors
/// Nothing readable, documents that cannot be compared.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let documents: Vec<(String, Value)> = arguments
        .runs
        .iter()
        .map(|path| Ok((path.display().to_string(), document(path)?)))
        .collect::<Result<_>>()?;
    let mistake = |error: comparison::NotComparable| Mistake(error.to_string());
    if arguments.scaling {
        let scaling = comparison::scaling(&documents).map_err(mistake)?;
        let text = comparison::scaling_text(&scaling);
        output::result(&if arguments.json { format!("{scaling:#}") } else { text })?;
        return Ok(ExitCode::SUCCESS);
    }
    let [before, after] = documents.as_slice() else {
        let message = format!(
            "compare: found {} runs, expected BEFORE and AFTER; --scaling takes more",
            documents.len()
        );
        return Err(Mistake(message).into());
    };
    let compared = comparison::compare(before, after, &arguments.changed).map_err(mistake)?;
    let text = comparison::text(&compared);
    output::result(&if arguments.json { format!("{compared:#}") } else { text })?;
    let folder = &arguments.runs[1];
    if folder.is_dir() {
        let line = comparison::experiment(&before.1, &compared);
        if let Err(error) = note(folder, &line) {
            output::say(&format!("warning: {error:#}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A saved diagnosis, or that of recordings.
fn document(path: &Path) -> Result<Value> {
    if path.is_file()
        && let Some(document) = saved(path)?
    {
        return Ok(document);
    }
    let job = super::diagnose::job(&[path.to_owned()])?;
    Ok(json::document(&job, &diagnosis::diagnose(&job)))
}

fn saved(path: &Path) -> Result<Option<Value>> {
    let unreadable =
        |error: std::io::Error| Mistake(format!("{}: cannot read: {error}", path.display()));
    let input = match readers::Input::open(path) {
        Ok(input) => input,
        Err(readers::ReadError::Io(error)) => return Err(unreadable(error).into()),
        Err(_) => return Ok(None),
    };
    if !inputs::is_document(input.head()) {
        return Ok(None);
    }
    let parsed = serde_json::from_reader(input.into_reader());
    let document = parsed.map_err(|error| Mistake(format!("{}: {error}", path.display())))?;
    Ok(Some(document))
}

/// Adds a line to the run's experiments.
fn note(folder: &Path, line: &Value) -> Result<()> {
    let path = folder.join(inputs::EXPERIMENTS);
    let open = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = open.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.with_context(|| format!("{}: cannot write", path.display()))
}
