//! A training run: ranks as threads that carry out one plan, with validation, checkpoints, policies and a summary.
//!
//! Knows recipes, plans and data; knows no particular model, no device and no terminal: an [`Observer`] is told what happens.

mod control;
mod feed;
mod rank;
pub mod states;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use plan::Plan;
use runtime::{Communicator, Device, RuntimeError};

use crate::{
    Error,
    checkpoint::{Manifest, Snapshot},
    data::Dataset,
    recipe::Recipe,
    weights::StoredTensors,
};
use control::Control;
pub(crate) use feed::integers;

/// What a run needs.
pub struct Job<'a> {
    /// What the person asked for.
    pub recipe: &'a Recipe,
    /// The `[model]` section as manifests keep it.
    pub model: std::collections::BTreeMap<String, serde_json::Value>,
    /// The plan that every rank carries out.
    pub plan: Arc<Plan>,
    /// Where.
    pub device: &'a dyn Device,
    /// Samples to train on.
    pub train: Arc<Dataset>,
    /// Samples to validate on.
    pub validation: Arc<Dataset>,
    /// Where to go on.
    pub resume: Option<Snapshot>,
    /// Initial parameters instead of the model's own.
    pub initial: Option<StoredTensors>,
    /// The run's folder; checkpoints appear in it.
    pub folder: &'a Path,
    /// Whether every step is recorded for the account and the timeline.
    pub record: bool,
    /// Set from outside to end the run after the step under way.
    pub stop: Arc<AtomicBool>,
}

/// One finished step, the same on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Steps done.
    pub step: u64,
    /// Loss per counted element.
    pub loss: f64,
    /// Highest learning rate of the step.
    pub learning_rate: f64,
    /// 2-norm of the gradient, where the plan computes it.
    pub gradient_norm: Option<f64>,
    /// Whether the update was left out because a gradient was not finite.
    pub skipped: bool,
    /// Loss scale after the step, where there is one.
    pub loss_scale: Option<f64>,
    /// Tokens of all ranks in the step.
    pub tokens: u64,
    /// Duration of the step in seconds, from the end of the last to the end of this.
    pub seconds: f64,
}

/// Is told what happens. Everything but [`Observer::timeline`] comes from rank 0.
pub trait Observer: Sync {
    /// The program is loaded and the run begins after this many steps.
    fn started(&self, done: u64);
    /// A step is finished.
    fn step(&self, report: &StepReport);
    /// Validation after `step` steps: loss per counted element.
    fn validated(&self, step: u64, loss: f64);
    /// A checkpoint was written.
    fn saved(&self, step: u64, path: &Path);
    /// A checkpoint could not be written; earlier ones are intact and the run goes on.
    fn not_saved(&self, step: u64, error: &Error);
    /// What one rank recorded since the last call.
    fn timeline(&self, rank: usize, timeline: timeline::Timeline);
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Steps done, over all runs of this folder.
    pub steps: u64,
    /// Whether the run was ended from outside before its last step.
    pub stopped: bool,
    /// The last checkpoint of this run.
    pub checkpoint: Option<PathBuf>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Loss of the last validation.
    pub validation: Option<f64>,
    /// Tokens that followed the prompt, where the caller asked for a sample.
    pub sample: Vec<i32>,
}

/// Carries the run out on one thread per communicator, rank 0 first; `prompt` asks for a sample at the end.
///
/// # Errors
/// What a rank met first: data that cannot be read, a device that fails, [`Error::NotANumber`] under the policy `stop`, a last
/// checkpoint that cannot be written.
pub fn run(
    job: &Job<'_>,
    communicators: Vec<Box<dyn Communicator>>,
    prompt: Option<&[i32]>,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let control = Control::new(job.stop.clone());
    let results: Vec<Result<Outcome, Error>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = communicators
            .into_iter()
            .map(|communicator| {
                let control = &control;
                let rank = communicator.rank();
                std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(
                    scope,
                    move || {
                        let result = rank::run(job, communicator, prompt, control, observer);
                        if result.is_err() {
                            control.fail();
                        }
                        result
                    },
                )
            })
            .collect();
        ranks
            .into_iter()
            .map(|thread| match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(Error::Internal("a rank's thread panicked".to_owned())),
                Err(error) => {
                    Err(Error::Internal(format!("cannot start a rank's thread: {error}")))
                }
            })
            .collect()
    });
    let mut outcome = Err(Error::Internal("there are no ranks".to_owned()));
    let mut failure: Option<Error> = None;
    for result in results.into_iter().rev() {
        match result {
            Ok(own) => outcome = Ok(own),
            Err(error) if failure.is_none() || failure.as_ref().is_some_and(is_echo) => {
                failure = Some(error)
            }
            Err(error) if !is_echo(&error) => failure = Some(error),
            Err(_) => {}
        }
    }
    failure.map_or(outcome, Err)
}

/// The failure of one rank makes others fail at their next collective.
fn is_echo(error: &Error) -> bool {
    matches!(error, Error::Device(RuntimeError::RankFailed { .. } | RuntimeError::RankLeft { .. }))
}

/// The manifest of a checkpoint after `step` steps.
fn manifest(job: &Job<'_>, step: u64, position: u64) -> Manifest {
    Manifest::new(step, position, job.recipe.train.seed, job.model.clone())
}
