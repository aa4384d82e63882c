//! `counterpoint train`: from a recipe to a trained model in the run's folder. Knows no model and no kernel.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ::diagnose::wording::counted;
use ::plan::Plan;
use ::train::{
    Error,
    checkpoint::{self, Snapshot},
    data::{Dataset, Part, format},
    recipe::Recipe,
    run::{Job, Outcome, run as carry_out},
    weights,
};
use anyhow::{Context, Result};

use crate::{failure::Mistake, folder, model, output, planning, progress::Progress, summary};

/// Arguments of `counterpoint train`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint train recipes/tiny-gpt.toml
  counterpoint train recipes/tiny-gpt.toml --set train.steps=200 --set parallel.ranks=1
  counterpoint train --resume runs/tiny-gpt
  counterpoint train recipes/tiny-gpt.toml --out /tmp/run --json

The run's folder holds recipe.toml, plan.json, metrics.jsonl, timeline.json, summary.json and checkpoints/.
Ctrl-C ends the run after the step under way, with a checkpoint; a second one ends it at once.")]
pub struct Arguments {
    /// The recipe, a TOML file; with --resume the run's own where left out.
    recipe: Option<PathBuf>,
    /// Overrides one key; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Goes on from a run's folder (its newest checkpoint) or from one checkpoint.
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// The run's folder instead of output.folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Exit status after a second Ctrl-C: 128 and the signal's number, as shells have it.
const INTERRUPTED: i32 = 130;

/// Trains.
///
/// # Errors
/// Mistakes in recipe, data or checkpoint; what went wrong on the way.
pub fn run(arguments: &Arguments) -> Result<()> {
    let snapshot = arguments.resume.as_deref().map(checkpoint::load).transpose()?;
    let recipe = read_recipe(arguments)?;
    let network = model::model(&recipe)?;
    let description = model::description(&recipe);
    if let (Some(snapshot), Some(path)) = (&snapshot, &arguments.resume) {
        fits(path, snapshot, &description, &recipe)?;
    }
    let initial = match (&snapshot, &recipe.model.weights) {
        (None, Some(path)) => Some(weights::read(path)?),
        _ => None,
    };
    let length = network.context();
    let (train, validation) = datasets(&recipe, length, network.vocabulary())?;
    let plan = Arc::new(planning::for_host(&recipe, network.as_ref())?);
    planning::check_memory(&recipe, &plan)?;
    let folder = choose_folder(arguments, &recipe)?;
    let _lock = folder::lock(&folder)?;
    record_inputs(&folder, &recipe, &plan)?;

    let stop = listen_for_interrupts()?;
    let communicators = runtime::in_process::world(plan.ranks, planning::link(&recipe));
    let device = runtime::host::HostDevice::for_ranks(plan.ranks);
    let prompt = recipe.output.sample_prompt.clone().filter(|_| recipe.data.format == "text-bytes");
    let tokens: Option<Vec<i32>> =
        prompt.as_ref().map(|text| text.bytes().map(i32::from).collect());
    let progress =
        Progress::new(&folder, &recipe, snapshot.as_ref().map(|snapshot| snapshot.manifest.step))?;
    let job = Job {
        recipe: &recipe,
        model: description,
        plan,
        device: &device,
        train,
        validation,
        resume: snapshot,
        initial,
        folder: &folder,
        record: true,
        stop,
    };
    let outcome = carry_out(&job, communicators, tokens.as_deref(), &progress);
    let recording = progress.finish();
    let outcome = outcome.map_err(|error| name_file(error, arguments, &recipe))?;
    let summary = summary::Summary::new(&folder, &outcome, &recording, prompt.as_deref());
    summary.save(&folder, recording.timeline)?;
    announce(&outcome);
    output::result(&if arguments.json { summary.json() } else { summary.text() })
}

/// Set by the first Ctrl-C; the second ends the process, whatever it is waiting for.
fn listen_for_interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            output::say("stopped; earlier checkpoints are whole");
            #[expect(clippy::exit, reason = "files appear whole or not at all: nothing is lost")]
            std::process::exit(INTERRUPTED);
        }
        output::say("stopping after this step; a checkpoint follows. Ctrl-C again stops at once");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

/// Tensors that do not fit are a matter of the file they come from.
fn name_file(error: Error, arguments: &Arguments, recipe: &Recipe) -> Error {
    match (error, arguments.resume.as_ref().or(recipe.model.weights.as_ref())) {
        (Error::Mismatch(message), Some(path)) => Error::checkpoint(path, message),
        (error, _) => error,
    }
}

fn announce(outcome: &Outcome) {
    if outcome.stopped {
        output::say(&format!("stopped after {}", counted(outcome.steps, "step", "steps")));
    }
}

fn read_recipe(arguments: &Arguments) -> Result<Recipe> {
    let path = match (&arguments.recipe, &arguments.resume) {
        (Some(recipe), _) => recipe.clone(),
        (None, Some(resume)) => {
            folder::of_checkpoint(&checkpoint::find(resume)?).join(folder::RECIPE)
        }
        (None, None) => {
            return Err(Mistake(
                "no recipe: expected a TOML file such as recipes/tiny-gpt.toml, or --resume"
                    .to_owned(),
            )
            .into());
        }
    };
    Ok(Recipe::read(&path, &arguments.set, &model::families())?)
}

fn fits(
    path: &Path,
    snapshot: &Snapshot,
    description: &std::collections::BTreeMap<String, serde_json::Value>,
    recipe: &Recipe,
) -> Result<()> {
    if let Some(difference) = snapshot.manifest.difference(description) {
        return Err(Error::checkpoint(path, difference).into());
    }
    let (done, steps) = (snapshot.manifest.step, recipe.train.steps);
    if done > steps {
        let message = format!("found {steps}, but {} has done {done} steps", path.display());
        return Err(recipe.problem("train.steps", message).into());
    }
    if done == steps {
        output::say(&format!("all {steps} steps are done"));
    }
    Ok(())
}

fn datasets(
    recipe: &Recipe,
    length: usize,
    vocabulary: usize,
) -> Result<(Arc<Dataset>, Arc<Dataset>)> {
    let data = &recipe.data;
    let format = format(&data.format).context("the schema admits only known formats")?;
    let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
    let open = |paths, part| Dataset::open(format, paths, part, length, vocabulary).map(Arc::new);
    Ok(if data.validation.is_empty() {
        (open(&data.train, Part::Without(data.split))?, open(&data.train, Part::Last(data.split))?)
    } else {
        (open(&data.train, Part::Whole)?, open(&data.validation, Part::Whole)?)
    })
}

fn choose_folder(arguments: &Arguments, recipe: &Recipe) -> Result<PathBuf> {
    let resumed = arguments.resume.as_deref().map(checkpoint::find).transpose()?;
    match (&arguments.out, resumed) {
        (Some(out), Some(_)) => folder::create(out),
        (Some(out), None) => folder::create_new(out),
        (None, Some(checkpoint)) => folder::create(&folder::of_checkpoint(&checkpoint)),
        (None, None) => folder::create_next(&recipe.folder()),
    }
}

fn record_inputs(folder: &Path, recipe: &Recipe, plan: &Plan) -> Result<()> {
    weights::write_text(&folder.join(folder::RECIPE), &recipe.portable())?;
    weights::write_text(&folder.join(folder::PLAN), &(plan.to_json()? + "\n"))?;
    Ok(())
}
