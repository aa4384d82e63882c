//! `counterpoint diagnose`: what the devices of a job waited for. Knows no format and no rule.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ::diagnose::{diagnosis, job::Job};
use anyhow::{Context, Result};
use report::diagnosis::{html, json, left_out, lines, perfetto, terminal};
use train::weights;

use crate::{
    condition::{Condition, Outcome},
    failure::{self, Mistake},
    inputs, output,
};

/// Arguments of `counterpoint diagnose`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint diagnose traces/
  counterpoint diagnose rank0.json.gz rank1.json.gz nccl.log
  nvidia-smi -q | counterpoint diagnose -
  counterpoint diagnose traces/ --html report.html
  counterpoint diagnose traces/ --perfetto joined.json
  counterpoint diagnose traces/ --json > before.json
  counterpoint diagnose traces/ --fail-on data.loader_starved --fail-on 'comm.wait>10%'

Exit status: 0 done, and no condition of --fail-on holds; 1 one holds; 2 nothing readable, a mistake
in the arguments, or a condition that the input cannot decide.")]
pub struct Arguments {
    /// Files, folders (with all below them), or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Prints the whole diagnosis as JSON.
    #[arg(long)]
    json: bool,
    /// Writes one self-contained page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the joined timeline with the findings as a track, for Perfetto.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// ID or 'LEAF>PERCENT%': exits with 1 where such a finding is there, or the leaf takes more than this share of the
    /// step; may be repeated.
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<String>,
    /// Replaces hosts, addresses, users and paths by placeholders in every output.
    #[arg(long)]
    redact: bool,
    /// Columns of the text; the terminal's where it says.
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=400))]
    width: Option<u16>,
}

/// Prints the diagnosis.
///
/// # Errors
/// Nothing readable, mistakes in the arguments, files that cannot be written.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let conditions: Vec<Condition> =
        arguments.fail_on.iter().map(|text| Condition::parse(text)).collect::<Result<_, _>>()?;
    outputs_can_be_written(arguments)?;
    let mut job = job(&arguments.paths)?;
    let mut found = diagnosis::diagnose(&job);
    let outcomes: Vec<Outcome> =
        conditions.iter().map(|condition| condition.holds(&job, &found)).collect();
    if arguments.redact {
        ::diagnose::redact::redact(&mut job, &mut found);
    }
    if let Some(path) = &arguments.html {
        write(path, html::page(&job, &found).as_bytes())?;
    }
    if let Some(path) = &arguments.perfetto {
        let mut bytes = vec![];
        perfetto::write(&job, &found, &mut bytes).context("cannot write the timeline")?;
        write(path, &bytes)?;
    }
    let text = if arguments.json {
        format!("{:#}", json::document(&job, &found))
    } else {
        terminal::render(&job, &found, style(arguments.width))
    };
    // A status of 1 would say that a condition holds.
    output::result(&text).map_err(|error| Mistake(format!("standard output: {error}")))?;
    Ok(status(&outcomes))
}

/// Reads paths into a job.
///
/// # Errors
/// A mistake of the person where nothing is readable, naming each path with its reason.
pub fn job(paths: &[PathBuf]) -> Result<Job> {
    let read = inputs::read(paths);
    if read.inputs.is_empty() {
        let left_out = read.unusable.iter().map(|own| (own.name.as_str(), own.reason.as_str()));
        let mut lines: Vec<String> = left_out::grouped(left_out)
            .iter()
            .map(|group| format!("{}: {}", group.who(lines::printable), group.reason))
            .collect();
        if lines.is_empty() {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            lines.push(format!("{}: no file inside", names.join(", ")));
        }
        if lines.len() > 1 {
            lines.insert(0, "nothing readable".to_owned());
        }
        return Err(Mistake(lines.join("\n")).into());
    }
    Ok(Job::new(read.inputs, read.unusable))
}

/// Known before minutes of reading rather than after.
fn outputs_can_be_written(arguments: &Arguments) -> Result<(), Mistake> {
    let outputs = [("--html", &arguments.html), ("--perfetto", &arguments.perfetto)];
    let mut known: Vec<&PathBuf> = arguments.paths.iter().filter(|path| path.is_file()).collect();
    for (flag, path) in outputs.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)))
    {
        let wrong = |what: &str| Mistake(format!("{flag} {}: {what}", path.display()));
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || path.file_name().is_none() {
            return Err(wrong("a folder, expected the name of a file"));
        }
        if path == Path::new("-") {
            return Err(wrong(
                "expected the name of a file; text and --json go to standard output",
            ));
        }
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(wrong("its folder does not exist"));
        }
        let same = |known: &&PathBuf| {
            *known == path
                || known
                    .canonicalize()
                    .is_ok_and(|own| path.canonicalize().is_ok_and(|path| own == path))
        };
        if known.iter().any(same) {
            return Err(wrong("an input or another output already, and would be written over"));
        }
        known.push(path);
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    weights::whole_or_not_at_all(path, |temporary| std::fs::write(temporary, bytes))
        .map_err(|error| Mistake(failure::text(&error.into())))?;
    output::say(&format!("wrote {}", path.display()));
    Ok(())
}

/// Columns and colour of the text.
pub fn style(width: Option<u16>) -> terminal::Style {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let stated = || std::env::var("COLUMNS").ok()?.parse::<u16>().ok();
    // Longer lines than this are hard to read.
    let seen = || terminal_size::terminal_size().map(|(width, _)| width.0.min(120));
    let columns = || stated().or_else(seen).map(|columns| columns.clamp(40, 400));
    let width = width.or_else(columns).map_or(terminal::Style::default().width, usize::from);
    terminal::Style { colour, width }
}

fn status(outcomes: &[Outcome]) -> ExitCode {
    let (mut holds, mut open) = (false, false);
    for outcome in outcomes {
        match outcome {
            Outcome::Yes(found) => {
                output::say(found);
                holds = true;
            }
            Outcome::Undecidable(why) => {
                output::say(&format!("error: {why}"));
                open = true;
            }
            Outcome::No => {}
        }
    }
    if holds {
        ExitCode::from(1)
    } else if open {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    }
}
