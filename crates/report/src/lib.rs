//! Text, JSON and HTML for people and programs, made from a timeline.
//!
//! Knows no format of inputs and nothing of the engine.

pub mod account;
pub mod chrome_trace;
pub mod comparison;
pub mod diagnosis;
