//! Every operator against its own samples, and against inputs and attributes it was not made for, in one loop.

use graph::{Attribute, Attributes, DType, Initial, Sample, Tensor, Type, conformance, ops};

#[test]
fn every_operator_conforms() {
    let registry = ops::registry();
    let problems: Vec<String> = registry
        .iter()
        .flat_map(|definition| conformance::problems(&registry, definition.name()))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn attributes_of_samples_are_all_needed_or_have_defaults_and_names_are_regular() {
    for definition in ops::registry().iter() {
        let name = definition.name();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        for sample in definition.samples() {
            let inputs: Vec<Type> = sample.inputs.iter().map(|x| x.ty().clone()).collect();
            assert!(definition.infer(&sample.attributes, &inputs).is_ok(), "{name}");
            let text = serde_json::to_string(&sample.attributes).unwrap();
            let again: Attributes = serde_json::from_str(&text).unwrap();
            assert_eq!(again, sample.attributes, "{name}");
        }
    }
}

/// Variations of a sample's types, most of them wrong.
fn other_inputs(inputs: &[Type]) -> Vec<Vec<Type>> {
    let mut all = vec![vec![], inputs[..inputs.len().saturating_sub(1)].to_vec()];
    all.push(inputs.iter().cloned().chain([Type::scalar(DType::F32)]).collect());
    for index in 0..inputs.len() {
        let ty = &inputs[index];
        let extents = ty.shape.extents();
        let mut others = DType::ALL.map(|dtype| ty.with_dtype(dtype)).to_vec();
        others.push(ty.with_shape([]));
        others.push(ty.with_shape([0]));
        others.push(ty.with_shape([1, 2, 3, 4, 5]));
        others.push(ty.with_shape(extents.iter().map(|e| e + 1).collect::<Vec<_>>().as_slice()));
        others.push(ty.with_shape(extents.iter().map(|_| 1 << 40).collect::<Vec<_>>().as_slice()));
        others.push(ty.with_shape(extents.iter().map(|_| 0).collect::<Vec<_>>().as_slice()));
        for other in others {
            let mut changed = inputs.to_vec();
            changed[index] = other;
            all.push(changed);
        }
    }
    all
}

/// Variations of a sample's attributes, most of them wrong.
fn other_attributes(attributes: &Attributes) -> Vec<Attributes> {
    let values = [
        Attribute::Int(-1),
        Attribute::Int(0),
        Attribute::Int(i64::MAX),
        Attribute::Float(f64::NAN.to_bits()),
        Attribute::Float((-1.0f64).to_bits()),
        Attribute::Bool(true),
        Attribute::Text("other".to_owned()),
        Attribute::Ints(vec![]),
        Attribute::Ints(vec![-1]),
        Attribute::Ints(vec![7, 7, 7, 7, 7]),
        Attribute::Ints(vec![i64::MAX, i64::MAX]),
        Attribute::Floats(vec![]),
        Attribute::DType(DType::Bool),
    ];
    let names: Vec<String> = attributes.iter().map(|(name, _)| name.to_owned()).collect();
    let mut all = vec![Attributes::new()];
    for name in &names {
        let rest = attributes.iter().filter(|(other, _)| other != name);
        let without = rest.fold(Attributes::new(), |all, (n, value)| all.with(n, value.clone()));
        all.extend(values.iter().map(|value| without.clone().with(name, value.clone())));
        all.push(without);
    }
    all
}

#[test]
fn wrong_inputs_and_attributes_are_refused_without_a_panic_and_never_misunderstood() {
    let (mut refused, mut accepted) = (0, 0);
    for definition in ops::registry().iter() {
        for Sample { attributes, inputs, .. } in definition.samples() {
            let types: Vec<Type> = inputs.iter().map(|x| x.ty().clone()).collect();
            let cases = other_inputs(&types)
                .into_iter()
                .map(|types| (attributes.clone(), types))
                .chain(other_attributes(&attributes).into_iter().map(|a| (a, types.clone())));
            for (attributes, types) in cases {
                let what = format!("{} {{{attributes}}} {types:?}", definition.name());
                match definition.infer(&attributes, &types) {
                    Err(error) => {
                        refused += 1;
                        assert!(!error.to_string().is_empty(), "{what}");
                    }
                    Ok(outputs) => {
                        accepted += 1;
                        definition.cost(&attributes, &types, &outputs);
                        let elements =
                            types.iter().chain(&outputs).map(|ty| ty.shape.elements()).max();
                        if elements.is_some_and(|elements| elements > 10_000) {
                            continue;
                        }
                        // What is accepted evaluates to the types inferred, or is refused by value.
                        let inputs: Vec<Tensor> =
                            types.iter().map(|ty| Tensor::full(ty.clone(), 1.0)).collect();
                        let context = graph::EvaluationContext::default();
                        if let Ok(values) = definition.evaluate(&attributes, &inputs, context) {
                            let found: Vec<Type> = values.iter().map(|x| x.ty().clone()).collect();
                            assert_eq!(found, outputs, "{what}");
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 5_000 && accepted > 500, "{refused} {accepted}");
}

#[test]
fn dropout_masks_depend_on_the_global_sample_only() {
    let registry = ops::registry();
    let dropout = registry.get("dropout").unwrap();
    let run = |samples: usize, first: i64, step: i64, site: i64| {
        let attributes = Attributes::new().float("probability", 0.4).int("site", site);
        let inputs = [
            Tensor::full(Type::new(DType::F32, [samples, 7]), 1.0),
            Tensor::ints(Type::new(DType::I64, [2]), [1, step]),
            Tensor::ints(Type::scalar(DType::I64), [first]),
        ];
        let context = graph::EvaluationContext::default();
        dropout.evaluate(&attributes, &inputs, context).unwrap()[0].to_f64()
    };
    let whole = run(8, 0, 0, 0);
    assert_eq!(whole, [run(4, 0, 0, 0), run(4, 4, 0, 0)].concat());
    assert_eq!(whole, (0..8).flat_map(|first| run(1, first, 0, 0)).collect::<Vec<_>>());
    assert_ne!(whole, run(8, 0, 1, 0));
    assert_ne!(whole, run(8, 0, 0, 1));
}

#[test]
fn sums_of_an_embedding_gradient_do_not_depend_on_other_ids() {
    let registry = ops::registry();
    let gradient = registry.get("embedding_gradient").unwrap();
    let attributes = Attributes::new().int("rows", 3);
    let row = |element: usize| ((element * 7919) % 1000) as f64 / 7.0 - 60.0;
    let sum = |ids: Vec<i64>| {
        let n = ids.len();
        // Elements of id 1 are numbered through, whatever lies between them.
        let mut seen = 0;
        let values = ids.iter().map(|&id| {
            seen += usize::from(id == 1);
            row(if id == 1 { seen } else { 0 })
        });
        let dy = Tensor::floats(Type::new(DType::F32, [n, 1]), values.collect::<Vec<_>>());
        let inputs = [Tensor::ints(Type::new(DType::I64, [n]), ids), dy];
        let context = graph::EvaluationContext::default();
        gradient.evaluate(&attributes, &inputs, context).unwrap()[0].at(1)
    };
    let alone = sum(vec![1; 300]);
    let spread: Vec<i64> =
        (0..1200).map(|position| if position % 4 == 3 { 1 } else { 2 }).collect();
    assert_eq!(alone, sum(spread));
}

#[test]
fn initial_values_depend_on_seed_and_name_only() {
    use graph::{Program, Segment, State, StateKind, initial_values};
    let of = |name: &str, seed: u64| {
        let ty = Type::new(DType::F32, [5]);
        let state = State::new(name, ty, StateKind::Parameter, Initial::Normal { std: 2.0 });
        initial_values(&Program::default(), &state, seed, 0).unwrap()
    };
    let mut flat = State::new(
        "bucket",
        Type::new(DType::F32, [8]),
        StateKind::Parameter,
        Initial::Segments(vec![Initial::Constant(3.0), Initial::Normal { std: 2.0 }]),
    );
    flat.segments = vec![
        Segment { name: "a".to_owned(), offset: 0, shape: [2].into() },
        Segment { name: "w".to_owned(), offset: 8, shape: [5].into() },
    ];
    flat.shards = 2;
    let shard = |rank| initial_values(&Program::default(), &flat, 7, rank).unwrap();
    assert_eq!(shard(0), [3.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(shard(1)[..5], of("w", 7));
    assert_ne!(of("w", 7), of("w", 8));
    assert_ne!(of("w", 7), of("v", 7));
}
