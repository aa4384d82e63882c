//! What a device waited for: the account, alignment across ranks, replay, rules.
//!
//! Knows timelines and their facts; no input format, no output and no engine.

pub mod account;
pub mod align;
pub mod classify;
pub mod device;
pub mod interval;
pub mod leaf;
pub mod replay;
pub mod steps;
