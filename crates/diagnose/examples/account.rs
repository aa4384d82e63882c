//! Prints the account of each device of some traces: a first look at what the rules will see.

use std::path::Path;

use diagnose::job::{Input, Job};

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut inputs = vec![];
    for path in std::env::args().skip(1) {
        let reading = readers::read_file(Path::new(&path))?;
        inputs.push(Input {
            name: reading.input,
            format: reading.format,
            timeline: reading.timeline,
        });
    }
    let job = Job::new(inputs, vec![]);
    println!("clock {:?} residual {} {}", job.clock.relations, job.clock.residual, job.clock.split);
    println!("replay {:?}", job.unchanged);
    let diagnosis = diagnose::diagnosis::diagnose(&job);
    println!("{} [{}]", diagnosis.sentence, diagnosis.bound_by.name());
    for finding in &diagnosis.findings {
        println!("  {} ranks {:?} {:?}", finding.id, finding.ranks, finding.cost);
        for evidence in &finding.evidence {
            println!("    {}", evidence.text);
        }
    }
    for (participant, accounted) in job.participants.iter().zip(&job.accounted) {
        let count = accounted.steps.counted.len().max(1) as f64;
        let mean = accounted.account.total() as f64 / count / 1e6;
        print!("r{} steps {count} mean {mean:.3}:", participant.rank);
        for (leaf, nanoseconds) in accounted.account.iter().filter(|(_, n)| *n > 10_000) {
            print!(" {}={:.2}", leaf.name(), nanoseconds as f64 / count / 1e6);
        }
        println!();
    }
    Ok(())
}
