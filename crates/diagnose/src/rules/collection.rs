//! `cpu.gc_pause`: the interpreter collects garbage while the device runs dry.

use super::support::{
    counted,
    host_time::{self, Stay, stays},
    milliseconds,
};
use crate::{
    finding::{Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
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
        let pauses: Vec<&Set> = job.participants.iter().map(|p| &p.device.collections).collect();
        let Some(saving) = host_time::saving(job, &pauses, 0.005) else { return vec![] };
        let cost = milliseconds(saving.cost.estimate);
        let title = format!("garbage collection costs {cost} of every step");
        let mut finding = GC_PAUSE.finding(Severity::Slow, title);
        finding.evidence = stays(job, &saving.participants, &pauses, |stay| {
            let Stay { count, steps, longest, .. } = stay;
            let (count, steps) =
                (counted(*count, "collection", "collections"), counted(*steps, "step", "steps"));
            format!("{count} in {steps}, the longest {longest}")
        });
        saving.price(job, &mut finding);
        finding.remedy.setting = Some("gc.disable()".to_owned());
        vec![finding]
    }
}
