//! Carries out a plan on a device, talks to other ranks, records what happened.

pub mod host;
