//! The list of measurements; one file each. Knows how each is called, not what it does.

mod copy;

use anyhow::Result;
use clap::Subcommand;

/// A measurement.
#[derive(Subcommand)]
pub enum Program {
    /// Device memory bandwidth of a copy: the ceiling of memory-bound kernels
    Copy(copy::Options),
}

impl Program {
    /// Carries it out.
    pub fn run(self) -> Result<()> {
        match self {
            Program::Copy(options) => copy::run(&options),
        }
    }
}
