//! Clocks and collectives across ranks: the traps that real recordings hold, each made small.

use diagnose::job::{Input, Job};
use timeline::{Detail, Duration, Kind, Process, Span, Time, Timeline, TrackKind};

/// A collective: operation, group, bytes, start and end in microseconds, and whether its launch was recorded.
type Seen = (&'static str, &'static str, u64, i64, i64, bool);

/// A rank's recording, with a clock that is ahead by `offset` microseconds.
fn rank(rank: u32, offset: i64, collectives: &[Seen]) -> Input {
    let mut timeline = Timeline::new();
    timeline.add_process(Process { rank: Some(rank), ..Process::default() });
    timeline.wall_clock_zero = Some(1_790_000_000_000_000_000);
    timeline.fact(None, "job.world_size", 8);
    let stream = timeline.track(0, TrackKind::Stream { device: 0, stream: 20 }, "stream");
    let thread = timeline.track(0, TrackKind::Thread { thread: 1 }, "main");
    for &(operation, group, bytes, start, end, launched) in collectives {
        let mut add = |track, kind, name: &str, start: i64, end: i64| {
            let name = timeline.names.intern(name);
            timeline.spans.push(Span {
                track,
                kind,
                name,
                start: Time::from_nanos((start + offset) * 1_000),
                duration: Duration::from_nanos((end - start) * 1_000),
            })
        };
        let call =
            launched.then(|| add(thread, Kind::Call, "cudaLaunchKernel", start - 20, start - 15));
        let id = add(stream, Kind::Communication, "ncclDevKernel", start, end);
        if let Some(call) = call {
            timeline.spans.set_launcher(id, call);
        }
        let detail = Detail::Collective {
            operation: operation.to_owned(),
            group: group.to_owned(),
            ranks: Some(2),
            bytes: Some(bytes),
            sequence: None,
        };
        timeline.spans.add_detail(id, detail);
    }
    Input { name: format!("rank{rank}.json"), format: "made", timeline }
}

fn job(inputs: Vec<Input>) -> Job {
    Job::new(inputs, vec![])
}

#[test]
fn equal_collectives_are_not_matched_one_off() {
    // Shifted by one, the ends agree better (to the microsecond) than they do unshifted.
    let all = |jitter: [i64; 4]| -> Vec<Seen> {
        (0..4)
            .map(|i| {
                (
                    "all_reduce",
                    "0",
                    64,
                    i * 69_000 + 1_000,
                    i * 69_000 + 9_000 + jitter[i as usize],
                    true,
                )
            })
            .collect()
    };
    let job = job(vec![rank(0, 0, &all([0, 0, 0, 0])), rank(1, 14, &all([60, -60, 55, -50]))]);
    assert_eq!(job.clock.matched.len(), 4);
    let offset = job.clock.offsets[1].unwrap();
    assert!(offset.abs() < 100_000, "{offset}");
}

#[test]
fn leading_operations_without_a_launch_record_are_dropped() {
    let regular: Vec<Seen> = (0..6)
        .map(|i| ("all_reduce", "0", 1 << (10 + i % 2), i * 5_000, i * 5_000 + 800, true))
        .collect();
    let mut earlier: Vec<Seen> = (0..14)
        .map(|i| ("all_reduce", "0", 1 << 10, i * 100 - 9_000, i * 100 - 8_950, false))
        .collect();
    earlier.extend(&regular);
    let job = job(vec![rank(0, 0, &regular), rank(1, 7, &earlier)]);
    assert_eq!(job.clock.offsets, [Some(0), Some(7_000)]);
    assert_eq!(job.clock.matched.len(), 6);
}

#[test]
fn ends_of_broadcasts_do_not_enter_the_clock() {
    let with = |late: i64| -> Vec<Seen> {
        let mut all: Vec<Seen> = vec![];
        for i in 0..6 {
            // The root leaves 15 ms before the others.
            all.push(("broadcast", "0", 512, i * 60_000, i * 60_000 + 100 + late, true));
            all.push((
                "broadcast",
                "0",
                256,
                i * 60_000 + 20_000,
                i * 60_000 + 20_100 + late,
                true,
            ));
            all.push(("all_reduce", "0", 4096, i * 60_000 + 40_000, i * 60_000 + 41_000, true));
        }
        all
    };
    let job = job(vec![rank(0, 0, &with(0)), rank(1, 33, &with(15_000))]);
    assert_eq!(job.clock.offsets, [Some(0), Some(33_000)]);
    assert_eq!(job.clock.residual, 0);
}

#[test]
fn groups_of_one_name_are_told_apart_by_their_ranks_and_a_cut_recording_spoils_nobody() {
    let of = |number: u32, ranks: &str, count: i64| {
        let all: Vec<Seen> =
            (0..count).map(|i| ("all_reduce", "1", 64, i * 900, i * 900 + 300, true)).collect();
        let mut input = rank(number, i64::from(number), &all);
        input.timeline.fact(None, "group.1.ranks", ranks);
        input
    };
    let inputs = vec![
        of(0, "0,1,2", 3),
        of(1, "0,1,2", 20),
        of(2, "0,1,2", 20),
        of(3, "3,4", 20),
        of(4, "3,4", 20),
    ];
    let job = job(inputs);
    let sizes: Vec<usize> = job.clock.matched.iter().map(|matched| matched.members.len()).collect();
    assert_eq!(sizes.iter().filter(|&&size| size == 3).count(), 3);
    assert_eq!(sizes.len(), 40, "{sizes:?}");
    let pairs: Vec<Vec<u32>> = job
        .clock
        .matched
        .iter()
        .map(|m| m.members.iter().map(|(p, _)| job.participants[*p].rank).collect())
        .collect();
    assert!(
        pairs.iter().all(|ranks| ranks.iter().all(|r| *r <= 2) || ranks.iter().all(|r| *r > 2))
    );
}
