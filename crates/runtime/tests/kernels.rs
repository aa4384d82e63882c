//! Host kernels against the reference evaluation, over every registered operator's own samples.

use graph::{
    Attribute, Attributes, DType, EvaluationContext, Graph, Op, Origin, Site, Tensor, Type, ops,
};
use runtime::{
    HostTensor,
    host::{dense::evaluate, kernels::workers::Workers, operators::prepare},
};

/// The largest difference relative to the largest magnitude of the expected values.
fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    let largest =
        expected.to_f64().into_iter().filter(|v| v.is_finite()).fold(1e-3, |a, v| v.abs().max(a));
    let pairs = found.to_f64().into_iter().zip(expected.to_f64());
    pairs
        .map(
            |(a, b)| {
                if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() / largest }
            },
        )
        .fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { d.max(worst) })
}

fn with_dtype(
    attributes: &Attributes,
    inputs: &[Tensor],
    dtype: DType,
) -> (Attributes, Vec<Tensor>) {
    let accumulator = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let attributes = attributes.iter().fold(Attributes::new(), |all, (name, value)| {
        let value = match value {
            Attribute::DType(d) if d.is_float() => {
                Attribute::DType(if name == "accumulate" { accumulator } else { dtype })
            }
            other => other.clone(),
        };
        all.with(name, value)
    });
    let cast = |t: &Tensor| if t.dtype().is_float() { t.cast(dtype) } else { t.clone() };
    (attributes, inputs.iter().map(cast).collect())
}

fn host(
    op: &Op,
    inputs: &[Tensor],
    outputs: &[Type],
    threads: usize,
    rank: usize,
) -> Result<Vec<Tensor>, String> {
    let registry = ops::registry();
    let site = Site::new("test", Origin::Forward);
    let mut graph = Graph::new(&registry);
    let values: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, tensor)| graph.input(&format!("x{i}"), tensor.ty().clone(), site.clone()))
        .collect();
    let id = graph.op(op.clone(), &values, site).map_err(|error| error.to_string())?;
    let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
    let kernel = prepare(graph.node(id), &types, &registry).map_err(|error| error.to_string())?;
    let inputs: Vec<HostTensor> = inputs.iter().map(HostTensor::from_tensor).collect();
    let inputs: Vec<&HostTensor> = inputs.iter().collect();
    let results = evaluate(&*kernel, &Workers::new(threads), rank, &inputs, outputs)?;
    Ok(results.iter().map(HostTensor::to_tensor).collect())
}

#[test]
fn every_sample_of_every_operator_agrees_with_its_reference_evaluation() {
    let mut problems = vec![];
    for definition in ops::registry().iter() {
        for (index, sample) in definition.samples().iter().enumerate() {
            let own = (sample.attributes.clone(), sample.inputs.clone());
            let mut cases = vec![("as given", own, 1e-5f64)];
            for (name, dtype, tolerance) in
                [("f64", DType::F64, 1e-9), ("bf16", DType::BF16, 2e-2), ("f16", DType::F16, 3e-3)]
            {
                cases.push((
                    name,
                    with_dtype(&sample.attributes, &sample.inputs, dtype),
                    tolerance,
                ));
            }
            for (name, (attributes, inputs), tolerance) in cases {
                let types: Vec<Type> = inputs.iter().map(|t| t.ty().clone()).collect();
                let Ok(outputs) = definition.infer(&attributes, &types) else { continue };
                for rank in 0..2 {
                    let context = EvaluationContext { rank };
                    // A sample with attribute `ranks` has no rank beyond them.
                    let expected = definition.evaluate(&attributes, &inputs, context);
                    let Ok(expected) = expected else { continue };
                    let op = Op::new(definition.name(), attributes.clone());
                    let where_ =
                        format!("{} sample {index} {name} {{{attributes}}}", definition.name());
                    let low = inputs
                        .iter()
                        .chain(&expected)
                        .any(|t| matches!(t.dtype(), DType::F16 | DType::BF16));
                    let tolerance = if low { tolerance.max(2e-2) } else { tolerance };
                    match host(&op, &inputs, &outputs, 1, rank) {
                        Err(error) => problems.push(format!("{where_}: {error}")),
                        Ok(found) => {
                            for (port, (found, expected)) in found.iter().zip(&expected).enumerate()
                            {
                                let d = difference(found, expected);
                                if d > tolerance || found.ty() != expected.ty() {
                                    problems.push(format!("{where_} output {port}: {d:.1e}"));
                                }
                            }
                            let more = host(&op, &inputs, &outputs, 3, rank).unwrap();
                            if more != found {
                                problems.push(format!("{where_}: other bits with three threads"));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}
