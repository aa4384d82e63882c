//! A timeline in, numbers and text out: the account sums exactly, the trace file is JSON that binds flows.

use proptest::prelude::*;
use report::{
    account::{STEP_MARK, account},
    chrome_trace,
};
use timeline::{Counter, Detail, Duration, Kind, Process, Time, Timeline, TrackKind};

const KINDS: [Kind; 6] =
    [Kind::Compute, Kind::Communication, Kind::Copy, Kind::Wait, Kind::Data, Kind::Other];

fn at(nanoseconds: i64) -> Time {
    Time::from_nanos(nanoseconds)
}

fn build(spans: &[(u32, usize, i64, i64)], steps: &[(u32, i64, i64)]) -> Timeline {
    let mut timeline = Timeline::new();
    for rank in 0..2 {
        timeline.add_process(Process { rank: Some(rank), ..Process::default() });
    }
    for &(rank, kind, start, length) in spans {
        let index = kind as u32;
        let track = timeline.track(rank, TrackKind::Lane { index }, &format!("lane {index}"));
        let length = Duration::from_nanos(length);
        timeline.add(track, KINDS[kind], &format!("kernel {index}"), at(start), length);
    }
    for (index, &(rank, start, length)) in steps.iter().enumerate() {
        let track = timeline.track(rank, TrackKind::Other, "steps");
        let (name, length) = (format!("{STEP_MARK}{}", index + 1), Duration::from_nanos(length));
        timeline.add(track, Kind::Mark, &name, at(start), length);
    }
    timeline
}

proptest! {
    #[test]
    fn the_parts_of_a_step_sum_to_it_and_match_a_count_of_each_nanosecond(
        spans in prop::collection::vec((0u32..2, 0usize..6, -50i64..200, 0i64..80), 0..30),
        steps in prop::collection::vec((0u32..2, 0i64..150, 0i64..100), 1..4),
    ) {
        for (step, parts) in account(&build(&spans, &steps)) {
            prop_assert_eq!(parts.total(), step.end - step.start);
            let mut counted = [0i64; 5];
            for now in step.start.nanos()..step.end.nanos() {
                let runs = |kind: usize| {
                    spans.iter().any(|&(rank, k, start, length)| {
                        rank == step.process && k == kind && start <= now && now < start + length
                    })
                };
                let part = match (runs(0), runs(1), runs(4)) {
                    (true, false, _) => 0,
                    (true, true, _) => 1,
                    (false, true, _) => 2,
                    (false, false, true) => 3,
                    (false, false, false) => 4,
                };
                counted[part] += 1;
            }
            let found: Vec<Duration> = parts.parts().into_iter().map(|(_, length)| length).collect();
            prop_assert_eq!(found, counted.map(Duration::from_nanos).to_vec());
        }
    }
}

#[test]
fn the_trace_file_names_ranks_and_lanes_and_keeps_nanoseconds() {
    let mut timeline =
        build(&[(0, 0, 1_234_567, 1_001), (1, 1, 1_235_568, 20)], &[(0, 1_000_000, 400_000)]);
    let ids: Vec<_> = timeline.spans.ids().collect();
    let planned = Detail::Planned {
        node: 3,
        path: "h.0.\"mlp\"".to_owned(),
        flops: 42,
        bytes: 8,
        predicted_ns: 900,
    };
    timeline.spans.add_detail(ids[0], planned);
    timeline.flows.push((ids[0], ids[1]));
    let (track, name) = (timeline.spans.get(ids[1]).track, timeline.names.intern("memory"));
    timeline.counters.push(Counter { track, name, time: at(5), value: 2.5 });
    let mut out = vec![];
    chrome_trace::write(&timeline, "test/1", &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
    assert_eq!((of("X").len(), of("s").len(), of("f").len(), of("C").len()), (3, 1, 1, 1));
    let kernel = of("X").into_iter().find(|e| e["cat"] == "compute").unwrap();
    assert_eq!(kernel["args"]["flops"], 42);
    assert_eq!(kernel["args"]["path"], "h.0.\"mlp\"");
    assert!(text.contains("\"ts\":1234.567,\"dur\":1.001"), "{text}");
    let names: Vec<&str> = of("M").iter().filter_map(|e| e["args"]["name"].as_str()).collect();
    assert_eq!(names, ["rank 0", "rank 1", "lane 0", "lane 1", "steps"]);
}
