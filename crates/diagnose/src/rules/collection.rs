//! `cpu.gc_pause`: the interpreter collects garbage while the device runs dry.

use super::support::{carriers, confidence, in_gap, milliseconds, saving};
use crate::{
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Collection;

const GC_PAUSE: Explanation = Explanation {
    id: "cpu.gc_pause",
    layer: "framework",
    what: "The host collects garbage between launches, at different steps on different ranks.",
    why: "A full collection walks every object of the program; all ranks wait for the one that collects.",
    remedy: "gc.disable() before the loop and gc.collect() on all ranks at the same step every few hundred steps; \
             gc.freeze() after the model is built",
    refuted_by: "the step not getting shorter with gc.disable()",
};

impl Rule for Collection {
    fn explanations(&self) -> &'static [Explanation] {
        &[GC_PAUSE]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let collections = |index: usize| job.participants[index].device.collections.clone();
        let carrying = carriers(job, 0.005, collections);
        let without = |ranks| WithoutCollections { job, ranks };
        let Some(saving) = saving(job, &carrying, without) else { return vec![] };
        let cost = milliseconds(saving.cost.estimate);
        let mut finding = GC_PAUSE
            .finding(Severity::Slow, format!("garbage collection costs {cost} of every step"));
        for &index in &saving.participants {
            let participant = &job.participants[index];
            let Some((start, end)) = job.accounted[index].steps.window() else { continue };
            let inside = participant.device.collections.clip(start, end);
            let longest = inside.intervals().iter().map(|(s, e)| e - s).max().unwrap_or(0);
            let text = format!(
                "rank {}: {} collections in {} steps, the longest {}",
                participant.rank,
                inside.intervals().len(),
                job.accounted[index].steps.counted.len(),
                milliseconds(longest as f64 / 1e6)
            );
            finding.evidence.push(Evidence::counted(job, participant.input, text));
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job);
        finding.remedy.setting = Some("gc.disable()".to_owned());
        vec![finding]
    }
}

struct WithoutCollections<'a> {
    job: &'a Job,
    ranks: Vec<usize>,
}

impl Scenario for WithoutCollections<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        let device = &self.job.participants[participant].device;
        let spent = in_gap(device, call, recorded.gap, &device.collections);
        CallTiming { gap: (recorded.gap - spent).max(0), ..recorded }
    }
}
