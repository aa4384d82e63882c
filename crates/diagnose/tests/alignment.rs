//! Clocks and collectives across ranks: the traps that real recordings hold, each made small.

use diagnose::job::{Input, Job};
use timeline::{Detail, Duration, Kind, Process, Span, Time, Timeline, TrackId, TrackKind};

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

/// How far each participant's clock is ahead of the first one's, where the first collective ends.
fn offsets(job: &Job) -> Vec<i64> {
    job.clock.relations.iter().map(|relation| relation.map_or(0, |r| r.offset)).collect()
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
    let offset = offsets(&job)[1];
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
    assert_eq!(offsets(&job), [0, 7_000]);
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
    assert_eq!(offsets(&job), [0, 33_000]);
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

/// An all-reduce every 10 ms for `length` ms, of seven sizes in turn, as a clock sees it that was `offset` us ahead at
/// the start and gains `ppm`; ends scatter by up to `noise` ns, a few by 40 times as much.
fn drifting(number: u32, length: i64, offset: i64, ppm: f64, noise: i64) -> Input {
    let mut input = rank(number, 0, &[]);
    let timeline = &mut input.timeline;
    let name = timeline.names.intern("ncclDevKernel");
    let (stream, thread) = (TrackId(0), TrackId(1));
    let clock = |time: i64| time + offset * 1_000 + (ppm * 1e-6 * time as f64).round() as i64;
    // A sequence without pattern, and without a generator.
    let scatter = |step: i64| step * step * (311 + 97 * i64::from(number)) % 1_009 - 504;
    for step in 0..length / 10 {
        let late = if step % 17 == 3 { 40 } else { 1 };
        let end = clock(step * 10_000_000 + 900_000) + late * noise * scatter(step) / 504;
        let start = clock(step * 10_000_000 + if number == 1 { 500_000 } else { 200_000 });
        let mut add = |track, kind, start, end: i64| {
            let (start, duration) = (Time::from_nanos(start), Duration::from_nanos(end - start));
            timeline.spans.push(Span { track, kind, name, start, duration })
        };
        let call = add(thread, Kind::Call, start - 20_000, start - 15_000);
        let id = add(stream, Kind::Communication, start, end);
        timeline.spans.set_launcher(id, call);
        let detail = Detail::Collective {
            operation: "all_reduce".to_owned(),
            group: "0".to_owned(),
            ranks: Some(3),
            bytes: Some((1 << 20) + (step % 7) as u64),
            sequence: None,
        };
        timeline.spans.add_detail(id, detail);
    }
    input
}

#[test]
fn drift_is_found_in_long_captures_and_only_where_it_is() {
    // Length in ms, offset in us, ppm, noise in ns; what is found.
    let cases: [(i64, i64, f64, i64, bool); 8] = [
        (10_000, 5_000, 20.0, 1_000, true),
        (10_000, -5_000, -20.0, 1_000, true),
        (3_000, 5_000, 20.0, 1_000, true),
        (60_000, -5_000, 50.0, 5_000, true),
        // Too short for 20 ppm to be told from noise; no drift; drift below the noise; no clock at all.
        (900, 5_000, 20.0, 0, false),
        (10_000, 5_000, 0.0, 1_000, false),
        (2_000, 5_000, 2.0, 5_000, false),
        (10_000, 5_000, 5_000.0, 1_000, false),
    ];
    for (length, offset, ppm, noise, found) in cases {
        let inputs = vec![
            drifting(0, length, 0, 0.0, noise),
            drifting(1, length, offset, ppm, noise),
            drifting(2, length, -offset, -ppm / 2.0, noise),
        ];
        let job = job(inputs);
        let case = format!("{length} ms, {offset} us, {ppm} ppm, {noise} ns");
        assert_eq!(job.clock.matched.len() as i64, length / 10, "{case}");
        let drift: Vec<f64> =
            job.clock.relations.iter().map(|r| r.map_or(0.0, |r| r.drift * 1e6)).collect();
        let near = |value: f64, expected: f64, within: f64| (value - expected).abs() <= within;
        if !found {
            assert_eq!(drift, [0.0; 3], "{case}");
            continue;
        }
        let within = 0.02 * ppm.abs() + 0.1;
        assert!(
            near(drift[1], ppm, within) && near(drift[2], -ppm / 2.0, within),
            "{case}: {drift:?}"
        );
        assert!(job.clock.residual <= 2 * noise, "{case}: {}", job.clock.residual);
        // Rank 1 comes last, 300 us after the others, in every collective from first to last.
        for matched in &job.clock.matched {
            assert!(near(matched.wait as f64, 300e3, 6e3 + noise as f64), "{case}: {matched:?}");
        }
    }
}

#[test]
fn short_captures_keep_their_offsets_to_the_nanosecond() {
    for (length, offset) in [(500, 5_000), (900, -5_000)] {
        let job = job(vec![drifting(0, length, 0, 0.0, 0), drifting(1, length, offset, 0.0, 0)]);
        assert_eq!(offsets(&job), [0, offset * 1_000]);
        assert_eq!(job.clock.residual, 0);
    }
}

#[test]
fn ranks_that_no_recording_stands_for_are_missing() {
    let all: Vec<Seen> =
        (0..6).map(|i| ("all_reduce", "0", 64, i * 900, i * 900 + 300, true)).collect();
    let found = |ranks: &[u32], listed: Option<&str>| {
        let inputs = ranks.iter().map(|&number| {
            let mut input = rank(number, 0, &all);
            input.timeline.facts.clear();
            if let Some(ranks) = listed {
                input.timeline.fact(None, "group.0.ranks", ranks);
            }
            input
        });
        job(inputs.collect()).missing_ranks()
    };
    // Collectives state a group of two; lists of ranks say more.
    assert_eq!(found(&[0, 1], None), []);
    assert_eq!(found(&[0], None), [1]);
    assert_eq!(found(&[1], None), [0]);
    assert_eq!(found(&[0, 1], Some("0,1,4")), [4]);
}
