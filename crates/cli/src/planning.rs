//! From a recipe and its model to a plan for a target, the same way in every command. Knows no pass.

use std::time::Duration;

use anyhow::{Context, Result};
use graph::optim::{AdamW, Optimizer, Sgd};
use models::{LanguageModel, Shapes};
use plan::{Plan, Target, target::Host};
use runtime::in_process::LinkModel;
use train::recipe::{OptimizerKind, Recipe};

use crate::failure::Mistake;

/// The plan of a recipe on the host, with generation.
///
/// # Errors
/// Errors of the trace and of planning.
pub fn for_host(recipe: &Recipe, model: &dyn LanguageModel) -> Result<Plan> {
    for_target(recipe, model, &host(recipe), true)
}

/// Refuses a plan whose buffers are larger than this machine's memory: an allocation of that size would end the program
/// without a word. Where the system does not tell its memory, everything passes.
///
/// # Errors
/// A mistake that names the batch.
pub fn check_memory(recipe: &Recipe, plan: &Plan) -> Result<()> {
    let needed = plan.peak_bytes().saturating_mul(plan.ranks);
    let Some(present) = memory_bytes() else { return Ok(()) };
    if needed <= present {
        return Ok(());
    }
    let gigabytes = |bytes: usize| bytes as f64 / 1e9;
    Err(Mistake(format!(
        "{}: train.batch: {} in {} ranks and {} micro-steps takes {:.1} GB of memory, this machine has {:.1} GB; \
         expected a smaller train.batch or model, or a larger train.accumulation",
        recipe.resolved().place("train.batch"),
        recipe.train.batch,
        recipe.parallel.ranks,
        recipe.train.accumulation,
        gigabytes(needed),
        gigabytes(present),
    ))
    .into())
}

/// This machine's memory, as Linux tells it.
fn memory_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The host as the planner sees it, with the recipe's link.
fn host(recipe: &Recipe) -> Host {
    let mut host = plan::target::host();
    if let Some(link) = link(recipe) {
        host.link_bytes_per_second = link.bytes_per_second;
        host.link_latency_ns = u64::try_from(link.latency.as_nanos()).unwrap_or(u64::MAX);
    }
    host
}

/// The plan of a recipe on a target.
///
/// # Errors
/// Errors of the trace and of planning.
pub fn for_target(
    recipe: &Recipe,
    model: &dyn LanguageModel,
    target: &dyn Target,
    generate: bool,
) -> Result<Plan> {
    let size = |value: u64| usize::try_from(value).context("a size beyond this machine's");
    let micro = recipe.train.batch / (recipe.parallel.ranks * recipe.train.accumulation);
    let shapes = Shapes { batch: size(micro)?, length: model.context(), generate };
    let program = models::program(&graph::ops::registry(), model, shapes)?;
    let optimizer = optimizer(recipe);
    Ok(plan::compile(&program, optimizer.as_ref(), target, &train::options(recipe))?)
}

/// The recipe's optimizer.
pub fn optimizer(recipe: &Recipe) -> Box<dyn Optimizer> {
    match recipe.optimizer.kind {
        OptimizerKind::AdamW { beta1, beta2, epsilon } => Box::new(AdamW { beta1, beta2, epsilon }),
        OptimizerKind::Sgd { momentum, nesterov } => Box::new(Sgd { momentum, nesterov }),
    }
}

/// The recipe's model of the link between ranks.
pub fn link(recipe: &Recipe) -> Option<LinkModel> {
    let parallel = &recipe.parallel;
    let (latency, rate) = (parallel.link_latency_us, parallel.link_bytes_per_second);
    (latency > 0.0 || rate > 0.0).then(|| LinkModel {
        latency: Duration::from_secs_f64(latency / 1e6),
        bytes_per_second: if rate > 0.0 { rate } else { f64::MAX },
    })
}

/// A plan that evaluates and generates, on one rank of the host.
///
/// # Errors
/// Errors of the trace and of planning.
pub fn inference(model: &dyn LanguageModel, shapes: Shapes) -> Result<Plan> {
    let program = models::program(&graph::ops::registry(), model, shapes)?;
    let optimizer = Sgd { momentum: 0.0, nesterov: false };
    Ok(plan::compile(&program, &optimizer, &plan::target::host(), &plan::Options::default())?)
}

/// The target called `name`.
///
/// # Errors
/// A mistake of the person for an unknown name.
pub fn target(name: &str, recipe: &Recipe) -> Result<Box<dyn Target>> {
    match name {
        "host" => Ok(Box::new(host(recipe))),
        "h200" => Ok(Box::new(plan::target::h200())),
        _ => {
            let nearest = train::recipe::nearest(name, &["host", "h200"]);
            let nearest = nearest.map_or_else(String::new, |name| format!("; nearest: {name}"));
            Err(Mistake(format!("--target {name}: expected host or h200{nearest}")).into())
        }
    }
}
