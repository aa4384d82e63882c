//! What a person may choose about a plan. Knows no recipe format.

use graph::DType;
use serde::{Deserialize, Serialize};

/// How ranks share the work of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// One rank.
    #[default]
    None,
    /// Every rank holds all states; gradients are all-reduced.
    Ddp,
    /// Optimizer states are sharded: reduce-scatter, update of the shard, all-gather.
    Zero1,
}

/// Which elements the loss is averaged over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossMean {
    /// Sum over all counted elements of the step, divided by their number over all ranks and micro-steps.
    #[default]
    Global,
    /// The mean of each rank's own mean, as PyTorch's DistributedDataParallel does.
    Local,
}

/// Element types of a mixed-precision program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// Type of matrix products and most values.
    pub compute: DType,
    /// Type of the residual stream.
    pub residual: DType,
    /// Type in which gradients are kept in their slots and reduced.
    pub gradient: DType,
}

impl Default for Precision {
    fn default() -> Precision {
        Precision { compute: DType::F32, residual: DType::F32, gradient: DType::F32 }
    }
}

/// Dynamic loss scaling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// First scale, a power of two.
    pub initial: f64,
    /// Steps without a skip after which the scale doubles.
    pub growth_interval: u64,
}

/// A set of parameters that share hyperparameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterGroup {
    /// Suffixes of parameter names that belong here; empty takes all that no earlier group took.
    pub name_endings: Vec<String>,
    /// Least number of axes of a parameter that belongs here.
    pub at_least_axes: usize,
    /// Weight decay.
    pub weight_decay: f64,
    /// Factor on the learning rate.
    pub learning_rate_scale: f64,
}

impl Default for ParameterGroup {
    fn default() -> ParameterGroup {
        ParameterGroup {
            name_endings: vec![],
            at_least_axes: 0,
            weight_decay: 0.0,
            learning_rate_scale: 1.0,
        }
    }
}

/// Everything planning may be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Number of ranks.
    pub ranks: usize,
    /// How ranks share the work.
    pub strategy: Strategy,
    /// Micro-steps per step.
    pub accumulation: usize,
    /// What the loss is averaged over.
    pub loss_mean: LossMean,
    /// Element types.
    pub precision: Precision,
    /// Dynamic loss scaling; `None` without.
    pub loss_scale: Option<LossScale>,
    /// Largest 2-norm of the whole gradient; `None` without clipping.
    pub clip_norm: Option<f64>,
    /// Whether a step whose gradient is not finite leaves every state as it was.
    pub skip_not_finite: bool,
    /// Bytes of gradients per bucket.
    pub bucket_bytes: usize,
    /// Bytes of the bucket that is ready first.
    pub first_bucket_bytes: usize,
    /// Bytes of the bucket that is ready last.
    pub last_bucket_bytes: usize,
    /// Whether collectives run on lanes of their own, beside computing.
    pub overlap: bool,
    /// Parameter groups, the first match counts.
    pub groups: Vec<ParameterGroup>,
    /// Passes left out, by name.
    pub without: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ranks: 1,
            strategy: Strategy::None,
            accumulation: 1,
            loss_mean: LossMean::Global,
            precision: Precision::default(),
            loss_scale: None,
            clip_norm: None,
            skip_not_finite: false,
            bucket_bytes: 32 << 20,
            first_bucket_bytes: 4 << 20,
            last_bucket_bytes: 4 << 20,
            overlap: true,
            groups: vec![],
            without: vec![],
        }
    }
}
