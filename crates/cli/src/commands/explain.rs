//! `counterpoint explain`: what each cause is, why it costs, what helps, and what people get wrong. Knows no job.

use std::{fmt::Write, process::ExitCode};

use ::diagnose::{
    finding::{Explanation, Rule},
    rules,
};
use anyhow::Result;

use crate::{failure::Mistake, nearest, output};

/// Arguments of `counterpoint explain`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint explain
  counterpoint explain data.loader_starved
  counterpoint explain misconceptions")]
pub struct Arguments {
    /// A cause; without one, all are listed.
    id: Option<String>,
}

/// What is often believed, and what the measurements say.
const MISCONCEPTIONS: &[(&str, &str)] = &[
    (
        "a newer version is faster",
        "A new driver, CUDA, NCCL or framework changes defaults, algorithm tables and kernels, some for the worse on a given \
         machine. Change one version at a time and hold the runs against each other: counterpoint compare BEFORE AFTER \
         credits a change only where it is the only one.",
    ),
    (
        "NCCL always beats MPI",
        "NCCL is built for device memory over NVLink and RDMA. Where it falls back to sockets or shared memory, for small \
         messages, and for host memory, a tuned MPI may be faster. What counts is the bus bandwidth against what the link \
         can do: diagnose shows both, and the transport that NCCL's log names.",
    ),
    (
        "the algorithm choice does not matter",
        "Ring, tree and in-network reduction differ by latency and by the bytes each link carries: with many ranks and small \
         messages a ring's latency grows with the number of ranks, a tree's with its logarithm. NCCL's choice rests on the \
         topology it found; a topology found wrongly gives the wrong algorithm.",
    ),
    (
        "low utilisation means the model is too big",
        "Low utilisation means that the device waits: for the loader, the host, a copy or another rank. A model that is too \
         big fails with out of memory. And high utilisation as nvidia-smi shows it proves nothing either: a rank that waits \
         inside a collective counts as busy.",
    ),
];

/// Prints the explanation.
///
/// # Errors
/// A mistake of the person for an id that does not exist.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let all = explanations();
    let text = match arguments.id.as_deref() {
        None => list(&all),
        Some("misconceptions") => misconceptions(),
        Some(id) => match all.iter().find(|explanation| explanation.id == id) {
            Some(explanation) => one(explanation),
            None => {
                let names = all.iter().map(|explanation| explanation.id);
                let hint = nearest::hint(id, names.chain(["misconceptions"]));
                return Err(Mistake(format!(
                    "explain {id}: no such id{hint}; `counterpoint explain` lists them"
                ))
                .into());
            }
        },
    };
    output::result(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn explanations() -> Vec<&'static Explanation> {
    let of = |rule: &'static &dyn Rule| rule.explanations();
    let mut all: Vec<&Explanation> = rules::ALL.iter().flat_map(of).collect();
    all.sort_by_key(|explanation| explanation.id);
    all.dedup_by_key(|explanation| explanation.id);
    all
}

fn list(all: &[&Explanation]) -> String {
    let width = all.iter().map(|explanation| explanation.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for explanation in all {
        let _ = writeln!(text, "{:width$}  {}", explanation.id, explanation.what);
    }
    let _ = writeln!(text, "\n{:width$}  what is often believed and wrong:", "misconceptions");
    for (belief, _) in MISCONCEPTIONS {
        let _ = writeln!(text, "{:width$}    {belief}", "");
    }
    text
}

fn one(explanation: &Explanation) -> String {
    format!(
        "{} ({})\n\nWhat happens: {}\nWhy it costs: {}\nWhat helps: {}\nWrong if: {}\n",
        explanation.id,
        explanation.layer,
        explanation.what,
        explanation.why,
        explanation.remedy,
        explanation.refuted_by
    )
}

fn misconceptions() -> String {
    let entries: Vec<String> =
        MISCONCEPTIONS.iter().map(|(belief, fact)| format!("\"{belief}\"\n  {fact}\n")).collect();
    entries.join("\n")
}
