//! The subcommands: one file each, listed here.

mod compare;
mod config;
mod diagnose;
mod explain;
mod generate;
mod plan;
mod record;
mod train;

use std::process::ExitCode;

use anyhow::Result;

/// What `counterpoint` can do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Trains the model of a recipe.
    Train(train::Arguments),
    /// Plans a recipe's step and prints the plan; needs no device.
    Plan(plan::Arguments),
    /// Prints every key of a recipe with its value and where the value comes from.
    Config(config::Arguments),
    /// Continues a text with the model of a checkpoint.
    Generate(generate::Arguments),
    /// Says what the devices of a training job waited for, from whatever recorded it.
    Diagnose(diagnose::Arguments),
    /// Runs an unchanged PyTorch job and records some steps of every rank for a diagnosis.
    Record(record::Arguments),
    /// Says what a cause is, why it costs and what helps.
    Explain(explain::Arguments),
    /// Holds two runs against each other, or one job at several sizes.
    Compare(compare::Arguments),
}

impl Command {
    /// Carries the command out.
    ///
    /// # Errors
    /// What the person is told, with the exit status of [`crate::failure::status`].
    pub fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Self::Train(arguments) => train::run(&arguments).map(done),
            Self::Plan(arguments) => plan::run(&arguments).map(done),
            Self::Config(arguments) => config::run(&arguments).map(done),
            Self::Generate(arguments) => generate::run(&arguments).map(done),
            Self::Diagnose(arguments) => diagnose::run(&arguments),
            Self::Record(arguments) => record::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Compare(arguments) => compare::run(&arguments),
        }
    }
}
