//! The intermediate representation: nodes with any number of typed outputs, in topological order.
//!
//! Knows how nodes refer to each other; what an operator means is its definition's matter.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Attributes, Collective, GraphError, Op, Region, Registry, Type};

/// Index of a node in its graph. Valid for one graph only; passes renumber.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into `Graph::nodes`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One output of one node: what edges carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value {
    /// The producing node.
    pub node: NodeId,
    /// Which of its outputs.
    pub port: u16,
}

impl Value {
    /// Output `port` of `node`.
    pub fn new(node: NodeId, port: usize) -> Value {
        Value { node, port: port as u16 }
    }
}

impl fmt::Display for Value {
    /// `%7`, or `%7.1` for a further output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.node.0)?;
        if self.port > 0 { write!(f, ".{}", self.port) } else { Ok(()) }
    }
}

/// What part of the step a node belongs to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Written by the model.
    #[default]
    Forward,
    /// Added by differentiation; the path is that of the differentiated node.
    Gradient,
    /// A forward node computed a second time.
    Recompute,
    /// Added to combine ranks or micro-steps.
    Reduction,
    /// Added to update a state.
    Optimizer,
    /// Added to convert element types or layouts.
    Conversion,
}

/// Where a node comes from: the module path that made it and the part of the step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Site {
    /// Module path, for example `h.0.attn`.
    pub path: String,
    /// Part of the step.
    pub origin: Origin,
    /// Number of the group of nodes whose values may be dropped after the forward part and computed again, counted
    /// from 1 in each function; `None` for values that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<u32>,
}

impl Site {
    /// A site of this path and origin.
    pub fn new(path: impl Into<String>, origin: Origin) -> Site {
        Site { path: path.into(), origin, recompute: None }
    }

    /// The same path with another origin, outside any group of recomputation.
    pub fn with_origin(&self, origin: Origin) -> Site {
        Site { path: self.path.clone(), origin, recompute: None }
    }
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A value handed to the function at each call.
    Input {
        /// Name of the input.
        name: String,
    },
    /// The value of a state at the function's start.
    State {
        /// Name of the state.
        name: String,
    },
    /// An operator.
    Op(Op),
    /// A collective over the ranks of a group.
    Collective(Collective),
    /// A fused group: evaluating the body is its specification.
    Region(Region),
}

/// One node: what it does, what it reads, what it yields, where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// What the node does.
    pub kind: Kind,
    /// Values read, in the operator's order.
    pub inputs: Vec<Value>,
    /// Types of the values yielded.
    pub outputs: Vec<Type>,
    /// Where the node comes from.
    pub site: Site,
}

impl Node {
    /// The operator's, collective's or region's name; `input` and `state` for sources.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Input { .. } => "input",
            Kind::State { .. } => "state",
            Kind::Op(op) => &op.name,
            Kind::Collective(collective) => collective.name(),
            Kind::Region(region) => &region.name,
        }
    }

    /// The operator, where the node is one.
    pub fn op(&self) -> Option<&Op> {
        if let Kind::Op(op) = &self.kind { Some(op) } else { None }
    }

    /// Whether the node is an operator of this name.
    pub fn is_op(&self, name: &str) -> bool {
        self.op().is_some_and(|op| op.name == name)
    }

    /// Whether the node is a value source rather than work.
    pub fn is_source(&self) -> bool {
        matches!(self.kind, Kind::Input { .. } | Kind::State { .. })
    }
}

/// A graph of nodes in topological order: a node reads only earlier nodes.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Graph {
    nodes: Vec<Node>,
    #[serde(skip)]
    registry: Registry,
}

impl Graph {
    /// An empty graph over these operators.
    pub fn new(registry: &Registry) -> Graph {
        Graph { nodes: vec![], registry: registry.clone() }
    }

    /// The operators this graph may use.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Gives a graph read from a file its operators, in region bodies too, and checks it.
    ///
    /// # Errors
    /// As [`Graph::verify`].
    pub fn attach(&mut self, registry: &Registry) -> Result<(), GraphError> {
        self.registry = registry.clone();
        for node in &mut self.nodes {
            if let Kind::Region(region) = &mut node.kind {
                region.body.attach(registry)?;
            }
        }
        self.verify()
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node of this id, to be changed in place. Types are not inferred again.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// Ids of all nodes in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.nodes[value.node.index()].outputs[usize::from(value.port)]
    }

    /// The values a node yields.
    pub fn outputs(&self, id: NodeId) -> Vec<Value> {
        (0..self.node(id).outputs.len()).map(|port| Value::new(id, port)).collect()
    }

    /// Adds a function input.
    pub fn input(&mut self, name: &str, ty: Type, site: Site) -> Value {
        self.push(Kind::Input { name: name.to_owned() }, vec![], vec![ty], site)
    }

    /// The value of state `name`: added on first use, shared afterwards.
    pub fn state(&mut self, name: &str, ty: Type) -> Value {
        let found = self
            .ids()
            .find(|&id| matches!(&self.node(id).kind, Kind::State { name: n } if n == name));
        match found {
            Some(id) => Value::new(id, 0),
            None => {
                let site = Site::new(name, Origin::Forward);
                self.push(Kind::State { name: name.to_owned() }, vec![], vec![ty], site)
            }
        }
    }

    /// Adds an operator and infers its output types.
    ///
    /// # Errors
    /// Where the operator is unknown or refuses its inputs.
    pub fn op(&mut self, op: Op, inputs: &[Value], site: Site) -> Result<NodeId, GraphError> {
        let types: Vec<Type> = inputs.iter().map(|&value| self.ty(value).clone()).collect();
        let outputs = self.registry.infer(&op, &types, &site)?;
        Ok(self.push(Kind::Op(op), inputs.to_vec(), outputs, site).node)
    }

    /// Adds an operator with exactly one output.
    ///
    /// # Errors
    /// As [`Graph::op`], and where it has another number of outputs.
    pub fn op1(
        &mut self,
        name: &str,
        attributes: Attributes,
        inputs: &[Value],
        site: Site,
    ) -> Result<Value, GraphError> {
        let id = self.op(Op::new(name, attributes), inputs, site)?;
        let node = self.node(id);
        if node.outputs.len() == 1 {
            return Ok(Value::new(id, 0));
        }
        let (path, op, outputs) =
            (node.site.path.clone(), node.name().to_owned(), node.outputs.len());
        Err(GraphError::NotSingle { path, op, outputs })
    }

    /// Adds a collective.
    ///
    /// # Errors
    /// Where its input cannot be divided among the ranks.
    pub fn collective(
        &mut self,
        collective: Collective,
        input: Value,
        site: Site,
    ) -> Result<Value, GraphError> {
        let output = collective.infer(self.ty(input)).map_err(|source| GraphError::Operator {
            path: site.path.clone(),
            op: collective.name().to_owned(),
            inputs: self.ty(input).to_string(),
            source,
        })?;
        Ok(self.push(Kind::Collective(collective), vec![input], vec![output], site))
    }

    /// Adds a region; its body's inputs are these values in order.
    pub fn region(&mut self, region: Region, inputs: Vec<Value>, site: Site) -> NodeId {
        let outputs = region.outputs.iter().map(|&value| region.body.ty(value).clone()).collect();
        self.push(Kind::Region(region), inputs, outputs, site).node
    }

    /// Adds any node with stated output types: for passes that copy nodes between graphs.
    pub fn push(
        &mut self,
        kind: Kind,
        inputs: Vec<Value>,
        outputs: Vec<Type>,
        site: Site,
    ) -> Value {
        debug_assert!(inputs.iter().all(|value| value.node.index() < self.nodes.len()));
        self.nodes.push(Node { kind, inputs, outputs, site });
        Value::new(NodeId(self.nodes.len() as u32 - 1), 0)
    }

    /// The nodes that read each value.
    pub fn users(&self) -> BTreeMap<Value, Vec<NodeId>> {
        let mut users: BTreeMap<Value, Vec<NodeId>> = BTreeMap::new();
        for id in self.ids() {
            for &value in &self.node(id).inputs {
                let readers = users.entry(value).or_default();
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        users
    }

    /// Checks order, ports, inferred types and region bodies.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn verify(&self) -> Result<(), GraphError> {
        for id in self.ids() {
            let node = self.node(id);
            for value in &node.inputs {
                let known = self.nodes.get(value.node.index()).filter(|_| value.node < id);
                if known.is_none_or(|n| usize::from(value.port) >= n.outputs.len()) {
                    return Err(GraphError::Malformed(format!("%{} reads {value}", id.0)));
                }
            }
            let types: Vec<Type> = node.inputs.iter().map(|&v| self.ty(v).clone()).collect();
            let inferred = match &node.kind {
                Kind::Input { .. } | Kind::State { .. } => continue,
                Kind::Op(op) => self.registry.infer(op, &types, &node.site)?,
                Kind::Collective(collective) => match types.as_slice() {
                    [ty] => collective
                        .infer(ty)
                        .map(|output| vec![output])
                        .map_err(|e| GraphError::Malformed(format!("%{}: {e}", id.0)))?,
                    _ => return Err(GraphError::Malformed(format!("%{}: one input", id.0))),
                },
                Kind::Region(region) => region.verify(&types)?,
            };
            if inferred != node.outputs {
                return Err(GraphError::Malformed(format!(
                    "%{} ({}) yields other types than its operator infers",
                    id.0,
                    node.name()
                )));
            }
        }
        Ok(())
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.nodes == other.nodes
    }
}

impl Eq for Graph {}

impl std::hash::Hash for Graph {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nodes.hash(state);
    }
}

impl fmt::Display for Graph {
    /// One line per node: `%3 = linear(%1, %2) {transposed=false} : f32[4, 8]  # h.0.mlp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in self.ids() {
            let node = self.node(id);
            write!(f, "%{} = {}", id.0, node.name())?;
            match &node.kind {
                Kind::Input { name } | Kind::State { name } => write!(f, " {name}")?,
                _ => {
                    let inputs: Vec<String> = node.inputs.iter().map(Value::to_string).collect();
                    write!(f, "({})", inputs.join(", "))?;
                }
            }
            match &node.kind {
                Kind::Op(op) if !op.attributes.is_empty() => write!(f, " {{{}}}", op.attributes)?,
                Kind::Collective(collective) => write!(f, " {{{collective}}}")?,
                Kind::Region(region) => {
                    let names: Vec<&str> = region.work().map(Node::name).collect();
                    write!(f, " {{{}}}", names.join(" "))?;
                }
                _ => {}
            }
            let types: Vec<String> = node.outputs.iter().map(Type::to_string).collect();
            write!(f, " : {}", types.join(", "))?;
            if !node.site.path.is_empty() {
                write!(f, "  # {}", node.site.path)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
