//! `rank.blocking_checkpoint`: one rank copies its parameters to the host and writes them while the others wait.

use timeline::SpanId;

use super::support::{
    carriers,
    chosen::{Chosen, Launches},
    counted,
    host_time::in_gap,
    milliseconds, ranks_text, saving, saving_on_the_host,
};
use crate::{
    classify::{self, Call},
    device::{Device, Operation, Work},
    finding::{Confidence, Evidence, Explanation, Finding, Rule, Severity},
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
const BYTES: f64 = (64 << 20) as f64;

impl Rule for Checkpoint {
    fn explanations(&self) -> &'static [Explanation] {
        &[BLOCKING_CHECKPOINT]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let Some(saves) = Saves::of(job) else { return vec![] };
        let times: Vec<&Set> = saves.host.iter().collect();
        let saving = if job.is_host_only() {
            saving_on_the_host(job, &times)
        } else {
            let carrying = carriers(job, 0.02, |index| saves.time(job, index));
            let launches = saves.copies.launches(job);
            saving(job, &carrying, &WithoutSaves { job, saves: &saves, launches: &launches })
        };
        let Some(saving) = saving else { return vec![] };
        let verb = if saving.ranks.len() == 1 { "writes" } else { "write" };
        let title = format!(
            "{} {verb} a checkpoint inside the step: {} of every step",
            ranks_text(&saving.ranks),
            milliseconds(saving.cost.estimate)
        );
        let mut finding = BLOCKING_CHECKPOINT.finding(Severity::Slow, title);
        let marked = saves.marked;
        for &index in &saving.participants {
            let evidence = if marked { longest_mark(job, index) } else { saves.first(job, index) };
            finding.evidence.extend(evidence);
        }
        saving.price(job, &mut finding);
        if !marked {
            finding.confidence = finding.confidence.max(Confidence::Medium);
        }
        vec![finding]
    }
}

/// What ranks do to save: by their marks, or by the pattern of a checkpoint where the recording has none.
struct Saves {
    marked: bool,
    /// By participant: when its host saves.
    host: Vec<Set>,
    /// Copies to the host that belong to it.
    copies: Chosen,
}

impl Saves {
    fn of(job: &Job) -> Option<Saves> {
        let devices = || job.participants.iter().map(|participant| &participant.device);
        let marked = devices().any(|device| !device.saves.is_empty());
        if marked {
            let inside = |device: &Device| -> Vec<bool> {
                let operations = device.operations.iter();
                let saved = |o: &Operation| {
                    let call = device.launch(o).filter(|_| o.work == Work::Copy);
                    call.is_some_and(|call| device.saves.total_in(call.start, call.end) > 0)
                };
                operations.map(saved).collect()
            };
            let host = devices().map(|device| device.saves.clone()).collect();
            let copies = Chosen::from_flags(devices().map(inside).collect());
            return Some(Saves { marked, host, copies });
        }
        let copies = Chosen::of(job, |o| o.work == Work::Copy && o.pageable, classify::is_download);
        // The copies of a whole model, and the host time around them that nothing marks.
        let enough = |index: &usize| {
            let own = copies.operations(job, *index);
            own.clone().count() >= COPIES && own.map(|o| o.bytes as f64).sum::<f64>() >= BYTES
        };
        let saving: Vec<bool> = (0..job.participants.len()).map(|index| enough(&index)).collect();
        let host = devices().zip(&saving).map(|(device, &saving)| {
            if saving { device.unmarked_stalls.clone() } else { Set::empty() }
        });
        let host = host.collect();
        saving.contains(&true).then_some(Saves { marked, host, copies: copies.only(&saving) })
    }

    fn time(&self, job: &Job, index: usize) -> Set {
        self.copies.time(job, index).union(&self.host[index])
    }

    fn first(&self, job: &Job, index: usize) -> Option<Evidence> {
        let own = self.copies.operations(job, index);
        let bytes: f64 = own.clone().map(|operation| operation.bytes as f64).sum();
        let (count, first) = (own.clone().count(), own.clone().next()?);
        let participant = &job.participants[index];
        let text = format!(
            "rank {}: {} to the host, {:.1} MB in the recording, this the first",
            participant.rank,
            counted(count, "copy", "copies"),
            bytes / 1e6
        );
        Some(Evidence::span(job, participant.input, first.span, text))
    }
}

/// The longest mark of a save of a participant's process.
fn longest_mark(job: &Job, index: usize) -> Option<Evidence> {
    let participant = &job.participants[index];
    let timeline = job.timeline(index);
    let of_process = |id: &SpanId| timeline.process_of(*id) == participant.device.process;
    let saves = timeline.spans.ids().filter(|id| classify::is_save(timeline.name_of(*id)));
    let longest = saves.filter(of_process).max_by_key(|id| timeline.spans.get(*id).duration)?;
    let length = timeline.spans.get(longest).duration.nanos() as f64 / 1e6;
    let text = format!("rank {}: the longest save, {}", participant.rank, milliseconds(length));
    Some(Evidence::span(job, participant.input, longest, text))
}

struct WithoutSaves<'a> {
    job: &'a Job,
    saves: &'a Saves,
    launches: &'a [Launches],
}

impl Scenario for WithoutSaves<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let device = &self.job.participants[participant].device;
        let own = &device.calls[call];
        let host = &self.saves.host[participant];
        let gap = (recorded.gap - in_gap(device, call, recorded.gap, host)).max(0);
        let launches = &self.launches[participant];
        let part = match own.class {
            Call::Copy => launches.starts[call],
            Call::Synchronise => launches.follows[call],
            _ => false,
        };
        if part || host.total_in(own.start, own.end) > 0 {
            return CallTiming { gap, duration: 1_000, returns_at_once: true };
        }
        CallTiming { gap, ..recorded }
    }

    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        if self.saves.copies.contains(participant, operation) { 0 } else { recorded }
    }
}
