//! The harness of `counterpoint-bench`. Knows no particular measurement: those are the binary's programs.

pub mod harness;
