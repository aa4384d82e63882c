//! The sections of a recipe as types, built from checked values, and the relations between keys.
//! Knows no TOML.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    Origin, Recipe, Resolved,
    schema::{Group, Value},
};
use crate::{Error, Problem};

/// `[model]`: the family and what it says about itself.
#[derive(Debug, Clone)]
pub struct Model {
    /// Word of the family.
    pub family: String,
    /// The family's own keys without `model.`.
    pub settings: BTreeMap<String, Value>,
    /// A safetensors file with initial values.
    pub weights: Option<PathBuf>,
}

/// `[data]`.
#[derive(Debug, Clone)]
pub struct Data {
    /// Name of a format in [`crate::data::FORMATS`].
    pub format: String,
    /// Files or patterns to train on.
    pub train: Vec<PathBuf>,
    /// Files or patterns to validate on; empty: the end of the training files.
    pub validation: Vec<PathBuf>,
    /// Part of each training file kept for validation when `validation` is empty.
    pub split: f64,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Micro-batches ready per rank.
    pub prefetch: usize,
}

/// `[train]`.
#[derive(Debug, Clone)]
pub struct Training {
    /// Samples per step over all ranks and micro-steps.
    pub batch: u64,
    /// Micro-steps per step.
    pub accumulation: u64,
    /// Steps of the run.
    pub steps: u64,
    /// Seed.
    pub seed: u64,
    /// Largest global gradient norm.
    pub clip_norm: Option<f64>,
    /// What the loss is divided by.
    pub loss_mean: LossMean,
    /// Policy for values that are not finite.
    pub nan: NotFinite,
}

/// What the summed loss is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossMean {
    /// Counted labels of all ranks and micro-steps.
    Global,
    /// Counted labels of the micro-batch, then the ranks and micro-steps: PyTorch DDP's.
    Local,
}

/// Policy for values that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFinite {
    /// End the run with the state before the step.
    Stop,
    /// Leave the parameters as they are and go on.
    Skip,
}

/// `[optimizer]`.
#[derive(Debug, Clone)]
pub struct Optimizer {
    /// The rule with its numbers.
    pub kind: OptimizerKind,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Decay outside groups.
    pub weight_decay: f64,
    /// Groups by pattern.
    pub groups: Vec<Group>,
}

/// Update rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added outside the square root.
        epsilon: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum.
        momentum: f64,
        /// Nesterov's form.
        nesterov: bool,
    },
}

/// `[schedule]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Course after the warm-up.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Learning rate at the last step as a part of the highest.
    pub final_part: f64,
}

/// Course of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleKind {
    /// Always the highest.
    Constant,
    /// A straight line to the final part.
    Linear,
    /// Half a cosine to the final part.
    Cosine,
}

impl Schedule {
    /// Factor on the highest learning rate for `step`, counted from 0, of `steps`.
    ///
    /// Warm-up: (step + 1) / warmup. Then, with p = (step - warmup) / (steps - warmup), linear: 1 - (1 - final) p;
    /// cosine: final + (1 - final) (1 + cos(pi p)) / 2.
    pub fn factor(&self, step: u64, steps: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "step numbers are far below 2^52")]
        let part = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        if step < self.warmup {
            return part(step + 1, self.warmup);
        }
        let done = part(step - self.warmup, steps.saturating_sub(self.warmup)).min(1.0);
        let rest = match self.kind {
            ScheduleKind::Constant => return 1.0,
            ScheduleKind::Linear => 1.0 - done,
            ScheduleKind::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        self.final_part + (1.0 - self.final_part) * rest
    }
}

/// `[parallel]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// Ranks in this process.
    pub ranks: u64,
    /// What they share.
    pub strategy: Strategy,
    /// Size of a bucket in bytes.
    pub bucket_bytes: u64,
    /// Size of the bucket ready first in bytes.
    pub first_bucket_bytes: u64,
    /// Size of the bucket ready last in bytes.
    pub last_bucket_bytes: u64,
    /// Communication beside the backward pass.
    pub overlap: bool,
    /// Latency of the modelled link in microseconds.
    pub link_latency_us: f64,
    /// Throughput of the modelled link in bytes per second; 0: unlimited.
    pub link_bytes_per_second: f64,
}

/// What data-parallel ranks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing.
    None,
    /// All-reduce of gradients.
    Ddp,
    /// Reduce-scatter of gradients, sharded optimizer, all-gather of parameters.
    Zero1,
}

/// `[precision]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Precision {
    /// `f32`, `bf16` or `f16`.
    pub compute: String,
    /// Type of the residual stream.
    pub residual: String,
    /// Loss scaling.
    pub loss_scale: LossScale,
}

/// Loss scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossScale {
    /// Factor 1.
    None,
    /// Always this factor.
    Fixed(f64),
    /// Starts at this factor, halves on overflow, doubles after 2000 good steps.
    Dynamic(f64),
}

/// `[validation]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Steps between validations; 0: only at the end.
    pub every: u64,
    /// Batches per validation.
    pub batches: u64,
}

/// `[checkpoint]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0: only at the end.
    pub every: u64,
    /// Checkpoints kept.
    pub keep: usize,
}

/// `[output]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The run's folder.
    pub folder: PathBuf,
    /// Text the trained model continues.
    pub sample_prompt: Option<String>,
    /// Tokens of the sample.
    pub sample_tokens: u64,
}

/// Builds the sections; `path` is the recipe's file.
pub(super) fn build(resolved: Resolved, path: &Path) -> Result<Recipe, Error> {
    let get = Getter { resolved: &resolved, folder: path.parent().unwrap_or(Path::new("")) };
    let own = |key: &str| {
        key.strip_prefix("model.")
            .filter(|key| !["family", "preset", "weights"].contains(key))
            .map(str::to_owned)
    };
    let model = Model {
        family: get.text("model.family"),
        settings: resolved
            .values
            .iter()
            .filter_map(|(key, (value, _))| Some((own(key)?, value.clone())))
            .collect(),
        weights: get
            .optional_text("model.weights")
            .map(|text| get.anchored("model.weights", &text)),
    };
    let train = Training {
        batch: get.unsigned("train.batch"),
        accumulation: get.unsigned("train.accumulation"),
        steps: get.unsigned("train.steps"),
        seed: get.unsigned("train.seed"),
        clip_norm: get.optional_number("train.clip_norm"),
        loss_mean: if get.text("train.loss_mean") == "local" {
            LossMean::Local
        } else {
            LossMean::Global
        },
        nan: if get.text("train.nan") == "skip" { NotFinite::Skip } else { NotFinite::Stop },
    };
    let optimizer = Optimizer {
        kind: match get.text("optimizer.name").as_str() {
            "sgd" => OptimizerKind::Sgd {
                momentum: get.number("optimizer.momentum"),
                nesterov: get.boolean("optimizer.nesterov"),
            },
            _ => OptimizerKind::AdamW {
                beta1: get.number("optimizer.beta1"),
                beta2: get.number("optimizer.beta2"),
                epsilon: get.number("optimizer.epsilon"),
            },
        },
        learning_rate: get.number("optimizer.learning_rate"),
        weight_decay: get.number("optimizer.weight_decay"),
        groups: match get.value("optimizer.groups") {
            Some(Value::Groups(groups)) => groups.clone(),
            _ => vec![],
        },
    };
    let schedule = Schedule {
        kind: match get.text("schedule.name").as_str() {
            "constant" => ScheduleKind::Constant,
            "linear" => ScheduleKind::Linear,
            _ => ScheduleKind::Cosine,
        },
        warmup: get.unsigned("schedule.warmup"),
        final_part: get.number("schedule.final"),
    };
    let parallel = Parallel {
        ranks: get.unsigned("parallel.ranks"),
        strategy: match get.text("parallel.strategy").as_str() {
            "none" => Strategy::None,
            "zero1" => Strategy::Zero1,
            _ => Strategy::Ddp,
        },
        bucket_bytes: get.unsigned("parallel.bucket_bytes"),
        first_bucket_bytes: get.unsigned("parallel.first_bucket_bytes"),
        last_bucket_bytes: get.unsigned("parallel.last_bucket_bytes"),
        overlap: get.boolean("parallel.overlap"),
        link_latency_us: get.number("parallel.link.latency_us"),
        link_bytes_per_second: get.number("parallel.link.bytes_per_second"),
    };
    let initial = get.number("precision.initial_scale");
    let precision = Precision {
        compute: get.text("precision.compute"),
        residual: get.text("precision.residual"),
        loss_scale: match get.text("precision.loss_scale").as_str() {
            "fixed" => LossScale::Fixed(initial),
            "dynamic" => LossScale::Dynamic(initial),
            _ => LossScale::None,
        },
    };
    let name = path
        .file_stem()
        .map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let data = Data {
        format: get.text("data.format"),
        train: get.paths("data.train"),
        validation: get.paths("data.validation"),
        split: get.number("data.split"),
        shuffle: get.boolean("data.shuffle"),
        prefetch: usize::try_from(get.unsigned("data.prefetch")).unwrap_or(1),
    };
    let output = Output {
        folder: get
            .optional_text("output.folder")
            .map_or_else(|| Path::new("runs").join(name), PathBuf::from),
        sample_prompt: get.optional_text("output.sample_prompt"),
        sample_tokens: get.unsigned("output.sample_tokens"),
    };
    let validation = Validation {
        every: get.unsigned("validation.every"),
        batches: get.unsigned("validation.batches"),
    };
    let keep = usize::try_from(get.unsigned("checkpoint.keep")).unwrap_or(usize::MAX);
    let checkpoint = Checkpoint { every: get.unsigned("checkpoint.every"), keep };
    let recipe = Recipe {
        model,
        data,
        train,
        optimizer,
        schedule,
        parallel,
        precision,
        validation,
        checkpoint,
        output,
        resolved,
    };
    let problems = relations(&recipe);
    if problems.is_empty() { Ok(recipe) } else { Err(Error::Recipe(problems)) }
}

/// What single values cannot say.
fn relations(recipe: &Recipe) -> Vec<Problem> {
    let mut problems = vec![];
    let mut say = |key: &str, message: String| {
        problems.push(Problem {
            place: recipe.resolved().place(key),
            key: key.to_owned(),
            message,
        });
    };
    let (batch, ranks, micro) =
        (recipe.train.batch, recipe.parallel.ranks, recipe.train.accumulation);
    if batch % (ranks * micro) != 0 {
        say(
            "train.batch",
            format!(
                "found {batch}, expected a multiple of parallel.ranks x train.accumulation = {ranks} x {micro} = {}",
                ranks * micro
            ),
        );
    }
    if ranks > 1 && recipe.parallel.strategy == Strategy::None {
        say(
            "parallel.strategy",
            format!("found \"none\" with {ranks} ranks, expected \"ddp\" or \"zero1\""),
        );
    }
    if recipe.data.validation.is_empty() && recipe.data.split <= 0.0 {
        say(
            "data.split",
            "found 0 without data.validation, expected a part above 0 or data.validation"
                .to_owned(),
        );
    }
    let precision = &recipe.precision;
    if precision.residual != "f32" && precision.residual != precision.compute {
        let expected = match precision.compute.as_str() {
            "f32" => "\"f32\"".to_owned(),
            compute => format!("\"f32\" or {compute:?}"),
        };
        say(
            "precision.residual",
            format!(
                "found {:?} with precision.compute = {:?}, expected {expected}",
                precision.residual, precision.compute
            ),
        );
    }
    // Multiplying by a power of two and dividing by it again changes no bit of a gradient.
    if let LossScale::Fixed(scale) | LossScale::Dynamic(scale) = precision.loss_scale
        && scale.log2().fract() != 0.0
    {
        say(
            "precision.initial_scale",
            format!(
                "found {scale}, expected a power of two; nearest: {}",
                scale.log2().round().exp2()
            ),
        );
    }
    let rate = recipe.parallel.link_bytes_per_second;
    // Below this the smallest bucket takes longer than a run is waited for, and looks like a hang.
    if rate > 0.0 && rate < 1000.0 {
        say(
            "parallel.link.bytes_per_second",
            format!("found {rate}, expected 0 (unlimited) or at least 1000"),
        );
    }
    problems
}

/// Typed access to values that the schema has checked; a kind that the schema rules out gives the type's zero.
struct Getter<'a> {
    resolved: &'a Resolved,
    folder: &'a Path,
}

impl Getter<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.resolved.values.get(key).map(|(value, _)| value)
    }

    fn unsigned(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Integer(value)) => u64::try_from(*value).unwrap_or(0),
            _ => 0,
        }
    }

    fn optional_number(&self, key: &str) -> Option<f64> {
        match self.value(key) {
            Some(Value::Number(value)) => Some(*value),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> f64 {
        self.optional_number(key).unwrap_or(0.0)
    }

    fn boolean(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Value::Boolean(true)))
    }

    fn optional_text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> String {
        self.optional_text(key).unwrap_or_default()
    }

    fn paths(&self, key: &str) -> Vec<PathBuf> {
        match self.value(key) {
            Some(Value::Paths(paths)) => {
                paths.iter().map(|path| self.anchored(key, path)).collect()
            }
            _ => vec![],
        }
    }

    /// Paths in a file start at the file's folder, paths on the command line where the command runs.
    fn anchored(&self, key: &str, path: &str) -> PathBuf {
        match self.resolved.values.get(key) {
            Some((_, Origin::Line(_))) => self.folder.join(path),
            _ => PathBuf::from(path),
        }
    }
}
