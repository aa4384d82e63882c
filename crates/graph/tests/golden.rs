//! Operators and optimizers against PyTorch's results in f64; `golden/make.py` wrote the numbers.

use std::collections::BTreeMap;

use graph::{
    Attributes, DType, Graph, Op, Origin, Site, Tensor, Type, Value, autodiff, ops,
    optim::{AdamW, Hyper, Optimizer, Sgd},
    reference,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Numbers {
    dtype: DType,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Numbers {
    fn tensor(&self) -> Tensor {
        Tensor::from_f64(Type::new(self.dtype, self.shape.as_slice()), self.values.clone())
    }
}

#[derive(Deserialize)]
struct Case {
    op: String,
    attributes: Attributes,
    inputs: Vec<Numbers>,
    outputs: Vec<Numbers>,
    weights: Vec<Numbers>,
    gradients: Vec<Option<Numbers>>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    constants: BTreeMap<String, serde_json::Value>,
    parameter: Numbers,
    gradients: Vec<Numbers>,
    after: Vec<Numbers>,
}

/// A graph under construction and the tensors of its inputs.
struct Bench {
    graph: Graph,
    bound: BTreeMap<String, Tensor>,
}

impl Bench {
    fn new() -> Bench {
        Bench { graph: Graph::new(&ops::registry()), bound: BTreeMap::new() }
    }

    fn input(&mut self, name: &str, tensor: Tensor) -> Value {
        let value = self.graph.input(name, tensor.ty().clone(), site());
        self.bound.insert(name.to_owned(), tensor);
        value
    }

    fn evaluate(&self, wanted: &[Value]) -> Vec<Tensor> {
        reference::evaluate(&self.graph, &self.bound, wanted).expect("evaluates")
    }
}

fn site() -> Site {
    Site::new("golden", Origin::Forward)
}

fn assert_close(what: &str, found: &Tensor, expected: &Numbers) {
    assert_eq!(found.shape().extents(), expected.shape, "{what}");
    for (found, expected) in found.to_f64().iter().zip(&expected.values) {
        let close = (found - expected).abs() <= 1e-11 * expected.abs().max(1.0);
        assert!(close, "{what}: {found} {expected}");
    }
}

#[test]
fn operators_agree_with_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/operators.json")).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let what = format!("case {number} {} {{{}}}", case.op, case.attributes);
        let mut bench = Bench::new();
        let mut inputs = vec![];
        for (index, numbers) in case.inputs.iter().enumerate() {
            inputs.push(bench.input(&format!("x{index}"), numbers.tensor()));
        }
        let op = Op::new(&case.op, case.attributes.clone());
        let id = bench.graph.op(op, &inputs, site()).unwrap();
        let outputs = bench.graph.outputs(id);
        let mut seeds = vec![];
        for (index, numbers) in case.weights.iter().enumerate() {
            let weight = bench.input(&format!("w{index}"), numbers.tensor());
            seeds.push((outputs[index], weight));
        }
        let gradients = autodiff::gradients(&mut bench.graph, &seeds, &inputs).unwrap();
        for (found, expected) in bench.evaluate(&outputs).iter().zip(&case.outputs) {
            assert_close(&what, found, expected);
        }
        for (gradient, expected) in gradients.iter().zip(&case.gradients) {
            let Some(expected) = expected else { continue };
            let value = gradient.unwrap_or_else(|| panic!("{what}: no gradient"));
            let found = bench.evaluate(&[value]).remove(0);
            assert_close(&format!("gradient of {what}"), &found, expected);
        }
    }
    assert!(cases.len() >= 40, "{}", cases.len());
}

#[test]
fn optimizers_agree_with_pytorch() {
    let runs: Vec<Run> = serde_json::from_str(include_str!("golden/optimizers.json")).unwrap();
    for optimizer in graph::optim::all() {
        let name = optimizer.name();
        assert!(runs.iter().any(|run| run.name == name), "{name} has no golden numbers");
    }
    for (number, run) in runs.iter().enumerate() {
        let optimizer = optimizer(run);
        let constant = |name: &str| run.constants[name].as_f64().unwrap();
        let mut parameter = run.parameter.tensor();
        let zeros = Tensor::full(parameter.ty().clone(), 0.0);
        let mut moments = vec![zeros; optimizer.slots().len()];
        for (step, (gradient, after)) in run.gradients.iter().zip(&run.after).enumerate() {
            let mut bench = Bench::new();
            let p = bench.input("parameter", parameter.clone());
            let g = bench.input("gradient", gradient.tensor());
            let mut scalar =
                |name: &str, dtype, value| bench.input(name, Tensor::scalar(dtype, value));
            let hyper = Hyper {
                learning_rate: scalar("rate", DType::F64, constant("learning_rate")),
                weight_decay: scalar("decay", DType::F64, constant("weight_decay")),
                step: scalar("step", DType::F32, (step + 1) as f64),
            };
            let mut slots = vec![];
            for (name, moment) in optimizer.slots().iter().zip(&moments) {
                slots.push(bench.input(name, moment.clone()));
            }
            let updated =
                optimizer.update(&mut bench.graph, p, g, &slots, &hyper, &site()).unwrap();
            let wanted: Vec<Value> =
                std::iter::once(updated.parameter).chain(updated.moments).collect();
            let mut values = bench.evaluate(&wanted);
            parameter = values.remove(0);
            moments = values;
            assert_close(&format!("run {number}, {}, step {step}", run.name), &parameter, after);
        }
    }
}

fn optimizer(run: &Run) -> Box<dyn Optimizer> {
    let constant = |name: &str| run.constants[name].as_f64().expect("a number");
    match run.name.as_str() {
        "sgd" => Box::new(Sgd {
            momentum: constant("momentum"),
            nesterov: run.constants["nesterov"].as_bool().expect("a truth value"),
        }),
        "adamw" => Box::new(AdamW {
            beta1: constant("beta1"),
            beta2: constant("beta2"),
            epsilon: constant("epsilon"),
        }),
        other => panic!("{other}"),
    }
}
