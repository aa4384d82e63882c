//! Ranks, strategies and micro-steps against one rank and one step.

use plan::options::Strategy;

use crate::{
    models::{gpt, gpt_dropout, gpt_run},
    support::{Outcome, difference, outcome, perceptron_run, with},
};

const CASES: [(usize, Strategy, usize); 8] = [
    (2, Strategy::Ddp, 1),
    (4, Strategy::Ddp, 1),
    (2, Strategy::Zero1, 1),
    (4, Strategy::Zero1, 1),
    (1, Strategy::None, 2),
    (1, Strategy::None, 4),
    (2, Strategy::Ddp, 4),
    (2, Strategy::Zero1, 3),
];

#[test]
fn ranks_and_micro_steps_compute_what_one_step_computes() {
    for (f64, tolerance) in [(false, 1e-5), (true, 1e-12)] {
        let mut run = perceptron_run();
        (run.f64, run.samples) = (f64, 24);
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
        run.samples = 24;
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
