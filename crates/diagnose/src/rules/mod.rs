//! The rules, one file each, and the list of them.

mod allocator;
mod checkpoint;
mod communication;
mod copies;
mod host_stall;
mod launch;
mod loader;
mod precision;
mod support;
mod synchronise;
mod tuning;

pub use communication::{bus_bandwidth, expected_bandwidth};

use crate::finding::Rule;

/// All rules.
pub const ALL: &[&dyn Rule] = &[
    &allocator::Allocator,
    &checkpoint::Checkpoint,
    &communication::Communication,
    &copies::Copies,
    &host_stall::HostStall,
    &launch::Launch,
    &loader::Loader,
    &precision::Precision,
    &synchronise::Synchronise,
    &tuning::Tuning,
];

/// General causes and the more specific ones that replace them where both are found.
pub const REPLACED_BY: &[(&str, &[&str])] = &[
    ("comm.slow_transport", &["net.", "p2p.", "nccl.", "pcie.", "nvlink."]),
    (
        "cpu.host_stall",
        &["cpu.gc_pause", "rank.blocking_checkpoint", "compile.", "copy.pageable_blocking"],
    ),
    ("rank.late_host", &["cpu.gc_pause", "rank.blocking_checkpoint", "copy.pageable_blocking"]),
    ("copy.pageable_blocking", &["rank.blocking_checkpoint"]),
];
