//! Convolutions, attention and what is fused with them, through cuDNN's graph interface.
//!
//! A [`Graph`] of tensors and operations is finished into an [`OperationGraph`] for a [`Place`]: a device, or a
//! device's properties where there is none. The library's heuristics propose [`EngineConfig`]s, one of them becomes
//! a [`Plan`], and a plan bound to addresses runs. Layouts are strides: nothing here assumes NCHW or NHWC.
//!
//! Knows no models and no choice among candidates.

mod attention;
mod calls;
mod descriptor;
mod graph;
mod operations;
mod place;
mod plan;

pub use self::{
    attention::{AttentionBackward, AttentionForward, AttentionShape, Window},
    graph::{Graph, Tensor, TensorDescription},
    operations::{BatchNormGradient, Convolution, Pointwise, Reduction},
    place::{DeviceProperties, Handle, Place},
    plan::{Bound, EngineConfig, EngineFacts, Heuristic, OperationGraph, Plan},
};
use crate::Result;

/// cuDNN's version number, for example 91900. Needs no device.
pub fn version() -> Result<usize> {
    let cudnn = calls::Cudnn::get()?;
    // SAFETY: takes nothing.
    Ok(unsafe { (cudnn.cudnnGetVersion)() })
}
