//! `cpu.launch_bound`: the host issues work more slowly than the device finishes it.

use super::support::{confidence, milliseconds, saving};
use crate::{
    finding::{Confidence, Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
    leaf::Leaf,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Launch;

pub(super) const LAUNCH_BOUND: Explanation = Explanation {
    id: "cpu.launch_bound",
    layer: "framework",
    what: "The device waits for the next launch most of the time: many short kernels, each issued by the host.",
    why: "Each operator costs the host some microseconds; where kernels are shorter than that, the host sets the pace.",
    remedy: "capture the step as a CUDA graph (torch.compile with mode=\"reduce-overhead\"), fuse small operators \
             (torch.compile, foreach or fused optimizers), raise the batch",
    refuted_by: "the step not getting shorter when the same work is replayed from a CUDA graph",
};

impl Rule for Launch {
    fn explanations(&self) -> &'static [Explanation] {
        &[LAUNCH_BOUND]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let share = |index: usize| {
            let account = &job.accounted[index].account;
            account.get(Leaf::HostLaunch) as f64 / account.total().max(1) as f64
        };
        let all: Vec<usize> = (0..job.participants.len()).collect();
        let issuing: Vec<usize> = all.iter().copied().filter(|&index| share(index) > 0.1).collect();
        if issuing.is_empty() {
            return vec![];
        }
        let Some(mut saving) = saving(job, &all, |ranks| HostFree { ranks, share: 1.0 }) else {
            return vec![];
        };
        // The recorder itself slows the host, so the true loss is smaller: a host twice as fast is the low end.
        let base = job.unchanged.as_ref().map_or(0.0, |outcome| outcome.replayed);
        let half = HostFree { ranks: saving.participants.clone(), share: 0.5 };
        if let Some(replay) = &job.replay {
            saving.cost.low = ((base - replay.run(&half).replayed) / 1e6).min(saving.cost.low);
        }
        let mut finding = LAUNCH_BOUND.finding(
            Severity::Slow,
            format!(
                "the host issues work too slowly: up to {} of every step",
                milliseconds(saving.cost.estimate)
            ),
        );
        for index in issuing {
            let participant = &job.participants[index];
            let (steps, operations) =
                (job.accounted[index].steps.counted.len().max(1), operations_in_steps(job, index));
            let text = format!(
                "rank {}: {:.0} % of the step waiting for launches, {} operations per step; recording slows the host, \
                 so an unrecorded step is shorter",
                participant.rank,
                100.0 * share(index),
                operations / steps
            );
            finding.evidence.push(Evidence::counted(job, participant.input, text));
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job).max(Confidence::Medium);
        finding.remedy.setting = Some("torch.compile(mode=\"reduce-overhead\")".to_owned());
        vec![finding]
    }
}

fn operations_in_steps(job: &Job, index: usize) -> usize {
    let Some((start, end)) = job.accounted[index].steps.window() else { return 0 };
    let operations = &job.participants[index].device.operations;
    operations.iter().filter(|o| start <= o.start && o.start < end).count()
}

/// Host time removed by a share, everywhere but in waits for the device.
struct HostFree {
    ranks: Vec<usize>,
    share: f64,
}

impl Scenario for HostFree {
    fn call(&self, participant: usize, _call: usize, recorded: CallTiming) -> CallTiming {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        let kept = |time: i64| (time as f64 * (1.0 - self.share)) as i64;
        CallTiming {
            gap: kept(recorded.gap),
            duration: kept(recorded.duration).max(100.min(recorded.duration)),
            ..recorded
        }
    }
}
