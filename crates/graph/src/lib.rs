//! The training step as data: one typed graph of operators and collectives.

pub mod random;
