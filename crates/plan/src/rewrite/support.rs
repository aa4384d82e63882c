//! Copies a function node by node while its values change places: what most passes are made of.
//!
//! Knows no pass. Also holds the words that passes have in common: suffixes of state names, small nodes.

use std::collections::BTreeMap;

use graph::{Attributes, DType, Function, Graph, GraphError, Kind, NodeId, Origin, Site, Value};

/// Suffix of the state that holds a parameter's reduced gradient between passes.
pub(super) const GRADIENT: &str = "#gradient";
/// Suffix of the state that sums a parameter's gradient over micro-steps.
pub(super) const GRADIENT_SUM: &str = "#gradient_sum";
/// Suffix of a parameter's low-precision copy.
pub(super) const WORKING: &str = "#working";

/// A copy under construction.
pub(super) struct Rebuild<'a> {
    old: &'a Function,
    values: BTreeMap<Value, Value>,
    /// Input nodes themselves, whatever stands for their values.
    declared: BTreeMap<Value, Value>,
    pub(super) graph: Graph,
}

impl<'a> Rebuild<'a> {
    /// Begins an empty copy of `old`.
    pub(super) fn new(old: &'a Function) -> Rebuild<'a> {
        let graph = Graph::new(old.graph.registry());
        Rebuild { old, values: BTreeMap::new(), declared: BTreeMap::new(), graph }
    }

    /// The new value of an old one. Nodes are visited in topological order, so it exists.
    pub(super) fn value(&self, old: Value) -> Value {
        self.values[&old]
    }

    /// Where an old node comes from.
    pub(super) fn site(&self, id: NodeId) -> Site {
        self.old.graph.node(id).site.clone()
    }

    /// The new values of what an old node reads.
    pub(super) fn inputs(&self, id: NodeId) -> Vec<Value> {
        self.old.graph.node(id).inputs.iter().map(|&value| self.value(value)).collect()
    }

    /// Says what stands for an old value from now on.
    pub(super) fn set(&mut self, old: Value, new: Value) {
        self.values.insert(old, new);
    }

    /// Copies a node over the new values of what it reads, types included.
    pub(super) fn copy(&mut self, id: NodeId) -> NodeId {
        let node = self.old.graph.node(id).clone();
        let inputs = self.inputs(id);
        let new = self.graph.push(node.kind, inputs, node.outputs, node.site).node;
        self.follow(id, new);
        new
    }

    /// Makes each output of `new` stand for the same output of `old`.
    pub(super) fn follow(&mut self, old: NodeId, new: NodeId) {
        if matches!(self.old.graph.node(old).kind, Kind::Input { .. }) {
            self.declared.insert(Value::new(old, 0), Value::new(new, 0));
        }
        for port in 0..self.old.graph.node(old).outputs.len() {
            self.set(Value::new(old, port), Value::new(new, port));
        }
    }

    /// The finished function; inputs, outputs and updates follow their values.
    pub(super) fn finish(self) -> Function {
        let mut function = Function::new(&self.old.name, self.graph.registry());
        function.inputs.clone_from(&self.old.inputs);
        function.outputs.clone_from(&self.old.outputs);
        function.updates.clone_from(&self.old.updates);
        function.inputs.iter_mut().for_each(|input| input.value = self.declared[&input.value]);
        function.outputs.iter_mut().for_each(|output| output.value = self.values[&output.value]);
        function.updates.iter_mut().for_each(|update| update.value = self.values[&update.value]);
        function.graph = self.graph;
        function
    }
}

/// The function with every node that combines ranks or micro-steps right behind the last value it reads: passes append
/// such nodes at the end, while the order of nodes says when values are ready. Sources come first.
pub(super) fn settle(function: &Function) -> Function {
    let graph = &function.graph;
    let mut places: Vec<usize> = (0..graph.nodes().len()).collect();
    for id in graph.ids() {
        let node = graph.node(id);
        if node.is_source() {
            places[id.index()] = 0;
        } else if node.site.origin == Origin::Reduction {
            let last = node.inputs.iter().map(|value| places[value.node.index()]).max();
            places[id.index()] = last.unwrap_or(id.index());
        }
    }
    let mut order: Vec<NodeId> = graph.ids().collect();
    order.sort_by_key(|id| (places[id.index()], *id));
    let mut copy = Rebuild::new(function);
    for id in order {
        copy.copy(id);
    }
    copy.finish()
}

/// A scalar constant.
pub(super) fn constant(
    graph: &mut Graph,
    value: f64,
    dtype: DType,
    site: &Site,
) -> Result<Value, GraphError> {
    let attributes = Attributes::new().float("value", value).dtype("dtype", dtype);
    graph.op1("constant", attributes.sizes("shape", &[]), &[], site.clone())
}

/// `value` in another dtype; itself where it has that dtype.
pub(super) fn cast(
    graph: &mut Graph,
    value: Value,
    dtype: DType,
    site: &Site,
) -> Result<Value, GraphError> {
    if graph.ty(value).dtype == dtype {
        return Ok(value);
    }
    graph.op1("cast", Attributes::new().dtype("dtype", dtype), &[value], site.clone())
}

/// The site of nodes that combine ranks or micro-steps.
pub(super) fn reduction_site(path: &str) -> Site {
    Site::new(path, Origin::Reduction)
}
