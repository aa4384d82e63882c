//! What a device waited for: the account, alignment across ranks, replay, rules.
//!
//! Knows timelines and their facts; no input format, no output and no engine.

pub mod account;
pub mod align;
pub mod captures;
pub mod classify;
pub mod device;
pub mod diagnosis;
pub mod facts;
pub mod finding;
pub mod index;
pub mod interval;
pub mod job;
pub mod joining;
pub mod leaf;
pub mod marks;
pub mod redact;
pub mod replay;
pub mod rules;
pub mod steps;
pub mod wall_clock;
pub mod wording;
