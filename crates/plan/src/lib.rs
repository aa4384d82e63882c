//! Decides before the first step: graph to graph, then lanes, waits, windows and memory.
//!
//! Knows nothing of how anything runs: a target answers with data, a device loads the finished plan.

mod compile;
mod error;
mod file;
mod ir;
pub mod options;
mod print;
pub mod rewrite;
pub mod schedule;
pub mod target;

pub use compile::{PassInfo, compile, passes};
pub use error::PlanError;
pub use ir::{
    Arena, Buffer, BufferId, BufferKind, FunctionPlan, Lane, Plan, StatePlacement, Step, StepId,
    Window,
};
pub use options::Options;
pub use print::Table;
pub use schedule::{Prediction, padding};
pub use target::{Candidate, Curves, MemoryModel, Request, Target};
