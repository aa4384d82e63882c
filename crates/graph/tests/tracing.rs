//! Models written with symbols: what they become, and how their errors come out.

use std::sync::Arc;

use graph::{
    Attributes, Call, Class, DType, EvaluationContext, GradientBuilder, GraphError, Initial, Kind,
    OpDefinition, OpError, Origin, Program, Sample, Tensor, Type, Value, conformance, names, ops,
    reference::{Evaluator, Named},
    trace::{Context, Embedding, LayerNorm, Linear, Mode, Parameters, Sym, Tracer},
};

/// A language model of one block with a tied head.
struct Model {
    wte: Embedding,
    norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Model {
    fn new(p: &Parameters) -> Model {
        let p = p.weights(Initial::Normal { std: 0.02 });
        let h = p.sub("h").sub(0);
        Model {
            wte: p.embedding("wte", 11, 8),
            norm: h.layer_norm("ln", 8),
            up: h.sub("mlp").linear("c_fc", 8, 16),
            down: h.sub("mlp").linear("c_proj", 16, 8),
        }
    }

    fn logits(&self, cx: &Context, tokens: &Sym) -> Sym {
        let x = tokens.embedding(&self.wte).dropout(0.1);
        let x = cx.scope("h.0", || {
            cx.recompute(|| {
                let up = x.layer_norm(&self.norm).linear(&self.up);
                &x + up.gelu_tanh().linear(&self.down).dropout(0.1)
            })
        });
        x.matmul_with(&cx.parameter(&self.wte.weight), false, true)
    }
}

fn program() -> Program {
    let mut tracer = Tracer::new(&ops::registry());
    let model = Model::new(&tracer.parameters());
    for (name, mode) in [(names::TRAIN, Mode::Training), (names::EVALUATE, Mode::Inference)] {
        tracer.function(name, mode, |cx| {
            let tokens = cx.input("tokens", DType::I32, &[2, 5]);
            let labels = cx.input("labels", DType::I32, &[2, 5]);
            let (sum, count) = model.logits(cx, &tokens).cross_entropy(&labels, -100, 0.0);
            cx.loss(&sum, &count);
        });
    }
    tracer.finish().expect("a program")
}

#[test]
fn one_definition_becomes_functions_over_shared_parameters() {
    let program = program();
    let states: Vec<&str> = program.states.iter().map(|state| state.name.as_str()).collect();
    let expected = [
        "wte.weight",
        "h.0.ln.weight",
        "h.0.ln.bias",
        "h.0.mlp.c_fc.weight",
        "h.0.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
    ];
    assert_eq!(states, expected);
    let train = program.function(names::TRAIN).unwrap();
    let evaluate = program.function(names::EVALUATE).unwrap();
    let dropouts = |function: &graph::Function| {
        function.graph.nodes().iter().filter(|node| node.is_op("dropout")).count()
    };
    assert_eq!((dropouts(train), dropouts(evaluate)), (2, 0));
    let inputs: Vec<&str> = train.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(inputs, ["tokens", "labels", names::RANDOM_KEY, names::FIRST_SAMPLE]);
    let wte =
        |node: &&graph::Node| matches!(&node.kind, Kind::State { name } if name == "wte.weight");
    assert_eq!(train.graph.nodes().iter().filter(wte).count(), 1);
    let gelu = train.graph.nodes().iter().find(|node| node.is_op("gelu")).unwrap();
    assert_eq!((gelu.site.path.as_str(), gelu.site.recompute), ("h.0", Some(1)));
    let linear = train.graph.nodes().iter().find(|node| node.is_op("linear")).unwrap();
    assert_eq!(linear.site.path, "h.0.mlp.c_fc");
    let text = serde_json::to_string(&program).unwrap();
    let mut again: Program = serde_json::from_str(&text).unwrap();
    again.attach(&ops::registry()).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), text);
}

/// Inputs of a rank that holds samples `first ..` of a batch.
fn batch(first: usize, samples: usize) -> Named {
    let ty = Type::new(DType::I32, [samples, 5]);
    let token = |sample: usize, position: usize| ((first + sample) * 3 + position * 7) % 11;
    let at = |shift: usize| {
        let values = (0..samples * 5).map(|i| token(i / 5, i % 5 + shift) as i64);
        Tensor::ints(ty.clone(), values)
    };
    Named::from([
        ("tokens".to_owned(), at(0)),
        ("labels".to_owned(), at(1)),
        (names::RANDOM_KEY.to_owned(), Tensor::ints(Type::new(DType::I64, [2]), [5, 9])),
        (names::FIRST_SAMPLE.to_owned(), Tensor::ints(Type::scalar(DType::I64), [first as i64])),
    ])
}

#[test]
fn the_evaluator_runs_ranks_that_differ_only_in_their_samples() {
    let program = program();
    let mut two = Evaluator::new(&program, 2, 3).unwrap();
    let outputs = two.call(names::TRAIN, &[batch(0, 2), batch(2, 2)]).unwrap();
    let again = two.call(names::TRAIN, &[batch(2, 2), batch(0, 2)]).unwrap();
    assert_eq!(outputs[0], again[1]);
    assert_eq!(outputs[1], again[0]);
    assert_ne!(outputs[0], outputs[1]);
    let loss = outputs[0][names::LOSS_SUM].at(0) / outputs[0][names::COUNT].at(0);
    assert!((loss - 11f64.ln()).abs() < 0.1, "{loss}");
    let error = two.call(names::TRAIN, &[batch(0, 2), batch(0, 1)]).unwrap_err();
    assert_eq!(error.to_string(), "malformed graph: tokens is i32[1, 5], i32[2, 5] was expected");
}

#[test]
fn all_errors_of_a_model_come_out_together_with_path_types_and_line() {
    let mut tracer = Tracer::new(&ops::registry());
    let p = tracer.parameters();
    let up = p.sub("h").sub(1).linear("up", 8, 16);
    let down = p.sub("h").sub(1).linear("down", 15, 8);
    p.sub("h").sub(1).linear("down", 16, 8);
    let line = line!() + 1;
    tracer.function(names::TRAIN, Mode::Training, |cx| {
        let x = cx.input("x", DType::F32, &[2, 8]);
        let y = x.linear(&up).gelu().linear(&down);
        let z = cx.scope("h.2", || (&x + &cx.input("z", DType::F32, &[3])) * &y);
        let wide = cx.scope("h.3", || x.reshape(&[4, 5]).softmax().exp());
        cx.output("loss_sum", &(z * wide).sum(&[0, 1], false));
    });
    let error = tracer.finish().unwrap_err();
    let GraphError::Trace(lines) = &error else { panic!("{error}") };
    let expected = [
        format!(
            "h.1.down.weight: declared twice, as f32[15, 8] and as f32[16, 8]; to tie parameters use one \
             declaration twice (crates/graph/tests/tracing.rs:{})",
            line - 2
        ),
        format!(
            "h.1.down.bias: declared twice, as f32[8] and as f32[8]; to tie parameters use one declaration \
             twice (crates/graph/tests/tracing.rs:{})",
            line - 2
        ),
        format!(
            "train: h.1.down: linear(f32[2, 16], f32[15, 8], f32[8]): x is f32[2, 16], a last axis of 15 was \
             expected by the weight [inputs, outputs] f32[15, 8] (crates/graph/tests/tracing.rs:{})",
            line + 2
        ),
        format!(
            "train: h.2: add(f32[2, 8], f32[3]): f32[2, 8] and f32[3] do not broadcast to a common shape \
             (crates/graph/tests/tracing.rs:{})",
            line + 3
        ),
        format!(
            "train: h.3: reshape(f32[2, 8]): f32[2, 8] has 16 elements, shape [4, 5] has 20 \
             (crates/graph/tests/tracing.rs:{})",
            line + 4
        ),
    ];
    assert_eq!(lines.as_slice(), expected);
}

#[test]
fn parameters_must_be_used_by_the_function_that_trains() {
    let mut tracer = Tracer::new(&ops::registry());
    let p = tracer.parameters();
    let used = p.parameter("used", &[3], Initial::Zeros);
    let late = p.parameter("late", &[3], Initial::Zeros);
    p.parameter("never", &[3], Initial::Zeros);
    p.frozen().parameter("frozen", &[3], Initial::Zeros);
    tracer.function(names::TRAIN, Mode::Training, |cx| {
        cx.output("y", &cx.parameter(&used).sum(&[0], false));
    });
    tracer.function(names::EVALUATE, Mode::Inference, |cx| {
        cx.output("y", &(cx.parameter(&used) * cx.parameter(&late)));
    });
    let error = tracer.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "late: parameter is not used by train\nnever: parameter is not used by train\n\
         late: used by evaluate but not by train"
    );
}

#[test]
fn unknown_operators_wrong_counts_and_foreign_symbols_are_errors_of_the_model() {
    let mut tracer = Tracer::new(&ops::registry());
    let mut kept = None;
    tracer.function(names::TRAIN, Mode::Training, |cx| {
        let x = cx.input("x", DType::F32, &[2, 3]);
        let [_, _] = x.apply_many("exp", Attributes::new(), &[]);
        x.apply("gelo", Attributes::new(), &[]);
        let [_, _, _] = x.dims();
        let [a, _] = x.split(1);
        cx.metric("accuracy", &x);
        cx.output("a", &a);
        cx.output("x", &x);
        cx.output("x", &x);
        kept = Some(x);
    });
    tracer.function(names::EVALUATE, Mode::Inference, |cx| {
        cx.output("x", kept.as_ref().unwrap());
    });
    let error = tracer.finish().unwrap_err().to_string();
    let lines: Vec<&str> =
        error.lines().map(|line| line.split(" (crates").next().unwrap()).collect();
    let expected = [
        "train: exp has 1 outputs where 2 were expected",
        "train: unknown operator \"gelo\", nearest is \"gelu\"",
        "train: the shape is [2, 3], 3 axes were expected",
        "train: axis 1 of [2, 3] cannot be split in 2 parts",
        "train: metric \"accuracy\" is f32[2, 3], f32[] was expected",
        "train: output \"x\" is named twice",
        "evaluate: a symbol of another function was used",
    ];
    assert_eq!(lines, expected);
}

/// `x^3`, an operator of another crate; its gradient rule claims that the derivative is this times `x^2`.
struct Cube(f64);

impl OpDefinition for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        graph::expect_inputs(inputs, 1)?;
        Ok(vec![inputs[0].clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let square = builder.unary("square", call.inputs[0])?;
        let slope = builder.scale(square, self.0)?;
        Ok(vec![Some(builder.binary("mul", dy, slope)?)])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let cubes = inputs[0].to_f64().into_iter().map(|x| x.powi(3));
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), cubes)])
    }

    fn samples(&self) -> Vec<Sample> {
        let x = Tensor::floats(Type::new(DType::F32, [3]), [0.5, -1.0, 2.0]);
        vec![Sample::new(Attributes::new(), vec![x])]
    }
}

#[test]
fn operators_of_other_crates_are_called_conform_and_differentiate() {
    let registry = ops::registry().with([Arc::new(Cube(3.0)) as Arc<dyn OpDefinition>]);
    conformance::assert_conforms(&registry, "cube");
    let mut tracer = Tracer::new(&registry);
    let w = tracer.parameters().parameter("w", &[3], Initial::Constant(2.0));
    tracer.function(names::TRAIN, Mode::Training, |cx| {
        let y = cx.parameter(&w).apply("cube", Attributes::new(), &[]).sum(&[0], false);
        cx.loss(&y, &cx.constant(3.0, DType::F32));
    });
    let program = tracer.finish().unwrap();
    let mut evaluator = Evaluator::new(&program, 1, 0).unwrap();
    let outputs = evaluator.call(names::TRAIN, &[Named::new()]).unwrap();
    assert_eq!(outputs[0][names::LOSS_SUM].at(0), 24.0);
    assert!(program.functions[0].graph.nodes().iter().all(|n| n.site.origin == Origin::Forward));
}

#[test]
fn a_wrong_gradient_is_found() {
    let registry = ops::registry().with([Arc::new(Cube(2.9)) as Arc<dyn OpDefinition>]);
    let problems = conformance::problems(&registry, "cube");
    assert_eq!(problems.len(), 1);
    let expected = "cube, sample 0 {}: the gradient of input 0 at element 0 is ";
    assert!(problems[0].starts_with(expected), "{}", problems[0]);
}
