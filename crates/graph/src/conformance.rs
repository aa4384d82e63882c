//! What every operator must satisfy, checked on its own samples: types, gradient, windows, cost.
//!
//! Knows no particular operator. Crates with operators of their own run it on them.

use std::collections::BTreeMap;

use crate::{
    Attribute, Attributes, Class, DType, EvaluationContext, Graph, Op, OpDefinition, Origin,
    Registry, Sample, Site, Strided, Tensor, Type, Value, ViewKind, autodiff, random, reference,
};

/// Relative error allowed between a gradient rule and central differences, both in `f64`.
pub const GRADIENT_TOLERANCE: f64 = 1e-6;

/// Everything in which the operator `name` contradicts itself, a line each; empty where it conforms.
///
/// For every sample: inferred types are those of the evaluation; the gradient rule agrees with central differences in
/// `f64`; windows and slots select what evaluation yields; the cost is positive.
pub fn problems(registry: &Registry, name: &str) -> Vec<String> {
    let definition = match registry.get(name) {
        Ok(definition) => definition,
        Err(error) => return vec![error.to_string()],
    };
    let samples = definition.samples();
    if samples.is_empty() {
        return vec![format!("{name}: no samples")];
    }
    let mut problems = vec![];
    for (index, sample) in samples.iter().enumerate() {
        let checks = [
            types(definition.as_ref(), sample),
            windows(definition.as_ref(), sample),
            gradients(registry, name, sample),
        ];
        let failed = checks.into_iter().filter_map(Result::err);
        problems.extend(
            failed.map(|problem| {
                format!("{name}, sample {index} {{{}}}: {problem}", sample.attributes)
            }),
        );
    }
    problems
}

/// Panics with all problems of an operator: for tests.
///
/// # Panics
/// If there are any.
pub fn assert_conforms(registry: &Registry, name: &str) {
    let problems = problems(registry, name);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn types(definition: &dyn OpDefinition, sample: &Sample) -> Result<(), String> {
    let inputs: Vec<Type> = sample.inputs.iter().map(|tensor| tensor.ty().clone()).collect();
    let inferred = definition.infer(&sample.attributes, &inputs).map_err(text)?;
    let context = EvaluationContext::default();
    let outputs = definition.evaluate(&sample.attributes, &sample.inputs, context).map_err(text)?;
    let found: Vec<Type> = outputs.iter().map(|tensor| tensor.ty().clone()).collect();
    if found != inferred {
        return Err(format!("infers {inferred:?}, evaluates to {found:?}"));
    }
    let cost = definition.cost(&sample.attributes, &inputs, &inferred);
    if cost.bytes == 0 {
        return Err("costs no bytes".to_owned());
    }
    let works =
        matches!(definition.class(), Class::Contraction | Class::Attention | Class::RowWise);
    if works && cost.flops == 0 {
        return Err("costs no flops".to_owned());
    }
    for &(output, input) in definition.may_reuse() {
        if output >= inferred.len() || input >= inputs.len() {
            return Err(format!("reuses input {input} for output {output}, which do not exist"));
        }
    }
    Ok(())
}

fn windows(definition: &dyn OpDefinition, sample: &Sample) -> Result<(), String> {
    let attributes = &sample.attributes;
    let inputs: Vec<Type> = sample.inputs.iter().map(|tensor| tensor.ty().clone()).collect();
    let output = definition.infer(attributes, &inputs).map_err(text)?.remove(0);
    let ranks = attributes.size_of("ranks").unwrap_or(1);
    match definition.view() {
        None => Ok(()),
        Some(ViewKind::OutputOfInput) => {
            let dense = Strided::contiguous(&inputs[0].shape);
            definition.window(attributes, &dense, &output).ok_or("no window")?;
            for input in [&dense, &spread(&dense)] {
                let Some(window) = definition.window(attributes, input, &output) else { continue };
                // A buffer that holds at each position the index of the input's element there.
                let mut holds = vec![usize::MAX; input.end()];
                (0..inputs[0].shape.elements()).for_each(|i| holds[input.position(i)] = i);
                for rank in 0..ranks {
                    let context = EvaluationContext { rank };
                    let result = definition.evaluate(attributes, &sample.inputs, context);
                    let result = result.map_err(text)?.remove(0);
                    let shift = rank * window.per_rank;
                    let seen = sample.inputs[0]
                        .select(output.clone(), |index| holds[window.position(index) + shift]);
                    if seen != result {
                        return Err(format!("the window shows {seen:?}, not {result:?}"));
                    }
                }
            }
            Ok(())
        }
        Some(ViewKind::InputsOfOutput) => {
            let dense = Strided::contiguous(&output.shape);
            definition.slots(attributes, &inputs, &dense).ok_or("no slots")?;
            let context = EvaluationContext::default();
            let result = definition.evaluate(attributes, &sample.inputs, context);
            let result = result.map_err(text)?.remove(0);
            for output in [&dense, &spread(&dense)] {
                let Some(slots) = definition.slots(attributes, &inputs, output) else { continue };
                let mut buffer = vec![0.0; output.end()];
                for (tensor, slot) in sample.inputs.iter().zip(&slots) {
                    let values = tensor.to_f64().into_iter().enumerate();
                    values.for_each(|(index, value)| buffer[slot.position(index)] = value);
                }
                let seen: Vec<f64> =
                    (0..result.shape().elements()).map(|i| buffer[output.position(i)]).collect();
                if seen != result.to_f64() {
                    return Err(format!("the slots hold {seen:?}, not {result:?}"));
                }
            }
            Ok(())
        }
    }
}

/// The window with room before the first element and between neighbours.
fn spread(dense: &Strided) -> Strided {
    let strides = dense.strides.iter().map(|stride| 2 * stride).collect();
    Strided { offset: 3, strides, ..dense.clone() }
}

/// The same sample with floats of another dtype, and with every float dtype among the attributes replaced.
fn converted(sample: &Sample, dtype: DType, attributes: impl Fn(DType) -> DType) -> Sample {
    let tensor = |x: &Tensor| if x.dtype().is_float() { x.cast(dtype) } else { x.clone() };
    let attributes = sample.attributes.iter().fold(Attributes::new(), |all, (name, value)| {
        let value = match value {
            Attribute::DType(own) if own.is_float() => Attribute::DType(attributes(*own)),
            other => other.clone(),
        };
        all.with(name, value)
    });
    let inputs = sample.inputs.iter().map(tensor).collect();
    Sample { attributes, inputs, constant: sample.constant.clone() }
}

/// An operator's sample as a graph with the gradients of a random linear function of all differentiable outputs.
struct Differentiated {
    graph: Graph,
    /// Inputs `x0, x1, ..` and weights of outputs `w0, w1, ..`.
    bound: reference::Named,
    /// Outputs and their weights.
    seeds: Vec<(Value, Value)>,
    /// Number of each differentiated input, and its gradient.
    gradients: Vec<(usize, Option<Value>)>,
}

impl Differentiated {
    fn new(registry: &Registry, name: &str, sample: &Sample) -> Result<Differentiated, String> {
        let definition = registry.get(name).map_err(text)?;
        let mut graph = Graph::new(registry);
        let site = || Site::new("sample", Origin::Forward);
        let (mut bound, mut inputs, mut seeds) = (BTreeMap::new(), vec![], vec![]);
        for (index, tensor) in sample.inputs.iter().enumerate() {
            inputs.push(graph.input(&format!("x{index}"), tensor.ty().clone(), site()));
            bound.insert(format!("x{index}"), tensor.clone());
        }
        let op = Op::new(name, sample.attributes.clone());
        let id = graph.op(op, &inputs, site()).map_err(text)?;
        for output in graph.outputs(id) {
            let ty = graph.ty(output).clone();
            if ty.dtype.is_float() && definition.differentiable(output.port.into()) {
                let weight = format!("w{}", output.port);
                seeds.push((output, graph.input(&weight, ty.clone(), site())));
                let key = random::sample_key(1, 0, random::site(name), u64::from(output.port));
                let weights = (0..ty.shape.elements() as u32).map(|element| key.normal(element));
                bound.insert(weight, Tensor::floats(ty.clone(), weights));
            }
        }
        let numbers = differentiated(sample);
        let wanted: Vec<Value> = numbers.iter().map(|&index| inputs[index]).collect();
        let found = autodiff::gradients(&mut graph, &seeds, &wanted).map_err(text)?;
        graph.verify().map_err(text)?;
        for (&value, gradient) in wanted.iter().zip(&found) {
            let (expected, found) = (graph.ty(value), gradient.map(|value| graph.ty(value)));
            if found.is_some_and(|found| found != expected) {
                return Err(format!("the gradient of {expected} is {found:?}"));
            }
        }
        let gradients = numbers.into_iter().zip(found).collect();
        Ok(Differentiated { graph, bound, seeds, gradients })
    }

    /// The linear function's value.
    fn loss(&self, bound: &reference::Named) -> Result<f64, String> {
        let wanted: Vec<Value> = self.seeds.iter().flat_map(|&(y, w)| [y, w]).collect();
        let values = reference::evaluate(&self.graph, bound, &wanted).map_err(text)?;
        let products = values.chunks(2).map(|pair| {
            let elements = 0..pair[0].shape().elements();
            elements.map(|i| pair[0].at(i) * pair[1].at(i)).sum::<f64>()
        });
        Ok(products.sum())
    }

    /// By fourth-order central differences: an error of order step^4, and of rounding / step.
    fn numeric(&self, input: usize) -> Result<Vec<f64>, String> {
        let name = format!("x{input}");
        let original = &self.bound[&name];
        let at = |element: usize, shift: f64| {
            let mut values = original.to_f64();
            values[element] += shift;
            let mut moved = self.bound.clone();
            moved.insert(name.clone(), Tensor::floats(original.ty().clone(), values));
            self.loss(&moved)
        };
        let step = 1e-4;
        let slope = |element: usize| {
            let near = at(element, step)? - at(element, -step)?;
            let far = at(element, 2.0 * step)? - at(element, -2.0 * step)?;
            Ok((8.0 * near - far) / (12.0 * step))
        };
        (0..original.shape().elements()).map(slope).collect()
    }
}

/// The inputs of a sample that have gradients.
fn differentiated(sample: &Sample) -> Vec<usize> {
    (0..sample.inputs.len())
        .filter(|index| sample.inputs[*index].dtype().is_float())
        .filter(|index| !sample.constant.contains(index))
        .collect()
}

/// Compares gradients with central differences in `f64`, and checks that they can be formed in low precision with the
/// attributes' dtypes kept: a sum or product of bf16 may yield f32.
fn gradients(registry: &Registry, name: &str, sample: &Sample) -> Result<(), String> {
    if differentiated(sample).is_empty() {
        return Ok(());
    }
    Differentiated::new(registry, name, &converted(sample, DType::BF16, |own| own))?;
    let wide = converted(sample, DType::F64, |_| DType::F64);
    let case = Differentiated::new(registry, name, &wide)?;
    for &(index, gradient) in &case.gradients {
        let analytic = match gradient {
            Some(value) => {
                reference::evaluate(&case.graph, &case.bound, &[value]).map_err(text)?[0].to_f64()
            }
            None => vec![0.0; wide.inputs[index].shape().elements()],
        };
        let numeric = case.numeric(index)?;
        let scale = numeric.iter().fold(1e-3, |largest: f64, value| largest.max(value.abs()));
        for (element, (a, n)) in analytic.iter().zip(&numeric).enumerate() {
            let close = (a - n).abs() <= GRADIENT_TOLERANCE * scale;
            if !close {
                return Err(format!(
                    "the gradient of input {index} at element {element} is {a}, by differences {n}"
                ));
            }
        }
    }
    Ok(())
}
