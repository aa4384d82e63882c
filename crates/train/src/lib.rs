//! Data, recipe, loop, checkpoints and metrics of a training run.
