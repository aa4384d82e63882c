//! `data.loader_starved`: the step waits for the next batch.

use super::support::{WORTH, carriers, confidence, in_gap, milliseconds, saving};
use crate::{
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    leaf::Leaf,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Loader;

pub(super) const LOADER_STARVED: Explanation = Explanation {
    id: "data.loader_starved",
    layer: "framework",
    what: "The training loop waits in the data loader for the next batch while the device runs dry.",
    why: "Workers produce batches more slowly than the device consumes them: too few, or each too slow.",
    remedy: "raise num_workers and prefetch_factor, keep workers alive (persistent_workers=True), move decoding and \
             augmentation off the loading thread or into a pre-processed format",
    refuted_by: "the time inside the loader not falling when num_workers is doubled",
};

impl Rule for Loader {
    fn explanations(&self) -> &'static [Explanation] {
        &[LOADER_STARVED]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        if job.is_host_only() {
            return on_the_host(job).into_iter().collect();
        }
        let carrying = carriers(job, 0.01, |index| job.participants[index].device.loader.clone());
        let Some(saving) = saving(job, &carrying, |ranks| WithoutLoader { job, ranks }) else {
            return vec![];
        };
        let mut finding = LOADER_STARVED.finding(
            Severity::Slow,
            format!(
                "{} of every step go to waiting for the data loader",
                milliseconds(saving.cost.estimate)
            ),
        );
        for &index in &saving.participants {
            finding.evidence.extend(longest_wait(job, index));
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job);
        finding.remedy.setting = Some("num_workers".to_owned());
        vec![finding]
    }
}

/// The rule for ranks that train on the host. They meet in every step, so that the slowest loader sets the pace; what
/// the others wait for their own loaders bounds the saving from below.
fn on_the_host(job: &Job) -> Option<Finding> {
    let waits: Vec<f64> = job
        .accounted
        .iter()
        .map(|accounted| {
            let steps = accounted.steps.counted.len().max(1) as f64;
            accounted.account.get(Leaf::HostData) as f64 / steps / 1e6
        })
        .collect();
    let longest = waits.iter().copied().fold(0.0, f64::max);
    if longest < WORTH * job.mean_step() / 1e6 || longest == 0.0 {
        return None;
    }
    let at_fault = |index: &usize| waits[*index] >= longest / 2.0;
    let rest = (0..waits.len()).filter(|index| !at_fault(index)).map(|index| waits[index]);
    let saved = longest - rest.fold(0.0, f64::max);
    let title = format!("{} of every step go to waiting for the data loader", milliseconds(saved));
    let mut finding = LOADER_STARVED.finding(Severity::Slow, title);
    for index in (0..waits.len()).filter(at_fault) {
        finding.ranks.push(job.participants[index].rank);
        finding.evidence.extend(longest_wait(job, index));
    }
    finding.cost = Some(Cost { estimate: saved, low: saved, high: longest, by: CostBy::Bound });
    finding.confidence = Confidence::Medium;
    finding.remedy.setting = Some("num_workers".to_owned());
    Some(finding)
}

/// The longest stay in the loader inside the counted steps.
fn longest_wait(job: &Job, index: usize) -> Option<Evidence> {
    let participant = &job.participants[index];
    let (start, end) = job.accounted[index].steps.window()?;
    let count = job.accounted[index].steps.counted.len() as f64;
    let inside: Set = participant.device.loader.clip(start, end);
    let longest = inside.intervals().iter().map(|(s, e)| e - s).max()?;
    let total = inside.total() as f64 / 1e6 / count;
    let text = format!(
        "rank {}: {} per step inside the loader, the longest stay {}",
        participant.rank,
        milliseconds(total),
        milliseconds(longest as f64 / 1e6)
    );
    Some(Evidence::counted(job, participant.input, text))
}

struct WithoutLoader<'a> {
    job: &'a Job,
    ranks: Vec<usize>,
}

impl Scenario for WithoutLoader<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        let device = &self.job.participants[participant].device;
        let waited = in_gap(device, call, recorded.gap, &device.loader);
        CallTiming { gap: (recorded.gap - waited).max(0), ..recorded }
    }
}
