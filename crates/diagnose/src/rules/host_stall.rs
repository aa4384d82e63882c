//! `rank.late_host` and `cpu.host_stall`: long host time that nothing marks.

use super::support::{carriers, confidence, in_gap, milliseconds, saving, unmarked_stalls};
use crate::{
    finding::{Confidence, Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct HostStall;

const LATE_HOST: Explanation = Explanation {
    id: "rank.late_host",
    layer: "framework",
    what: "One rank's host alone starts its work late; the others wait for it in the next collective.",
    why: "A collective ends when the last rank has arrived, so one slow host costs all devices.",
    remedy: "look at that rank's host: what the training loop does there alone (logging, validation, a slow disk, \
             another process on its cores) and move it off the step or to all ranks at different steps",
    refuted_by: "removing that rank's delay alone saving less than half of what removing it everywhere saves",
};

const HOST_STALL: Explanation = Explanation {
    id: "cpu.host_stall",
    layer: "framework",
    what: "The host does something long between launches that no marker names.",
    why: "The device drains its queue and idles until the host issues again.",
    remedy: "record with stacks (with_stack=True) or `counterpoint record`, which marks garbage collection, the loader \
             and checkpoints, to learn what the host does there",
    refuted_by: "a recording with stacks in which the time lies inside a marked operation",
};

/// Shorter stretches are the interpreter's ordinary hiccups, part of issuing slowly.
const LONG: i64 = 5_000_000;

impl Rule for HostStall {
    fn explanations(&self) -> &'static [Explanation] {
        &[LATE_HOST, HOST_STALL]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let long = |set: &Set| {
            Set::union_of(set.intervals().iter().copied().filter(|(s, e)| e - s >= LONG))
        };
        let stalls: Vec<Set> = unmarked_stalls(job).into_iter().map(long).collect();
        let carrying = carriers(job, 0.02, |index| stalls[index].clone());
        let without = |ranks| WithoutStalls { job, stalls: &stalls, ranks };
        let Some(saving) = saving(job, &carrying, without) else { return vec![] };
        let explanation = if saving.late { LATE_HOST } else { HOST_STALL };
        let cost = milliseconds(saving.cost.estimate);
        let title = if saving.late {
            format!("the host of {} alone delays every step by {cost}", ranks_text(&saving.ranks))
        } else {
            format!("{cost} of every step go to host work that nothing marks")
        };
        let mut finding = explanation.finding(Severity::Slow, title);
        for &index in &saving.participants {
            let participant = &job.participants[index];
            let Some((start, end)) = job.accounted[index].steps.window() else { continue };
            let count = job.accounted[index].steps.counted.len() as f64;
            let inside = stalls[index].clip(start, end);
            let longest = inside.intervals().iter().map(|(s, e)| e - s).max().unwrap_or(0);
            let text = format!(
                "rank {}: {} per step of host time without any mark, the longest stretch {}",
                participant.rank,
                milliseconds(inside.total() as f64 / 1e6 / count),
                milliseconds(longest as f64 / 1e6)
            );
            finding.evidence.push(Evidence::counted(job, participant.input, text));
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job).max(Confidence::Medium);
        vec![finding]
    }
}

/// `rank 3` or `ranks 1, 2`.
pub fn ranks_text(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list.join(", "))
}

struct WithoutStalls<'a> {
    job: &'a Job,
    stalls: &'a [Set],
    ranks: Vec<usize>,
}

impl Scenario for WithoutStalls<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        let device = &self.job.participants[participant].device;
        let stalled = in_gap(device, call, recorded.gap, &self.stalls[participant]);
        CallTiming { gap: (recorded.gap - stalled).max(0), ..recorded }
    }
}
