//! Clipping, loss scale, skipped steps, groups, frozen and shared parameters, both meanings of the loss.

use graph::{DType, Kind, names};
use plan::{
    PlanError,
    options::{LossScale, ParameterGroup, Precision, Strategy},
};

use crate::{
    models::{gpt, gpt_run},
    support::{
        Outcome, Run, difference, local, outcome, perceptron, perceptron_batch, perceptron_run,
        rewritten, with,
    },
};

fn everywhere(run: &Run) -> Vec<(String, Outcome)> {
    let cases = [(1, Strategy::None), (2, Strategy::Ddp), (4, Strategy::Ddp), (2, Strategy::Zero1)];
    let one = |&(ranks, strategy): &(usize, Strategy)| {
        let options = with(&run.options, ranks, strategy, run.options.accumulation);
        (format!("{ranks} {strategy:?}"), outcome(&Run { options, ..run.clone() }))
    };
    cases.iter().map(one).collect()
}

/// The gradient of a program whose optimizer pass is left out, by parameter.
fn gradients(run: &Run) -> Vec<(String, Vec<f64>)> {
    let mut run = run.clone();
    run.options.without.push("optimizer".to_owned());
    run.steps = 1;
    let tensors = outcome(&run).tensors.into_iter();
    tensors.filter(|(name, _)| name.ends_with("#gradient")).collect()
}

#[test]
fn clipping_uses_the_norm_of_the_whole_reduced_gradient() {
    let run = perceptron_run();
    let square: f64 =
        gradients(&run).iter().flat_map(|(_, values)| values).map(|value| value * value).sum();
    let norm = square.sqrt();
    for clip in [norm / 3.0, norm * 3.0] {
        let mut run = run.clone();
        (run.options.clip_norm, run.steps) = (Some(clip), 1);
        let unclipped = outcome(&Run { options: perceptron_run().options, ..run.clone() });
        for (case, clipped) in everywhere(&run) {
            let found = clipped.outputs[0][names::GRADIENT_NORM];
            assert!((found - norm).abs() < 1e-5 * norm, "{case}: {found}, {norm}");
            let factor = (clip / norm).min(1.0);
            let name = "first.weight#velocity";
            for (a, b) in clipped.tensors[name].iter().zip(&unclipped.tensors[name]) {
                assert!((a - factor * b).abs() < 1e-6 * (1.0 + b.abs()), "{case}: {a}, {b}");
            }
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_skips_the_step_and_halves_the_scale() {
    fn batch(samples: usize, step: usize) -> (graph::reference::Named, Vec<f64>) {
        let (mut named, counts) = perceptron_batch(samples, step);
        if step == 1 || step == 4 {
            let y = named["y"].clone();
            // One element of one sample: one rank sees it, all ranks must skip.
            let values = y.to_f64().into_iter().enumerate();
            let spoilt = values.map(|(i, value)| if i == 3 { f64::INFINITY } else { value });
            named.insert("y".to_owned(), graph::Tensor::floats(y.ty().clone(), spoilt));
        }
        (named, counts)
    }
    for (accumulation, compute) in [(1, DType::F32), (2, DType::F32), (1, DType::F16)] {
        let mut run = perceptron_run();
        run.options.precision = Precision { compute, residual: compute, gradient: DType::F32 };
        run.batch = batch;
        run.options.accumulation = accumulation;
        run.options.loss_scale = Some(LossScale { initial: 1024.0, growth_interval: 2 });
        for (steps, scale, good, applied) in [
            (1, 1024.0, 1.0, 1.0),
            (2, 512.0, 0.0, 1.0),
            (4, 1024.0, 0.0, 3.0),
            (5, 512.0, 0.0, 3.0),
        ] {
            run.steps = steps;
            for (case, found) in everywhere(&run) {
                let state = |name: &str| found.tensors[name][0];
                let states =
                    [names::LOSS_SCALE, names::GOOD_STEPS, names::APPLIED_STEPS].map(state);
                assert_eq!(states, [scale, good, applied], "{case} after {steps}");
                let flag = found.outputs[steps - 1][names::FOUND_INFINITE];
                assert_eq!(flag, f64::from(u8::from([2, 5].contains(&steps))), "{case}");
                assert!(
                    found.tensors.values().flatten().all(|v| v.is_finite() || accumulation > 1)
                );
            }
        }
    }
}

#[test]
fn a_loss_scale_changes_nothing_but_the_range() {
    let run = perceptron_run();
    let mut scaled = run.clone();
    scaled.options.loss_scale = Some(LossScale { initial: 4096.0, growth_interval: 3 });
    let (plain, mut scaled) = (outcome(&run), outcome(&scaled));
    scaled.tensors.retain(|name, _| plain.tensors.contains_key(name));
    assert_eq!(difference(&plain, &scaled), 0.0, "powers of two");
}

#[test]
fn skipping_without_a_scale_keeps_every_state() {
    let mut run = perceptron_run();
    run.options.skip_not_finite = true;
    run.batch = |samples, step| {
        let (mut named, counts) = perceptron_batch(samples, step);
        if step == 1 {
            let x = named["x"].clone();
            named.insert("x".to_owned(), graph::Tensor::full(x.ty().clone(), f64::NAN));
        }
        (named, counts)
    };
    run.steps = 1;
    let before = outcome(&run);
    run.steps = 2;
    assert_eq!(before.tensors, outcome(&run).tensors);
}

#[test]
fn groups_decide_decay_and_learning_rate_by_parameter() {
    let mut run = perceptron_run();
    run.steps = 1;
    run.options.groups = vec![
        ParameterGroup { name_endings: vec!["bias".to_owned()], ..ParameterGroup::default() },
        ParameterGroup {
            at_least_axes: 2,
            weight_decay: 0.5,
            learning_rate_scale: 0.25,
            ..ParameterGroup::default()
        },
        ParameterGroup { weight_decay: 0.125, ..ParameterGroup::default() },
    ];
    let gradients = gradients(&run);
    for (case, found) in everywhere(&run) {
        let start = {
            let mut run = run.clone();
            run.steps = 0;
            outcome(&run)
        };
        for (name, gradient) in &gradients {
            let name = name.trim_end_matches("#gradient");
            let (decay, rate) = match name {
                "scale" => (0.125, 1.0),
                name if name.ends_with("bias") => (0.0, 1.0),
                _ => (0.5, 0.25),
            };
            for (i, g) in gradient.iter().enumerate() {
                let (old, new) = (start.tensors[name][i], found.tensors[name][i]);
                let expected = old - 0.05 * rate * (g + decay * old);
                assert!((new - expected).abs() < 1e-5, "{case} {name}: {new}, {expected}");
            }
        }
    }
}

#[test]
fn frozen_parameters_stay_and_have_no_states() {
    let mut run = perceptron_run();
    let trained = outcome(&run);
    run.steps = 0;
    let start = outcome(&run);
    for name in ["frozen.weight", "frozen.bias"] {
        assert_eq!(start.tensors[name], trained.tensors[name]);
        assert!(!trained.tensors.contains_key(&format!("{name}#velocity")));
    }
    assert_ne!(start.tensors["first.weight"], trained.tensors["first.weight"]);
}

#[test]
fn a_parameter_that_the_loss_does_not_read_stays() {
    fn program(batch: usize) -> graph::Program {
        let mut program = perceptron(batch);
        let ty = graph::Type::new(DType::F32, [5]);
        let kind = graph::StateKind::Parameter;
        let initial = graph::Initial::Constant(3.0);
        program.states.push(graph::State::new("unused", ty, kind, initial));
        program
    }
    let mut run = perceptron_run();
    run.program = std::rc::Rc::new(program);
    for (case, found) in everywhere(&run) {
        assert_eq!(found.tensors["unused"], [3.0; 5], "{case}");
        assert!(!found.tensors.contains_key("unused#velocity"), "{case}");
    }
}

#[test]
fn a_shared_table_has_one_slot_and_one_sum() {
    let run = gpt_run(gpt);
    let mut plain = run.clone();
    plain.options.without = ["bucket", "fuse", "optimizer"].map(str::to_owned).to_vec();
    let program = rewritten(&plain).unwrap();
    let step = program.function(names::STEP).unwrap();
    let update = step.updates.iter().find(|update| update.state == "wte.weight#gradient").unwrap();
    let sum = step.graph.node(update.value.node);
    assert!(sum.is_op("accumulate"));
    assert_eq!(sum.inputs.len(), 2);
    let program = rewritten(&run).unwrap();
    let segments = program.states.iter().flat_map(|state| &state.segments);
    assert_eq!(segments.filter(|segment| segment.name == "wte.weight").count(), 1);
    assert!(program.states.iter().all(|state| state.segments.windows(2).all(|pair| {
        pair[0].offset % 64 == 0 && pair[0].offset + pair[0].shape.elements() <= pair[1].offset
    })));
}

/// PyTorch's DistributedDataParallel averages each rank's mean; ranks with few counted labels weigh as much as others.
#[test]
fn a_local_mean_averages_the_ranks_means() {
    let mut run = gpt_run(gpt);
    run.options = local(with(&run.options, 2, Strategy::Ddp, 1));
    let found = gradients(&run);
    let halves: Vec<Vec<(String, Vec<f64>)>> = (0..2)
        .map(|half| {
            let mut alone = gpt_run(gpt);
            alone.samples = 4;
            alone.batch = if half == 0 { |_, step| part(step, 0) } else { |_, step| part(step, 4) };
            gradients(&alone)
        })
        .collect();
    assert!(!found.is_empty());
    for (name, values) in &found {
        let of = |half: usize| &halves[half].iter().find(|(other, _)| other == name).unwrap().1;
        for ((value, a), b) in values.iter().zip(of(0)).zip(of(1)) {
            let expected = (a + b) / 2.0;
            assert!((value - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{name}");
        }
    }
    let global = gradients(&{
        let mut run = gpt_run(gpt);
        run.options = with(&run.options, 2, Strategy::Ddp, 1);
        run
    });
    assert_ne!(found, global, "labels that do not count are uneven");
}

fn part(step: usize, first: usize) -> (graph::reference::Named, Vec<f64>) {
    let (named, counts) = (gpt_run(gpt).batch)(8, step);
    let cut = |tensor: graph::Tensor| {
        let width = tensor.shape().last();
        let ty = tensor.ty().with_shape([4, width]);
        tensor.select(ty, |index| first * width + index)
    };
    let named = named.into_iter().map(|(name, tensor)| (name, cut(tensor))).collect();
    (named, counts[first..first + 4].to_vec())
}

#[test]
fn low_precision_reads_working_copies_that_the_optimizer_writes() {
    for (compute, residual) in
        [(DType::BF16, DType::F32), (DType::BF16, DType::BF16), (DType::F16, DType::F16)]
    {
        let mut run = gpt_run(gpt);
        run.steps = 3;
        run.options.precision = Precision { compute, residual, gradient: DType::F32 };
        let full = outcome(&gpt_run(gpt));
        let mut few = run.clone();
        few.steps = 2;
        let loss = |outcome: &Outcome, step: usize| outcome.outputs[step][names::LOSS_SUM];
        let low = outcome(&few);
        assert!((loss(&low, 1) - loss(&full, 1)).abs() < 0.03 * loss(&full, 1), "{compute}");
        for strategy in [Strategy::Ddp, Strategy::Zero1] {
            run.options = with(&run.options, 2, strategy, 1);
            let program = rewritten(&run).unwrap();
            let step = program.function(names::STEP).unwrap();
            let casts_of_states = step.graph.nodes().iter().filter(|node| {
                let reads = |value: &graph::Value| {
                    matches!(step.graph.node(value.node).kind, Kind::State { .. })
                };
                node.is_op("cast") && node.inputs.iter().any(reads)
            });
            assert_eq!(casts_of_states.count(), 0);
            // Under zero1 nothing but working copies and what is read in f32 is whole on every rank.
            for state in program.states.iter().filter(|state| state.name.contains("bucket.")) {
                let copied = program.state(&format!("{}#working", state.name)).is_some();
                let moment = matches!(state.kind, graph::StateKind::Moment { .. });
                let sharded = strategy == Strategy::Zero1 && (moment || copied);
                assert_eq!(state.shards, if sharded { 2 } else { 1 }, "{}", state.name);
            }
            let found = outcome(&run);
            for (name, values) in &found.tensors {
                let Some(parameter) = name.strip_suffix("#working") else { continue };
                for (copy, own) in values.iter().zip(&found.tensors[parameter]) {
                    assert_eq!(*copy, compute.round(*own), "{name}");
                }
            }
        }
    }
}

#[test]
fn impossible_options_are_named() {
    let refused = |change: fn(&mut plan::Options)| {
        let mut run = perceptron_run();
        change(&mut run.options);
        match rewritten(&run) {
            Err(error @ PlanError::Option { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let messages = [
        refused(|o| o.clip_norm = Some(0.0)),
        refused(|o| o.bucket_bytes = 0),
        refused(|o| o.accumulation = 0),
        refused(|o| {
            o.loss_scale = Some(LossScale { initial: 1000.0, growth_interval: 1 });
        }),
        refused(|o| {
            o.loss_scale = Some(LossScale { initial: 1024.0, growth_interval: 0 });
        }),
        refused(|o| o.ranks = 2),
        refused(|o| o.precision.compute = DType::I32),
        refused(|o| {
            o.precision =
                Precision { residual: DType::F16, compute: DType::BF16, gradient: DType::F32 }
        }),
        refused(|o| {
            o.groups =
                vec![ParameterGroup { name_endings: vec!["bias".into()], ..Default::default() }];
        }),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}
