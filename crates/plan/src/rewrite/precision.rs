//! Retypes a traced f32 program by a table of rules, one per operator: matrix products in the compute dtype, the residual
//! stream in a dtype of its own, losses and statistics in f32. Conversions become `cast` nodes.
//!
//! A parameter read in a low dtype is not converted at every step: it gets a working copy, a state that the optimizer
//! writes. Runs before differentiation, so gradients are taken with respect to the working copies.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use graph::{
    Attribute, DType, Function, Initial, Kind, Node, NodeId, Op, Origin, Program, Site, State,
    StateKind, Type, Value,
};

pub use self::table::{Rule, TABLE};
use super::{
    Context, dead_nodes,
    support::{Rebuild, WORKING, cast},
};
use crate::{PlanError, options::Precision};

pub(super) fn run(mut program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    let precision = cx.options.precision;
    check(precision)?;
    if precision.compute == DType::F32 {
        return Ok(program);
    }
    let mut copies = BTreeMap::new();
    let mut functions = vec![];
    for function in &program.functions {
        let retyping = Retyping {
            program: &program,
            precision,
            copies: &mut copies,
            copy: Rebuild::new(function),
            function,
            full: BTreeSet::new(),
        };
        functions.push(retyping.run()?);
    }
    program.functions = functions;
    let working: Vec<State> = program
        .states
        .iter()
        .filter_map(|state| {
            let dtype = *copies.get(&state.name)?;
            let name = format!("{}{WORKING}", state.name);
            let kind = StateKind::WorkingCopy { of: state.name.clone() };
            let initial = Initial::CopyOf(state.name.clone());
            let copy = State::new(&name, state.ty.with_dtype(dtype), kind, initial);
            Some(State { trainable: state.trainable, ..copy })
        })
        .collect();
    program.states.extend(working);
    Ok(program)
}

fn check(precision: Precision) -> Result<(), PlanError> {
    let refuse = |option: &'static str, found: DType, expected: String| {
        Err(PlanError::Option { option, found: found.to_string(), expected })
    };
    let Precision { compute, residual, gradient } = precision;
    if ![DType::F32, DType::BF16, DType::F16].contains(&compute) {
        return refuse("precision.compute", compute, "f32, bf16 or f16".to_owned());
    }
    if residual != compute && residual != DType::F32 {
        return refuse("precision.residual", residual, format!("{compute} or f32"));
    }
    if ![DType::F32, DType::BF16, DType::F16].contains(&gradient) {
        return refuse("precision.gradient", gradient, "f32, bf16 or f16".to_owned());
    }
    Ok(())
}

struct Retyping<'a> {
    program: &'a Program,
    precision: Precision,
    /// Dtype of the working copy of each parameter that has one.
    copies: &'a mut BTreeMap<String, DType>,
    copy: Rebuild<'a>,
    function: &'a Function,
    /// Old values that must stay f32: losses, statistics and what is computed from them.
    full: BTreeSet<Value>,
}

impl Retyping<'_> {
    fn run(mut self) -> Result<Function, PlanError> {
        for id in self.function.graph.ids() {
            let node = self.function.graph.node(id);
            match &node.kind {
                Kind::Op(op) => self.operator(id, node, op)?,
                _ => {
                    self.copy.copy(id);
                }
            }
        }
        for value in self.function.roots() {
            let dtype = self.function.graph.ty(value).dtype;
            let new = self.convert(value, dtype)?;
            self.copy.set(value, new);
        }
        // Parameters read as working copies only are not read any more.
        Ok(dead_nodes::sweep(&self.copy.finish()))
    }

    fn operator(&mut self, id: NodeId, node: &Node, op: &Op) -> Result<(), PlanError> {
        let floats: Vec<Value> = node
            .inputs
            .iter()
            .copied()
            .filter(|&value| self.function.graph.ty(value).dtype == DType::F32)
            .collect();
        let rule = table::rule(&op.name);
        let dtype = self.dtype(rule, node, &floats);
        let mut inputs = vec![];
        for &value in &node.inputs {
            let float = self.function.graph.ty(value).dtype == DType::F32;
            inputs.push(match float {
                true => self.convert(value, dtype)?,
                false => self.copy.value(value),
            });
        }
        let mut attributes = op.attributes.clone();
        for (name, dtype) in [("output", dtype), ("accumulate", dtype.accumulator())] {
            if op.attributes.get(name) == Some(&Attribute::DType(DType::F32)) && !floats.is_empty()
            {
                attributes = attributes.dtype(name, dtype);
            }
        }
        let new = self.copy.graph.op(Op::new(&op.name, attributes), &inputs, node.site.clone())?;
        self.copy.follow(id, new);
        let stays = dtype == DType::F32 && floats.iter().any(|value| self.full.contains(value));
        for (port, ty) in node.outputs.iter().enumerate() {
            let value = Value::new(id, port);
            let own = self.copy.graph.ty(Value::new(new, port)).dtype == DType::F32;
            if ty.dtype == DType::F32 && own && (stays || rule == Rule::Full || rule == Rule::Loss)
            {
                self.full.insert(value);
            }
        }
        Ok(())
    }

    /// The dtype in which a node computes.
    fn dtype(&self, rule: Rule, node: &Node, floats: &[Value]) -> DType {
        let scalar = node.outputs.iter().all(|ty| ty.shape.rank() == 0) && rule != Rule::Loss;
        if rule == Rule::Full || scalar || floats.iter().any(|value| self.full.contains(value)) {
            return DType::F32;
        }
        match rule {
            Rule::Compute => self.precision.compute,
            Rule::Residual => self.precision.residual,
            Rule::Full => DType::F32,
            // The widest of what was computed; parameters and constants adapt.
            Rule::Follow | Rule::Loss => floats
                .iter()
                .filter(|value| !self.adapts(**value))
                .map(|&value| self.copy.graph.ty(self.copy.value(value)).dtype)
                .max_by_key(|dtype| dtype.bytes())
                .unwrap_or(DType::F32),
        }
    }

    fn adapts(&self, value: Value) -> bool {
        let node = self.function.graph.node(value.node);
        self.parameter(node).is_some() || node.is_op("constant")
    }

    fn parameter(&self, node: &Node) -> Option<&State> {
        let Kind::State { name } = &node.kind else { return None };
        self.program.state(name).filter(|state| state.kind == StateKind::Parameter)
    }

    /// The new value of an old f32 value, in this dtype.
    fn convert(&mut self, value: Value, dtype: DType) -> Result<Value, PlanError> {
        let new = self.copy.value(value);
        if self.copy.graph.ty(new).dtype == dtype {
            return Ok(new);
        }
        let node = self.function.graph.node(value.node);
        if let Some(parameter) = self.parameter(node) {
            let (name, ty) = (parameter.name.clone(), parameter.ty.with_dtype(dtype));
            if *self.copies.entry(name.clone()).or_insert(dtype) == dtype {
                return Ok(self.working_copy(&name, ty));
            }
        }
        if let (Some(op), true) = (node.op(), node.is_op("constant")) {
            let attributes = op.attributes.clone().dtype("dtype", dtype);
            let site = node.site.clone();
            return Ok(self.copy.graph.op1("constant", attributes, &[], site)?);
        }
        let site = Site::new(&node.site.path, Origin::Conversion);
        Ok(cast(&mut self.copy.graph, new, dtype, &site)?)
    }

    fn working_copy(&mut self, parameter: &str, ty: Type) -> Value {
        self.copy.graph.state(&format!("{parameter}{WORKING}"), ty)
    }
}
