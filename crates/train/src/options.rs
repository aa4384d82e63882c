//! What a recipe means for planning: options and the optimizer. Knows no model.

use graph::DType;
use plan::options::{LossMean, LossScale, Options, ParameterGroup, Precision, Strategy};

use crate::recipe::{self, Recipe};

/// Steps without overflow after which a dynamic loss scale doubles, as in PyTorch's GradScaler.
const GROWTH_INTERVAL: u64 = 2000;

/// The options of a recipe.
pub fn options(recipe: &Recipe) -> Options {
    let parallel = &recipe.parallel;
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Options {
        ranks: size(parallel.ranks),
        strategy: match parallel.strategy {
            recipe::Strategy::None => Strategy::None,
            recipe::Strategy::Ddp => Strategy::Ddp,
            recipe::Strategy::Zero1 => Strategy::Zero1,
        },
        accumulation: size(recipe.train.accumulation),
        loss_mean: match recipe.train.loss_mean {
            recipe::LossMean::Global => LossMean::Global,
            recipe::LossMean::Local => LossMean::Local,
        },
        precision: Precision {
            compute: dtype(&recipe.precision.compute),
            residual: dtype(&recipe.precision.residual),
            ..Precision::default()
        },
        loss_scale: match recipe.precision.loss_scale {
            recipe::LossScale::None => None,
            recipe::LossScale::Fixed(initial) => {
                Some(LossScale { initial, growth_interval: i64::MAX as u64 })
            }
            recipe::LossScale::Dynamic(initial) => {
                Some(LossScale { initial, growth_interval: GROWTH_INTERVAL })
            }
        },
        clip_norm: recipe.train.clip_norm,
        // A step that is not finite never reaches the parameters; the policy decides what the loop does then.
        skip_not_finite: true,
        bucket_bytes: if parallel.overlap { size(parallel.bucket_bytes) } else { usize::MAX },
        first_bucket_bytes: if parallel.overlap {
            size(parallel.first_bucket_bytes)
        } else {
            usize::MAX
        },
        last_bucket_bytes: if parallel.overlap {
            size(parallel.last_bucket_bytes)
        } else {
            usize::MAX
        },
        overlap: parallel.overlap,
        groups: groups(&recipe.optimizer),
        ..Options::default()
    }
}

fn groups(optimizer: &recipe::Optimizer) -> Vec<ParameterGroup> {
    let rest = recipe::Group::default();
    optimizer
        .groups
        .iter()
        .chain([&rest])
        .map(|group| ParameterGroup {
            name_endings: group.endings.clone(),
            at_least_axes: usize::try_from(group.at_least_axes).unwrap_or(usize::MAX),
            weight_decay: group.weight_decay.unwrap_or(optimizer.weight_decay),
            learning_rate_scale: group.learning_rate_scale.unwrap_or(1.0),
        })
        .collect()
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap_or(DType::F32)
}
