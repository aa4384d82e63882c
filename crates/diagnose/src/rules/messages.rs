//! `comm.volume_bound` and `comm.tiny_messages`: too many bytes, or too many exchanges of few.

use super::{
    communication::{bus_bandwidth, expected_bandwidth},
    support::{WORTH, confidence, milliseconds, saving},
};
use crate::{
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    index::Index,
    job::Job,
    leaf::Leaf,
    replay::Scenario,
};

/// The rule.
#[derive(Debug)]
pub struct Messages;

const VOLUME: Explanation = Explanation {
    id: "comm.volume_bound",
    layer: "communication",
    what: "Collectives run at the expected rate and still take longer than the computing that could hide them.",
    why: "Too many bytes for the work between them: fp32 gradients beside bf16 computing, a small batch per device, no \
          accumulation.",
    remedy: "exchange gradients in bf16, accumulate over several batches (no_sync), raise the batch per device",
    refuted_by: "the exposed time not falling when half the bytes are exchanged",
};

const TINY: Explanation = Explanation {
    id: "comm.tiny_messages",
    layer: "communication",
    what: "Many collectives of a few kilobytes each.",
    why: "Below about a megabyte an exchange costs its latency, whatever its size.",
    remedy: "flatten small tensors into one buffer (bucket_cap_mb, foreach or coalesced collectives), exchange metrics \
             every n-th step",
    refuted_by: "the step not getting shorter when the small tensors are exchanged as one",
};

/// Messages below this size cost their latency.
const SMALL: u64 = 1 << 20;
/// Fewer small messages in a step are ordinary.
const MANY: usize = 20;

impl Rule for Messages {
    fn explanations(&self) -> &'static [Explanation] {
        &[VOLUME, TINY]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        volume(job).into_iter().chain(tiny(job)).collect()
    }
}

fn volume(job: &Job) -> Option<Finding> {
    let (expected, from) = expected_bandwidth(job)?;
    let large = || job.clock.matched.iter().filter(|m| m.bytes >= 4 * SMALL);
    let best = large().map(bus_bandwidth).fold(0.0, f64::max);
    if best < 0.5 * expected {
        return None;
    }
    let outweighs = job.accounted.iter().all(|accounted| {
        let exposed = accounted.account.get(Leaf::Transfer);
        let transfers = exposed + accounted.beside.communication_hidden;
        let total = accounted.account.total();
        transfers > accounted.account.compute() && exposed as f64 > 0.1 * total as f64
    });
    if !outweighs {
        return None;
    }
    let all: Vec<usize> = (0..job.participants.len()).collect();
    let half = saving(job, &all, &Scaled { job, least: 0, share: 0.5 })?;
    let none = saving(job, &all, &Scaled { job, least: 0, share: 0.0 })?;
    let title = format!(
        "more is exchanged than computing can hide: half the bytes save {} of every step",
        milliseconds(half.cost.estimate)
    );
    let mut finding = VOLUME.finding(Severity::Slow, title);
    let bytes: f64 = large().map(|m| m.bytes as f64).sum();
    let steps = job.accounted.first().map_or(1, |a| a.steps.counted.len().max(1)) as f64;
    let text = format!(
        "{:.0} MB in large collectives of a step, up to {best:.0} GB/s; {from} gives {expected:.0}",
        bytes / 1e6 / steps
    );
    finding.evidence.push(Evidence::counted(job, job.participants[0].input, text));
    finding.ranks = half.ranks;
    finding.cost = Some(Cost {
        estimate: half.cost.estimate,
        low: half.cost.low,
        high: none.cost.estimate,
        by: CostBy::Replay,
    });
    finding.confidence = confidence(job).max(Confidence::Medium);
    Some(finding)
}

fn tiny(job: &Job) -> Option<Finding> {
    let small = |matched: Index| job.clock.matched[matched.get()].bytes < SMALL;
    let all: Vec<usize> = (0..job.participants.len()).collect();
    let mut evidence = vec![];
    for (index, participant) in job.participants.iter().enumerate() {
        let Some((start, end)) = job.accounted[index].steps.window() else { continue };
        let steps = job.accounted[index].steps.counted.len().max(1);
        let operations = participant.device.operations.iter();
        let count = operations
            .filter(|o| o.matched.is_some_and(small) && start <= o.start && o.start < end)
            .count();
        if count < MANY * steps {
            continue;
        }
        let text = format!(
            "rank {}: {} collectives below 1 MiB in a step",
            participant.rank,
            count / steps
        );
        evidence.push(Evidence::counted(job, participant.input, text));
    }
    if evidence.is_empty() {
        return None;
    }
    let saving = saving(job, &all, &Scaled { job, least: SMALL, share: 0.0 })?;
    let title = format!(
        "many small collectives: {} of every step go to their latency",
        milliseconds(saving.cost.estimate)
    );
    let mut finding = TINY.finding(Severity::Slow, title);
    finding.evidence = evidence;
    finding.ranks = saving.ranks;
    // One exchange of all of them keeps one latency of each batch of them: a tenth, as a rule.
    let cost = saving.cost;
    finding.cost = Some(Cost { low: cost.low.min(0.9 * cost.estimate), ..cost });
    finding.confidence = confidence(job).max(Confidence::Medium);
    (cost.estimate > WORTH * job.mean_step() / 1e6).then_some(finding)
}

/// Transfers at a share of their time: all of them, or those below `least` bytes where that is not 0.
struct Scaled<'a> {
    job: &'a Job,
    least: u64,
    share: f64,
}

impl Scenario for Scaled<'_> {
    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        if self.least > 0 && self.job.clock.matched[matched].bytes >= self.least {
            return recorded;
        }
        (recorded as f64 * self.share) as i64
    }
}
