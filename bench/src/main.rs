//! `counterpoint-bench`: one file per measurement. Knows no graph and no plan.

mod programs;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "counterpoint-bench",
    version,
    about = "Measures what a card's libraries and kernels cost"
)]
struct Arguments {
    #[command(subcommand)]
    program: programs::Program,
}

fn main() -> ExitCode {
    match Arguments::parse().program.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            bench::harness::complain(&format!("counterpoint-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
