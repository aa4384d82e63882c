//! NVIDIA libraries by run-time loading behind safe types: the only crate with unsafe code.
//!
//! Nothing here needs CUDA to build. A library or a symbol that is missing at run time is an [`Error`] that
//! names what was looked for and where. The bindings' types and constants come from `cudarc`'s `sys` modules;
//! its loader is not used, because it opens libraries by bare name and panics where one is missing.
//!
//! Knows no models and no recipes.

pub mod cublaslt;
pub mod cudnn;
pub mod cupti;
mod data_type;
pub mod driver;
mod driver_calls;
mod error;
pub mod graph;
pub mod kernels;
pub mod library;
pub mod memory;
pub mod module;
pub mod nccl;
pub mod nvrtc;

pub use data_type::DataType;
pub use error::{Error, Result};
