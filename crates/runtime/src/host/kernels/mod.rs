//! Kernels of the host device: functions on slices and strided views, one file per family of operators.
//!
//! They know shapes and strides, not nodes, plans, ranks or buffers.

pub mod attention;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod gelu;
pub mod layer_norm;
pub mod linear;
pub mod matrix;
pub mod microkernel;
pub mod real;
pub mod reduce;
pub mod rows;
pub mod softmax;
pub mod strided;
pub mod workers;
