//! The subcommands: one file each, listed here.

mod config;
mod generate;
mod plan;
mod train;

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
}

impl Command {
    /// Carries the command out.
    ///
    /// # Errors
    /// What the person is told, with the exit status of [`crate::failure::status`].
    pub fn run(self) -> Result<()> {
        match self {
            Self::Train(arguments) => train::run(&arguments),
            Self::Plan(arguments) => plan::run(&arguments),
            Self::Config(arguments) => config::run(&arguments),
            Self::Generate(arguments) => generate::run(&arguments),
        }
    }
}
