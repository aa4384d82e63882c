//! Our engine's recordings, written as Chrome-trace JSON, are an input like any other.

use diagnose::{
    job::{Input, Job},
    leaf::Leaf,
};
use timeline::{Detail, Duration, Kind, Process, Time, Timeline, TrackKind};

/// Two ranks, four steps of 10 ms: 2 ms waiting for data, then 6 ms computing and 1 ms of exchange with nothing beside it.
fn engine() -> Timeline {
    let mut timeline = Timeline::new();
    for rank in 0..2 {
        let process = timeline.add_process(Process { rank: Some(rank), ..Process::default() });
        let host = timeline.track(process, TrackKind::Thread { thread: 1 }, "host");
        let compute = timeline.track(process, TrackKind::Lane { index: 0 }, "compute");
        let exchange = timeline.track(process, TrackKind::Lane { index: 1 }, "communication");
        let at = |milliseconds: i64| Time::from_nanos(milliseconds * 1_000_000);
        let long = |milliseconds: i64| Duration::from_nanos(milliseconds * 1_000_000);
        for step in 0..4 {
            let start = step * 10;
            timeline.add(host, Kind::Mark, &format!("step {}", step + 1), at(start), long(10));
            timeline.add(host, Kind::Data, "wait for data", at(start + 8), long(2));
            let id = timeline.add(compute, Kind::Compute, "matmul", at(start + 1), long(6));
            timeline.spans.add_detail(
                id,
                Detail::Planned {
                    node: 7,
                    path: "h.0.mlp".into(),
                    flops: 10,
                    bytes: 20,
                    predicted_ns: 30,
                },
            );
            let id =
                timeline.add(exchange, Kind::Communication, "all_reduce", at(start + 7), long(1));
            timeline.spans.add_detail(
                id,
                Detail::Collective {
                    operation: "all_reduce".into(),
                    group: "world".into(),
                    ranks: Some(2),
                    bytes: Some(4096),
                    sequence: Some(step as u64),
                },
            );
        }
    }
    timeline
}

#[test]
fn ranks_steps_waits_and_plans_come_back() {
    let mut bytes = vec![];
    report::chrome_trace::write(&engine(), "test/1", &mut bytes).unwrap();
    let reading = readers::read(readers::Input::from_bytes("-", bytes).unwrap()).unwrap();
    let planned = reading.timeline.spans.ids().filter(|&id| {
        let is_planned =
            |d: &Detail| matches!(d, Detail::Planned { node: 7, flops: 10, predicted_ns: 30, .. });
        reading.timeline.spans.details(id).any(is_planned)
    });
    assert_eq!(planned.count(), 8);
    let input = Input { name: reading.input, format: reading.format, timeline: reading.timeline };
    let job = Job::new(vec![input], vec![]);
    let ranks: Vec<u32> = job.participants.iter().map(|participant| participant.rank).collect();
    assert_eq!(ranks, [0, 1]);
    assert_eq!(job.clock.split, "full");
    for accounted in &job.accounted {
        assert_eq!(accounted.steps.counted.len(), 2);
        let millis = |leaf: Leaf| accounted.account.get(leaf) / 1_000_000;
        assert_eq!(millis(Leaf::Matmul) + millis(Leaf::OtherCompute), 12);
        assert_eq!((millis(Leaf::Transfer), millis(Leaf::HostData)), (2, 4));
    }
}
