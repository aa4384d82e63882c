//! `cudnn.benchmark_off`: convolutions of constant shapes run a slow algorithm, and no search was asked for.

use super::support::{
    carriers,
    chosen::{Chosen, Without},
    milliseconds, saving,
};
use crate::{
    device::Work,
    facts::{Found, all, quote},
    finding::{Explanation, Finding, Rule, Severity},
    job::Job,
    leaf::Leaf,
};

/// The rule.
#[derive(Debug)]
pub struct Algorithms;

const BENCHMARK_OFF: Explanation = Explanation {
    id: "cudnn.benchmark_off",
    layer: "operator library",
    what: "cuDNN's first choice for some convolutions is a general algorithm, and no faster one is searched for.",
    why: "Without torch.backends.cudnn.benchmark the choice is made by rules, which miss the tensor cores for some shapes.",
    remedy: "torch.backends.cudnn.benchmark=True, where shapes stay the same from step to step",
    refuted_by: "the same kernels after the search: then cuDNN has no faster one for these shapes",
};

impl Rule for Algorithms {
    fn explanations(&self) -> &'static [Explanation] {
        &[BENCHMARK_OFF]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        benchmark_off(job).into_iter().collect()
    }
}

/// cuDNN's algorithms for any shape, on the ordinary units.
fn is_general(name: &str) -> bool {
    let known =
        ["implicit_convolve_sgemm", "explicit_convolve_sgemm", "wgrad_alg0", "dgrad_engine"];
    known.iter().any(|text| name.contains(text))
}

fn benchmark_off(job: &Job) -> Option<Finding> {
    let off: Vec<Found> = all(job, "torch.cudnn_benchmark");
    let off: Vec<Found> = off.into_iter().filter(|found| found.number() == Some(0.0)).collect();
    off.first()?;
    let convolution = |name: fn(&str) -> bool| {
        Chosen::of(job, |o| o.work == Work::Compute(Leaf::Convolution), name)
    };
    let (general, others) = (convolution(is_general), convolution(|name| !is_general(name)));
    // Where all convolutions run so, their type has no other kernels: that is a matter of precision.
    let carrying: Vec<usize> = carriers(job, 0.01, |index| general.time(job, index))
        .into_iter()
        .filter(|&index| others.operations(job, index).next().is_some())
        .filter(|&index| steady(job, index, &general))
        .collect();
    let saving = saving(job, &carrying, &Without { chosen: &general })?;
    let title = format!(
        "convolutions of constant shapes run general algorithms for {} of every step, with cudnn.benchmark off",
        milliseconds(saving.cost.estimate)
    );
    let mut finding = BENCHMARK_OFF.finding(Severity::Slow, title);
    finding.evidence =
        general.longest(job, &saving.participants, |_| "the longest such kernel".to_owned());
    quote(job, &mut finding, &off, 1);
    saving.at_most().price(job, &mut finding);
    finding.remedy.setting = Some("torch.backends.cudnn.benchmark=True".to_owned());
    Some(finding)
}

/// Whether each counted step runs as many of the chosen operations: shapes that change change the choice.
fn steady(job: &Job, index: usize, chosen: &Chosen) -> bool {
    let steps = &job.accounted[index].steps.counted;
    let count = |start: i64, end: i64| {
        chosen.operations(job, index).filter(|o| start <= o.start && o.start < end).count()
    };
    steps
        .windows(2)
        .all(|pair| count(pair[0].start, pair[0].end) == count(pair[1].start, pair[1].end))
}
