//! Passes that only rearrange work: on and off give the same bits. Regions: what they hold and where.

use std::collections::BTreeMap;

use graph::{DType, Kind, Program, names};
use plan::{
    Candidate, MemoryModel, Request, Target,
    options::{Precision, Strategy},
    rewrite::{self, PASSES},
};

use crate::{
    models::{gpt, gpt_block, gpt_dropout, gpt_recompute, gpt_run},
    support::{
        Momentum, PATTERNS, Run, difference, outcome, perceptron_run, rewritten, small_buckets,
        with,
    },
};

const REARRANGING: [&str; 5] =
    ["bucket", "recompute", "fuse", "common_subexpressions", "dead_nodes"];

#[test]
fn passes_that_rearrange_work_change_no_bit() {
    for run in [perceptron_run(), gpt_run(gpt_dropout), gpt_run(gpt_recompute)] {
        for (ranks, strategy, accumulation) in [(1, Strategy::None, 1), (2, Strategy::Ddp, 2)] {
            let mut run = run.clone();
            run.options = with(&run.options, ranks, strategy, accumulation);
            let plain = outcome(&run);
            for pass in REARRANGING {
                let mut without = run.clone();
                without.options.without = vec![pass.to_owned()];
                assert_eq!(difference(&plain, &outcome(&without)), 0.0, "{pass}");
            }
        }
    }
}

/// A region means its body: with any one pattern, and with all of them, every number is what it is without.
#[test]
fn regions_change_no_bit() {
    let low = Precision { compute: DType::BF16, residual: DType::BF16, gradient: DType::F32 };
    for precision in [Precision::default(), low] {
        let mut run = gpt_run(gpt);
        run.options.precision = precision;
        run.patterns = vec![];
        let plain = outcome(&run);
        let all = PATTERNS.to_vec();
        for patterns in PATTERNS.iter().map(|&name| vec![name]).chain([all]) {
            let fused = Run { patterns: patterns.clone(), ..run.clone() };
            let regions = regions(&rewritten(&fused).unwrap(), names::STEP);
            // Of all patterns together, two find their nodes taken by others.
            let expected = if patterns.len() > 1 { patterns.len() - 2 } else { 1 };
            assert_eq!(regions.len(), expected, "{regions:?}");
            assert_eq!(difference(&plain, &outcome(&fused)), 0.0, "{patterns:?}");
        }
    }
}

/// Number of regions of each name.
fn regions(program: &Program, function: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for node in program.function(function).unwrap().graph.nodes() {
        if let Kind::Region(region) = &node.kind {
            *found.entry(region.name.clone()).or_default() += 1;
        }
    }
    found
}

#[test]
fn every_place_of_a_transformer_is_fused() {
    let mut run = gpt_run(gpt);
    run.patterns = PATTERNS.to_vec();
    run.options.precision =
        Precision { compute: DType::BF16, residual: DType::BF16, gradient: DType::F32 };
    let program = rewritten(&run).unwrap();
    let step = program.function(names::STEP).unwrap();
    let count = |name: &str| step.graph.nodes().iter().filter(|node| node.name() == name).count();
    let found = [
        ("cross_entropy_with_gradient", 1),
        ("embedding_add", 1),
        ("linear_gelu", 2),
        ("linear_add", 4),
        ("layer_norm_gradient_add", 4),
        ("linear_gelu_gradient_bias", 2),
        ("linear_gelu_gradient", 0),
        ("gelu", 0),
        ("gelu_gradient", 0),
        ("layer_norm_gradient", 1),
        ("layer_norm", 5),
        // Of the last layer norm's gradients: no residual stream comes back to it.
        ("cast", 2),
        ("concat", 2),
        ("copy", 0),
    ];
    for (name, expected) in found {
        assert_eq!(count(name), expected, "{name} in\n{}", step.graph);
    }
}

/// Recomputed values are not kept: gradient nodes read the second computation, which reads only what is kept.
#[test]
fn recomputation_is_used_by_the_backward_part_only() {
    let mut run = gpt_run(gpt_recompute);
    run.options.without = ["bucket", "fuse"].map(str::to_owned).to_vec();
    let program = rewritten(&run).unwrap();
    let step = &program.function(names::STEP).unwrap().graph;
    let origin = |id: graph::NodeId| step.node(id).site.origin;
    let again = step.ids().filter(|&id| origin(id) == graph::Origin::Recompute).count();
    assert!(again > 20, "{again}");
    for id in step.ids().filter(|&id| origin(id) == graph::Origin::Gradient) {
        for value in &step.node(id).inputs {
            let read = step.node(value.node);
            let kept = read.is_source() || read.site.recompute.is_none() || read.is_op("add");
            assert!(
                kept,
                "{} of {} reads {}",
                step.node(id).name(),
                step.node(id).site.path,
                read.name()
            );
        }
    }
}

/// What each pass makes of one block, in text.
#[test]
fn every_pass_in_text() {
    let mut run = gpt_run(gpt_block);
    run.samples = 2;
    run.patterns = PATTERNS.to_vec();
    run.options = with(&run.options, 2, Strategy::Zero1, 1);
    run.options.bucket_bytes = 4096;
    run.options.clip_norm = Some(1.0);
    run.options.precision =
        Precision { compute: DType::BF16, residual: DType::BF16, gradient: DType::F32 };
    for (index, pass) in PASSES.iter().enumerate() {
        run.options.without =
            PASSES[index + 1..].iter().map(|later| later.name.to_owned()).collect();
        let program = rewritten(&run).unwrap();
        let function =
            [names::STEP, names::TRAIN].into_iter().find_map(|name| program.function(name));
        let states: Vec<String> = program
            .states
            .iter()
            .map(|state| format!("{} {} shards={}\n", state.name, state.ty, state.shards))
            .collect();
        let function = function.unwrap();
        let updates: Vec<String> = function
            .updates
            .iter()
            .map(|update| format!("{} := {}\n", update.state, update.value))
            .collect();
        let outputs: Vec<String> = function
            .outputs
            .iter()
            .map(|output| format!("{} = {}\n", output.name, output.value))
            .collect();
        let text =
            [states.concat(), function.graph.to_string(), outputs.concat(), updates.concat()];
        insta::assert_snapshot!(format!("{index}_{}", pass.name), text.join("\n"));
    }
}

/// A target that prices a region above its members does not get it.
#[test]
fn a_region_that_does_not_pay_is_not_formed() {
    struct Priced(u64);
    impl Target for Priced {
        fn name(&self) -> &str {
            "priced"
        }
        fn memory_model(&self) -> MemoryModel {
            MemoryModel::Offsets
        }
        fn patterns(&self) -> Vec<String> {
            vec!["linear_bias_gradient".to_owned()]
        }
        fn candidates(&self, request: &Request<'_>) -> Vec<Candidate> {
            let region = request.node.name() == "linear_bias_gradient";
            let nanoseconds = if region { self.0 } else { 100 };
            vec![Candidate {
                id: String::new(),
                workspace: 0,
                kernels: 1,
                deterministic: true,
                strided_inputs: vec![],
                strided_outputs: vec![],
                reuse: vec![],
                accumulates: vec![],
                nanoseconds,
            }]
        }
    }
    for (price, expected) in [(200, 8), (201, 0)] {
        let options = small_buckets();
        let program = rewrite::run(&gpt(2), &Momentum, &Priced(price), &options).unwrap();
        let found = regions(&program, names::STEP).get("linear_bias_gradient").copied();
        assert_eq!(found.unwrap_or(0), expected, "{price} ns");
    }
}
