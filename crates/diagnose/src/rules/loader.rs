//! `data.loader_starved`: the step waits for the next batch.

use super::support::{
    host_time::{self, stays},
    milliseconds,
};
use crate::{
    finding::{Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
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
        let waits: Vec<&Set> = job.participants.iter().map(|p| &p.device.loader).collect();
        let Some(saving) = host_time::saving(job, &waits, 0.01) else { return vec![] };
        let cost = milliseconds(saving.cost.estimate);
        let title = format!("{cost} of every step go to waiting for the data loader");
        let mut finding = LOADER_STARVED.finding(Severity::Slow, title);
        finding.evidence = stays(job, &saving.participants, &waits, |stay| {
            format!(
                "{} per step inside the loader, the longest stay {}",
                stay.per_step, stay.longest
            )
        });
        saving.price(job, &mut finding);
        finding.remedy.setting = Some("num_workers".to_owned());
        vec![finding]
    }
}
