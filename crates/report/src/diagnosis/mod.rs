//! A diagnosis for people and programs.
//!
//! Knows jobs and findings; decides nothing about them.

pub mod html;
pub mod json;
pub mod perfetto;
pub mod terminal;

use std::collections::BTreeSet;

use diagnose::{job::Job, leaf::Leaf};

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
    if has(Leaf::Unsplit) {
        let found: BTreeSet<u32> = job.participants.iter().map(|p| p.rank).collect();
        let size = job.world_size();
        let why = if size > 1 {
            format!(
                "{} of {size} ranks in the input: waiting and transfer cannot be told apart",
                found.len()
            )
        } else {
            "collectives of one rank alone: waiting and transfer cannot be told apart".to_owned()
        };
        ask("comm.wait", why, "record every rank and hand over the whole folder");
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
            Some(outcome) => format!("the replay misses a step by {:.1} %", 100.0 * outcome.error),
            None => "there is no complete step to replay".to_owned(),
        };
        ask("cost", why, record);
    }
    let shapes =
        job.facts("recorded.shapes").any(|(_, fact)| fact.value == timeline::FactValue::Int(1));
    if !shapes {
        ask("flops", "shapes were not recorded".to_owned(), "profile(record_shapes=True)");
    }
    open
}
