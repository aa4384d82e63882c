//! Reads a file and prints how many spans of each kind and facts of each key it holds: a first look at a new input.

use std::{collections::BTreeMap, path::Path};

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let began = std::time::Instant::now();
        let reading = readers::read_file(Path::new(&path))?;
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for span in reading.timeline.spans.iter() {
            *kinds.entry(format!("{:?}", span.kind)).or_default() += 1;
        }
        println!("{path}: {} in {:.2?}, {kinds:?}", reading.format, began.elapsed());
        let mut facts: BTreeMap<&str, usize> = BTreeMap::new();
        for fact in &reading.timeline.facts {
            *facts.entry(fact.key.as_str()).or_default() += 1;
        }
        println!("  facts {facts:?}");
        println!("  skipped {:?}", reading.timeline.skipped);
        println!("  {:?} {} names", reading.timeline.processes, reading.timeline.names.len());
    }
    Ok(())
}
