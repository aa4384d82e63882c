//! Differentiation of random small programs, and of collectives over all ranks, against central differences in `f64`.

use std::collections::BTreeMap;

use graph::{
    Collective, DType, Graph, GraphError, Origin, Site, Tensor, Type, Value, autodiff, ops,
    reference::{self, Named},
    trace::{Sym, extend},
};
use proptest::prelude::*;

fn site() -> Site {
    Site::new("random", Origin::Forward)
}

/// One step of a random program: which operator, and which earlier values it reads.
#[derive(Clone, Debug)]
struct Step {
    operator: usize,
    first: usize,
    second: usize,
}

/// Smooth operators that keep values small, over matrices [3, 3].
fn apply(step: &Step, values: &[Sym]) -> Sym {
    let (a, b) = (&values[step.first % values.len()], &values[step.second % values.len()]);
    match step.operator {
        0 => a + b,
        1 => a * b * 0.5,
        2 => a - b,
        3 => a / (b.square() + 1.0),
        4 => a.tanh(),
        5 => a.sigmoid() * b,
        6 => a.matmul(b).tanh(),
        7 => a.matmul_with(b, true, false) * 0.3,
        8 => a.transpose(0, 1),
        9 => a.softmax(),
        10 => a.sum(&[1], true) * 0.3 + b,
        11 => a.mean(&[0], false) - b,
        12 => a.gelu(),
        13 => a.slice(0, 0, 1).concat(&[&b.slice(0, 1, 2)], 0),
        14 => a.reshape(&[9]).slice(0, 3, 3) * b,
        15 => a.accumulate(&[b, a]) * 0.3,
        16 => a.exp().log() * 0.5,
        _ => a.stop_gradient() * 0.0 + b,
    }
}

const OPERATORS: usize = 18;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..OPERATORS, 0..8usize, 0..8usize).prop_map(|(operator, first, second)| Step {
        operator,
        first,
        second,
    });
    prop::collection::vec(step, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn gradients_of_random_programs_agree_with_differences(
        steps in steps(),
        values in prop::collection::vec(-1.0..1.0f64, 18),
    ) {
        let ty = Type::new(DType::F64, [3, 3]);
        let mut graph = Graph::new(&ops::registry());
        let inputs: Vec<Value> =
            ["x0", "x1"].iter().map(|name| graph.input(name, ty.clone(), site())).collect();
        let loss = extend(&mut graph, &site(), |cx| {
            let mut known: Vec<Sym> = inputs.iter().map(|&input| cx.sym(input)).collect();
            for step in &steps {
                known.push(apply(step, &known));
            }
            let last = known.last().unwrap();
            let all = last * &known[known.len() / 2];
            vec![all.sum(&[0, 1], false), cx.constant(1.0, DType::F64)]
        })
        .unwrap();
        let found = autodiff::gradients(&mut graph, &[(loss[0], loss[1])], &inputs).unwrap();
        graph.verify().unwrap();
        let bound = |values: &[f64]| -> Named {
            let tensor = |part: &[f64]| Tensor::floats(ty.clone(), part.iter().copied());
            BTreeMap::from([
                ("x0".to_owned(), tensor(&values[..9])),
                ("x1".to_owned(), tensor(&values[9..])),
            ])
        };
        let at = |values: &[f64]| {
            reference::evaluate(&graph, &bound(values), &loss[..1]).unwrap()[0].at(0)
        };
        for (input, gradient) in found.into_iter().enumerate() {
            let gradient = match gradient {
                Some(value) => {
                    reference::evaluate(&graph, &bound(&values), &[value]).unwrap()[0].to_f64()
                }
                None => vec![0.0; 9],
            };
            // A stopped gradient is multiplied by 0: it does not show in differences either.
            for (element, analytic) in gradient.into_iter().enumerate() {
                let shifted = |by: f64| {
                    let mut moved = values.clone();
                    moved[9 * input + element] += by;
                    at(&moved)
                };
                let step = 1e-3;
                let near = shifted(step) - shifted(-step);
                let far = shifted(2.0 * step) - shifted(-2.0 * step);
                let numeric = (8.0 * near - far) / (12.0 * step);
                let close = (analytic - numeric).abs() <= 1e-6 * numeric.abs().max(1.0);
                prop_assert!(close, "x{}[{}]: {} {}", input, element, analytic, numeric);
            }
        }
    }
}

#[test]
fn collectives_have_the_adjoint_over_all_ranks_or_none() {
    let ranks = 2;
    for collective in Collective::samples(ranks) {
        let ty = Type::new(DType::F64, [4]);
        let mut graph = Graph::new(&ops::registry());
        let x = graph.input("x", ty.clone(), site());
        let y = graph.collective(collective, x, site()).unwrap();
        let w = graph.input("w", graph.ty(y).clone(), site());
        let found = match autodiff::gradients(&mut graph, &[(y, w)], &[x]) {
            Ok(found) => found[0].unwrap(),
            Err(GraphError::NotDifferentiable { what, .. }) => {
                assert_eq!(what, collective.name());
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let value = |rank: usize, element: usize, salt: usize| {
            ((rank * 31 + element * 7 + salt * 3) % 17) as f64 / 8.0 - 1.0
        };
        let wide = graph.ty(w).clone();
        let inputs: Vec<Named> = (0..ranks)
            .map(|rank| {
                let x = Tensor::floats(ty.clone(), (0..4).map(|i| value(rank, i, 0)));
                let elements = wide.shape.elements();
                let w = Tensor::floats(wide.clone(), (0..elements).map(|i| value(rank, i, 1)));
                Named::from([("x".to_owned(), x), ("w".to_owned(), w)])
            })
            .collect();
        let total = |inputs: &[Named]| -> f64 {
            let values = reference::evaluate_ranks(&graph, inputs, &[y, w]).unwrap();
            let dot = |pair: &Vec<Tensor>| {
                pair[0].to_f64().iter().zip(pair[1].to_f64()).map(|(y, w)| y * w).sum::<f64>()
            };
            values.iter().map(dot).sum()
        };
        let gradients = reference::evaluate_ranks(&graph, &inputs, &[found]).unwrap();
        for rank in 0..ranks {
            for element in 0..4 {
                let shifted = |by: f64| {
                    let mut moved = inputs.clone();
                    let mut x = moved[rank]["x"].to_f64();
                    x[element] += by;
                    moved[rank].insert("x".to_owned(), Tensor::floats(ty.clone(), x));
                    total(&moved)
                };
                let numeric = shifted(0.5) - shifted(-0.5);
                let analytic = gradients[rank][0].at(element);
                assert!((analytic - numeric).abs() < 1e-12, "{collective:?} {rank} {element}");
            }
        }
    }
}

#[test]
fn a_value_with_several_readers_gets_one_sum() {
    let mut graph = Graph::new(&ops::registry());
    let x = graph.input("x", Type::new(DType::F32, [3]), site());
    let loss = extend(&mut graph, &site(), |cx| {
        let x = cx.sym(x);
        let parts = [x.exp(), x.tanh(), x.square(), &x * &x];
        let sum = parts[0].accumulate(&[&parts[1], &parts[2], &parts[3]]);
        vec![sum.sum(&[0], false), cx.constant(1.0, DType::F32)]
    })
    .unwrap();
    let before = graph.nodes().len();
    let found = autodiff::gradients(&mut graph, &[(loss[0], loss[1])], &[x]).unwrap();
    let sum = graph.node(found[0].unwrap().node);
    assert!(sum.is_op("accumulate"));
    assert_eq!(sum.inputs.len(), 5);
    let added = &graph.nodes()[before..];
    assert_eq!(added.iter().filter(|node| node.is_op("accumulate")).count(), 1);
    assert!(added.iter().all(|node| node.site.origin == Origin::Gradient));
    assert!(added.iter().all(|node| node.site.path == "random"));
}

#[test]
fn gradients_that_cannot_be_formed_are_errors() {
    let mut graph = Graph::new(&ops::registry());
    let x = graph.input("x", Type::new(DType::F32, [2, 3]), site());
    let y = extend(&mut graph, &site(), |cx| {
        let x = cx.sym(x);
        let ones = cx.full(1.0, DType::F32, &[3]);
        let attributes = graph::Attributes::new().float("epsilon", 1e-5);
        let [_, mean, _] = x.apply_many("layer_norm", attributes, &[&ones, &ones]);
        vec![mean]
    })
    .unwrap()[0];
    let error = autodiff::gradients(&mut graph, &[(y, y)], &[x]).unwrap_err();
    assert_eq!(error.to_string(), "random: output 1 of layer_norm cannot be differentiated");
    let error = autodiff::gradients(&mut graph, &[(y, x)], &[x]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("malformed graph: the seed of {y} is f32[2, 3], f32[2] was expected")
    );
}
