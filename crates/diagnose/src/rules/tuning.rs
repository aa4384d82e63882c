//! `cudnn.benchmark_dynamic_shapes` and `compile.recompile_loop`: the host tunes or compiles step after step.

use timeline::SpanId;

use super::support::{carriers, milliseconds, saving};
use crate::{
    classify::Call,
    device::STALL,
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
    wall_clock::WallClock,
};

/// The rule.
#[derive(Debug)]
pub struct Tuning;

const BENCHMARK: Explanation = Explanation {
    id: "cudnn.benchmark_dynamic_shapes",
    layer: "operator library",
    what: "cuDNN searches for the fastest algorithm again and again, because the shapes keep changing.",
    why: "torch.backends.cudnn.benchmark=True times every algorithm for each new shape before it runs once.",
    remedy: "set torch.backends.cudnn.benchmark=False, or pad and crop the inputs to a few shapes",
    refuted_by: "the search going on with cudnn.benchmark off",
};

pub(super) const RECOMPILE: Explanation = Explanation {
    id: "compile.recompile_loop",
    layer: "framework",
    what: "A graph compiler compiles again in step after step.",
    why: "A guard fails each time: shapes, types or Python values keep changing.",
    remedy: "see TORCH_LOGS=recompiles for the guard that fails; mark dynamic dimensions, or take the changing value \
             out of the compiled function",
    refuted_by: "no recompilation in TORCH_LOGS=recompiles",
};

/// Which operators count, by name.
type Wanted = fn(&str) -> bool;

impl Rule for Tuning {
    fn explanations(&self) -> &'static [Explanation] {
        &[BENCHMARK, RECOMPILE]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let kinds: [(Explanation, Wanted, &str); 2] = [
            (BENCHMARK, is_convolution, "cuDNN searches anew for each new shape"),
            (RECOMPILE, is_compiler, "a graph compiler compiles again in step after step"),
        ];
        kinds.into_iter().filter_map(|(e, wanted, what)| find(job, e, wanted, what)).collect()
    }
}

fn is_convolution(name: &str) -> bool {
    name.contains("cudnn_convolution") || name.contains("convolution_backward")
}

fn is_compiler(name: &str) -> bool {
    ["compile_fx", "dynamo_timed", "_compile", "Dynamo", "inductor"]
        .iter()
        .any(|text| name.contains(text))
}

fn find(job: &Job, explanation: Explanation, wanted: Wanted, what: &str) -> Option<Finding> {
    let inside: Vec<Set> = (0..job.participants.len())
        .map(|index| {
            let wall = WallClock::of(job.timeline(index));
            Set::union_of(operators(job, index, wanted).map(|span| wall.times(span)))
        })
        .collect();
    let stalls = |index: usize| {
        if inside[index].is_empty() {
            return Set::empty();
        }
        let calls = &job.participants[index].device.calls;
        let called = Set::union_of(calls.iter().map(|call| (call.start, call.end)));
        inside[index].without(&called).at_least(STALL)
    };
    let carrying = carriers(job, 0.02, stalls);
    let saving = saving(job, &carrying, &WithoutTuning { job, inside: &inside })?;
    let mut finding = explanation.finding(
        Severity::Slow,
        format!("{what}: {} of every step", milliseconds(saving.cost.estimate)),
    );
    for &index in &saving.participants {
        let participant = &job.participants[index];
        let wall = WallClock::of(job.timeline(index));
        let longest = operators(job, index, wanted).max_by_key(|&span| {
            let (start, end) = wall.times(span);
            end - start
        });
        if let Some(span) = longest {
            let text = format!("rank {}: the longest of them", participant.rank);
            finding.evidence.push(Evidence::span(job, participant.input, span, text));
        }
    }
    saving.price(job, &mut finding);
    Some(finding)
}

/// Operators on a participant's launching threads whose name is wanted.
fn operators(job: &Job, index: usize, wanted: Wanted) -> impl Iterator<Item = SpanId> + '_ {
    let timeline = job.timeline(index);
    let spans = job.participants[index].device.host_op_spans.iter().copied();
    spans.filter(move |&span| wanted(timeline.name_of(span)))
}

struct WithoutTuning<'a> {
    job: &'a Job,
    inside: &'a [Set],
}

impl Scenario for WithoutTuning<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let found = &self.job.participants[participant].device.calls[call];
        let inside = &self.inside[participant];
        let mut timing = recorded;
        let silent = inside.total_in(found.start - recorded.gap, found.start);
        if silent > 100_000 {
            timing.gap = (recorded.gap - silent).max(0) + 20_000;
        }
        let within = inside.total_in(found.start, found.end) > 0;
        match found.class {
            Call::Synchronise if within => {
                CallTiming { duration: 3_000, returns_at_once: true, ..timing }
            }
            Call::Allocate | Call::Free if within => {
                CallTiming { duration: 1_000, returns_at_once: true, ..timing }
            }
            _ => timing,
        }
    }
}
