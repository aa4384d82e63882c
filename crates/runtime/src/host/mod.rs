//! The host device: carries out a plan on the processor's cores.

pub mod kernels;
