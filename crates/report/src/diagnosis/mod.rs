//! A diagnosis for people and programs.
//!
//! Knows jobs and findings; decides nothing about them.

pub mod classes;
pub mod html;
pub mod json;
pub mod left_out;
pub mod lines;
pub mod perfetto;
pub mod placement;
pub mod terminal;

use diagnose::{job::Job, leaf::Leaf};

use classes::rank_list;

/// A question the input does not answer, and what would capture the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abstained {
    /// The leaf or question.
    pub question: String,
    /// What is missing.
    pub why: String,
    /// The command that captures it.
    pub capture: String,
}

/// What the job's input leaves open.
pub fn abstained(job: &Job) -> Vec<Abstained> {
    let mut open = vec![];
    let mut ask = |question: &str, why: String, capture: &str| {
        open.push(Abstained { question: question.to_owned(), why, capture: capture.to_owned() });
    };
    let record = "counterpoint record -- COMMAND";
    let has = |leaf: Leaf| job.accounted.iter().any(|accounted| accounted.account.get(leaf) > 0);
    let recordings = job.inputs.iter().filter(|input| !input.timeline.spans.is_empty()).count();
    // What record writes about every process, with a trace or without.
    if recordings == 0 && job.facts("process.command").next().is_some() {
        let why = "the recorded processes left no trace: they made too few steps of an optimizer, or were killed \
                   within the recorded ones";
        ask("account", why.to_owned(), "counterpoint record --warmup 1 --steps 2 -- COMMAND");
        return open;
    }
    if job.participants.is_empty() {
        let why = match recordings {
            0 => "no recording of a device in the input".to_owned(),
            _ => "the recording holds no operations of a device".to_owned(),
        };
        ask("account", why, record);
        return open;
    }
    if job.is_host_only() {
        let why = "the recording holds no operations of a device: the account is the host's";
        ask("account", why.to_owned(), "counterpoint record, on a machine with devices");
        return open;
    }
    let missing = job.missing_ranks();
    let whole_folder = "record every rank and hand over the whole folder";
    if has(Leaf::Unsplit) {
        let why = match &missing[..] {
            [] => "collectives of one rank alone: waiting and transfer cannot be told apart"
                .to_owned(),
            missing => format!(
                "{} missing of {}: waiting and transfer cannot be told apart",
                rank_list(missing),
                job.world_size()
            ),
        };
        ask("comm.wait", why, whole_folder);
    } else if !missing.is_empty() && has(Leaf::CommWait) {
        let why = format!(
            "{} missing of {}: they may have come last, so waiting is a lower bound",
            rank_list(&missing),
            job.world_size()
        );
        ask("comm.wait", why, whole_folder);
    }
    if job.accounted.iter().any(|accounted| accounted.steps.weak) {
        ask(
            "steps",
            "no complete step between two others: edges are counted".to_owned(),
            "record at least four steps with a step mark (prof.step(), or counterpoint record --steps 5)",
        );
    }
    if !job.replay_is_usable() {
        let why = match &job.unchanged {
            Some(outcome) if outcome.error.is_finite() => {
                format!("the replay misses a step by {:.1} %", 100.0 * outcome.error)
            }
            _ => "no complete step can be replayed".to_owned(),
        };
        ask("cost", why, record);
    }
    let shapes =
        job.facts("recorded.shapes").any(|(_, fact)| fact.value == timeline::FactValue::Int(1));
    if !shapes {
        ask(
            "flops",
            "arithmetic rates need shapes, which were not recorded".to_owned(),
            "profile(record_shapes=True)",
        );
    }
    open
}
