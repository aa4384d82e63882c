//! `data.loader_starved`: the step waits for the next batch.

use super::support::{carriers, confidence, in_gap, milliseconds, saving};
use crate::{
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Loader;

const LOADER_STARVED: Explanation = Explanation {
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
