//! Small models, a target that names patterns, and a training run by reference evaluation. Knows no expectations.

use std::{collections::BTreeMap, rc::Rc};

use graph::{
    Attribute, DType, Initial, Kind, Program, Tensor, Type, names,
    optim::{Hyper, Optimizer},
    reference::{Evaluator, Named},
    trace::{Mode, Sym, Tracer},
};
use plan::{
    Candidate, MemoryModel, Options, PlanError, Request, Target,
    options::{LossMean, Strategy},
    rewrite,
};

/// A target that names these patterns and carries out nothing.
pub struct Names(pub Vec<&'static str>);

/// All patterns that any target names.
pub const PATTERNS: [&str; 10] = [
    "elementwise",
    "cross_entropy_with_gradient",
    "embedding_add",
    "linear_gelu",
    "linear_add",
    "add_layer_norm",
    "layer_norm_gradient_add",
    "linear_gelu_gradient_bias",
    "linear_gelu_gradient",
    "linear_bias_gradient",
];

impl Target for Names {
    fn name(&self) -> &str {
        "names"
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Offsets
    }

    fn patterns(&self) -> Vec<String> {
        self.0.iter().map(|&name| name.to_owned()).collect()
    }

    fn candidates(&self, _: &Request<'_>) -> Vec<Candidate> {
        vec![]
    }
}

/// Momentum that grows with the number of applied steps: `v' = v step / (step + 1) + g`, `p' = p - lr (v' + decay p)`.
pub struct Momentum;

impl Optimizer for Momentum {
    fn name(&self) -> &str {
        "momentum"
    }

    fn slots(&self) -> Vec<String> {
        vec!["velocity".to_owned()]
    }

    fn rule(
        &self,
        parameter: &Sym,
        gradient: &Sym,
        moments: &mut [Sym],
        hyper: &Hyper<Sym>,
    ) -> Sym {
        let weight = &hyper.step / (&hyper.step + 1.0);
        moments[0] = &moments[0] * &weight + gradient;
        parameter - &hyper.learning_rate * (&moments[0] + &hyper.weight_decay * parameter)
    }
}

/// How a run feeds its functions.
#[derive(Clone)]
pub struct Run {
    pub program: Rc<dyn Fn(usize) -> Program>,
    pub options: Options,
    pub patterns: Vec<&'static str>,
    pub samples: usize,
    pub steps: usize,
    pub f64: bool,
    /// Global batch of a step: the inputs by name, and the counted elements of each sample.
    pub batch: fn(usize, usize) -> (Named, Vec<f64>),
    pub learning_rate: f64,
}

/// What a run leaves: each step's outputs summed over micro-steps, parameters and moments by name.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub outputs: Vec<BTreeMap<String, f64>>,
    pub tensors: BTreeMap<String, Vec<f64>>,
}

pub fn rewritten(run: &Run) -> Result<Program, PlanError> {
    let micro = run.samples / (run.options.ranks * run.options.accumulation).max(1);
    let mut program = (run.program)(micro);
    if run.f64 {
        program = in_f64(program);
    }
    let target = Names(run.patterns.clone());
    let program = rewrite::run(&program, &Momentum, &target, &run.options)?;
    program.verify()?;
    Ok(program)
}

pub fn outcome(run: &Run) -> Outcome {
    let program = rewritten(run).unwrap();
    let ranks = run.options.ranks;
    let mut evaluator = Evaluator::new(&program, ranks, 7).unwrap();
    let outputs =
        (0..run.steps).map(|step| one_step(run, &program, &mut evaluator, step)).collect();
    Outcome { outputs, tensors: tensors(&program, &evaluator, ranks) }
}

fn one_step(
    run: &Run,
    program: &Program,
    evaluator: &mut Evaluator<'_>,
    step: usize,
) -> BTreeMap<String, f64> {
    let Options { ranks, accumulation, .. } = run.options;
    let micro = run.samples / (ranks * accumulation);
    let (batch, counts) = (run.batch)(run.samples, step);
    let mut summed: BTreeMap<String, f64> = BTreeMap::new();
    for part in 0..accumulation {
        let name = match (part, accumulation) {
            (_, 1) => names::STEP,
            (0, _) => names::FIRST,
            (part, all) if part + 1 == all => names::LAST,
            _ => names::MIDDLE,
        };
        let function = program.function(name).unwrap();
        let inputs: Vec<Named> = (0..ranks)
            .map(|rank| {
                let first = rank * run.samples / ranks + part * micro;
                let of_rank = &counts[rank * run.samples / ranks..][..run.samples / ranks];
                let value = |input: &graph::FunctionInput| {
                    let ty = function.graph.ty(input.value).clone();
                    let scalar = |value: f64| Tensor::full(ty.clone(), value);
                    let tensor = match input.name.as_str() {
                        names::LEARNING_RATE => scalar(run.learning_rate),
                        names::LOCAL_COUNT => scalar(of_rank.iter().sum()),
                        names::FIRST_SAMPLE => scalar(first as f64),
                        names::RANDOM_KEY => Tensor::ints(ty.clone(), [5, step as i64]),
                        other => {
                            let whole = &batch[other];
                            let offset = first * whole.shape().elements() / run.samples;
                            whole.cast(ty.dtype).select(ty.clone(), |index| offset + index)
                        }
                    };
                    (input.name.clone(), tensor)
                };
                function.inputs.iter().map(value).collect()
            })
            .collect();
        let outputs = evaluator.call(name, &inputs).unwrap();
        let agree = |other: &Named| {
            other
                .iter()
                .all(|(key, tensor)| tensor.at(0).to_bits() == outputs[0][key].at(0).to_bits())
        };
        assert!(outputs.iter().all(agree), "ranks agree on {name}");
        for (name, tensor) in &outputs[0] {
            *summed.entry(name.clone()).or_default() += tensor.at(0);
        }
    }
    summed
}

/// Every state of rank 0 by the names of its segments; shards are joined.
pub fn tensors(
    program: &Program,
    evaluator: &Evaluator<'_>,
    ranks: usize,
) -> BTreeMap<String, Vec<f64>> {
    let mut tensors = BTreeMap::new();
    for state in &program.states {
        let holders = if state.shards > 1 { ranks } else { 1 };
        let values: Vec<f64> = (0..holders)
            .flat_map(|rank| evaluator.state(rank, &state.name).unwrap().to_f64())
            .collect();
        if state.segments.is_empty() {
            tensors.insert(state.name.clone(), values);
            continue;
        }
        for segment in &state.segments {
            let part = values[segment.offset..][..segment.shape.elements()].to_vec();
            tensors.insert(segment.name.clone(), part);
        }
    }
    tensors
}

/// The same program over f64: what tolerances of 1e-12 are measured in.
pub fn in_f64(mut program: Program) -> Program {
    program.states.iter_mut().for_each(|state| state.ty.dtype = DType::F64);
    for function in &mut program.functions {
        let ids: Vec<_> = function.graph.ids().collect();
        for id in ids {
            let node = function.graph.node_mut(id);
            if let Kind::Op(op) = &mut node.kind {
                let wide = |value: &Attribute| match value {
                    Attribute::DType(DType::F32) => Attribute::DType(DType::F64),
                    other => other.clone(),
                };
                let pairs: Vec<_> =
                    op.attributes.iter().map(|(n, v)| (n.to_owned(), wide(v))).collect();
                for (name, value) in pairs {
                    op.attributes = std::mem::take(&mut op.attributes).with(&name, value);
                }
            }
            for ty in &mut node.outputs {
                if ty.dtype == DType::F32 {
                    ty.dtype = DType::F64;
                }
            }
        }
    }
    program.verify().unwrap();
    program
}

/// Two linear layers, a frozen one before them, and a squared error; `scale` is a parameter used twice.
pub fn perceptron(batch: usize) -> Program {
    let mut tracer = Tracer::new(&graph::ops::registry());
    let place = tracer.parameters();
    let frozen = place.frozen().linear("frozen", 6, 6);
    let (first, second) = (place.linear("first", 6, 9), place.linear_transposed("second", 9, 3));
    let scale = place.parameter("scale", &[3], Initial::Constant(1.0));
    let forward = |x: &Sym| {
        let x = x.linear(&frozen).linear(&first).tanh().linear(&second);
        let scale = x.context().parameter(&scale);
        (&x * &scale) + &scale
    };
    for (name, mode) in [(names::TRAIN, Mode::Training), (names::EVALUATE, Mode::Inference)] {
        tracer.function(name, mode, |cx| {
            let x = cx.input("x", DType::F32, &[batch, 6]);
            let y = cx.input("y", DType::F32, &[batch, 3]);
            let loss = (forward(&x) - &y).square().sum(&[0, 1], false);
            cx.loss(&loss, &cx.constant(3.0 * batch as f64, DType::F32));
        });
    }
    tracer.finish().unwrap()
}

/// Inputs of the perceptron: a function of sample and step.
pub fn perceptron_batch(samples: usize, step: usize) -> (Named, Vec<f64>) {
    let wave = |width: usize, speed: f64| {
        let value = move |i: usize| (speed * (i + 31 * step) as f64).sin();
        Tensor::floats(Type::new(DType::F64, [samples, width]), (0..samples * width).map(value))
    };
    let named = [("x".to_owned(), wave(6, 0.7)), ("y".to_owned(), wave(3, 1.3))];
    (named.into_iter().collect(), vec![3.0; samples])
}

/// A run of the perceptron on one rank; buckets are small, so that there are several.
pub fn perceptron_run() -> Run {
    Run {
        program: Rc::new(perceptron),
        options: small_buckets(),
        patterns: vec!["elementwise"],
        samples: 8,
        steps: 4,
        f64: false,
        batch: perceptron_batch,
        learning_rate: 0.05,
    }
}

pub fn small_buckets() -> Options {
    Options {
        bucket_bytes: 300,
        first_bucket_bytes: 40,
        last_bucket_bytes: 40,
        ..Options::default()
    }
}

pub fn with(options: &Options, ranks: usize, strategy: Strategy, accumulation: usize) -> Options {
    Options { ranks, strategy, accumulation, ..options.clone() }
}

pub fn local(options: Options) -> Options {
    Options { loss_mean: LossMean::Local, ..options }
}

/// Largest difference of two outcomes, relative to 1 + size; both must hold the same tensors.
pub fn difference(a: &Outcome, b: &Outcome) -> f64 {
    let keys = |outcome: &Outcome| {
        let kept = |name: &&String| {
            !name.contains(names::GLOBAL_COUNT) && !name.ends_with("#gradient_sum")
        };
        outcome.tensors.keys().filter(kept).cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(a), keys(b));
    let relative = |x: f64, y: f64| (x - y).abs() / (1.0 + x.abs().max(y.abs()));
    let tensors = keys(a)
        .into_iter()
        .flat_map(|key| {
            let (left, right) = (a.tensors[&key].clone(), b.tensors[&key].clone());
            left.into_iter().zip(right)
        })
        .map(|(x, y)| relative(x, y));
    let outputs = a.outputs.iter().zip(&b.outputs).flat_map(|(left, right)| {
        left.iter().filter_map(|(name, x)| Some(relative(*x, *right.get(name)?)))
    });
    let worst =
        tensors.chain(outputs).fold(0.0, |a: f64, b| if b.is_nan() { f64::NAN } else { a.max(b) });
    assert!(!worst.is_nan(), "not a number");
    worst
}
