//! `counterpoint explain`: what each cause is, why it costs, what helps, and what people get wrong. Knows no job.

use std::{fmt::Write, process::ExitCode};

use ::diagnose::{
    finding::{Explanation, Rule},
    leaf::Leaf,
    rules,
    wording::sentence,
};
use anyhow::Result;
use report::diagnosis::lines;

use crate::{failure::Mistake, nearest, output};

/// Arguments of `counterpoint explain`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint explain
  counterpoint explain data.loader_starved
  counterpoint explain comm.wait
  counterpoint explain misconceptions")]
pub struct Arguments {
    /// A cause, or a leaf of the account; without one, all are listed.
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
        Some(id) => match (all.iter().find(|own| own.id == id), Leaf::from_name(id)) {
            (Some(explanation), _) => one(explanation),
            (None, Some(leaf)) => one_leaf(leaf),
            (None, None) => {
                let names = all.iter().map(|explanation| explanation.id);
                let names = names.chain(["misconceptions"]).chain(Leaf::ALL.map(Leaf::name));
                let hint = nearest::hint(id, names);
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
    let _ = writeln!(text, "\nLeaves of the account, each nanosecond of a step being in one:");
    for leaf in Leaf::ALL {
        let _ = writeln!(text, "{:width$}  {}", leaf.name(), sentence(leaf.meaning()));
    }
    let _ = writeln!(text, "\n{:width$}  what is often believed and wrong:", "misconceptions");
    for (belief, _) in MISCONCEPTIONS {
        let _ = writeln!(text, "{:width$}    {belief}", "");
    }
    text
}

fn one(explanation: &Explanation) -> String {
    let mut text = format!("{} ({})\n\n", explanation.id, explanation.layer);
    for (question, answer) in [
        ("What happens: ", explanation.what),
        ("Why it costs: ", explanation.why),
        ("What helps: ", explanation.remedy),
        ("Wrong if: ", explanation.refuted_by),
    ] {
        text.push_str(&paragraph(question, &sentence(answer)));
    }
    text
}

fn one_leaf(leaf: Leaf) -> String {
    let what = sentence(leaf.meaning());
    let account = "A leaf of the account: where a nanosecond of a device's step can go. Each is in exactly one leaf, the \
                   first that applies in the order of `counterpoint explain`; the leaves sum to the step.";
    format!("{}\n\n{}{}", leaf.name(), paragraph("What it is: ", &what), paragraph("", account))
}

fn paragraph(first: &str, text: &str) -> String {
    lines::wrapped(first, 2, text, super::diagnose::style(None).width, usize::MAX)
}

fn misconceptions() -> String {
    let entries: Vec<String> = MISCONCEPTIONS
        .iter()
        .map(|(belief, fact)| format!("\"{belief}\"\n{}", paragraph("  ", fact)))
        .collect();
    entries.join("\n")
}
