//! The list of measurements; one file each. Knows how each is called, not what it does.

mod attention;
mod collectives;
mod convolutions;
mod copy;
mod gpt2_step;
mod gradient_sync;
mod graph_collectives;
mod graph_records;
mod matmul;
mod overlap;

use anyhow::Result;
use clap::Subcommand;

/// A measurement.
#[derive(Subcommand)]
pub enum Program {
    /// Causal attention, forward and backward: every engine of cuDNN
    Attention(attention::Options),
    /// ResNet-50's convolutions, plain and fused
    Convolutions(convolutions::Options),
    /// Device memory bandwidth of a copy: the ceiling of memory-bound kernels
    Copy(copy::Options),
    /// Bus bandwidth per collective, size and placement of its buffers, on all devices
    Collectives(collectives::Options),
    /// A hand-scheduled GPT-2 training step, run and timed on request
    Gpt2Step(gpt2_step::Options),
    /// All-reduce against reduce-scatter + all-gather against all-to-all, by bucket size
    GradientSync(gradient_sync::Options),
    /// What collectives cost inside a recorded step, per replay
    GraphCollectives(graph_collectives::Options),
    /// From CUPTI's records of a replay back to the recorded calls
    GraphRecords(graph_records::Options),
    /// Collectives beside a neighbour: blocks, stream priority, the neighbour's share of the device
    Overlap(overlap::Options),
    /// Matrix products of a GPT's layers with epilogues
    Matmul(matmul::Options),
}

impl Program {
    /// Carries it out.
    pub fn run(self) -> Result<()> {
        match self {
            Program::Attention(options) => attention::run(&options),
            Program::Convolutions(options) => convolutions::run(&options),
            Program::Copy(options) => copy::run(&options),
            Program::Collectives(options) => collectives::run(&options),
            Program::Gpt2Step(options) => gpt2_step::run(&options),
            Program::GradientSync(options) => gradient_sync::run(&options),
            Program::GraphCollectives(options) => graph_collectives::run(&options),
            Program::GraphRecords(options) => graph_records::run(&options),
            Program::Overlap(options) => overlap::run(&options),
            Program::Matmul(options) => matmul::run(&options),
        }
    }
}
