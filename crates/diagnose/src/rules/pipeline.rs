//! `parallel.pipeline_bubble`: the stages of a pipeline wait for one another in send and receive.

use super::support::{milliseconds, ranks_of};
use crate::{
    device::Work,
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
};
use timeline::Detail;

/// The rule.
#[derive(Debug)]
pub struct Pipeline;

const BUBBLE: Explanation = Explanation {
    id: "parallel.pipeline_bubble",
    layer: "framework",
    what: "The stages of a pipeline stand still in send and receive while others fill or drain it.",
    why: "With p stages and m micro-batches, (p - 1) of (m + p - 1) slots are empty by schedule; uneven stages add to it.",
    remedy: "more micro-batches per step, interleaved stages (virtual pipeline), stages divided by measured time",
    refuted_by: "the share staying the same when the number of micro-batches is doubled",
};

/// Less than this share of the step in send and receive with nothing beside it is no bubble.
const SHARE: f64 = 0.1;

impl Rule for Pipeline {
    fn explanations(&self) -> &'static [Explanation] {
        &[BUBBLE]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let mut finding = BUBBLE.finding(Severity::Slow, "");
        let mut concerned = vec![];
        let mut worst: f64 = 0.0;
        for (index, participant) in job.participants.iter().enumerate() {
            let Some((start, end)) = job.accounted[index].steps.window() else { continue };
            let steps = job.accounted[index].steps.counted.len().max(1) as f64;
            let timeline = job.timeline(index);
            let device = &participant.device;
            let pairwise = device.operations.iter().filter(|o| {
                o.work == Work::Collective
                    && timeline.spans.details(o.span).any(|detail| {
                        matches!(detail, Detail::Collective { operation, .. } if operation == "send_receive")
                    })
            });
            let waiting = Set::union_of(pairwise.clone().map(|o| (o.start, o.end)));
            let computing = device.operations.iter().filter(|o| matches!(o.work, Work::Compute(_)));
            let computing = Set::union_of(computing.map(|o| (o.start, o.end)));
            let alone = waiting.without(&computing).clip(start, end).total();
            if (alone as f64) < SHARE * (end - start) as f64 {
                continue;
            }
            let longest = pairwise.filter(|o| start <= o.start && o.start < end);
            let Some(longest) = longest.max_by_key(|o| o.end - o.start) else { continue };
            let text = format!(
                "rank {}: {} a step in send and receive with nothing beside it, this the longest",
                participant.rank,
                milliseconds(alone as f64 / 1e6 / steps)
            );
            let evidence = Evidence::span(job, participant.input, longest.span, text);
            finding.evidence.push(evidence);
            concerned.push(index);
            worst = worst.max(alone as f64 / 1e6 / steps);
        }
        if finding.evidence.is_empty() {
            return vec![];
        }
        finding.ranks = ranks_of(job, concerned);
        finding.title = format!(
            "stages of the pipeline wait for one another: up to {} of a step",
            milliseconds(worst)
        );
        finding.cost =
            Some(Cost { estimate: worst / 2.0, low: 0.0, high: worst, by: CostBy::Bound });
        finding.confidence = Confidence::Medium;
        vec![finding]
    }
}
