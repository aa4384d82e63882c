//! Damaged, cut off and foreign inputs: each with its true reason, and what came before the damage is there.

use std::io::Write;

use readers::Input;
use timeline::FactValue;

const TRACE: &str = r#"{"schemaVersion":1,"deviceProperties":[],
"distributedInfo":{"backend":"nccl","rank":3,"world_size":8},
"traceEvents":[
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":10,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":20,"dur":300,"args":{"device":0,"stream":7,"correlation":7}}
],"traceName":"t"}"#;

const LOG: &str = "alpha:9:9 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n";

fn gz(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// What is said of an input: its error, or the number of its spans and facts and where it was cut off.
fn said(bytes: Vec<u8>) -> String {
    let reading = match Input::from_bytes("input", bytes).and_then(readers::read) {
        Ok(reading) => reading,
        Err(error) => return error.to_string(),
    };
    let timeline = &reading.timeline;
    let cut_off = match timeline.find_fact(None, "input.cut_off") {
        Some(FactValue::Text(place)) => place.as_str(),
        _ => "whole",
    };
    let rank = timeline.processes.first().and_then(|process| process.rank);
    format!("{} of rank {rank:?}, {} spans, {cut_off}", reading.format, timeline.spans.len())
}

#[test]
fn every_damage_is_named() {
    let cut = |text: &str, mark: &str| text[..text.find(mark).expect("it is there")].to_owned();
    let (trace, log) = (gz(TRACE), gz(&LOG.repeat(40)));
    let mut flipped = trace.clone();
    let last = flipped.len() - 6;
    flipped[last] ^= 0x55;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("whole", TRACE.into(), "kineto of rank Some(3), 2 spans, whole"),
        ("nothing", vec![], "not recognised: empty"),
        ("packed nothing", gz(""), "not recognised: empty"),
        ("zeros", vec![0; 5_000], "not recognised: no known format"),
        ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "not recognised: no known format"),
        (
            "a letter",
            b"Dear all,\nsee below.\n".to_vec(),
            "not recognised: text of no known format",
        ),
        ("no events", b"{\"traceEvents\": []}".to_vec(), "kineto: no usable event (no events)"),
        (
            "cut before the events",
            cut(TRACE, "\"traceEvents\"").into(),
            "kineto: no usable event (cut off after 104 bytes, before the first event)",
        ),
        (
            "cut inside an event",
            cut(TRACE, "\"gemm\"").into(),
            "kineto of rank Some(3), 1 spans, cut off after 268 bytes, behind 1 event",
        ),
        (
            "cut between events",
            cut(TRACE, "],\"traceName").into(),
            "kineto of rank Some(3), 2 spans, cut off after 357 bytes, behind 2 events",
        ),
        (
            "two packed, one behind the other",
            [gz(TRACE), gz(TRACE)].concat(),
            "kineto of rank Some(3), 2 spans, more follows behind the end of this recording: hand each over as a file",
        ),
        (
            "a log behind it",
            format!("{TRACE}\n{LOG}").into(),
            "kineto of rank Some(3), 2 spans, more follows behind the end of this recording: hand each over as a file",
        ),
        (
            "two lists of events, one behind the other",
            [&br#"[{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":20,"dur":3}]"#[..];
                2]
                .concat(),
            "kineto of rank None, 1 spans, more follows behind the end of this recording: hand each over as a file",
        ),
        (
            "packed, cut in its header",
            trace[..9].to_vec(),
            "cut off before anything could be unpacked",
        ),
        (
            "packed, cut before its check",
            trace[..trace.len() - 8].to_vec(),
            "kineto of rank Some(3), 2 spans, cut off or damaged after 375 bytes (unexpected end of file), behind 2 events",
        ),
        (
            "packed, damaged at its check",
            flipped,
            "kineto of rank Some(3), 2 spans, cut off or damaged after 375 bytes (corrupt gzip stream does not have a \
             matching checksum), behind 2 events",
        ),
        (
            "a packed log, cut before its check",
            log[..log.len() - 8].to_vec(),
            "nccl-log of rank None, 0 spans, cut off or damaged behind line 40 (unexpected end of file)",
        ),
        (
            "a table of facts, cut",
            b"{\"schema\": \"counterpoint.record/1\", \"rank\": 0, \"facts\": {\"a\"".to_vec(),
            "record: EOF while parsing an object at line 1 column 60",
        ),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .map(|(name, bytes, expected)| (name, said(bytes), expected))
        .filter(|(_, found, expected)| found != expected)
        .map(|(name, found, expected)| format!("{name}\n  found    {found}\n  expected {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
