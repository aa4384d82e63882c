//! Ranks, strategies and micro-steps against one rank and one step.

use graph::{
    DType, Initial, Program, Tensor, names,
    reference::{Evaluator, Named},
    trace::{Mode, Tracer},
};
use plan::{Options, options::Strategy, rewrite};

use crate::{
    models::{gpt, gpt_dropout, gpt_run},
    support::{Momentum, Names, Outcome, difference, outcome, perceptron_run, with},
};

const CASES: [(usize, Strategy, usize); 8] = [
    (2, Strategy::Ddp, 1),
    (4, Strategy::Ddp, 1),
    (2, Strategy::Zero1, 1),
    (4, Strategy::Zero1, 1),
    (1, Strategy::None, 2),
    (1, Strategy::None, 4),
    (2, Strategy::Ddp, 4),
    (2, Strategy::Zero1, 4),
];

#[test]
fn ranks_and_micro_steps_compute_what_one_step_computes() {
    for (f64, tolerance) in [(false, 1e-5), (true, 1e-12)] {
        let mut run = perceptron_run();
        (run.f64, run.samples) = (f64, 32);
        let one = outcome(&run);
        for (ranks, strategy, accumulation) in CASES {
            let mut many = run.clone();
            many.options = with(&run.options, ranks, strategy, accumulation);
            let found = difference(&one, &outcome(&many));
            assert!(found <= tolerance, "{ranks} {strategy:?} {accumulation}: {found}");
        }
    }
}

#[test]
fn sharding_the_optimizer_changes_no_bit() {
    for ranks in [2, 4] {
        for accumulation in [1, 2] {
            let of = |strategy| -> Outcome {
                let mut run = perceptron_run();
                run.steps = 20;
                run.options = with(&run.options, ranks, strategy, accumulation);
                outcome(&run)
            };
            let (ddp, zero1) = (of(Strategy::Ddp), of(Strategy::Zero1));
            assert_eq!(difference(&ddp, &zero1), 0.0);
        }
    }
}

/// Dropout too: masks depend on the sample's place in the global batch, not on rank or micro-step.
#[test]
fn ranks_and_micro_steps_of_a_transformer_agree() {
    for program in [gpt, gpt_dropout] {
        let mut run = gpt_run(program);
        run.samples = 32;
        let one = outcome(&run);
        for (ranks, strategy, accumulation) in CASES {
            let mut many = run.clone();
            many.options = with(&run.options, ranks, strategy, accumulation);
            let found = difference(&one, &outcome(&many));
            assert!(found <= 1e-5, "{ranks} {strategy:?} {accumulation}: {found}");
        }
    }
}

#[test]
fn evaluation_sees_the_trained_states() {
    for (ranks, strategy) in [(2, Strategy::Ddp), (2, Strategy::Zero1)] {
        let mut run = gpt_run(gpt);
        run.options = with(&run.options, ranks, strategy, 1);
        let program = crate::support::rewritten(&run).unwrap();
        let reads = |name: &str| {
            let nodes = program.function(name).unwrap().graph.nodes();
            let states = nodes.iter().filter(|node| matches!(node.kind, graph::Kind::State { .. }));
            states
                .filter(|n| n.site.path.starts_with("bucket.") && !n.site.path.contains('#'))
                .count()
        };
        assert_eq!(reads("evaluate"), reads("step"));
    }
}

/// Masks are bitwise those of one rank, at any number of ranks and micro-steps, forwards and backwards.
#[test]
fn dropout_masks_are_those_of_one_rank() {
    const SAMPLES: usize = 8;
    fn program(batch: usize) -> Program {
        let mut tracer = Tracer::new(&graph::ops::registry());
        let weight = tracer.parameters().parameter("w", &[16], Initial::Constant(1.0));
        tracer.function(names::TRAIN, Mode::Training, |cx| {
            let x = cx.input("x", DType::F32, &[batch, 16]);
            let dropped = (&x * cx.parameter(&weight)).dropout(0.4);
            cx.output("mask", &dropped);
            cx.loss(&dropped.sum(&[0, 1], false), &cx.constant(1.0, DType::F32));
        });
        tracer.finish().unwrap()
    }
    let masks = |ranks: usize, accumulation: usize| -> Vec<f64> {
        let strategy = if ranks > 1 { Strategy::Ddp } else { Strategy::None };
        let options = with(&Options::default(), ranks, strategy, accumulation);
        let micro = SAMPLES / ranks / accumulation;
        let (target, optimizer) = (Names(vec![]), Momentum);
        let program = rewrite::run(&program(micro), &optimizer, &target, &options).unwrap();
        let mut evaluator = Evaluator::new(&program, ranks, 3).unwrap();
        let mut of_rank = vec![vec![]; ranks];
        for part in 0..accumulation {
            let name = match (part, accumulation) {
                (_, 1) => names::STEP,
                (0, _) => names::FIRST,
                (part, all) if part + 1 == all => names::LAST,
                _ => names::MIDDLE,
            };
            let function = program.function(name).unwrap();
            let inputs = |rank: usize| -> Named {
                let first = (rank * SAMPLES / ranks + part * micro) as f64;
                let tensor = |input: &graph::FunctionInput| {
                    let ty = function.graph.ty(input.value).clone();
                    let value = match input.name.as_str() {
                        names::FIRST_SAMPLE => first,
                        _ => 1.0,
                    };
                    (input.name.clone(), Tensor::full(ty, value))
                };
                function.inputs.iter().map(tensor).collect()
            };
            let inputs: Vec<Named> = (0..ranks).map(inputs).collect();
            let outputs = evaluator.call(name, &inputs).unwrap();
            for (rank, outputs) in outputs.iter().enumerate() {
                of_rank[rank].extend(outputs["mask"].to_f64());
            }
        }
        of_rank.concat()
    };
    let one = masks(1, 1);
    let kept = one.iter().filter(|value| **value != 0.0).count();
    assert!((60..100).contains(&kept), "{kept} of 128");
    for (ranks, accumulation) in [(2, 1), (4, 1), (1, 4), (2, 2), (2, 4)] {
        assert_eq!(one, masks(ranks, accumulation), "{ranks} {accumulation}");
    }
}
