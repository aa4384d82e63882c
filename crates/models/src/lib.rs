//! Building blocks and the model zoo, with PyTorch and Hugging Face parameter names.
//!
//! Knows how models are traced; knows no devices, ranks, recipes or files.

pub mod blocks;
mod error;
mod language;
mod settings;
pub mod zoo;

pub use error::ModelError;
pub use language::{LanguageModel, Shapes, program};
pub use settings::{Family, Kind, Preset, Setting, SettingValue, Settings};
