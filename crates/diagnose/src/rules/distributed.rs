//! What frameworks warn of: `ddp.grad_stride_mismatch`, `ddp.find_unused_parameters`, `ddp.no_sync_missing`,
//! `cpu.debugger_attached`; and `compile.recompile_loop` as the compiler itself says it.

use super::{support::counted, tuning};
use crate::{
    facts::{Found, all, quote, rows, texts},
    finding::{Confidence, Cost, CostBy, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Distributed;

const STRIDES: Explanation = Explanation {
    id: "ddp.grad_stride_mismatch",
    layer: "framework",
    what: "Gradients lie in memory in another order than the buckets they are exchanged in.",
    why: "Each such gradient is copied element by element into its bucket and back, every step.",
    remedy: "give parameters the memory format of their gradients before wrapping the model: \
             model.to(memory_format=torch.channels_last), or make the gradient contiguous",
    refuted_by: "strides that differ only over dimensions of size 1: those cost nothing",
};

const UNUSED: Explanation = Explanation {
    id: "ddp.find_unused_parameters",
    layer: "framework",
    what: "DistributedDataParallel searches for unused parameters in every step, and there are none.",
    why: "It walks the whole autograd graph after each forward pass before the backward pass may start.",
    remedy: "find_unused_parameters=False",
    refuted_by: "training failing without it because some branch leaves parameters unused",
};

const NO_SYNC: Explanation = Explanation {
    id: "ddp.no_sync_missing",
    layer: "framework",
    what: "Gradients are exchanged after every micro-batch although the optimizer steps once for several.",
    why: "All exchanges but the last are thrown away with the next accumulation: several times the traffic.",
    remedy: "model.no_sync() around forward AND backward of all micro-batches but the last (Accelerator.accumulate does \
             it); around the backward pass alone it has no effect",
    refuted_by: "as many groups of all-reduces as optimizer steps in a trace",
};

const DEBUGGER: Explanation = Explanation {
    id: "cpu.debugger_attached",
    layer: "framework",
    what: "A debugger or tracer is attached to the training process.",
    why: "It is called on every line or function of Python, which makes launching many times slower.",
    remedy: "run without the debugger (debugpy, pydevd, pdb, coverage) when measuring",
    refuted_by: "sys.gettrace() returning None in the process",
};

impl Rule for Distributed {
    fn explanations(&self) -> &'static [Explanation] {
        &[STRIDES, UNUSED, NO_SYNC, DEBUGGER]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let checks = [strides, unused, no_sync, recompile, debugger];
        checks.iter().filter_map(|check| check(job)).collect()
    }
}

/// Sizes and strides of a gradient and of its bucket differ in memory: strides over dimensions of size 1 do not count.
fn differs(text: &str) -> bool {
    let lists: Vec<Vec<i64>> = text
        .split("; ")
        .map(|list| list.split(',').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let [sizes, own, other_sizes, other] = &lists[..] else { return false };
    sizes == other_sizes
        && own.len() == sizes.len()
        && other.len() == sizes.len()
        && (0..sizes.len()).any(|at| sizes[at] != 1 && own[at] != other[at])
}

fn strides(job: &Job) -> Option<Finding> {
    let real = texts(job, "ddp.grad_strides", differs);
    real.first()?;
    let who = counted(real.len(), "gradient lies", "gradients lie");
    let title = format!("{who} in another order than the bucket");
    let mut finding = STRIDES.finding(Severity::Slow, title);
    quote(job, &mut finding, &real, 3);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("memory_format=torch.channels_last".to_owned());
    Some(finding)
}

fn unused(job: &Job) -> Option<Finding> {
    let said = texts(job, "torch.warning", |text| text.starts_with("find_unused_parameters=True"));
    said.first()?;
    let title =
        "DistributedDataParallel searches for unused parameters in every step, and there are none";
    let mut finding = UNUSED.finding(Severity::Slow, title);
    quote(job, &mut finding, &said, 2);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("find_unused_parameters=False".to_owned());
    Some(finding)
}

fn no_sync(job: &Job) -> Option<Finding> {
    let mut best: Option<(f64, f64, Found)> = None;
    for row in rows(job, "table.row") {
        let with = row.numbers().find(|(key, _)| key.ends_with("cell.no_sync"));
        let without = row.numbers().find(|(key, _)| key.ends_with("cell.baseline"));
        if let (Some((_, with)), Some((_, without))) = (with, without)
            && without > 1.1 * with
            && best.is_none_or(|(gain, ..)| without - with > gain)
        {
            best = Some((without - with, without / with.max(1e-9), row.name));
        }
    }
    let (gain, factor, found) = best?;
    let title = format!(
        "gradients are exchanged after every micro-batch: no_sync is {factor:.1} times as fast ({})",
        found.text()
    );
    let mut finding = NO_SYNC.finding(Severity::Slow, title);
    quote(job, &mut finding, [&found], 1);
    let same: Vec<Found> =
        all(job, "table.row").into_iter().filter(|f| f.input == found.input).collect();
    quote(job, &mut finding, &same, 3);
    // Tables of batch times are in seconds, as long as they lie in that range.
    if gain < 60.0 {
        let estimate = gain * 1e3;
        finding.cost = Some(Cost { estimate, low: estimate, high: estimate, by: CostBy::Log });
    }
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("model.no_sync()".to_owned());
    Some(finding)
}

fn recompile(job: &Job) -> Option<Finding> {
    let said = texts(job, "torch.warning", |text| {
        text.starts_with("torch._dynamo hit config.")
            && (text.contains("recompile_limit") || text.contains("cache_size_limit"))
    });
    said.first()?;
    let title = "the graph compiler recompiled a function until its limit and gave up on it";
    let mut finding = tuning::RECOMPILE.finding(Severity::Slow, title);
    quote(job, &mut finding, &said, 1);
    quote(job, &mut finding, &all(job, "compile.reason"), 2);
    finding.confidence = Confidence::High;
    Some(finding)
}

fn debugger(job: &Job) -> Option<Finding> {
    let mut said = texts(job, "torch.warning", |text| text.starts_with("Debugger warning"));
    said.extend(all(job, "traceback.debugger"));
    said.extend(texts(job, "env", |text| text.starts_with("PYDEVD_")));
    said.first()?;
    let title = "a debugger is attached to the training process";
    let mut finding = DEBUGGER.finding(Severity::Slow, title);
    quote(job, &mut finding, &said, 2);
    Some(finding)
}
