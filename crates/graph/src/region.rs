//! Fused groups: a node whose body is a graph of ordinary nodes. Knows no kernel.

use serde::{Deserialize, Serialize};

use crate::{Graph, GraphError, Kind, Node, Type, Value};

/// A fused group. Its meaning is the evaluation of its body; its name says which kernels may carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// The pattern, for example `elementwise` or `cross_entropy_with_gradient`.
    pub name: String,
    /// Ordinary nodes; its `Input` nodes are the region's inputs in order.
    pub body: Graph,
    /// Values of the body that the region yields, in order.
    pub outputs: Vec<Value>,
}

impl Region {
    /// The body's input nodes in order.
    pub fn inputs(&self) -> impl Iterator<Item = Value> + '_ {
        self.body
            .ids()
            .filter(|&id| matches!(self.body.node(id).kind, Kind::Input { .. }))
            .map(|id| Value::new(id, 0))
    }

    /// The nodes of the body that do work.
    pub fn work(&self) -> impl Iterator<Item = &Node> {
        self.body.nodes().iter().filter(|node| !node.is_source())
    }

    /// Checks the body against the types of the region's inputs and yields the types of its outputs.
    ///
    /// # Errors
    /// Where the body is malformed or expects other inputs.
    pub fn verify(&self, inputs: &[Type]) -> Result<Vec<Type>, GraphError> {
        self.body.verify()?;
        let expected: Vec<&Type> = self.inputs().map(|value| self.body.ty(value)).collect();
        if expected != inputs.iter().collect::<Vec<_>>() {
            return Err(GraphError::Malformed(format!("region {} has other inputs", self.name)));
        }
        let known = |value: &Value| {
            self.body
                .nodes()
                .get(value.node.index())
                .and_then(|node| node.outputs.get(usize::from(value.port)))
                .cloned()
                .ok_or_else(|| {
                    GraphError::Malformed(format!("region {} yields {value}", self.name))
                })
        };
        self.outputs.iter().map(known).collect()
    }
}
