//! What passes rely on in every optimizer of the list; `golden.rs` holds their numbers against PyTorch.

use graph::{
    Attributes, Class, DType, Graph, Op, Origin, Site, Tensor, Type, Value, ops,
    optim::{self, Hyper, Optimizer},
    reference::{self, Named},
    trace::Sym,
};

fn site() -> Site {
    Site::new("bucket.0", Origin::Optimizer)
}

/// One update of six elements with these hyperparameters; yields the graph and the results.
fn update(optimizer: &dyn Optimizer, rate: Tensor, decay: Tensor) -> (Graph, Vec<Tensor>) {
    let mut graph = Graph::new(&ops::registry());
    let mut bound = Named::new();
    let mut input = |graph: &mut Graph, name: &str, tensor: Tensor| {
        let value = graph.input(name, tensor.ty().clone(), site());
        bound.insert(name.to_owned(), tensor);
        value
    };
    let flat = |scale: f64| {
        Tensor::floats(Type::new(DType::F32, [6]), (0..6).map(|i| scale * (f64::from(i) - 2.5)))
    };
    let parameter = input(&mut graph, "parameter", flat(1.0));
    let gradient = input(&mut graph, "gradient", flat(-0.3));
    let slots = optimizer.slots();
    // Second moments are never negative.
    let moment = Tensor::full(Type::new(DType::F32, [6]), 0.1);
    let moments: Vec<Value> =
        slots.iter().map(|slot| input(&mut graph, slot, moment.clone())).collect();
    let hyper = Hyper {
        learning_rate: input(&mut graph, "rate", rate),
        weight_decay: input(&mut graph, "decay", decay),
        step: input(&mut graph, "step", Tensor::scalar(DType::F32, 3.0)),
    };
    let updated = optimizer
        .update(&mut graph, parameter, gradient, &moments, &hyper, &site())
        .expect("the rule is right");
    let wanted: Vec<Value> = std::iter::once(updated.parameter).chain(updated.moments).collect();
    let results = reference::evaluate(&graph, &bound, &wanted).expect("evaluates");
    (graph, results)
}

#[test]
fn every_optimizer_is_elementwise_and_takes_hyperparameters_by_element() {
    for optimizer in optim::all() {
        let scalar = |value: f64| Tensor::scalar(DType::F32, value);
        let spread = |value: f64| Tensor::full(Type::new(DType::F32, [6]), value);
        let (graph, by_scalar) = update(optimizer.as_ref(), scalar(0.1), scalar(0.01));
        let (_, by_element) = update(optimizer.as_ref(), spread(0.1), spread(0.01));
        assert_eq!(by_scalar, by_element, "{}", optimizer.name());
        assert_eq!(by_scalar.len(), 1 + optimizer.slots().len());
        for node in graph.nodes().iter().filter(|node| !node.is_source()) {
            let class = graph.registry().get(node.name()).unwrap().class();
            let allowed = matches!(class, Class::Elementwise | Class::Source);
            assert!(allowed, "{} uses {}", optimizer.name(), node.name());
            assert_eq!(node.site.origin, Origin::Optimizer);
        }
        graph.verify().unwrap();
    }
}

/// An update rule whose mistakes must be reported.
struct Wrong(fn(&Sym, &Sym) -> Sym);

impl Optimizer for Wrong {
    fn name(&self) -> &str {
        "wrong"
    }

    fn slots(&self) -> Vec<String> {
        vec![]
    }

    fn rule(&self, parameter: &Sym, gradient: &Sym, _: &mut [Sym], _: &Hyper<Sym>) -> Sym {
        (self.0)(parameter, gradient)
    }
}

#[test]
fn wrong_update_rules_are_errors() {
    let error = |rule: fn(&Sym, &Sym) -> Sym| {
        let mut graph = Graph::new(&ops::registry());
        let p = graph.input("p", Type::new(DType::F32, [6]), site());
        let constant = Attributes::new().float("value", 1.0).dtype("dtype", DType::F32);
        let one = graph.op(Op::new("constant", constant.sizes("shape", &[])), &[], site()).unwrap();
        let one = Value::new(one, 0);
        let hyper = Hyper { learning_rate: one, weight_decay: one, step: one };
        let error = Wrong(rule).update(&mut graph, p, p, &[], &hyper, &site()).unwrap_err();
        graph.verify().unwrap();
        error.to_string()
    };
    assert_eq!(
        error(|p, _| p.sum(&[0], false)),
        "malformed graph: optimizer wrong turns f32[6] into f32[]"
    );
    let text = error(|p, g| p - g.reshape(&[7]));
    let expected =
        "bucket.0: reshape(f32[6]): f32[6] has 6 elements, shape [7] has 7 (crates/graph/tests/";
    assert!(text.starts_with(expected), "{text}");
}
