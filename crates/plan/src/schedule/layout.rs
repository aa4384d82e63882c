//! Gives every value a window. Producers write where the value is needed: into the slot of a `pack` or `concat`, into
//! the state they update, in the order of axes their reader wants. Where an engine cannot, a `copy` node is inserted.
//!
//! Knows what may lie where; not when anything runs and at which address.

mod fold;

use std::collections::{BTreeMap, BTreeSet};

use graph::{Collective, Function, Kind, NodeId, Program, Shape, Strided, Value};

use super::{
    copies::{self, Wanted},
    cost::{self, Work},
    intersect::{ByteSet, intersect},
    roles::{self, Role},
};
use crate::{PlanError, Target};

/// What owns a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    /// The state of this index.
    State(usize),
    /// This value of the function.
    Value(Value),
}

/// Where a value lies: strided elements of the memory of an owner.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub root: Root,
    pub elements: Strided,
}

/// A function whose values have windows over owners.
#[derive(Debug)]
pub(super) struct Laid {
    /// The function, with copies.
    pub function: Function,
    /// Role of each node.
    pub roles: Vec<Role>,
    /// Candidate and cost of each node that has a step.
    pub works: Vec<Option<Work>>,
    /// Place of each output of each node.
    pub places: Vec<Vec<Place>>,
    /// Pairs of nodes of which the first must be done before the second starts: readers of a state's old value before
    /// what overwrites it.
    pub orders: Vec<(NodeId, NodeId)>,
    /// Values whose producers add to what their window holds.
    pub accumulated: BTreeSet<Value>,
}

impl Laid {
    /// Outputs of a node that are added to what their window holds.
    pub fn accumulating(&self, node: NodeId) -> Vec<u16> {
        let values = self.function.graph.outputs(node).into_iter();
        values.filter(|value| self.accumulated.contains(value)).map(|value| value.port).collect()
    }

    /// The place of a value.
    pub fn place(&self, value: Value) -> &Place {
        &self.places[value.node.index()][usize::from(value.port)]
    }
}

/// Lays out a function.
pub(super) fn run(
    program: &Program,
    function: &Function,
    target: &dyn Target,
    ranks: usize,
) -> Result<Laid, PlanError> {
    let mut function = function.clone();
    let mut wishes = BTreeSet::new();
    loop {
        let graph = &function.graph;
        let roles = graph.ids().map(|id| roles::role(graph, id)).collect::<Result<Vec<_>, _>>()?;
        let mut works = vec![];
        for id in graph.ids() {
            let work = roles[id.index()].has_step();
            works.push(if work { Some(cost::work(graph, id, target, ranks)?) } else { None });
        }
        let mut layout = Layout {
            program,
            function: &function,
            roles,
            users: graph.users(),
            accumulated: BTreeSet::new(),
            works: &works,
            demands: BTreeMap::new(),
            successors: vec![vec![]; graph.nodes().len()],
            orders: BTreeSet::new(),
            readers: vec![vec![]; program.states.len()],
            of_state: BTreeMap::new(),
            wanted: BTreeSet::new(),
            ranks,
        };
        layout.find_states();
        layout.demand_all(&wishes);
        let (places, new_wishes) = layout.windows(&wishes);
        let Layout { wanted, orders, roles, accumulated, .. } = layout;
        if !new_wishes.is_empty() {
            wishes.extend(new_wishes);
            continue;
        }
        if wanted.is_empty() {
            let orders = orders.into_iter().collect();
            for (work, role) in works.iter_mut().zip(&roles) {
                work.take_if(|_| !role.has_step());
            }
            return Ok(Laid { function, roles, works, places, orders, accumulated });
        }
        let wanted: Vec<Wanted> = wanted.into_iter().collect();
        let (next, map) = copies::insert(&function, &wanted)?;
        wishes = wishes
            .into_iter()
            .map(|value: Value| Value { node: map[value.node.index()], port: value.port })
            .collect();
        function = next;
    }
}

/// A node that reads the old value of a state through these elements.
#[derive(Clone, Debug)]
struct Reader {
    node: NodeId,
    input: usize,
    elements: Strided,
}

struct Layout<'a> {
    program: &'a Program,
    function: &'a Function,
    roles: Vec<Role>,
    users: BTreeMap<Value, Vec<NodeId>>,
    /// Values whose producers add to what their window holds.
    accumulated: BTreeSet<Value>,
    works: &'a [Option<Work>],
    /// Values whose producer must write into memory owned by another value or state.
    demands: BTreeMap<Value, Place>,
    /// The graph's edges and `orders`, for reachability.
    successors: Vec<Vec<NodeId>>,
    orders: BTreeSet<(NodeId, NodeId)>,
    readers: Vec<Vec<Reader>>,
    /// Values that are windows over the old value of a state.
    of_state: BTreeMap<Value, (usize, Strided)>,
    wanted: BTreeSet<Wanted>,
    ranks: usize,
}

impl Layout<'_> {
    /// Finds edges, values that are windows over states, and who reads them.
    fn find_states(&mut self) {
        let graph = &self.function.graph;
        let index: BTreeMap<&str, usize> =
            self.program.states.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        for id in graph.ids() {
            let node = graph.node(id);
            for value in &node.inputs {
                self.successors[value.node.index()].push(id);
            }
            match (&node.kind, self.roles[id.index()]) {
                (Kind::State { name }, _) => {
                    let elements = Strided::contiguous(&node.outputs[0].shape);
                    if let Some(&state) = index.get(name.as_str()) {
                        self.of_state.insert(Value::new(id, 0), (state, elements));
                    }
                }
                (_, Role::View) => {
                    if let Some((state, elements)) = self.of_state.get(&node.inputs[0]) {
                        let window = roles::view_window(graph, id, elements);
                        let window = window.map(|w| (*state, w));
                        self.of_state.extend(window.map(|w| (Value::new(id, 0), w)));
                    }
                }
                _ => {
                    for (input, value) in node.inputs.iter().enumerate() {
                        if let Some((state, elements)) = self.of_state.get(value) {
                            let elements = elements.clone();
                            self.readers[*state].push(Reader { node: id, input, elements });
                        }
                    }
                }
            }
        }
    }

    /// Decides which producers write into memory of another owner.
    fn demand_all(&mut self, wishes: &BTreeSet<Value>) {
        let (function, graph) = (self.function, &self.function.graph);
        let index: BTreeMap<&str, usize> =
            self.program.states.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
        for (number, output) in function.outputs.iter().enumerate() {
            let Some((state, _)) = self.of_state.get(&output.value) else { continue };
            let name = &self.program.states[*state].name;
            let kept =
                |v: Value| matches!(&graph.node(v.node).kind, Kind::State { name: n } if n == name);
            if function.updates.iter().any(|u| u.state == *name && !kept(u.value)) {
                self.wanted.insert(Wanted::Output(number));
            }
        }
        for (number, update) in function.updates.iter().enumerate() {
            let Some(&state) = index.get(update.state.as_str()) else { continue };
            let own = matches!(&graph.node(update.value.node).kind,
                Kind::State { name } if *name == update.state);
            let shape = &self.program.states[state].ty.shape;
            let place = Place { root: Root::State(state), elements: Strided::contiguous(shape) };
            if !own && !self.try_demand(update.value, place) {
                self.wanted.insert(Wanted::Update(number));
            }
        }
        for id in graph.ids().rev() {
            let out = Value::new(id, 0);
            if wishes.contains(&out) && !self.demands.contains_key(&out) {
                self.try_demand(out, own_place(out, &graph.ty(out).shape));
            }
            match self.roles[id.index()] {
                Role::Slots { .. } => {
                    let place = self.placed(out);
                    let slots = roles::slot_windows(graph, id, &place.elements);
                    for (input, slot) in slots.into_iter().flatten().enumerate() {
                        let place = Place { root: place.root, elements: slot };
                        if !self.try_demand(graph.node(id).inputs[input], place) {
                            self.wanted.insert(Wanted::Slot(id, input));
                        }
                    }
                }
                Role::Work if graph.node(id).is_op("accumulate") => self.fold(id),
                // The rank's part of what is gathered may lie in its place from the start.
                Role::Collective if self.may_reuse(id, 0, 0) => {
                    let Kind::Collective(Collective::AllGather { .. }) = graph.node(id).kind else {
                        continue;
                    };
                    let (place, input) = (self.placed(out), graph.node(id).inputs[0]);
                    if let Some(elements) = part(&place.elements, &graph.ty(input).shape) {
                        self.try_demand(input, Place { root: place.root, elements });
                    }
                }
                _ => {}
            }
        }
    }

    /// Where a value lies by demand, else in memory of its own.
    fn placed(&self, value: Value) -> Place {
        let own = || own_place(value, &self.function.graph.ty(value).shape);
        self.demands.get(&value).cloned().unwrap_or_else(own)
    }

    fn may_reuse(&self, node: NodeId, output: u16, input: u16) -> bool {
        let work = self.works[node.index()].as_ref();
        work.is_some_and(|work| work.candidate.reuse.contains(&(output, input)))
    }

    /// Makes the producer of `value` write it at `place`, through views that can be inverted. False where it cannot.
    fn try_demand(&mut self, value: Value, place: Place) -> bool {
        self.demand_with(value, place, None)
    }

    /// As [`Layout::try_demand`]; `sum` reads the place's old value without a step of its own.
    fn demand_with(&mut self, value: Value, place: Place, sum: Option<NodeId>) -> bool {
        let graph = &self.function.graph;
        let mut chain = vec![(value, place)];
        loop {
            let Some((value, place)) = chain.last() else { return false };
            if self.demands.contains_key(value) {
                return false;
            }
            let (id, elements) = (value.node, &place.elements);
            let writable = match self.roles[id.index()] {
                Role::State | Role::Input | Role::Folded { .. } => false,
                Role::View => match inverse(graph, id, elements) {
                    Some(elements) => {
                        let next = (graph.node(id).inputs[0], Place { root: place.root, elements });
                        chain.push(next);
                        continue;
                    }
                    None => false,
                },
                Role::Slots { .. } => roles::slot_windows(graph, id, elements).is_some(),
                Role::Collective => elements.is_contiguous(),
                Role::Work => {
                    let work = self.works[id.index()].as_ref();
                    let strided = work
                        .is_some_and(|work| work.candidate.strided_outputs.contains(&value.port));
                    strided || elements.is_contiguous()
                }
            };
            let writes = self.roles[id.index()].has_step();
            let (writer, root, elements) = ((id, value.port), place.root, elements.clone());
            if !writable {
                return false;
            }
            if let (Root::State(state), true) = (root, writes)
                && !self.may_overwrite(writer, state, &elements, sum)
            {
                return false;
            }
            self.demands.extend(chain);
            return true;
        }
    }

    /// Which nodes depend on a node.
    fn reaches(&self, from: NodeId) -> Vec<bool> {
        let mut reached = vec![false; self.successors.len()];
        let mut stack = vec![from];
        while let Some(id) = stack.pop() {
            for &next in &self.successors[id.index()] {
                if !reached[next.index()] {
                    reached[next.index()] = true;
                    stack.push(next);
                }
            }
        }
        reached
    }

    /// Whether every reader of a state's old value can be done before this output overwrites it; if so, orders them.
    /// `sum` is no reader.
    fn may_overwrite(
        &mut self,
        writer: (NodeId, u16),
        state: usize,
        elements: &Strided,
        sum: Option<NodeId>,
    ) -> bool {
        let reached = self.reaches(writer.0);
        let mut orders = BTreeSet::new();
        let written = ByteSet::new(0, elements, 1);
        for reader in &self.readers[state] {
            let read = ByteSet::new(0, &reader.elements, 1);
            let (Some(read), Some(written)) = (read, &written) else { continue };
            if sum == Some(reader.node) || !intersect(&read, written, self.ranks) {
                continue;
            }
            if reader.node == writer.0 {
                let same = same_elements(&reader.elements, elements);
                if !same || !self.may_reuse(writer.0, writer.1, reader.input as u16) {
                    return false;
                }
            } else if reached[reader.node.index()] {
                return false;
            } else {
                orders.insert((reader.node, writer.0));
            }
        }
        for &(before, after) in &orders {
            self.successors[before.index()].push(after);
        }
        self.orders.extend(orders);
        true
    }

    /// The place of every value; notes reads that need a copy. Also yields views whose producers might write in
    /// their order instead.
    fn windows(&mut self, wishes: &BTreeSet<Value>) -> (Vec<Vec<Place>>, Vec<Value>) {
        let graph = &self.function.graph;
        let mut places: Vec<Vec<Place>> = vec![];
        let mut new_wishes = vec![];
        for id in graph.ids() {
            let (node, role) = (graph.node(id), self.roles[id.index()]);
            let at = |value: Value| &places[value.node.index()][usize::from(value.port)];
            let out = Value::new(id, 0);
            if role == Role::View {
                let input = at(node.inputs[0]);
                let window = roles::view_window(graph, id, &input.elements);
                let place = match (self.demands.get(&out), window) {
                    (Some(place), _) => place.clone(),
                    (None, Some(elements)) => Place { root: input.root, elements },
                    (None, None) => {
                        if !wishes.contains(&out) && self.could_write(out) {
                            new_wishes.push(out);
                        } else {
                            self.wanted.insert(Wanted::Read(id, 0));
                        }
                        own_place(out, &node.outputs[0].shape)
                    }
                };
                places.push(vec![place]);
                continue;
            }
            if matches!(role, Role::Work | Role::Collective) {
                for (input, &value) in node.inputs.iter().enumerate() {
                    let work = self.works[id.index()].as_ref();
                    let strided = work.is_some_and(|work| {
                        work.candidate.strided_inputs.contains(&(input as u16))
                    });
                    if !strided && !at(value).elements.is_contiguous() {
                        self.wanted.insert(Wanted::Read(id, input));
                    }
                }
            }
            places.push(match &node.kind {
                Kind::State { .. } => match self.of_state.get(&out) {
                    Some((state, elements)) => {
                        vec![Place { root: Root::State(*state), elements: elements.clone() }]
                    }
                    None => vec![own_place(out, &node.outputs[0].shape)],
                },
                _ => graph.outputs(id).into_iter().map(|value| self.placed(value)).collect(),
            });
        }
        (places, new_wishes)
    }

    /// Whether the producer behind a chain of invertible views can write strided and has no other demand.
    fn could_write(&self, out: Value) -> bool {
        let graph = &self.function.graph;
        let mut elements = Strided::contiguous(&graph.ty(out).shape);
        let mut value = out;
        loop {
            if self.demands.contains_key(&value) {
                return false;
            }
            match self.roles[value.node.index()] {
                Role::View => match inverse(graph, value.node, &elements) {
                    Some(inner) => {
                        elements = inner;
                        value = graph.node(value.node).inputs[0];
                    }
                    None => return false,
                },
                Role::Work => {
                    let work = self.works[value.node.index()].as_ref();
                    return work
                        .is_some_and(|work| work.candidate.strided_outputs.contains(&value.port));
                }
                _ => return false,
            }
        }
    }
}

fn own_place(value: Value, shape: &Shape) -> Place {
    Place { root: Root::Value(value), elements: Strided::contiguous(shape) }
}

/// The window of a view's input, given the window of its output, for views that keep every element.
fn inverse(graph: &graph::Graph, id: NodeId, output: &Strided) -> Option<Strided> {
    let node = graph.node(id);
    let op = node.op()?;
    let shape = &graph.ty(node.inputs[0]).shape;
    match op.name.as_str() {
        "reshape" => output.reshape(shape),
        "stop_gradient" => Some(output.clone()),
        "permute" => {
            let axes = op.attributes.sizes_of("axes").ok()?;
            let mut back = vec![0; axes.len()];
            for (new, &old) in axes.iter().enumerate() {
                back[old] = new;
            }
            Some(output.permute(&back))
        }
        _ => None,
    }
}

/// The rank's part of a gathered window along axis 0.
pub(super) fn part(whole: &Strided, shape: &Shape) -> Option<Strided> {
    if !whole.is_contiguous() || whole.per_rank != 0 {
        return None;
    }
    let contiguous = Strided::contiguous(shape);
    Some(Strided { offset: whole.offset, per_rank: shape.elements(), ..contiguous })
}

/// Whether two windows hold the same elements in the same row-major order.
pub(super) fn same_elements(a: &Strided, b: &Strided) -> bool {
    let same = |a: &Strided, b: &Strided| {
        let axes = |w: &Strided| -> Vec<(usize, usize)> {
            let axes = w.shape.0.iter().copied().zip(w.strides.iter().copied());
            axes.filter(|&(extent, _)| extent != 1).collect()
        };
        axes(a) == axes(b)
    };
    a.offset == b.offset
        && a.per_rank == b.per_rank
        && (same(a, b)
            || (a.is_contiguous() && b.is_contiguous() && a.shape.elements() == b.shape.elements()))
}
