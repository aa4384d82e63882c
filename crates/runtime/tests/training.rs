//! Whole compiled programs on the host device: every output and state against the reference evaluation of the very
//! program of the plan, on one, two and four ranks, with every strategy.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeMap, sync::Arc, thread};

use graph::{DType, Tensor, Type, names, optim, reference::Evaluator};
use models::{SettingValue, Settings, Shapes, zoo};
use plan::{
    Options, Plan,
    options::{LossScale, Precision, Strategy},
};
use runtime::{
    Device, HostDevice, HostTensor, Inputs, Outputs, RuntimeError,
    in_process::{LinkModel, world},
};
use timeline::{Detail, Kind, Timeline};

const VOCABULARY: usize = 23;

fn small(options: &Options) -> Arc<Plan> {
    let family = zoo::family("gpt2").unwrap();
    let sizes = [("layers", 2), ("width", 16), ("heads", 2), ("context", 8)];
    let mut settings =
        Settings::of(family, None).with("vocabulary", SettingValue::Integer(VOCABULARY as i64));
    for (name, value) in sizes {
        settings = settings.with(name, SettingValue::Integer(value));
    }
    let settings = settings.with("dropout", SettingValue::Number(0.1));
    let model = family.model(&settings).unwrap();
    let shapes = Shapes { batch: 3, length: 8, generate: true };
    let program = models::program(&graph::ops::registry(), &*model, shapes).unwrap();
    // A large epsilon: AdamW would turn the rounding of gradients that are zero in exact arithmetic into whole updates.
    let optimizer = optim::AdamW { epsilon: 1e-2, ..optim::AdamW::default() };
    Arc::new(plan::compile(&program, &optimizer, &plan::target::host(), options).unwrap())
}

/// Inputs of a function: a function of rank, step and micro-step.
fn inputs(plan: &Plan, function: &str, rank: usize, step: usize) -> Vec<(String, Tensor)> {
    let function = plan.program.function(function).unwrap();
    let make = |name: &str, ty: &Type| match name {
        names::RANDOM_KEY => Tensor::ints(ty.clone(), [7, step as i64]),
        names::FIRST_SAMPLE => Tensor::ints(ty.clone(), [(rank * 3) as i64]),
        names::LOCAL_COUNT => Tensor::floats(ty.clone(), [(3 * 8 - 1) as f64]),
        names::LEARNING_RATE => Tensor::floats(ty.clone(), [1e-2]),
        names::CHOSEN => Tensor::floats(
            ty.clone(),
            (0..ty.shape.elements()).map(|i| f64::from(u8::from(i == 5))),
        ),
        _ => {
            let key = graph::random::sample_key(3, step as u64, 0, rank as u64);
            let shift = u32::from(name == names::LABELS);
            let token = |i: u32| i64::from(key.bits(i + shift)) % VOCABULARY as i64;
            let values = (0..ty.shape.elements() as u32).map(token);
            // One label a rank does not count.
            let ignored = name == names::LABELS;
            Tensor::ints(
                ty.clone(),
                values.enumerate().map(|(i, v)| if ignored && i == 4 { -100 } else { v }),
            )
        }
    };
    let graph = &function.graph;
    function.inputs.iter().map(|i| (i.name.clone(), make(&i.name, graph.ty(i.value)))).collect()
}

struct Ran {
    outputs: Vec<Outputs>,
    states: BTreeMap<String, HostTensor>,
    timeline: Timeline,
}

/// The calls of `steps` steps, then an evaluation.
fn calls(plan: &Plan, steps: usize) -> Vec<(String, usize)> {
    let mut calls = vec![];
    for step in 1..=steps {
        let has = |name: &str| plan.program.function(name).is_some();
        for name in [names::STEP, names::FIRST, names::MIDDLE, names::LAST] {
            if has(name) {
                calls.push((name.to_owned(), step));
            }
        }
    }
    calls.push((names::EVALUATE.to_owned(), 1));
    calls
}

fn run(plan: &Arc<Plan>, steps: usize, link: Option<LinkModel>) -> Vec<Ran> {
    thread::scope(|scope| {
        let threads: Vec<_> = world(plan.ranks, link)
            .into_iter()
            .map(|member| {
                let plan = plan.clone();
                scope.spawn(move || {
                    let rank = member.rank();
                    let mut executable = HostDevice::new(1).load(plan.clone(), member, 5).unwrap();
                    assert_eq!(executable.allocated_bytes(), plan.peak_bytes());
                    executable.record(true);
                    let tickets: Vec<_> = calls(&plan, steps)
                        .into_iter()
                        .map(|(function, step)| {
                            let inputs: Inputs = inputs(&plan, &function, rank, step)
                                .iter()
                                .map(|(name, t)| (name.clone(), HostTensor::from_tensor(t)))
                                .collect();
                            executable.submit(&function, inputs).unwrap()
                        })
                        .collect();
                    let outputs =
                        tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
                    let mut states = BTreeMap::new();
                    for name in executable.state_names() {
                        states.insert(name.clone(), executable.read_state(&name).unwrap());
                    }
                    Ran { outputs, states, timeline: executable.take_timeline() }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn close(what: &str, found: &Tensor, expected: &Tensor, tolerance: f64) -> Result<(), String> {
    let largest = expected.to_f64().into_iter().fold(1e-2, |a, v| v.abs().max(a));
    let pairs = found.to_f64().into_iter().zip(expected.to_f64());
    let worst = pairs.map(|(a, b)| (a - b).abs() / largest).fold(0.0, f64::max);
    if worst <= tolerance && found.ty() == expected.ty() {
        return Ok(());
    }
    Err(format!("{what}: {} differs from {} by {worst:.1e}", found.ty(), expected.ty()))
}

fn against_reference(options: &Options, tolerance: f64) -> Result<(), String> {
    let plan = small(options);
    let steps = 2;
    let ran = run(&plan, steps, None);
    let mut evaluator = Evaluator::new(&plan.program, plan.ranks, 5).map_err(|e| e.to_string())?;
    for (number, (function, step)) in calls(&plan, steps).iter().enumerate() {
        let given: Vec<_> = (0..plan.ranks)
            .map(|rank| inputs(&plan, function, rank, *step).into_iter().collect())
            .collect();
        let expected = evaluator.call(function, &given).map_err(|e| e.to_string())?;
        for (rank, expected) in expected.iter().enumerate() {
            for (name, expected) in expected {
                let found = ran[rank].outputs[number][name].to_tensor();
                close(
                    &format!("{function} {step} rank {rank} {name}"),
                    &found,
                    expected,
                    tolerance,
                )?;
            }
        }
    }
    // States of several segments are read by segment; the evaluator holds them whole.
    for (rank, ran) in ran.iter().enumerate() {
        for state in &plan.program.states {
            if !state.segments.is_empty() || state.shards > 1 {
                continue;
            }
            let Some(found) = ran.states.get(&state.name) else { continue };
            let expected = evaluator.state(rank, &state.name).unwrap();
            close(&format!("rank {rank} {}", state.name), &found.to_tensor(), expected, tolerance)?;
        }
        for state in plan.program.states.iter().filter(|state| state.shards == 1) {
            let whole = evaluator.state(rank, &state.name).unwrap();
            for segment in &state.segments {
                let Some(found) = ran.states.get(&segment.name) else { continue };
                let ty = Type { dtype: whole.dtype(), shape: segment.shape.clone() };
                let expected = whole.select(ty, |i| segment.offset + i);
                close(
                    &format!("rank {rank} {}", segment.name),
                    &found.to_tensor(),
                    &expected,
                    tolerance,
                )?;
            }
        }
    }
    let again = run(&plan, steps, None);
    for (a, b) in ran.iter().zip(&again) {
        if a.outputs != b.outputs || a.states != b.states {
            return Err("a repeat has other bits".to_owned());
        }
    }
    if ran.iter().any(|other| other.states != ran[0].states) {
        return Err("ranks end with different states".to_owned());
    }
    Ok(())
}

#[test]
fn every_strategy_agrees_with_the_reference_evaluation_and_repeats_bitwise() {
    let base = Options {
        bucket_bytes: 4096,
        first_bucket_bytes: 1024,
        last_bucket_bytes: 1024,
        ..Options::default()
    };
    let low = Precision { compute: DType::BF16, residual: DType::F32, gradient: DType::F32 };
    let half = Precision { compute: DType::F16, residual: DType::F16, gradient: DType::F32 };
    let scale = LossScale { initial: 128.0, growth_interval: 1 };
    let ddp = |ranks| Options { ranks, strategy: Strategy::Ddp, ..base.clone() };
    let zero1 = |ranks| Options { ranks, strategy: Strategy::Zero1, ..base.clone() };
    let cases = [
        ("one rank", base.clone(), 1e-5),
        (
            "clipped and skipping",
            Options { clip_norm: Some(0.1), skip_not_finite: true, ..base.clone() },
            1e-5,
        ),
        ("three micro-steps", Options { accumulation: 3, ..base.clone() }, 1e-5),
        ("ddp of two", ddp(2), 1e-5),
        ("ddp of four without overlap", Options { overlap: false, ..ddp(4) }, 1e-5),
        ("zero1 of two", zero1(2), 1e-5),
        (
            "zero1 of four, two micro-steps, clipped",
            Options { accumulation: 2, clip_norm: Some(0.1), ..zero1(4) },
            1e-5,
        ),
        ("bf16", Options { precision: low, ..ddp(2) }, 5e-2),
        (
            "f16 with loss scale",
            Options { precision: half, loss_scale: Some(scale), ..zero1(2) },
            5e-2,
        ),
    ];
    let problems: Vec<String> = cases
        .iter()
        .filter_map(|(name, options, tolerance)| {
            against_reference(options, *tolerance).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_recorder_keeps_expectations_dependencies_and_the_modelled_wire() {
    let options = Options { ranks: 2, strategy: Strategy::Ddp, ..Options::default() };
    let plan = small(&options);
    let latency = std::time::Duration::from_millis(3);
    let link = LinkModel { latency, bytes_per_second: 1e9 };
    for ran in run(&plan, 2, Some(link)) {
        let timeline = &ran.timeline;
        let kinds = |kind: Kind| timeline.spans.iter().filter(|span| span.kind == kind).count();
        let steps: usize =
            calls(&plan, 2).iter().map(|(f, _)| plan.function(f).unwrap().steps.len()).sum();
        assert_eq!(kinds(Kind::Compute) + kinds(Kind::Communication) + kinds(Kind::Copy), steps);
        for id in timeline.spans.ids() {
            let span = timeline.spans.get(id);
            if span.kind == Kind::Communication {
                assert!(span.duration.nanos() >= 3_000_000, "{:?}", span.duration);
                let planned = |d: &Detail| matches!(d, Detail::Planned { bytes, .. } if *bytes > 0);
                assert!(timeline.spans.details(id).any(planned));
            }
        }
        assert!(!timeline.flows.is_empty());
        for &(from, to) in &timeline.flows {
            let (from, to) = (timeline.spans.get(from), timeline.spans.get(to));
            assert!(from.end() <= to.start, "{from:?} {to:?}");
        }
    }
}

#[test]
fn wrong_calls_are_one_line_and_a_failing_rank_is_named_by_the_others() {
    let options = Options { ranks: 2, strategy: Strategy::Ddp, ..Options::default() };
    let plan = small(&options);
    let texts: Vec<Vec<String>> = thread::scope(|scope| {
        let threads: Vec<_> = world(2, None)
            .into_iter()
            .map(|member| {
                let plan = plan.clone();
                scope.spawn(move || {
                    let rank = member.rank();
                    let mut executable = HostDevice::new(1).load(plan.clone(), member, 5).unwrap();
                    let given = |step| -> Inputs {
                        let all = inputs(&plan, names::STEP, rank, step);
                        all.iter().map(|(n, t)| (n.clone(), HostTensor::from_tensor(t))).collect()
                    };
                    let text = |error: RuntimeError| error.to_string();
                    let mut texts = vec![
                        executable.submit("stap", given(1)).map(drop).unwrap_err().to_string(),
                        executable
                            .submit(names::STEP, given(1)[1..].to_vec())
                            .map(drop)
                            .map_err(text)
                            .unwrap_err(),
                        executable.read_state("wpe.wait").map(drop).map_err(text).unwrap_err(),
                    ];
                    let mut bad = given(1);
                    if rank == 1 {
                        let tokens = bad.iter_mut().find(|(n, _)| n == names::TOKENS).unwrap();
                        tokens.1.bytes[..4].copy_from_slice(&70_000i32.to_le_bytes());
                    }
                    let ticket = executable.submit(names::STEP, bad).unwrap();
                    texts.push(ticket.wait().unwrap_err().to_string());
                    texts.push(
                        executable.read_state("wpe.weight").map(drop).map_err(text).unwrap_err(),
                    );
                    texts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let own = &texts[1][3];
    assert!(own.starts_with("rank 1: "), "{own}");
    assert!(
        own.ends_with("(embedding): id 70000 at position 0 is beyond the table of 23 rows"),
        "{own}"
    );
    assert_eq!(texts[0][3], format!("rank 1 failed: {own}"));
    assert!(texts[0][0].starts_with("the plan has no function \"stap\""), "{:?}", texts[0]);
    assert!(texts[0][1].contains("is missing"), "{:?}", texts[0]);
    assert!(texts[0][2].contains("nearest is \"wpe.weight\""), "{:?}", texts[0]);
}

#[test]
fn ranks_with_different_plans_learn_the_first_difference() {
    let options = Options { ranks: 2, strategy: Strategy::Ddp, ..Options::default() };
    let plans = [
        small(&options),
        small(&Options {
            bucket_bytes: 4096,
            first_bucket_bytes: 1024,
            last_bucket_bytes: 1024,
            ..options
        }),
    ];
    let texts: Vec<String> = thread::scope(|scope| {
        let plans = &plans;
        let threads: Vec<_> = world(2, None)
            .into_iter()
            .map(|member| {
                scope.spawn(move || {
                    let plan = plans[member.rank()].clone();
                    HostDevice::new(1).load(plan, member, 0).map(drop).unwrap_err().to_string()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].starts_with("rank 1 has another plan than rank 0: "), "{}", texts[0]);
    assert!(texts[0].contains("all_reduce"), "{}", texts[0]);
}
