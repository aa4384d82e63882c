//! Makes one elementwise region of a drafted update. What depends on scalars alone, such as bias corrections, stays
//! outside: it is computed once, not for every element.
//!
//! Knows no optimizer.

use std::collections::BTreeMap;

use graph::{Graph, Kind, Origin, Region, Site, Value};

/// Adds the region to `graph`. The draft's inputs stand for `inputs` in order; yields the values of `outputs`.
pub(super) fn add(
    graph: &mut Graph,
    draft: &Graph,
    inputs: &[Value],
    outputs: &[Value],
    site: &Site,
) -> Vec<Value> {
    let mut split = Split {
        draft,
        graph,
        outside: BTreeMap::new(),
        body: Graph::new(draft.registry()),
        inside: BTreeMap::new(),
        inputs: vec![],
    };
    let mut given = inputs.iter().copied();
    for id in draft.ids() {
        let node = draft.node(id);
        let value = Value::new(id, 0);
        let scalar = node.outputs.iter().all(|ty| ty.shape.rank() == 0)
            && node.inputs.iter().all(|input| split.outside.contains_key(input));
        match &node.kind {
            Kind::Input { .. } => {
                let Some(outer) = given.next() else { continue };
                split.outside.insert(value, outer);
                // The update's own tensors come first, in their order, whether they are read or not.
                if node.outputs[0].shape.rank() > 0 {
                    split.inner(value);
                }
            }
            // Scalar constants are repeated inside where they are read there.
            _ if scalar => split.hoist(value),
            _ => split.keep(value),
        }
    }
    let outputs = outputs.iter().map(|&value| split.inner(value)).collect();
    let Split { body, inputs, .. } = split;
    let region = Region { name: "elementwise".to_owned(), body, outputs };
    let id = graph.region(region, inputs, site.clone());
    graph.outputs(id)
}

struct Split<'a> {
    draft: &'a Graph,
    graph: &'a mut Graph,
    /// Values of the draft outside the region: inputs and what depends on scalars alone.
    outside: BTreeMap<Value, Value>,
    body: Graph,
    inside: BTreeMap<Value, Value>,
    /// What the region reads, in order.
    inputs: Vec<Value>,
}

impl Split<'_> {
    /// Adds a scalar node outside, unless another bucket's update has added it.
    fn hoist(&mut self, value: Value) {
        let node = self.draft.node(value.node).clone();
        let inputs: Vec<Value> = node.inputs.iter().map(|input| self.outside[input]).collect();
        let same = self.graph.ids().rev().find(|&id| {
            let other = self.graph.node(id);
            other.site.origin == Origin::Optimizer
                && other.kind == node.kind
                && other.inputs == inputs
        });
        let new = match same {
            Some(id) => id,
            None => self.graph.push(node.kind, inputs, node.outputs, node.site).node,
        };
        for value in self.draft.outputs(value.node) {
            self.outside.insert(value, Value { node: new, port: value.port });
        }
    }

    fn keep(&mut self, value: Value) {
        let node = self.draft.node(value.node).clone();
        let inputs = node.inputs.iter().map(|&input| self.inner(input)).collect();
        let new = self.body.push(node.kind, inputs, node.outputs, node.site).node;
        for value in self.draft.outputs(value.node) {
            self.inside.insert(value, Value { node: new, port: value.port });
        }
    }

    /// A value of the draft inside the region.
    fn inner(&mut self, value: Value) -> Value {
        if let Some(&inner) = self.inside.get(&value) {
            return inner;
        }
        let node = self.draft.node(value.node);
        if node.is_op("constant") {
            self.keep(value);
            return self.inside[&value];
        }
        let name = self.inputs.len().to_string();
        let site = node.site.clone();
        let inner = self.body.input(&name, self.draft.ty(value).clone(), site);
        self.inputs.push(self.outside[&value]);
        self.inside.insert(value, inner);
        inner
    }
}
