//! Data, recipe, loop, checkpoints and metrics of a training run.
//!
//! Knows neither any particular model (a caller hands over what the `[model]` section may hold) nor any device.

pub mod checkpoint;
pub mod data;
mod error;
pub mod generate;
pub mod loader;
pub mod metrics;
mod options;
pub mod recipe;
pub mod run;
pub mod sampler;
pub mod weights;

pub use error::{Error, Problem};
pub use options::options;
