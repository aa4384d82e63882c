//! `counterpoint diagnose`: what the devices of a job waited for. Knows no format and no rule.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ::diagnose::{diagnosis, job::Job};
use anyhow::{Context, Result};
use report::diagnosis::{html, json, perfetto, terminal};
use train::weights;

use crate::{
    condition::{Condition, Outcome},
    failure::Mistake,
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
    if arguments.json {
        output::result(&format!("{:#}", json::document(&job, &found)))?;
    } else {
        output::result(&terminal::render(&job, &found, style(arguments.width)))?;
    }
    Ok(status(&outcomes))
}

/// Reads paths into a job.
///
/// # Errors
/// A mistake of the person where nothing is readable, naming each path with its reason.
pub fn job(paths: &[PathBuf]) -> Result<Job> {
    let read = inputs::read(paths);
    if read.inputs.is_empty() {
        let mut lines: Vec<String> =
            read.unusable.iter().take(20).map(|u| format!("{}: {}", u.name, u.reason)).collect();
        if read.unusable.len() > lines.len() {
            lines.push(format!("and {} more", read.unusable.len() - lines.len()));
        }
        if lines.is_empty() {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            lines.push(format!("{}: no file inside", names.join(", ")));
        }
        return Err(Mistake(format!("nothing readable\n{}", lines.join("\n"))).into());
    }
    Ok(Job::new(read.inputs, read.unusable))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    weights::whole_or_not_at_all(path, |temporary| std::fs::write(temporary, bytes))?;
    output::say(&format!("wrote {}", path.display()));
    Ok(())
}

fn style(width: Option<u16>) -> terminal::Style {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = || std::env::var("COLUMNS").ok()?.parse::<u16>().ok();
    let plain = terminal::Style::default();
    let width = width.or_else(columns).map_or(plain.width, usize::from);
    terminal::Style { colour, width, ..plain }
}

fn status(outcomes: &[Outcome]) -> ExitCode {
    let mut open = false;
    for outcome in outcomes {
        if let Outcome::Undecidable(why) = outcome {
            output::say(&format!("error: {why}"));
            open = true;
        }
    }
    if outcomes.contains(&Outcome::Yes) {
        ExitCode::from(1)
    } else if open {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    }
}
