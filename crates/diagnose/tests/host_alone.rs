//! Ranks that train on the host: what their stepping threads do sets the pace of all.

use diagnose::{
    diagnosis::diagnose,
    job::{Input, Job},
};
use timeline::{Duration, Kind, Process, Time, Timeline, TrackKind};

/// Six steps of 100 ms, each with a mark of this name and length in ms among its operators.
fn rank(rank: u32, mark: &str, length: i64) -> Input {
    let mut timeline = Timeline::new();
    timeline.add_process(Process { rank: Some(rank), ..Process::default() });
    timeline.wall_clock_zero = Some(1_790_000_000_000_000_000);
    timeline.fact(None, "job.world_size", 2);
    let thread = timeline.track(0, TrackKind::Thread { thread: 1 }, "main");
    let mut add = |kind, name: &str, start: i64, length: i64| {
        let (start, length) = (Time::from_nanos(start), Duration::from_nanos(length));
        timeline.add(thread, kind, name, start, length);
    };
    for step in 0..6 {
        let start = step * 100_000_000;
        add(Kind::Mark, &format!("counterpoint.step#{step}"), start, 100_000_000);
        add(Kind::Mark, mark, start + 1_000, length * 1_000_000);
        add(Kind::HostOp, "aten::mm", start + length * 1_000_000 + 2_000, 20_000_000);
    }
    Input { name: format!("rank{rank}.json"), format: "made", timeline }
}

#[test]
fn the_slowest_rank_is_at_fault_for_what_it_does_longer_than_the_others() {
    const LOADER: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    // The mark, its length on rank 0 and on rank 1; the cause, its ranks and milliseconds.
    type Found = Option<(&'static str, &'static [u32], [f64; 3])>;
    let cases: [(&str, [i64; 2], Found); 7] = [
        (LOADER, [10, 60], Some(("data.loader_starved", &[1], [50.0, 50.0, 60.0]))),
        (LOADER, [50, 60], Some(("data.loader_starved", &[0, 1], [60.0, 60.0, 60.0]))),
        (LOADER, [1, 1], None),
        ("counterpoint.gc", [0, 40], Some(("cpu.gc_pause", &[1], [40.0, 40.0, 40.0]))),
        ("counterpoint.save", [30, 0], Some(("rank.blocking_checkpoint", &[0], [30.0; 3]))),
        ("counterpoint.save", [1, 1], None),
        ("another mark", [50, 60], None),
    ];
    for (mark, [own, others], expected) in cases {
        let job = Job::new(vec![rank(0, mark, own), rank(1, mark, others)], vec![]);
        let diagnosis = diagnose(&job);
        let found = diagnosis.findings.first().map(|finding| {
            let cost = finding.cost.expect("a cost");
            (finding.id, &finding.ranks[..], [cost.low, cost.estimate, cost.high])
        });
        assert_eq!(found, expected, "{mark} {own} {others}");
    }
}
