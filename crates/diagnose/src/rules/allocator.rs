//! `memory.allocator_stall`: device memory is allocated and freed inside the step.

use super::support::{carriers, counted, milliseconds, saving};
use crate::{
    classify::Call,
    facts::{all, quote},
    finding::{Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Allocator;

const ALLOCATOR_STALL: Explanation = Explanation {
    id: "memory.allocator_stall",
    layer: "memory",
    what: "cudaMalloc and cudaFree run inside every step.",
    why: "Both take long, and cudaFree waits for the device: the queue drains and the host falls behind.",
    remedy: "let the caching allocator keep its memory",
    refuted_by: "the calls disappearing without the step getting shorter",
};

impl Rule for Allocator {
    fn explanations(&self) -> &'static [Explanation] {
        &[ALLOCATOR_STALL]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let carrying = carriers(job, 0.01, |index| time(job, index));
        let Some(saving) = saving(job, &carrying, &WithoutAllocation { job }) else {
            return vec![];
        };
        let mut finding = ALLOCATOR_STALL.finding(
            Severity::Slow,
            format!(
                "{} of every step go to allocating and freeing device memory",
                milliseconds(saving.cost.estimate)
            ),
        );
        let mut emptied = true;
        for &index in &saving.participants {
            let found = count(job, index);
            emptied &= found.emptied;
            let participant = &job.participants[index];
            let text = format!(
                "rank {}: {} cudaMalloc and {} cudaFree in {}, {} per step",
                participant.rank,
                found.allocations,
                found.frees,
                counted(found.steps, "step", "steps"),
                milliseconds(found.milliseconds / found.steps.max(1) as f64)
            );
            finding.evidence.push(Evidence::counted(job, participant.input, text));
        }
        let retries = all(job, "memory.retries");
        let short = retries.iter().any(|found| found.number() > Some(0.0));
        quote(job, &mut finding, &retries, 2);
        // As many frees as allocations each step, the frees in one row, and no retry: that is `empty_cache()`.
        let (text, setting) = match (short, emptied) {
            (false, true) => (
                "as much is freed as allocated in every step, all frees in one row: this is \
                 torch.cuda.empty_cache() (or its like) called each step. Remove the call; it gives nothing back that \
                 the next step does not ask for again",
                "remove torch.cuda.empty_cache()",
            ),
            (true, _) => (
                "memory runs short (cudaMalloc retries): each time all cached blocks are given back and asked for again. \
                 Lower the batch or recompute activations; expandable segments leave less memory unusable",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
            (false, false) => (
                "shapes grow from step to step, or memory runs short: pad to few shapes, run the largest first, or set \
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; `cudaMalloc retries` in memory_summary() tell which",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
        };
        text.clone_into(&mut finding.remedy.text);
        finding.remedy.setting = Some(setting.to_owned());
        saving.price(job, &mut finding);
        vec![finding]
    }
}

fn is_allocation(class: Call) -> bool {
    matches!(class, Call::Allocate | Call::Free)
}

fn time(job: &Job, index: usize) -> Set {
    let calls = &job.participants[index].device.calls;
    Set::union_of(calls.iter().filter(|c| is_allocation(c.class)).map(|c| (c.start, c.end)))
}

struct Counted {
    allocations: usize,
    frees: usize,
    steps: usize,
    milliseconds: f64,
    emptied: bool,
}

fn count(job: &Job, index: usize) -> Counted {
    let device = &job.participants[index].device;
    let steps = &job.accounted[index].steps;
    let (start, end) = steps.window().unwrap_or((0, 0));
    let inside: Vec<_> = device
        .calls
        .iter()
        .filter(|c| is_allocation(c.class) && start <= c.start && c.start < end)
        .collect();
    let frees = inside.iter().filter(|call| call.class == Call::Free).count();
    let allocations = inside.len() - frees;
    // Rows of frees without an allocation between them.
    let rows = inside.chunk_by(|a, b| a.class == b.class).filter(|c| c[0].class == Call::Free);
    let rows = rows.count();
    let balanced = frees > 0 && allocations.abs_diff(frees) * 5 <= frees.max(allocations);
    Counted {
        allocations,
        frees,
        steps: steps.counted.len(),
        milliseconds: time(job, index).total_in(start, end) as f64 / 1e6,
        emptied: balanced && rows <= 2 * steps.counted.len() + 1,
    }
}

struct WithoutAllocation<'a> {
    job: &'a Job,
}

impl Scenario for WithoutAllocation<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let class = self.job.participants[participant].device.calls[call].class;
        match is_allocation(class) {
            true => CallTiming { duration: 1_000, returns_at_once: true, ..recorded },
            false => recorded,
        }
    }
}
