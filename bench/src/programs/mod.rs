//! The list of measurements; one file each. Knows how each is called, not what it does.

mod collectives;
mod copy;
mod gradient_sync;
mod graph_collectives;
mod graph_records;
mod overlap;

use anyhow::Result;
use clap::Subcommand;

/// A measurement.
#[derive(Subcommand)]
pub enum Program {
    /// Device memory bandwidth of a copy: the ceiling of memory-bound kernels
    Copy(copy::Options),
    /// Bus bandwidth per collective, size and placement of its buffers, on all devices
    Collectives(collectives::Options),
    /// All-reduce against reduce-scatter + all-gather against all-to-all, by bucket size
    GradientSync(gradient_sync::Options),
    /// What collectives cost inside a recorded step, per replay
    GraphCollectives(graph_collectives::Options),
    /// From CUPTI's records of a replay back to the recorded calls
    GraphRecords(graph_records::Options),
    /// Collectives beside a neighbour: blocks, stream priority, the neighbour's share of the device
    Overlap(overlap::Options),
}

impl Program {
    /// Carries it out.
    pub fn run(self) -> Result<()> {
        match self {
            Program::Copy(options) => copy::run(&options),
            Program::Collectives(options) => collectives::run(&options),
            Program::GradientSync(options) => gradient_sync::run(&options),
            Program::GraphCollectives(options) => graph_collectives::run(&options),
            Program::GraphRecords(options) => graph_records::run(&options),
            Program::Overlap(options) => overlap::run(&options),
        }
    }
}
