//! `cpu.launch_bound`: the CPU issues work more slowly than the device finishes it.
//!
//! A recorder makes every operator of the host dearer. Where the same run's steps were timed without it
//! (`steps.unrecorded_ns`), what it added is no loss of the job.

use super::support::{WORTH, host_time::in_gap, milliseconds, saving};
use crate::{
    align::median,
    facts,
    finding::{Confidence, Cost, Evidence, Explanation, Finding, Rule, Severity},
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

pub(crate) const SLOWED_BY_RECORDING: Explanation = Explanation {
    id: "recording.slows_host",
    layer: "framework",
    what: "The host keeps up with the device by itself, and falls behind only while its operators are recorded.",
    why: "A profiler adds some microseconds to every operator and launch; the steps beside the recorded ones are shorter.",
    remedy: "none: read host.launch in this account as the recorder's",
    refuted_by: "steps without recording that take as long as the recorded ones",
};

impl Rule for Launch {
    fn explanations(&self) -> &'static [Explanation] {
        &[LAUNCH_BOUND, SLOWED_BY_RECORDING]
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
        let Some(mut saving) = saving(job, &all, &HostFree { job, share: 1.0 }) else {
            return vec![];
        };
        // The recorder itself slows the host, so the true loss is smaller: a host twice as fast is the low end.
        let half = saving.saved_by(job, &HostFree { job, share: 0.5 });
        saving.cost.low = half.min(saving.cost.low);
        let recording = Recording::of(job, saving.cost.estimate);
        if let Some(recording) = &recording {
            saving.cost = recording.left_of(saving.cost);
            if saving.cost.estimate * 1e6 < WORTH * recording.without {
                return vec![recording.finding(job)];
            }
        }
        let mut finding = LAUNCH_BOUND.finding(
            Severity::Slow,
            format!(
                "the CPU issues work too slowly: up to {} of every step",
                milliseconds(saving.cost.high)
            ),
        );
        for index in issuing {
            let participant = &job.participants[index];
            let (steps, operations) =
                (job.accounted[index].steps.counted.len().max(1), operations_in_steps(job, index));
            let text = format!(
                "rank {}: {:.0} % of the step waiting for launches, {} operations per step; {}",
                participant.rank,
                100.0 * share(index),
                operations / steps,
                recording.as_ref().map_or(
                    "recording slows the host, so an unrecorded step is shorter".to_owned(),
                    Recording::text
                )
            );
            finding.evidence.push(Evidence::counted(job, participant.input, text));
        }
        saving.price(job, &mut finding);
        finding.confidence = finding.confidence.max(Confidence::Medium);
        finding.remedy.setting = Some("torch.compile(mode=\"reduce-overhead\")".to_owned());
        vec![finding]
    }
}

fn operations_in_steps(job: &Job, index: usize) -> usize {
    let Some((start, end)) = job.accounted[index].steps.window() else { return 0 };
    let operations = &job.participants[index].device.operations;
    operations.iter().filter(|o| start <= o.start && o.start < end).count()
}

/// Lengths of a step with and without the recorder, nanoseconds.
struct Recording<'a> {
    with: f64,
    without: f64,
    /// One per rank that timed its steps.
    timed: Vec<facts::Found<'a>>,
}

impl<'a> Recording<'a> {
    /// Of the rank that is slowest without it: ranks that meet in a step are as slow. Medians, so that a step in which a
    /// checkpoint is written does not count as the recorder's. A host that runs ahead of the device has shorter steps than
    /// the device: no step is shorter than one with a free host, which saves `most` milliseconds.
    fn of(job: &'a Job, most: f64) -> Option<Recording<'a>> {
        let timed = facts::all(job, "steps.unrecorded_ns");
        let without = timed.iter().filter_map(facts::Found::number).reduce(f64::max)?;
        let mut lengths: Vec<i64> = job
            .accounted
            .iter()
            .flat_map(|accounted| &accounted.steps.counted)
            .map(|step| step.end - step.start)
            .collect();
        let with = median(&mut lengths)? as f64;
        Some(Recording { with, without: without.max(with - most * 1e6), timed })
    }

    /// A cost found in recorded steps without what the recorder added.
    fn left_of(&self, cost: Cost) -> Cost {
        let added = (self.with - self.without).max(0.0) / 1e6;
        let left = |cost: f64| (cost - added).max(0.0);
        Cost { estimate: left(cost.estimate), low: left(cost.low), high: left(cost.high), ..cost }
    }

    fn text(&self) -> String {
        let (with, without) = (milliseconds(self.with / 1e6), milliseconds(self.without / 1e6));
        format!("a step takes {without} without recording, {with} with it")
    }

    fn finding(&self, job: &Job) -> Finding {
        let title =
            format!("only the recording makes the device wait for the host: {}", self.text());
        let mut finding = SLOWED_BY_RECORDING.finding(Severity::Info, title);
        facts::quote(job, &mut finding, &self.timed, 3);
        finding.confidence = Confidence::High;
        finding
    }
}

/// Host time removed by a share, everywhere but in waits for the device and where time has a cause of another name.
struct HostFree<'a> {
    job: &'a Job,
    share: f64,
}

impl Scenario for HostFree<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let kept = |time: i64| (time as f64 * (1.0 - self.share)) as i64;
        let device = &self.job.participants[participant].device;
        let named = [&device.loader, &device.saves, &device.collections, &device.unmarked_stalls];
        let named: i64 = named.into_iter().map(|set| in_gap(device, call, recorded.gap, set)).sum();
        let named = named.min(recorded.gap);
        CallTiming {
            gap: named + kept(recorded.gap - named),
            duration: kept(recorded.duration).max(100.min(recorded.duration)),
            ..recorded
        }
    }
}
