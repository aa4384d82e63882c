//! `rank.late_host` and `cpu.host_stall`: long host time that nothing marks.

use super::support::{
    carriers,
    host_time::{Stay, WithoutHostTime, stays, unmarked_stalls},
    milliseconds, ranks_text, saving,
};
use crate::{
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
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
        let stalls: Vec<Set> =
            unmarked_stalls(job).into_iter().map(|set| set.at_least(LONG)).collect();
        let stalls: Vec<&Set> = stalls.iter().collect();
        let carrying = carriers(job, 0.02, |index| stalls[index].clone());
        let without = WithoutHostTime { job, times: &stalls };
        let Some(saving) = saving(job, &carrying, &without) else { return vec![] };
        let cost = milliseconds(saving.cost.estimate);
        let (explanation, title) = if saving.late {
            let whose = ranks_text(&saving.ranks);
            (LATE_HOST, format!("the host of {whose} alone delays every step by {cost}"))
        } else {
            (HOST_STALL, format!("{cost} of every step go to host work that nothing marks"))
        };
        let mut finding = explanation.finding(Severity::Slow, title);
        finding.evidence = stays(job, &saving.participants, &stalls, |stay| {
            let Stay { per_step, longest, .. } = stay;
            format!(
                "{per_step} per step of host time without any mark, the longest stretch {longest}"
            )
        });
        saving.price(job, &mut finding);
        finding.confidence = finding.confidence.max(Confidence::Medium);
        vec![finding]
    }
}
