//! The rewriting passes against the reference evaluation: every pass on and off, one rank against several, micro-steps
//! against one step. Knows programs and numbers, no pass from inside.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod fusing;
mod models;
mod parallel;
mod random;
mod support;
mod training;
