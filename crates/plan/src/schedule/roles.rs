//! What a node is to the schedule: a source, a window over something else, or work on a lane.
//!
//! Knows operators only through their definitions.

use std::ops::Range;

use graph::{Graph, GraphError, Kind, NodeId, Strided, Type, Value, ViewKind};

/// What a node is to the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The value of a state: no step.
    State,
    /// Handed in by the caller: a step on the copy lane.
    Input,
    /// Its output is a window over input 0: no step.
    View,
    /// Its inputs are windows over its output: a step only where something is left to fill with zeros.
    Slots {
        /// Whether some elements of the output belong to no input.
        padded: bool,
    },
    /// An operator or region: a step on the compute lane.
    Work,
    /// A collective: a step on a communication lane.
    Collective,
    /// A sum of two values of which the producer of one adds to what the other left in memory: no step.
    Folded {
        /// The input whose producer adds.
        added: usize,
    },
}

impl Role {
    /// Whether the node has a step.
    pub(crate) fn has_step(self) -> bool {
        !matches!(
            self,
            Role::State | Role::View | Role::Slots { padded: false } | Role::Folded { .. }
        )
    }
}

/// The role of a node.
pub(crate) fn role(graph: &Graph, id: NodeId) -> Result<Role, GraphError> {
    let node = graph.node(id);
    Ok(match &node.kind {
        Kind::Input { .. } => Role::Input,
        Kind::State { .. } => Role::State,
        Kind::Collective(_) => Role::Collective,
        Kind::Region(_) => Role::Work,
        Kind::Op(op) => match graph.registry().get(&op.name)?.view() {
            None => Role::Work,
            Some(ViewKind::OutputOfInput) => Role::View,
            Some(ViewKind::InputsOfOutput) => {
                let filled: usize = node.inputs.iter().map(|&v| graph.ty(v).shape.elements()).sum();
                Role::Slots { padded: filled < node.outputs[0].shape.elements() }
            }
        },
    })
}

/// The value behind a chain of views: what a step writes.
pub(crate) fn written_value(graph: &Graph, roles: &[Role], mut value: Value) -> Value {
    while roles[value.node.index()] == Role::View {
        value = graph.node(value.node).inputs[0];
    }
    value
}

/// Types of a node's inputs.
pub(crate) fn input_types(graph: &Graph, id: NodeId) -> Vec<Type> {
    graph.node(id).inputs.iter().map(|&value| graph.ty(value).clone()).collect()
}

/// The window of a view's output, given the window of its input.
pub(crate) fn view_window(graph: &Graph, id: NodeId, input: &Strided) -> Option<Strided> {
    let node = graph.node(id);
    let op = node.op()?;
    let definition = graph.registry().get(&op.name).ok()?;
    definition.window(&op.attributes, input, &node.outputs[0])
}

/// The windows of the inputs of a node like `concat` or `pack`, given the window of its output.
pub(crate) fn slot_windows(graph: &Graph, id: NodeId, output: &Strided) -> Option<Vec<Strided>> {
    let op = graph.node(id).op()?;
    let definition = graph.registry().get(&op.name).ok()?;
    definition.slots(&op.attributes, &input_types(graph, id), output)
}

/// The ranges of elements of a `pack` node's flat output that no input covers: its step fills them with zeros.
pub fn padding(graph: &Graph, id: NodeId) -> Vec<Range<usize>> {
    let shape = &graph.node(id).outputs[0].shape;
    let slots = slot_windows(graph, id, &Strided::contiguous(shape)).unwrap_or_default();
    let mut covered: Vec<Range<usize>> = slots.iter().map(|s| s.offset..s.end()).collect();
    covered.sort_by_key(|range| range.start);
    let (mut gaps, mut end) = (vec![], 0);
    for range in covered {
        if range.start > end {
            gaps.push(end..range.start);
        }
        end = end.max(range.end);
    }
    if end < shape.elements() {
        gaps.push(end..shape.elements());
    }
    gaps
}
