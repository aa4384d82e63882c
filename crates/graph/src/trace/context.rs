//! One function being traced: its graph so far, where in the model tracing stands, and the errors found.
//!
//! Knows no operator by meaning; builder methods of operators stand beside the operators.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::Location,
    rc::Rc,
};

use crate::{
    Attributes, DType, Function, FunctionInput, FunctionOutput, Graph, GraphError, InputKind, Op,
    Origin, Registry, Shape, Site, Type, Update, Value, names, random,
    trace::{Mode, Parameter, Sym},
};

/// The function under way: creates inputs and outputs, opens scopes. Cloning shares it.
#[derive(Clone)]
pub struct Context(Rc<RefCell<Tracing>>);

struct Tracing {
    function: Function,
    mode: Mode,
    scopes: Vec<String>,
    layer: Option<String>,
    origin: Origin,
    recompute: Option<u32>,
    recompute_groups: u32,
    random_sites: BTreeMap<String, u32>,
    used: BTreeSet<String>,
    errors: Vec<String>,
}

/// What tracing a function yields.
pub(super) struct Traced {
    pub(super) function: Function,
    pub(super) used: BTreeSet<String>,
    pub(super) errors: Vec<String>,
}

/// Adds nodes to an existing graph in the language of tracing: for passes and for optimizers. The nodes get `site`'s
/// origin, and its path before their scopes.
///
/// # Errors
/// [`GraphError::Trace`] with every error of the closure; the graph may then hold nodes that nothing reads.
pub fn extend(
    graph: &mut Graph,
    site: &Site,
    build: impl FnOnce(&Context) -> Vec<Sym>,
) -> Result<Vec<Value>, GraphError> {
    let registry = graph.registry().clone();
    let context = Context::new("", Mode::Training, &registry);
    {
        let mut tracing = context.0.borrow_mut();
        tracing.function.graph = std::mem::replace(graph, Graph::new(&registry));
        tracing.origin = site.origin;
        if !site.path.is_empty() {
            tracing.scopes.push(site.path.clone());
        }
    }
    let built = build(&context);
    let values: Vec<Option<Value>> = built.iter().map(Sym::value).collect();
    let traced = context.take();
    *graph = traced.function.graph;
    values
        .into_iter()
        .collect::<Option<Vec<Value>>>()
        .filter(|_| traced.errors.is_empty())
        .ok_or(GraphError::Trace(traced.errors))
}

impl Context {
    pub(super) fn new(function: &str, mode: Mode, registry: &Registry) -> Context {
        Context(Rc::new(RefCell::new(Tracing {
            function: Function::new(function, registry),
            mode,
            scopes: vec![],
            layer: None,
            origin: Origin::Forward,
            recompute: None,
            recompute_groups: 0,
            random_sites: BTreeMap::new(),
            used: BTreeSet::new(),
            errors: vec![],
        })))
    }

    pub(super) fn take(&self) -> Traced {
        let mut tracing = self.0.borrow_mut();
        let registry = tracing.function.graph.registry().clone();
        Traced {
            function: std::mem::replace(&mut tracing.function, Function::new("", &registry)),
            used: std::mem::take(&mut tracing.used),
            errors: std::mem::take(&mut tracing.errors),
        }
    }

    /// Whether the function trains: dropout and the like act only then.
    pub fn training(&self) -> bool {
        self.0.borrow().mode == Mode::Training
    }

    /// Runs `build` with `name` appended to the module path of the nodes it adds. Dots make several steps.
    pub fn scope<T>(&self, name: impl std::fmt::Display, build: impl FnOnce() -> T) -> T {
        self.0.borrow_mut().scopes.push(name.to_string());
        let built = build();
        self.0.borrow_mut().scopes.pop();
        built
    }

    /// Runs `build` and marks its nodes as one group whose values the recompute pass may drop after the forward part
    /// and compute again for the backward part.
    pub fn recompute<T>(&self, build: impl FnOnce() -> T) -> T {
        let outer = {
            let mut tracing = self.0.borrow_mut();
            tracing.recompute_groups += 1;
            let group = tracing.recompute_groups;
            tracing.recompute.replace(group)
        };
        let built = build();
        self.0.borrow_mut().recompute = outer;
        built
    }

    /// Data of the micro-batch.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: &[usize]) -> Sym {
        self.declare_input(name, Type::new(dtype, shape), InputKind::Batch)
    }

    /// A scalar of the step, handed in by the host. Asking twice for one name yields the same value.
    #[track_caller]
    pub fn scalar(&self, name: &str, dtype: DType) -> Sym {
        self.declare_input(name, Type::scalar(dtype), InputKind::Scalar)
    }

    /// The key of the step's randomness: `[seed, step]`, i64.
    #[track_caller]
    pub fn random_key(&self) -> Sym {
        self.declare_input(names::RANDOM_KEY, Type::new(DType::I64, [2]), InputKind::Scalar)
    }

    /// The value of a parameter.
    pub fn parameter(&self, parameter: &Parameter) -> Sym {
        self.0.borrow_mut().used.insert(parameter.name().to_owned());
        self.state(parameter.name(), parameter.ty().clone())
    }

    /// The value of a state declared elsewhere.
    pub fn state(&self, name: &str, ty: Type) -> Sym {
        let value = self.0.borrow_mut().function.graph.state(name, ty);
        self.sym(value)
    }

    /// A scalar constant.
    #[track_caller]
    pub fn constant(&self, value: f64, dtype: DType) -> Sym {
        self.full(value, dtype, &[])
    }

    /// A tensor whose elements all equal `value`.
    #[track_caller]
    pub fn full(&self, value: f64, dtype: DType, shape: &[usize]) -> Sym {
        let attributes = Attributes::new().float("value", value).dtype("dtype", dtype);
        self.apply("constant", attributes.sizes("shape", shape), &[])
    }

    /// The integers `0 .. count`.
    #[track_caller]
    pub fn iota(&self, count: usize, dtype: DType) -> Sym {
        self.apply("iota", Attributes::new().sizes("n", &[count]).dtype("dtype", dtype), &[])
    }

    /// Names a result of the function.
    #[track_caller]
    pub fn output(&self, name: &str, sym: &Sym) {
        let Some(value) = self.own(sym, Location::caller()) else { return };
        let taken = self.0.borrow().function.output(name).is_some();
        if taken {
            self.fail(&format!("output {name:?} is named twice"), Location::caller());
            return;
        }
        let output = FunctionOutput { name: name.to_owned(), value };
        self.0.borrow_mut().function.outputs.push(output);
    }

    /// Names a metric: an f32 scalar that is a sum over the counted elements, as `loss_sum` is. Reports divide the sum
    /// over ranks and micro-batches by the count. The output is named `metric.NAME`.
    #[track_caller]
    pub fn metric(&self, name: &str, sym: &Sym) {
        if let Some(ty) = sym.ty().filter(|ty| *ty != Type::scalar(DType::F32)) {
            let message = format!("metric {name:?} is {ty}, f32[] was expected");
            self.fail(&message, Location::caller());
            return;
        }
        self.output(&format!("metric.{name}"), sym);
    }

    /// The sum of the loss over counted elements and their number: what training minimises is their quotient.
    #[track_caller]
    pub fn loss(&self, sum: &Sym, count: &Sym) {
        self.output(names::LOSS_SUM, sum);
        self.output(names::COUNT, count);
    }

    /// The value of a state after the call.
    #[track_caller]
    pub fn update(&self, state: &str, sym: &Sym) {
        let Some(value) = self.own(sym, Location::caller()) else { return };
        let update = Update { state: state.to_owned(), value };
        self.0.borrow_mut().function.updates.push(update);
    }

    /// Adds any operator with one output, by name: for operators of other crates.
    #[track_caller]
    pub fn apply(&self, name: &str, attributes: Attributes, inputs: &[&Sym]) -> Sym {
        let [sym] = self.apply_many(name, attributes, inputs);
        sym
    }

    /// Adds any operator with `N` outputs.
    #[track_caller]
    pub fn apply_many<const N: usize>(
        &self,
        name: &str,
        attributes: Attributes,
        inputs: &[&Sym],
    ) -> [Sym; N] {
        let caller = Location::caller();
        let values: Option<Vec<Value>> = inputs.iter().map(|sym| self.own(sym, caller)).collect();
        let Some(values) = values else { return std::array::from_fn(|_| self.poisoned()) };
        let site = self.site();
        let added = {
            let graph = &mut self.0.borrow_mut().function.graph;
            graph.op(Op::new(name, attributes), &values, site).map(|id| graph.outputs(id))
        };
        match added {
            Ok(outputs) if outputs.len() == N => {
                std::array::from_fn(|port| self.sym(outputs[port]))
            }
            Ok(outputs) => {
                let found = outputs.len();
                self.fail(&format!("{name} has {found} outputs where {N} were expected"), caller);
                std::array::from_fn(|_| self.poisoned())
            }
            Err(error) => {
                self.report(error.to_string().trim_start_matches(": "), caller);
                std::array::from_fn(|_| self.poisoned())
            }
        }
    }

    /// Reports an error of the model at the caller's line and yields a poisoned symbol.
    #[track_caller]
    pub fn error(&self, message: &str) -> Sym {
        self.fail(message, Location::caller());
        self.poisoned()
    }

    /// The symbol of a value of this graph: for passes.
    pub fn sym(&self, value: Value) -> Sym {
        Sym::new(self, Some(value))
    }

    /// Type of a value of this graph.
    pub(super) fn ty(&self, value: Value) -> Type {
        self.0.borrow().function.graph.ty(value).clone()
    }

    /// The number of a new site of randomness: a hash of the module path, and of how many the path already has.
    pub fn random_site(&self) -> i64 {
        let path = self.site().path;
        let mut tracing = self.0.borrow_mut();
        let count = tracing.random_sites.entry(path.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { path } else { format!("{path}#{count}") };
        random::site(&name) as i64
    }

    /// The value behind a symbol of this context; `None` where it is poisoned or, as an error, of another trace.
    fn own(&self, sym: &Sym, caller: &Location<'_>) -> Option<Value> {
        if !Rc::ptr_eq(&self.0, &sym.context().0) {
            self.fail("a symbol of another function was used", caller);
            return None;
        }
        sym.value()
    }

    fn poisoned(&self) -> Sym {
        Sym::new(self, None)
    }

    fn site(&self) -> Site {
        let tracing = self.0.borrow();
        let path = tracing.layer.clone().unwrap_or_else(|| tracing.scopes.join("."));
        let mut site = Site::new(path, tracing.origin);
        site.recompute = tracing.recompute;
        site
    }

    /// Makes `path` the whole module path until [`Context::leave`]: layers know their own.
    pub(super) fn enter(&self, path: &str) {
        self.0.borrow_mut().layer = Some(path.to_owned());
    }

    pub(super) fn leave(&self) {
        self.0.borrow_mut().layer = None;
    }

    /// An error at the current module path.
    pub(crate) fn fail(&self, message: &str, caller: &Location<'_>) {
        let path = self.site().path;
        let separator = if path.is_empty() { "" } else { ": " };
        self.report(&format!("{path}{separator}{message}"), caller);
    }

    fn report(&self, line: &str, caller: &Location<'_>) {
        let line = format!("{line} ({}:{})", caller.file(), caller.line());
        let errors = &mut self.0.borrow_mut().errors;
        if !errors.contains(&line) {
            errors.push(line);
        }
    }

    #[track_caller]
    fn declare_input(&self, name: &str, ty: Type, kind: InputKind) -> Sym {
        let known = self.0.borrow().function.input(name).map(|input| input.value);
        if let Some(value) = known {
            let found = self.ty(value);
            if found != ty {
                return self.error(&format!("input {name:?} is {found} and {ty}"));
            }
            return self.sym(value);
        }
        let mut tracing = self.0.borrow_mut();
        let site = Site::new("", tracing.origin);
        let value = tracing.function.graph.input(name, ty, site);
        tracing.function.inputs.push(FunctionInput { name: name.to_owned(), value, kind });
        drop(tracing);
        self.sym(value)
    }
}

/// A shape given as extents, for error messages.
pub(crate) fn shown(extents: &[usize]) -> String {
    Shape::from(extents).to_string()
}
