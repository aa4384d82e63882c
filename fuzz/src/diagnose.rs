//! Inputs through the whole path: readers, job, rules, every report. A line `--next-input--` begins the next input.

#![no_main]

use diagnose::{
    diagnosis,
    job::{Input, Job, Unusable},
    redact,
};
use libfuzzer_sys::fuzz_target;
use report::diagnosis::{html, json, perfetto, terminal};

const NEXT: &[u8] = b"\n--next-input--\n";

fuzz_target!(|bytes: &[u8]| {
    let (mut inputs, mut unusable) = (vec![], vec![]);
    for (number, bytes) in pieces(bytes).into_iter().enumerate() {
        let name = number.to_string();
        match readers::Input::from_bytes(&name, bytes.to_vec()).and_then(readers::read) {
            Ok(reading) => {
                inputs.push(Input { name, format: reading.format, timeline: reading.timeline });
            }
            Err(error) => unusable.push(Unusable { name, reason: error.to_string() }),
        }
    }
    let mut job = Job::new(inputs, unusable);
    let mut found = diagnosis::diagnose(&job);
    let _ = json::document(&job, &found).to_string();
    let _ = terminal::render(&job, &found, terminal::Style::default());
    let _ = html::page(&job, &found);
    perfetto::write(&job, &found, &mut vec![]).expect("memory takes every byte");
    redact::redact(&mut job, &mut found);
});

fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = vec![];
    while let Some(at) = bytes.windows(NEXT.len()).position(|window| window == NEXT) {
        pieces.push(&bytes[..at]);
        bytes = &bytes[at + NEXT.len()..];
    }
    pieces.push(bytes);
    pieces
}
