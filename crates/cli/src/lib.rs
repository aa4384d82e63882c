//! The `counterpoint` command as a library: one file per subcommand. Knows no rules, formats or kernels of its own.

mod commands;
mod condition;
mod failure;
pub mod folder;
mod inputs;
mod launchers;
pub mod model;
mod nearest;
mod output;
pub mod planning;
mod progress;
mod summary;

use std::process::ExitCode;

use clap::Parser;

/// Trains neural networks from one planned step, and says what every rank waited for.
///
/// Results go to standard output, progress and errors to standard error. Exit status: 0 done, 1 failed, 2 a mistake in
/// the arguments, the recipe or the data.
#[derive(Parser)]
#[command(name = "counterpoint", version)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

/// Carries out the command line of this process and says how it ended.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing to do where neither stream can be written.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match arguments.command.run() {
        Ok(status) => status,
        Err(error) => {
            output::say(&failure::text(&error));
            failure::status(&error)
        }
    }
}
