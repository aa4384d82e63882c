//! Ranks whose clocks run apart: in the joined trace they are on one, events and findings' spans alike.

use diagnose::{
    diagnosis::{BoundBy, Diagnosis},
    finding::Evidence,
    job::{Input, Job},
    rules,
};
use serde_json::Value;
use timeline::{Detail, Duration, Kind, Process, SpanId, Time, Timeline, TrackKind};

/// An all-reduce every 10 ms for ten seconds, seen by a clock that is `ahead` ns ahead at first and gains `ppm`.
fn rank(number: u32, zero: i64, ahead: i64, ppm: f64) -> Input {
    let mut timeline = Timeline::new();
    timeline.add_process(Process { rank: Some(number), ..Process::default() });
    timeline.wall_clock_zero = Some(zero);
    let stream = timeline.track(0, TrackKind::Stream { device: 0, stream: 20 }, "stream");
    let clock = |time: i64| {
        Time::from_nanos(time + ahead + (ppm * 1e-6 * time as f64).round() as i64 - zero)
    };
    for step in 0..1_000 {
        let start = clock(step * 10_000_000);
        let length = Duration::from_nanos((clock(step * 10_000_000 + 900_000) - start).nanos());
        let id = timeline.add(stream, Kind::Communication, "all_reduce", start, length);
        let detail = Detail::Collective {
            operation: "all_reduce".to_owned(),
            group: "0".to_owned(),
            ranks: Some(2),
            bytes: Some(1 << 20),
            sequence: Some(step as u64),
        };
        timeline.spans.add_detail(id, detail);
    }
    Input { name: format!("rank{number}.json"), format: "made", timeline }
}

/// Starts of the events of this name by process, in microseconds.
fn starts(events: &[Value], name: &str) -> Vec<(i64, f64)> {
    let own = events.iter().filter(|event| event["name"] == name && event["ph"] == "X");
    let start = |event: &Value| Some((event["pid"].as_i64()?, event["ts"].as_f64()?));
    own.filter_map(start).collect()
}

#[test]
fn ranks_and_evidence_are_on_one_clock_to_the_end() {
    for (zero, ahead, ppm) in [(0, 5_000_000, 50.0), (70_000, -3_000_000, -20.0)] {
        let job = Job::new(vec![rank(0, 0, 0, 0.0), rank(1, zero, ahead, ppm)], vec![]);
        let mut finding = rules::ALL[0].explanations()[0]
            .finding(diagnose::finding::Severity::Slow, "the last exchange");
        finding.evidence = vec![Evidence::span(&job, 1, SpanId(999), "cited")];
        let diagnosis = Diagnosis {
            sentence: String::new(),
            bound_by: BoundBy::Unknown,
            waiting_fraction: None,
            findings: vec![finding],
        };
        let mut bytes = vec![];
        report::diagnosis::perfetto::write(&job, &diagnosis, &mut bytes).unwrap();
        let trace: Value = serde_json::from_slice(&bytes).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let all = starts(events, "all_reduce");
        let (one, other): (Vec<_>, Vec<_>) = all.iter().partition(|(pid, _)| *pid == all[0].0);
        assert_eq!((one.len(), other.len()), (1_000, 1_000));
        for ((_, a), (_, b)) in one.iter().zip(&other) {
            assert!((a - b).abs() < 1.0, "{ppm} ppm: {a} {b}");
        }
        let (_, cited) = starts(events, "cited")[0];
        assert!((cited - one[999].1).abs() < 1.0, "{ppm} ppm: {cited} {:?}", one[999]);
    }
}
