//! `rank.uneven_compute`: one rank's device has more to compute than the others'.

use super::support::{milliseconds, saving};
use crate::{
    align::median,
    device::Work,
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
    replay::Scenario,
};

/// The rule.
#[derive(Debug)]
pub struct Uneven;

const UNEVEN: Explanation = Explanation {
    id: "rank.uneven_compute",
    layer: "framework",
    what: "One rank's device computes longer than the others in every step; they wait for it.",
    why: "Batches differ in size or length, layers are divided unevenly, or one device is slower.",
    remedy: "give every rank as many tokens or pixels (bucket by length, pack sequences, drop the ragged last batch), \
             divide layers by measured time; if the work is equal, look at that device's clocks and temperature",
    refuted_by: "the ranks' computing times being equal with the same input on all of them",
};

/// Computing longer than the others' by this share is uneven.
const UNEVEN_SHARE: f64 = 1.04;

impl Rule for Uneven {
    fn explanations(&self) -> &'static [Explanation] {
        &[UNEVEN]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        find(job).into_iter().collect()
    }
}

fn find(job: &Job) -> Option<Finding> {
    let steps = |index: usize| job.accounted[index].steps.counted.len().max(1) as i64;
    let per_step: Vec<i64> = (0..job.participants.len())
        .map(|index| job.accounted[index].account.compute() / steps(index))
        .collect();
    if per_step.len() < 2 {
        return None;
    }
    let usual = median(&mut per_step.clone())?;
    let share = |index: usize| usual as f64 / per_step[index].max(1) as f64;
    let carrying: Vec<usize> =
        (0..per_step.len()).filter(|&index| 1.0 / share(index) > UNEVEN_SHARE).collect();
    let shares: Vec<f64> = (0..per_step.len()).map(|index| share(index).min(1.0)).collect();
    let saving = saving(job, &carrying, &Even { job, shares: &shares })?;
    let title = format!(
        "{} more to compute than the others: {} of every step",
        match &saving.ranks[..] {
            [one] => format!("rank {one} has"),
            more => format!("{} ranks have", more.len()),
        },
        milliseconds(saving.cost.estimate)
    );
    let mut finding = UNEVEN.finding(Severity::Slow, title);
    let kernels = |index: usize| {
        let (start, end) = job.accounted[index].steps.window().unwrap_or((0, 0));
        let operations = &job.participants[index].device.operations;
        let inside = operations.iter().filter(|o| start <= o.start && o.start < end);
        inside.filter(|o| matches!(o.work, Work::Compute(_))).count() as i64 / steps(index)
    };
    let kernels: Vec<i64> = (0..per_step.len()).map(kernels).collect();
    let usual_kernels = median(&mut kernels.clone()).unwrap_or(0);
    for &index in &saving.participants {
        let participant = &job.participants[index];
        let text = format!(
            "rank {}: computing {} a step in {} kernels, usual are {} in {usual_kernels}",
            participant.rank,
            milliseconds(per_step[index] as f64 / 1e6),
            kernels[index],
            milliseconds(usual as f64 / 1e6)
        );
        finding.evidence.push(Evidence::counted(job, participant.input, text));
    }
    saving.price(job, &mut finding);
    Some(finding)
}

struct Even<'a> {
    job: &'a Job,
    shares: &'a [f64],
}

impl Scenario for Even<'_> {
    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        let found = &self.job.participants[participant].device.operations[operation];
        match found.work {
            Work::Compute(_) => (recorded as f64 * self.shares[participant]) as i64,
            _ => recorded,
        }
    }
}
