//! Diagnoses the given files as one job: the terminal's report, or with `--json` the document. For measuring and for
//! scripts that compare; people use the command `counterpoint diagnose`.

use std::{path::PathBuf, time::Instant};

use diagnose::job::{Input, Job, Unusable};
use report::diagnosis::{json, terminal};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]
fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let as_json = arguments.first().is_some_and(|first| first == "--json");
    if as_json {
        arguments.remove(0);
    }
    let paths: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
    let began = Instant::now();
    let (mut inputs, mut unusable) = (vec![], vec![]);
    for (path, reading) in paths.iter().zip(readers::read_files(&paths)) {
        match reading {
            Ok(reading) => inputs.push(Input {
                name: reading.input,
                format: reading.format,
                timeline: reading.timeline,
            }),
            Err(error) => unusable
                .push(Unusable { name: path.display().to_string(), reason: error.to_string() }),
        }
    }
    let read = began.elapsed();
    let job = Job::new(inputs, unusable);
    let accounted = began.elapsed();
    let diagnosis = diagnose::diagnosis::diagnose(&job);
    let judged = began.elapsed();
    if as_json {
        println!("{}", json::document(&job, &diagnosis));
    } else {
        print!("{}", terminal::render(&job, &diagnosis, terminal::Style::default()));
    }
    eprintln!(
        "read {read:.2?}, account and replay {:.2?}, rules {:.2?}, all {:.2?}",
        accounted - read,
        judged - accounted,
        began.elapsed()
    );
}
