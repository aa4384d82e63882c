//! Prints the account of each device of some traces: a first look at what the rules will see.

use std::path::Path;

use diagnose::{account::Parts, align, device, leaf::Account, steps};

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut readings = vec![];
    for path in std::env::args().skip(1) {
        readings.push(readers::read_file(Path::new(&path))?);
    }
    let mut devices: Vec<Vec<device::Device>> =
        readings.iter().map(|reading| device::devices(&reading.timeline)).collect();
    let mut participants: Vec<align::Participant<'_>> = vec![];
    for (reading, devices) in readings.iter().zip(&mut devices) {
        let rank = reading.timeline.processes[0].rank.unwrap_or(0);
        for device in devices {
            participants.push(align::Participant { rank, timeline: &reading.timeline, device });
        }
    }
    let clock = align::align(&mut participants);
    println!(
        "offsets {:?} residual {} matched {} {}",
        clock.offsets,
        clock.residual,
        clock.matched.len(),
        clock.split
    );
    let steps: Vec<_> = participants.iter().map(|p| steps::find(p.device)).collect();
    let began = std::time::Instant::now();
    let outcome = diagnose::replay::Replay::new(&participants, &clock, &steps)
        .run(&diagnose::replay::Scenario::default());
    println!("replay {outcome:?} in {:.1?}", began.elapsed());
    for participant in &participants {
        let steps = steps::find(participant.device);
        let parts = Parts::of(participant.device);
        let mut total = Account::default();
        for &step in &steps.counted {
            total.add_all(&parts.account(step));
        }
        let count = steps.counted.len().max(1) as f64;
        print!(
            "r{} steps {} mean {:.3}:",
            participant.rank,
            count,
            total.total() as f64 / count / 1e6
        );
        for (leaf, nanoseconds) in total.iter().filter(|(_, n)| *n > 10_000) {
            print!(" {}={:.2}", leaf.name(), nanoseconds as f64 / count / 1e6);
        }
        println!();
    }
    Ok(())
}
