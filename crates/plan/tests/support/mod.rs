//! Random programs over real operators, with packed projections, buckets, shards and states, and two operators of the
//! tests' own: one that demands row-major memory, one that takes any strides.

use std::sync::Arc;

use graph::{
    Attributes, Call, Class, Collective, DType, EvaluationContext, Function, FunctionInput,
    FunctionOutput, GradientBuilder, GraphError, Initial, InputKind, Op, OpDefinition, OpError,
    Origin, Program, Registry, Sample, Shape, Site, State, StateKind, Tensor, Type, Update, Value,
};
use plan::{Candidate, MemoryModel, Request, Target};

/// An operator that yields as many tensors as it reads, of the same types.
struct Own(&'static str);

impl OpDefinition for Own {
    fn name(&self) -> &'static str {
        self.0
    }

    fn class(&self) -> Class {
        Class::RowWise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(inputs.to_vec())
    }

    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        Ok(inputs.to_vec())
    }

    fn samples(&self) -> Vec<Sample> {
        vec![]
    }
}

/// The operators of the catalogue, `dense` (row-major in and out) and `strided` (any strides in and out).
pub fn registry() -> Registry {
    let own = [Own("dense"), Own("strided")];
    let own = own.into_iter().map(|op| Arc::new(op) as Arc<dyn OpDefinition>);
    graph::ops::registry().with(own.collect::<Vec<_>>())
}

/// The host target with another memory model, `strided` and a scratch buffer for `dense`.
pub struct Machine(pub MemoryModel);

impl Target for Machine {
    fn name(&self) -> &str {
        "machine"
    }

    fn memory_model(&self) -> MemoryModel {
        self.0
    }

    fn patterns(&self) -> Vec<String> {
        vec![]
    }

    fn candidates(&self, request: &Request<'_>) -> Vec<Candidate> {
        let mut list = plan::target::host().candidates(request);
        for candidate in &mut list {
            match request.node.name() {
                "strided" => {
                    candidate.strided_inputs = (0..request.inputs.len() as u16).collect();
                    candidate.strided_outputs = candidate.strided_inputs.clone();
                }
                "dense" => {
                    candidate.workspace = 40;
                    candidate.accumulates = vec![0];
                }
                _ => {}
            }
        }
        list
    }
}

/// A small generator of numbers, a function of its seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// A function under construction.
pub struct Builder {
    pub function: Function,
    pub states: Vec<State>,
}

impl Builder {
    pub fn new(name: &str) -> Builder {
        Builder { function: Function::new(name, &registry()), states: vec![] }
    }

    pub fn input(&mut self, name: &str, shape: &[usize]) -> Value {
        let ty = Type::new(DType::F32, Shape::new(shape));
        let value = self.function.graph.input(name, ty, Site::default());
        let kind = InputKind::Batch;
        self.function.inputs.push(FunctionInput { name: name.to_owned(), value, kind });
        value
    }

    pub fn state(&mut self, name: &str, shape: &[usize]) -> Value {
        let ty = Type::new(DType::F32, Shape::new(shape));
        if !self.states.iter().any(|state| state.name == name) {
            self.states.push(State::new(name, ty.clone(), StateKind::Parameter, Initial::Zeros));
        }
        self.function.graph.state(name, ty)
    }

    pub fn op(&mut self, name: &str, attributes: Attributes, inputs: &[Value]) -> Value {
        self.ops(name, attributes, inputs)[0]
    }

    pub fn ops(&mut self, name: &str, attributes: Attributes, inputs: &[Value]) -> Vec<Value> {
        let site = Site::new(name, Origin::Forward);
        let id = self
            .function
            .graph
            .op(Op::new(name, attributes), inputs, site)
            .expect("a valid operator");
        self.function.graph.outputs(id)
    }

    pub fn reshape(&mut self, value: Value, shape: &[usize]) -> Value {
        self.op("reshape", Attributes::new().sizes("shape", shape), &[value])
    }

    pub fn permute(&mut self, value: Value, axes: &[usize]) -> Value {
        self.op("permute", Attributes::new().sizes("axes", axes), &[value])
    }

    pub fn slice(&mut self, value: Value, axis: usize, start: usize, length: usize) -> Value {
        let attributes = Attributes::new().int("axis", axis as i64);
        let attributes = attributes.int("start", start as i64).int("length", length as i64);
        self.op("slice", attributes, &[value])
    }

    pub fn collective(&mut self, collective: Collective, value: Value) -> Value {
        let site = Site::new("bucket", Origin::Reduction);
        self.function.graph.collective(collective, value, site).expect("a valid collective")
    }

    /// Packs values with a gap after each.
    pub fn pack(&mut self, values: &[Value], multiple: usize) -> Value {
        let (mut offsets, mut total) = (vec![], 0);
        for &value in values {
            offsets.push(total);
            total += self.shape(value).iter().product::<usize>();
            total = total.next_multiple_of(multiple);
        }
        let attributes = Attributes::new().sizes("offsets", &offsets).int("total", total as i64);
        self.op("pack", attributes, values)
    }

    pub fn shape(&self, value: Value) -> Vec<usize> {
        self.function.graph.ty(value).shape.0.clone()
    }

    pub fn update(&mut self, state: &str, value: Value) {
        self.function.updates.push(Update { state: state.to_owned(), value });
    }

    pub fn output(&mut self, name: &str, value: Value) {
        self.function.outputs.push(FunctionOutput { name: name.to_owned(), value });
    }

    pub fn program(self) -> Program {
        Program { states: self.states, functions: vec![self.function] }
    }
}

/// Attention over one packed projection and back into one packed gradient.
pub fn packed(builder: &mut Builder, x: Value, [batch, time, width, heads]: [usize; 4]) -> Value {
    let wide = builder.op("concat", Attributes::new().int("axis", 2), &[x, x, x]);
    let wide = builder.op("dense", Attributes::new(), &[wide]);
    let mut columns = vec![];
    for index in 0..3 {
        let column = builder.slice(wide, 2, index * width, width);
        let column = builder.reshape(column, &[batch, time, heads, width / heads]);
        columns.push(builder.permute(column, &[0, 2, 1, 3]));
    }
    let gradients = builder.ops("strided", Attributes::new(), &columns);
    let mut parts = vec![];
    for gradient in gradients {
        let part = builder.permute(gradient, &[0, 2, 1, 3]);
        parts.push(builder.reshape(part, &[batch, time, width]));
    }
    let packed = builder.op("concat", Attributes::new().int("axis", 2), &parts);
    let packed = builder.op("dense", Attributes::new(), &[packed]);
    builder.slice(packed, 2, width / 2, width)
}

/// A random program: values of one shape, combined at random; gradients packed into buckets, reduced or sharded;
/// states updated in place, swapped, or kept.
pub fn random_program(seed: u64, ranks: usize) -> Program {
    let mut dice = Dice::new(seed);
    let mut b = Builder::new("step");
    let dims @ [batch, time, width, _] = [2, 3, 4, 2];
    let shape = [batch, time, width];
    let mut values = vec![b.input("x", &shape)];
    if dice.below(2) == 0 {
        values.push(b.input("y", &shape));
    }
    let states = 1 + dice.below(3);
    let names: Vec<String> = (0..states).map(|index| format!("state.{index}")).collect();
    for name in &names {
        let flat = b.state(name, &[2 * ranks * batch * time * width]);
        let attributes = Attributes::new().int("offset", (dice.below(3) * 4) as i64);
        values.push(b.op("unpack", attributes.sizes("shape", &shape), &[flat]));
    }
    for _ in 0..3 + dice.below(8) {
        let (x, y) = (*dice.pick(&values), *dice.pick(&values));
        let none = Attributes::new();
        values.push(match dice.below(10) {
            0 => b.op("add", none, &[x, y]),
            1 => b.op("mul", none, &[x, y]),
            2 => b.op("relu", none, &[x]),
            3 => b.op("dense", none, &[x]),
            4 => *dice.pick(&b.ops("strided", none, &[x, y])),
            5 => packed(&mut b, x, dims),
            6 => {
                let turned = b.permute(x, &[1, 0, 2]);
                let turned = b.reshape(turned, &[time * batch, width]);
                let turned = b.op("dense", none, &[turned]);
                let turned = b.reshape(turned, &[time, batch, width]);
                b.permute(turned, &[1, 0, 2])
            }
            9 => {
                let terms = [x, y].map(|value| b.op("dense", Attributes::new(), &[value]));
                b.op("accumulate", none, &terms)
            }
            7 => {
                let joined = b.op("concat", Attributes::new().int("axis", 1), &[x, y]);
                b.slice(joined, 1, 1 + dice.below(2), time)
            }
            _ => b.collective(Collective::ALL_REDUCE_SUM, x),
        });
    }
    let mut fresh = vec![];
    for name in &names {
        let gradients: Vec<Value> = (0..1 + dice.below(3)).map(|_| *dice.pick(&values)).collect();
        let flat = b.state(name, &[2 * ranks * batch * time * width]);
        let total = b.shape(flat)[0];
        let mut bucket = b.pack(&gradients[..gradients.len().min(2)], ranks * 4);
        if b.shape(bucket)[0] < total {
            let attributes = Attributes::new().ints("offsets", [0]).int("total", total as i64);
            bucket = b.op("pack", attributes, &[bucket]);
        }
        let shard = |b: &mut Builder, value| {
            b.op("shard", Attributes::new().int("ranks", ranks as i64), &[value])
        };
        fresh.push(match dice.below(5) {
            0 => b.op("add", Attributes::new(), &[flat, bucket]),
            1 => {
                let reduced = b.collective(Collective::ALL_REDUCE_SUM, bucket);
                b.op("add", Attributes::new(), &[flat, reduced])
            }
            2 => {
                let reduction = graph::Reduction::Sum;
                let part = b.collective(Collective::ReduceScatter { reduction, ranks }, bucket);
                let own = shard(&mut b, flat);
                let updated = b.op("add", Attributes::new(), &[own, part]);
                b.collective(Collective::AllGather { ranks }, updated)
            }
            3 => {
                // A micro-step: gradients added to those in the state.
                let mut sums = vec![];
                let per = shape.iter().product::<usize>();
                for index in 0..2 * ranks {
                    let attributes = Attributes::new().int("offset", (index * per) as i64);
                    let old = b.op("unpack", attributes.sizes("shape", &shape), &[flat]);
                    let own = b.op("dense", Attributes::new(), &[*dice.pick(&values)]);
                    sums.push(b.op("accumulate", Attributes::new(), &[old, own]));
                }
                b.pack(&sums, 1)
            }
            _ => bucket,
        });
    }
    if dice.below(4) == 0 && fresh.len() > 1 {
        fresh.swap(0, 1);
    }
    for (name, value) in names.iter().zip(fresh) {
        match dice.below(6) {
            0 => {
                let chosen: &String = dice.pick(&names);
                let other = b.state(chosen, &[2 * ranks * batch * time * width]);
                b.update(name, other);
            }
            1 => {}
            _ => b.update(name, value),
        }
    }
    let last = *dice.pick(&values);
    b.output("last", last);
    let sum = b.op("dense", Attributes::new(), &values[..1]);
    b.output("sum", sum);
    b.program()
}
