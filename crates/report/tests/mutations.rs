//! Every byte string is a valid input of the whole path: damaged forms of real shapes, one or several at a time, through
//! readers, job, rules and every report.
//!
//! `COUNTERPOINT_FUZZ_INPUTS=40000 cargo test -p report --test mutations` reads that many inputs.

#[path = "../../readers/tests/mutation/mod.rs"]
mod mutation;
mod schema;
#[path = "../../readers/tests/shapes/mod.rs"]
mod shapes;

use diagnose::{
    diagnosis::{Diagnosis, diagnose},
    job::{Input, Job, Unusable},
    redact::redact,
};
use mutation::{Numbers, mutated};
use report::diagnosis::{html, json, perfetto, terminal};
use serde_json::Value;
use shapes::SHAPES;

/// Inputs where nothing else is asked for.
const FEW: usize = 600;
/// Shapes of recordings, which most of the path works on, stand first in the list.
const RECORDINGS: usize = 3;

fn job(inputs: Vec<Vec<u8>>) -> Job {
    let (mut read, mut unusable) = (vec![], vec![]);
    for (number, bytes) in inputs.into_iter().enumerate() {
        let name = number.to_string();
        match readers::Input::from_bytes(&name, bytes).and_then(readers::read) {
            Ok(reading) => {
                read.push(Input { name, format: reading.format, timeline: reading.timeline });
            }
            Err(error) => unusable.push(Unusable { name, reason: error.to_string() }),
        }
    }
    Job::new(read, unusable)
}

/// Everything that `counterpoint diagnose` can write about a job; its document is valid.
fn report(job: &Job, found: &Diagnosis, schema: &Value) {
    let document = json::document(job, found);
    let problems = schema::problems(schema, &document);
    assert!(problems.is_empty(), "{}\n{document}", problems.join("\n"));
    assert!(!terminal::render(job, found, terminal::Style::default()).is_empty());
    assert!(html::page(job, found).starts_with("<!"));
    let mut joined = vec![];
    perfetto::write(job, found, &mut joined).expect("memory takes every byte");
    serde_json::from_slice::<Value>(&joined).expect("the joined timeline is JSON");
}

#[test]
fn every_report_is_written_whatever_the_inputs_are() {
    let asked = std::env::var("COUNTERPOINT_FUZZ_INPUTS").ok();
    let inputs: usize = asked.and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    let all: Vec<&[u8]> = SHAPES.iter().map(|(_, bytes)| *bytes).collect();
    let mut numbers = Numbers::of("diagnose");
    let mut left = inputs;
    while left > 0 {
        let together = (1 + numbers.below(4)).min(left);
        left -= together;
        let damaged = (0..together).map(|_| {
            let among = if numbers.below(2) == 0 { RECORDINGS } else { all.len() };
            let seed = all[numbers.below(among)];
            mutated(seed, &all, &mut numbers)
        });
        let mut job = job(damaged.collect());
        let mut found = diagnose(&job);
        report(&job, &found, &schema);
        redact(&mut job, &mut found);
        report(&job, &found, &schema);
    }
}

/// A trace of three steps with something put in place of something else.
fn trace(replaced: &[(&str, &str)]) -> Vec<u8> {
    let text = String::from_utf8_lossy(SHAPES[0].1).into_owned();
    let text = replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the shape");
        text.replace(from, to)
    });
    text.into_bytes()
}

#[test]
fn inputs_made_to_break_it_are_survived() {
    let nested = |open: &str, close: &str| [open.repeat(100_000), close.repeat(100_000)].concat();
    let inputs: Vec<Vec<Vec<u8>>> = vec![
        // More ranks than there are numbers to list, and a rank that has no next one.
        vec![trace(&[("\"world_size\":2", "\"world_size\":4294967295")])],
        vec![trace(&[("\"rank\":0", "\"rank\":4294967295")])],
        vec![trace(&[("\"Group size\":2", "\"Group size\":4294967295")])],
        // Times at both ends of what there are numbers for, alone and on clocks that are as far apart.
        vec![trace(&[
            ("\"ts\":1020", "\"ts\":-9223372036854775.8"),
            ("\"ts\":2820", "\"ts\":9223372036854775.8"),
        ])],
        vec![trace(&[
            ("\"dur\":280", "\"dur\":9223372036854775.8"),
            ("\"dur\":5", "\"dur\":9223372036854775.8"),
        ])],
        vec![
            trace(&[("1700000000000000000", "9223372036854775807")]),
            trace(&[("1700000000000000000", "-9223372036854775808"), ("\"rank\":0", "\"rank\":1")]),
        ],
        vec![trace(&[("\"dur\":280", "\"dur\":NaN"), ("\"dur\":5", "\"dur\":-5")])],
        vec![trace(&[("\"ts\":1020", "\"ts\":1e300"), ("\"ts\":2820", "\"ts\":1e-300")])],
        // Names: twice the same key, none, everything that must be escaped.
        vec![trace(&[("\"name\":\"gemm_tn_128x128\"", "\"name\":\"a\",\"name\":{\"b\":[]}")])],
        vec![trace(&[("gemm_tn_128x128", "</script><!--\\u0000\\ud800 \u{2028}\\\"")])],
        // Nesting deeper than any stack.
        vec![trace(&[("\"grid\":[1,1,1]", &format!("\"grid\":{}", nested("[", "]")))])],
        vec![trace(&[(
            "\"pg_config\":[",
            &format!("\"x\":{},\"pg_config\":[", nested("{\"a\":", "}")),
        )])],
        vec![format!("{{\"bus_bw\":{}", nested("[", "]")).into_bytes()],
        vec![
            format!("{{\"schema\":\"counterpoint.record/1\",\"facts\":{}", nested("{\"a\":", "}"))
                .into_bytes(),
        ],
    ];
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    for input in inputs {
        let job = job(input);
        report(&job, &diagnose(&job), &schema);
    }
}
