//! Elementwise regions against the evaluation of their body: random bodies with broadcasting, constants, mixed dtypes
//! and several outputs.

use graph::{
    Attributes, DType, Graph, Kind, Origin, Region, Shape, Site, Tensor, Type, Value, ops, random,
    reference,
};
use proptest::prelude::*;
use runtime::{
    HostTensor,
    host::{
        dense::evaluate, elementwise::compile_region, kernels::workers::Workers, operators::prepare,
    },
};

const UNARY: [&str; 8] = ["neg", "abs", "square", "tanh", "sigmoid", "relu", "gelu", "cast"];
const BINARY: [&str; 6] = ["add", "sub", "mul", "maximum", "minimum", "gelu_gradient"];

/// A body over inputs of `shape`, of its last axis and of no axes; choices come from `dice`.
fn body(shape: &[usize], dice: &[u32]) -> (Graph, Vec<Value>) {
    let registry = ops::registry();
    let site = Site::new("region", Origin::Forward);
    let mut graph = Graph::new(&registry);
    let suffix = &shape[shape.len() - 1..];
    let mut values: Vec<Value> = [shape, suffix, &[], shape]
        .iter()
        .enumerate()
        .map(|(i, shape)| {
            let dtype = if i == 3 { DType::BF16 } else { DType::F32 };
            graph.input(&format!("x{i}"), Type::new(dtype, Shape::new(shape)), site.clone())
        })
        .collect();
    let constant =
        Attributes::new().float("value", 0.75).sizes("shape", &[]).dtype("dtype", DType::F32);
    values.extend(graph.op1("constant", constant, &[], site.clone()));
    let form = Attributes::new().text("form", "tanh");
    for choice in dice {
        let pick = |salt: u32| {
            values
                [random::sample_key(1, 2, u64::from(*choice), 0).bits(salt) as usize % values.len()]
        };
        let (a, b) = (pick(0), pick(1));
        let kind = *choice as usize % (UNARY.len() + BINARY.len() + 1);
        let result = if let Some(&name) = UNARY.get(kind) {
            let target = if graph.ty(a).dtype == DType::F32 { DType::BF16 } else { DType::F32 };
            let attributes = match name {
                "gelu" => form.clone(),
                "cast" => Attributes::new().dtype("dtype", target),
                _ => Attributes::new(),
            };
            graph.op1(name, attributes, &[a], site.clone())
        } else if let Some(&name) = BINARY.get(kind - UNARY.len()) {
            let attributes = if name == "gelu_gradient" { form.clone() } else { Attributes::new() };
            graph.op1(name, attributes, &[a, b], site.clone())
        } else {
            graph.op1("less", Attributes::new(), &[a, b], site.clone()).and_then(|condition| {
                graph.op1("where", Attributes::new(), &[condition, a, b], site.clone())
            })
        };
        // Operands of different dtypes or of shapes an operator refuses are left out.
        values.extend(result);
    }
    let whole: Vec<Value> =
        values.iter().copied().filter(|&v| graph.ty(v).shape.extents() == shape).collect();
    let outputs = whole.iter().rev().take(3).copied().collect();
    (graph, outputs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn a_region_equals_its_body(
        rows in 1usize..5,
        columns in prop::sample::select(vec![1usize, 3, 16, 257, 1024, 1500]),
        dice in prop::collection::vec(any::<u32>(), 1..14),
    ) {
        let shape = [rows, columns];
        let (graph, outputs) = body(&shape, &dice);
        let site = Site::new("test", Origin::Forward);
        let inputs: Vec<Tensor> = graph
            .nodes()
            .iter()
            .filter(|node| matches!(node.kind, Kind::Input { .. }))
            .enumerate()
            .map(|(i, node)| {
                let key = random::sample_key(9, i as u64, 0, 0);
                let ty = node.outputs[0].clone();
                let values = (0..ty.shape.elements() as u32)
                    .map(|e| f64::from(key.bits(e)) / f64::from(u32::MAX) * 4.0 - 2.0);
                Tensor::floats(ty, values)
            })
            .collect();
        let named = inputs.iter().enumerate().map(|(i, t)| (format!("x{i}"), t.clone())).collect();
        let expected = reference::evaluate(&graph, &named, &outputs).unwrap();
        let types: Vec<Type> = outputs.iter().map(|&v| graph.ty(v).clone()).collect();
        // A value between two representable ones of bf16 may be rounded the other way.
        let low = graph.nodes().iter().any(|n| !n.is_source() && n.outputs[0].dtype == DType::BF16);
        let tolerance = if low { 2e-2 } else { 1e-5 };
        let region = Region { name: "elementwise".to_owned(), body: graph, outputs };
        prop_assert!(compile_region(&region).unwrap().is_some(), "not compiled");

        let mut outer = Graph::new(&ops::registry());
        let values: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(i, t)| outer.input(&format!("x{i}"), t.ty().clone(), site.clone()))
            .collect();
        let id = outer.region(region, values, site.clone());
        let given: Vec<Type> = inputs.iter().map(|t| t.ty().clone()).collect();
        let kernel = prepare(outer.node(id), &given, &ops::registry()).unwrap();
        let tensors: Vec<HostTensor> = inputs.iter().map(HostTensor::from_tensor).collect();
        let tensors: Vec<&HostTensor> = tensors.iter().collect();
        let found = evaluate(&*kernel, &Workers::new(1), 0, &tensors, &types).unwrap();
        let shared = evaluate(&*kernel, &Workers::new(3), 0, &tensors, &types).unwrap();
        prop_assert_eq!(&found, &shared);
        for (found, expected) in found.iter().zip(&expected) {
            let largest = expected.to_f64().into_iter().fold(1.0, |a: f64, v| a.max(v.abs()));
            let found = found.to_tensor();
            for (a, b) in found.to_f64().into_iter().zip(expected.to_f64()) {
                prop_assert!((a - b).abs() <= tolerance * largest, "{} {}", a, b);
            }
        }
    }
}
