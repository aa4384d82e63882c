//! Writes a job of 64 ranks whose answer is known, as the files its engineers would have: traces, nccl-tests, device
//! and binding reports; and the same job at 1 and 8 ranks and after the repair.
//!
//! `cargo run --release -p report --example ranks64 -- OUT [STEPS [CAPTURES]]`; 16 steps make 10 MB a file.

mod job;

use std::path::PathBuf;

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "ranks64".to_owned()));
    let mut number =
        |otherwise: u32| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (steps, captures) = (number(5), number(2));
    for (name, mut run) in job::runs(400, steps) {
        run.captures = captures.min(run.captures);
        let count = job::write(&folder.join(name), &run)?;
        println!("{}: {count} files", folder.join(name).display());
    }
    Ok(())
}
