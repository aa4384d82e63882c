//! `rank.blocking_checkpoint`: one rank copies its parameters to the host and writes them while the others wait.

use super::{
    host_stall::ranks_text,
    support::{Launches, carriers, confidence, in_gap, milliseconds, saving, unmarked_stalls},
};
use crate::{
    classify::Call,
    device::{Operation, Work},
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Checkpoint;

const BLOCKING_CHECKPOINT: Explanation = Explanation {
    id: "rank.blocking_checkpoint",
    layer: "framework",
    what: "One rank copies a model's worth of tensors to the host and writes them out; the others wait for it.",
    why: "torch.save copies and writes in the training thread; the next collective starts when it is done.",
    remedy: "save asynchronously (torch.distributed.checkpoint.async_save, or copy to pinned memory and write in a \
             thread), shard the checkpoint over ranks, save less often",
    refuted_by: "the step staying long without the save",
};

/// Fewer copies than this in a run are not a checkpoint.
const COPIES: usize = 16;
/// Fewer bytes than this in a run are not a checkpoint.
const BYTES: u64 = 64 << 20;

impl Rule for Checkpoint {
    fn explanations(&self) -> &'static [Explanation] {
        &[BLOCKING_CHECKPOINT]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let copies: Vec<Vec<bool>> =
            (0..job.participants.len()).map(|i| downloads(job, i)).collect();
        let stalls = unmarked_stalls(job);
        let time = |index: usize| {
            let operations = job.participants[index].device.operations.iter().zip(&copies[index]);
            let copied = operations.filter(|(_, own)| **own).map(|(o, _)| (o.start, o.end));
            let copied = Set::union_of(copied);
            if copied.is_empty() { Set::empty() } else { copied.union(stalls[index]) }
        };
        let carrying = carriers(job, 0.02, time);
        let devices = job.participants.iter().zip(&copies);
        let launches: Vec<Launches> =
            devices.map(|(p, copies)| Launches::of(&p.device, copies)).collect();
        let without = |ranks| WithoutCheckpoint {
            job,
            copies: &copies,
            launches: &launches,
            stalls: &stalls,
            ranks,
        };
        let Some(saving) = saving(job, &carrying, without) else { return vec![] };
        let mut finding = BLOCKING_CHECKPOINT.finding(
            Severity::Slow,
            format!(
                "{} writes a checkpoint inside the step and costs {} per step",
                ranks_text(&saving.ranks),
                milliseconds(saving.cost.estimate)
            ),
        );
        for &index in &saving.participants {
            let participant = &job.participants[index];
            let operations = participant.device.operations.iter().zip(&copies[index]);
            let own: Vec<&Operation> = operations.filter(|(_, o)| **o).map(|(o, _)| o).collect();
            let bytes: u64 = own.iter().map(|operation| operation.bytes).sum();
            if let Some(first) = own.first() {
                let text = format!(
                    "rank {}: {} copies to the host, {:.1} MB in the recording, this the first",
                    participant.rank,
                    own.len(),
                    bytes as f64 / 1e6
                );
                finding.evidence.push(Evidence::span(job, participant.input, first.span, text));
            }
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job);
        vec![finding]
    }
}

/// Copies from the device to pageable host memory, where there are enough of them for a checkpoint.
fn downloads(job: &Job, index: usize) -> Vec<bool> {
    let operations = &job.participants[index].device.operations;
    let timeline = job.timeline(index);
    let own: Vec<bool> = operations
        .iter()
        .map(|o| o.work == Work::Copy && o.pageable && timeline.name_of(o.span).contains("DtoH"))
        .collect();
    let chosen = operations.iter().zip(&own).filter(|(_, own)| **own);
    let bytes: u64 = chosen.clone().map(|(operation, _)| operation.bytes).sum();
    if chosen.count() >= COPIES && bytes >= BYTES { own } else { vec![false; operations.len()] }
}

struct WithoutCheckpoint<'a> {
    job: &'a Job,
    copies: &'a [Vec<bool>],
    launches: &'a [Launches],
    stalls: &'a [&'a Set],
    ranks: Vec<usize>,
}

impl Scenario for WithoutCheckpoint<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        let device = &self.job.participants[participant].device;
        let stalled = in_gap(device, call, recorded.gap, self.stalls[participant]);
        let gap = (recorded.gap - stalled).max(0);
        let launches = &self.launches[participant];
        match device.calls[call].class {
            Call::Copy if launches.starts[call] => {
                CallTiming { gap, duration: 1_000, returns_at_once: true }
            }
            Call::Synchronise if launches.follows[call] => {
                CallTiming { gap, duration: 1_000, returns_at_once: true }
            }
            _ => CallTiming { gap, ..recorded },
        }
    }

    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        let taken = self.ranks.contains(&participant) && self.copies[participant][operation];
        if taken { 0 } else { recorded }
    }
}
