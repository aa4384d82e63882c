//! Random models: regions, buckets, ranks and micro-steps against the plain program. Knows no pass from inside.

use std::rc::Rc;

use graph::{
    DType, Initial, Program, names,
    trace::{Context, Mode, Parameter, Parameters, Sym, Tracer},
};
use plan::options::Strategy;
use proptest::{
    collection::vec,
    prelude::{ProptestConfig, any, prop_assert, prop_assert_eq},
    proptest,
    strategy::Strategy as _,
};

use crate::support::{
    Outcome, PATTERNS, Run, difference, outcome, perceptron_batch, small_buckets, with,
};

const WIDTH: usize = 6;

/// One layer of a random model: what it does and which earlier values it reads.
#[derive(Clone, Debug)]
struct Layer {
    kind: usize,
    left: usize,
    right: usize,
    recompute: bool,
}

fn layers() -> impl proptest::strategy::Strategy<Value = Vec<Layer>> {
    let layer = (0..14usize, any::<usize>(), any::<usize>(), proptest::bool::weighted(0.2));
    let layer =
        layer.prop_map(|(kind, left, right, recompute)| Layer { kind, left, right, recompute });
    vec(layer, 1..14)
}

/// A list of layers; every one reads values of shape `[batch, 6]` and yields one.
fn program(layers: &[Layer], batch: usize) -> Program {
    let mut tracer = Tracer::new(&graph::ops::registry());
    let place = tracer.parameters();
    let gain = place.parameter("gain", &[WIDTH], Initial::Uniform { bound: 1.0 });
    let out = place.linear("out", WIDTH, 3);
    let owned: Vec<(Parameters, Parameter)> = (0..layers.len())
        .map(|index| {
            let place = place.sub("layer").sub(index);
            let shift = place.parameter("shift", &[WIDTH], Initial::Uniform { bound: 0.5 });
            (place, shift)
        })
        .collect();
    let linears: Vec<_> = owned
        .iter()
        .zip(layers)
        .map(|((place, _), layer)| (layer.kind < 2).then(|| place.linear("linear", WIDTH, WIDTH)))
        .collect();
    let norms: Vec<_> = owned
        .iter()
        .zip(layers)
        .map(|((place, _), layer)| (layer.kind == 2).then(|| place.layer_norm("norm", WIDTH)))
        .collect();
    tracer.function(names::TRAIN, Mode::Training, |cx| {
        let x = cx.input("x", DType::F32, &[batch, WIDTH]);
        let y = cx.input("y", DType::F32, &[batch, 3]);
        let mut values = vec![&x * cx.parameter(&gain)];
        for (index, layer) in layers.iter().enumerate() {
            let left = values[layer.left % values.len()].clone();
            let right = values[layer.right % values.len()].clone();
            let shift = cx.parameter(&owned[index].1);
            let build = || {
                let mixed = match (&linears[index], &norms[index]) {
                    (Some(linear), _) => left.linear(linear) + &right,
                    (_, Some(norm)) => left.layer_norm(norm),
                    _ => elementary(cx, layer.kind, &left, &right),
                };
                (mixed + &shift).tanh()
            };
            let scoped = || cx.scope(format!("layer.{index}"), build);
            let value = if layer.recompute { cx.recompute(scoped) } else { scoped() };
            values.push(value);
        }
        let last = values.iter().skip(1).fold(values[0].clone(), |sum, value| sum + value);
        let loss = (last.linear(&out) - &y).square().sum(&[0, 1], false);
        cx.loss(&loss, &cx.constant(3.0 * batch as f64, DType::F32));
    });
    tracer.finish().unwrap()
}

fn elementary(cx: &Context, kind: usize, left: &Sym, right: &Sym) -> Sym {
    let [batch, width] = left.dims();
    match kind {
        3 => left * right,
        4 => left.maximum(right),
        5 => left.gelu_tanh(),
        6 => left.dropout(0.4),
        7 => left.reshape(&[batch, 2, width / 2]).permute(&[0, 2, 1]).reshape(&[batch, width]),
        8 => left - left.mean(&[1], true),
        9 => {
            let [a, b] = left.split(1);
            b.reshape(&[batch, width / 2]).concat(&[&a], 1)
        }
        10 => left.softmax() * right,
        11 => left.square().sum(&[1], true) + right,
        12 => left.slice(1, 1, 1) * right,
        _ => left + cx.full(0.25, DType::F32, &[width]),
    }
}

fn run(layers: &[Layer]) -> Run {
    let layers = layers.to_vec();
    Run {
        program: Rc::new(move |batch| program(&layers, batch)),
        options: small_buckets(),
        patterns: vec![],
        samples: 8,
        steps: 2,
        f64: true,
        batch: perceptron_batch,
        learning_rate: 0.01,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rewritten_programs_mean_the_same(layers in layers()) {
        let plain = run(&layers);
        let one: Outcome = outcome(&plain);
        for pattern in [&PATTERNS[..], &["elementwise"], &["linear_add", "elementwise"]] {
            let fused = Run { patterns: pattern.to_vec(), ..plain.clone() };
            prop_assert_eq!(difference(&one, &outcome(&fused)), 0.0, "{:?}", pattern);
        }
        for (ranks, strategy, accumulation) in
            [(2, Strategy::Ddp, 1), (2, Strategy::Zero1, 2), (1, Strategy::None, 4)]
        {
            let options = with(&plain.options, ranks, strategy, accumulation);
            let many = Run { options, patterns: PATTERNS.to_vec(), ..plain.clone() };
            let found = difference(&one, &outcome(&many));
            prop_assert!(found < 1e-12, "{} {:?} {}: {}", ranks, strategy, accumulation, found);
        }
    }
}
