//! The harness of `counterpoint-bench` and the references that results are held against. Knows no particular
//! measurement: those are the binary's programs.

pub mod engines;
pub mod harness;
pub mod reference;
