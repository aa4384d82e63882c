//! Properties of the account over random operations, and of a job over random worlds.

mod scene;

use diagnose::{
    account::Parts,
    classify::Call,
    device::{Device, HostCall, Operation, Work},
    diagnosis::diagnose,
    index::Index,
    interval::Set,
    job::{Input, Job},
    leaf::Leaf,
    steps::Step,
};
use proptest::prelude::*;
use scene::{Act, Scene};
use timeline::SpanId;

/// An operation: kind, stream, start, length, when it was launched before its start, and how long until all arrived.
type Made = (u8, i64, i64, i64, Option<i64>, Option<i64>);

fn operations() -> impl Strategy<Value = Vec<Made>> {
    let one = (
        0_u8..8,
        0_i64..3,
        0_i64..4_000_000,
        0_i64..900_000,
        proptest::option::of(0_i64..3_000_000),
        proptest::option::of(0_i64..900_000),
    );
    proptest::collection::vec(one, 1..24)
}

fn device(made: &[Made]) -> Device {
    let mut made = made.to_vec();
    made.sort_by_key(|&(_, _, start, length, ..)| (start, start + length));
    let mut calls = vec![];
    for (index, &(kind, _, start, _, before, _)) in made.iter().enumerate() {
        if let Some(before) = before {
            let class = [Call::Launch, Call::Copy, Call::Synchronise, Call::Allocate, Call::Load];
            let class = class[usize::from(kind) % class.len()];
            let start = start - before;
            calls
                .push((index, HostCall { start, end: start + before / 2, span: SpanId(0), class }));
        }
    }
    calls.sort_by_key(|(_, call)| (call.start, call.end));
    let operations =
        made.iter().enumerate().map(|(index, &(kind, stream, start, length, _, arrived))| {
            let work = match kind {
                0 => Work::Compute(Leaf::Matmul),
                1 => Work::Compute(Leaf::Attention),
                2 => Work::Compute(Leaf::Elementwise),
                3 | 4 => Work::Collective,
                5 | 6 => Work::Copy,
                _ => Work::Fill,
            };
            let end = start + length;
            let call = calls.iter().position(|(owner, _)| *owner == index);
            let late = arrived.filter(|_| work == Work::Collective);
            Operation {
                start,
                end,
                span: SpanId(index as u32),
                work,
                stream,
                launch: call.and_then(Index::new),
                bytes: 0,
                pageable: kind == 5,
                matched: late.and_then(|_| Index::new(0)),
                waited: late.unwrap_or(0).min(length),
            }
        });
    Device {
        operations: operations.collect(),
        calls: calls.iter().map(|(_, call)| *call).collect(),
        ..Device::default()
    }
}

fn busy(device: &Device, keep: impl Fn(&Operation) -> bool) -> Set {
    Set::union_of(device.operations.iter().filter(|o| keep(o)).map(|o| (o.start, o.end)))
}

proptest! {
    #[test]
    fn every_nanosecond_is_in_one_leaf(made in operations(), from in 0_i64..3_000_000, length in 1_i64..4_000_000) {
        let device = device(&made);
        let step = Step { number: 1, start: from, end: from + length };
        let account = Parts::of(&device).account(step);
        prop_assert_eq!(account.total(), length);
        prop_assert!(account.iter().all(|(_, time)| time >= 0), "{:?}", account);
        let computing = busy(&device, |o| matches!(o.work, Work::Compute(_)));
        prop_assert_eq!(account.compute(), computing.total_in(step.start, step.end));
        let running = [Leaf::Transfer, Leaf::CommWait, Leaf::Unsplit, Leaf::CopyDevice];
        let running: i64 = running.iter().map(|&leaf| account.get(leaf)).sum();
        prop_assert_eq!(account.compute() + running, busy(&device, |_| true).total_in(step.start, step.end));
    }

    /// What lies under something else is hidden: exposed communication, exposed copies and busy time can only shrink.
    #[test]
    fn moving_an_operation_under_another_never_adds(made in operations(), which in any::<prop::sample::Index>(),
        under in any::<prop::sample::Index>()) {
        let (which, under) = (which.index(made.len()), under.index(made.len()));
        prop_assume!(which != under && made[which].3 <= made[under].3);
        let mut moved = made.clone();
        moved[which].2 = made[under].2;
        let step = Step { number: 1, start: -1, end: 6_000_000 };
        let exposed = |made: &[Made]| {
            let account = Parts::of(&device(made)).account(step);
            let sum = |leaves: &[Leaf]| leaves.iter().map(|&leaf| account.get(leaf)).sum::<i64>();
            let communication = sum(&[Leaf::Transfer, Leaf::CommWait, Leaf::Unsplit]);
            (account.compute(), communication, account.get(Leaf::CopyDevice))
        };
        let (before, after) = (exposed(&made), exposed(&moved));
        prop_assert!(after.0 + after.1 + after.2 <= before.0 + before.1 + before.2);
        match (made[which].0, made[under].0) {
            (3..=4, 0..=2) => prop_assert!(after.1 <= before.1),
            (5.., 0..=4) => prop_assert!(after.2 <= before.2),
            _ => {}
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let one = prop_oneof![
        (1_i64..400).prop_map(Act::Host),
        (1_i64..400).prop_map(|time| Act::Inside("aten::work", time)),
        (1_i64..3_000).prop_map(Act::Loader),
        (5_i64..2_000).prop_map(|time| Act::Kernel("gemm", time)),
        (5_i64..2_000).prop_map(|time| Act::Kernel("elementwise", time)),
        (1_u64..50, 20_i64..900)
            .prop_map(|(megabytes, time)| Act::AllReduce(megabytes << 20, time)),
        (1_u64..50, 20_i64..900).prop_map(|(megabytes, time)| Act::AllToAll(megabytes << 20, time)),
        Just(Act::Join),
        Just(Act::Item),
        (1_i64..300).prop_map(Act::Malloc),
        (1_i64..300).prop_map(Act::Free),
        (1_u64..40, 50_i64..2_000).prop_map(|(megabytes, time)| Act::Upload(megabytes << 20, time)),
        (1_u64..40, 50_i64..2_000)
            .prop_map(|(megabytes, time)| Act::Download(megabytes << 20, time)),
        (1_i64..9_000).prop_map(Act::Save),
        (1_u64..40, 50_i64..2_000).prop_map(|(megabytes, time)| Act::Pinned(megabytes << 20, time)),
        (1_i64..900).prop_map(Act::Collect),
        (5_i64..900).prop_map(Act::Receive),
    ];
    proptest::collection::vec(one, 4..30)
}

fn scene(acts: &[Act], slow: i64) -> Scene {
    let mut scene = Scene::new(3);
    for _ in 0..5 {
        scene.step(|rank| {
            let mut own = vec![Act::Kernel("gemm", 40), Act::Host(slow * i64::from(rank))];
            own.extend(acts.iter().cloned());
            own
        });
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn order_and_names_of_files_change_nothing(acts in acts(), slow in 0_i64..2_000, order in 0_usize..6) {
        let told = |job: &Job| {
            let accounts: Vec<_> = job
                .participants
                .iter()
                .zip(&job.accounted)
                .map(|(participant, accounted)| (participant.rank, accounted.account, accounted.beside))
                .collect();
            let diagnosis = diagnose(job);
            let findings: Vec<_> =
                diagnosis.findings.iter().map(|f| (f.id, f.ranks.clone(), format!("{:?}", f.cost))).collect();
            (accounts, job.clock.relations.clone(), job.clock.residual, diagnosis.sentence, findings)
        };
        let before = scene(&acts, slow).job();
        for accounted in &before.accounted {
            let window = accounted.steps.window().map_or(0, |(start, end)| end - start);
            prop_assert_eq!(accounted.account.total(), window);
        }
        let mut others = scene(&acts, slow).inputs();
        let permutations = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let mut moved: Vec<Input> = vec![];
        for &place in &permutations[order] {
            let empty = Input { name: String::new(), format: "scene", timeline: timeline::Timeline::new() };
            let mut input = std::mem::replace(&mut others[place], empty);
            input.name = format!("x{}", 9 - place);
            moved.push(input);
        }
        prop_assert_eq!(told(&before), told(&Job::new(moved, vec![])));
    }
}
