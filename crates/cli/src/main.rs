//! The `counterpoint` program. Knows nothing: the library of this crate does.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
