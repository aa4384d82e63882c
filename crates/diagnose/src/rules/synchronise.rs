//! `sync.item_per_step` and `sync.barrier_per_step`: the host waits for the device inside the step.

use super::support::{carriers, milliseconds, saving};
use crate::{
    classify::Call,
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
    wall_clock::WallClock,
};

/// The rule.
#[derive(Debug)]
pub struct Synchronise;

const ITEM: Explanation = Explanation {
    id: "sync.item_per_step",
    layer: "framework",
    what: "The program reads a value of the device in every step (.item(), .tolist(), a comparison, nonzero).",
    why: "The host waits until the queue is empty and then needs time to get ahead again; the device idles meanwhile.",
    remedy: "read the value later or less often (every n-th step), keep it on the device, copy it asynchronously into \
             pinned memory",
    refuted_by: "the step not getting shorter without the read: the wait was hidden",
};

const BARRIER: Explanation = Explanation {
    id: "sync.barrier_per_step",
    layer: "framework",
    what: "The program synchronises the device or all ranks explicitly in every step.",
    why: "The queue drains; the device idles until the host is ahead again.",
    remedy: "remove torch.cuda.synchronize() and dist.barrier() from the step; time with events instead",
    refuted_by: "the step not getting shorter without the call",
};

impl Rule for Synchronise {
    fn explanations(&self) -> &'static [Explanation] {
        &[ITEM, BARRIER]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [(ITEM, true), (BARRIER, false)]
            .into_iter()
            .filter_map(|(explanation, item)| {
                let calls: Vec<Vec<bool>> =
                    (0..job.participants.len()).map(|index| chosen(job, index, item)).collect();
                find(job, &calls, explanation)
            })
            .collect()
    }
}

fn find(job: &Job, chosen: &[Vec<bool>], explanation: Explanation) -> Option<Finding> {
    let time = |index: usize| {
        let calls = job.participants[index].device.calls.iter().zip(&chosen[index]);
        Set::union_of(calls.filter(|(_, chosen)| **chosen).map(|(call, _)| (call.start, call.end)))
    };
    let carrying = carriers(job, 0.001, time);
    let saving = saving(job, &carrying, &WithoutWaits { chosen })?;
    let mut finding = explanation.finding(
        Severity::Slow,
        format!(
            "{} of every step are lost after the host waited for the device",
            milliseconds(saving.cost.estimate)
        ),
    );
    for &index in &saving.participants {
        let participant = &job.participants[index];
        let calls = participant.device.calls.iter().zip(&chosen[index]);
        let count = calls.clone().filter(|(_, chosen)| **chosen).count();
        let longest = calls.filter(|(_, chosen)| **chosen).max_by_key(|(c, _)| c.end - c.start);
        if let Some((call, _)) = longest {
            let text = format!("rank {}: {count} such calls, this the longest", participant.rank);
            finding.evidence.push(Evidence::span(job, participant.input, call.span, text));
        }
    }
    saving.price(job, &mut finding);
    Some(finding)
}

/// Synchronising calls made by reading a value (`item`), or by the program itself outside any operator.
fn chosen(job: &Job, index: usize, item: bool) -> Vec<bool> {
    let device = &job.participants[index].device;
    let timeline = job.timeline(index);
    let wall = WallClock::of(timeline);
    let mut open: Vec<(i64, bool)> = vec![];
    let mut ops = device.host_op_spans.iter().copied().peekable();
    device
        .calls
        .iter()
        .map(|call| {
            while let Some(&span) = ops.peek() {
                let (start, end) = wall.times(span);
                if start > call.start {
                    break;
                }
                let name = timeline.name_of(span);
                let reads = ["item", "_local_scalar_dense", "nonzero", "tolist", "is_nonzero"];
                open.push((end, reads.iter().any(|read| name.ends_with(read))));
                ops.next();
            }
            open.retain(|&(end, _)| end >= call.start);
            let reading = open.iter().any(|&(_, reads)| reads);
            call.class == Call::Synchronise && if item { reading } else { open.is_empty() }
        })
        .collect()
}

struct WithoutWaits<'a> {
    chosen: &'a [Vec<bool>],
}

impl Scenario for WithoutWaits<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        match self.chosen[participant][call] {
            true => CallTiming { duration: 3_000, returns_at_once: true, ..recorded },
            false => recorded,
        }
    }
}
