//! Groups of nodes that become regions: which node belongs where, whether a group may be contracted, and the contraction.
//!
//! Knows no pattern.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use graph::{Function, Graph, GraphError, Kind, NodeId, Region, Value};

use super::judge::Judge;
use crate::{PlanError, rewrite::support::Rebuild};

/// A group to be.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Nodes that disappear into the region.
    pub(super) members: Vec<NodeId>,
    /// Values read from outside, in the region's order. Constants and views between members need not be listed: they
    /// are repeated inside.
    pub(super) inputs: Vec<Value>,
    /// Values that readers outside may see, in the region's order.
    pub(super) outputs: Vec<Value>,
}

/// Whether a reshape between members is repeated inside the region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Views {
    Repeated,
    Outside,
}

/// All groups of one function so far.
pub(super) struct Groups<'f> {
    function: &'f Function,
    judge: Judge<'f>,
    owner: Vec<Option<usize>>,
    groups: Vec<Group>,
    users: BTreeMap<Value, Vec<NodeId>>,
    roots: BTreeSet<Value>,
}

impl<'f> Groups<'f> {
    pub(super) fn new(function: &'f Function, judge: Judge<'f>) -> Groups<'f> {
        Groups {
            function,
            judge,
            owner: vec![None; function.graph.nodes().len()],
            groups: vec![],
            users: function.graph.users(),
            roots: function.roots().collect(),
        }
    }

    /// Whether a node is in no group yet.
    pub(super) fn free(&self, id: NodeId) -> bool {
        self.owner[id.index()].is_none()
    }

    /// The nodes that read a value.
    pub(super) fn users(&self, value: Value) -> &[NodeId] {
        self.users.get(&value).map_or(&[], Vec::as_slice)
    }

    /// Whether the function yields this value or stores it in a state.
    pub(super) fn is_root(&self, value: Value) -> bool {
        self.roots.contains(&value)
    }

    /// The only reader of a value, where there is exactly one and the function itself does not need the value.
    pub(super) fn only_user(&self, value: Value) -> Option<NodeId> {
        match self.users(value) {
            [user] if !self.is_root(value) => Some(*user),
            _ => None,
        }
    }

    /// Whether the value is read by others than these nodes.
    pub(super) fn read_outside(&self, value: Value, members: &[NodeId]) -> bool {
        self.is_root(value) || self.users(value).iter().any(|user| !members.contains(user))
    }

    /// Takes a group if its members are free, what others read of them is among its outputs, it can be computed in one
    /// go, and it pays. Says whether it was taken.
    pub(super) fn take(&mut self, group: Group) -> bool {
        let hidden = |&id: &NodeId| {
            self.function.graph.outputs(id).into_iter().any(|value| {
                !group.outputs.contains(&value) && self.read_outside(value, &group.members)
            })
        };
        if !group.members.iter().all(|&id| self.free(id)) || group.members.iter().any(hidden) {
            return false;
        }
        if self.leads_back(&group.members, Views::Repeated, |_| None) {
            return false;
        }
        let pays = self.region(&group).is_ok_and(|(region, inputs)| {
            let graph = &self.function.graph;
            self.judge.pays(graph, &group.members, &region, &inputs).unwrap_or(false)
        });
        if !pays {
            return false;
        }
        for id in &group.members {
            self.owner[id.index()] = Some(self.groups.len());
        }
        self.groups.push(group);
        true
    }

    /// Whether a path leaves the members and comes back: then no single moment can compute them all. `further` names
    /// groups to be beside those taken.
    pub(super) fn leads_back<'g>(
        &self,
        members: &[NodeId],
        views: Views,
        further: impl Fn(NodeId) -> Option<&'g [NodeId]>,
    ) -> bool {
        let graph = &self.function.graph;
        let mut seen = vec![false; graph.nodes().len()];
        let mut open: Vec<NodeId> = vec![];
        let leave = |id: NodeId, open: &mut Vec<NodeId>| {
            graph.outputs(id).into_iter().for_each(|value| open.extend(self.users(value)));
        };
        for &id in members {
            leave(id, &mut open);
        }
        open.retain(|user| !members.contains(user));
        // Where a reshape of a member's output is repeated inside, members do not wait for the one outside.
        let repeated =
            |user: &NodeId| views == Views::Repeated && graph.node(*user).is_op("reshape");
        let (reshapes, mut open): (Vec<NodeId>, Vec<NodeId>) = open.into_iter().partition(repeated);
        for view in reshapes {
            seen[view.index()] = true;
            let readers = self.users(Value::new(view, 0)).iter();
            open.extend(readers.filter(|reader| !members.contains(reader)));
        }
        while let Some(id) = open.pop() {
            if members.contains(&id) {
                return true;
            }
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let group = match self.owner[id.index()] {
                Some(owner) => Some(self.groups[owner].members.as_slice()),
                None => further(id),
            };
            leave(id, &mut open);
            for &other in group.into_iter().flatten() {
                if !std::mem::replace(&mut seen[other.index()], true) {
                    leave(other, &mut open);
                }
            }
        }
        false
    }

    /// The function with every group as one node, in an order that stays close to the old one.
    pub(super) fn contract(self) -> Result<Function, PlanError> {
        let graph = &self.function.graph;
        let mut copy = Rebuild::new(self.function);
        let regions: Vec<(Region, Vec<Value>)> =
            self.groups.iter().map(|group| self.region(group)).collect::<Result<_, _>>()?;
        // A unit is a group or a node alone, named by its first node.
        let unit = |id: NodeId| match self.owner[id.index()] {
            Some(owner) => self.groups[owner].members.iter().min().copied().unwrap_or(id),
            None => id,
        };
        let mut waiting: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut followers: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for id in graph.ids() {
            let own = unit(id);
            let inputs = match self.owner[id.index()] {
                Some(owner) => &regions[owner].1,
                None => &graph.node(id).inputs,
            };
            let before: Vec<NodeId> =
                inputs.iter().map(|value| unit(value.node)).filter(|&other| other != own).collect();
            before.iter().for_each(|&other| {
                followers.entry(other).or_default().insert(own);
            });
            waiting.entry(own).or_default().extend(before);
        }
        let mut ready: BinaryHeap<Reverse<NodeId>> =
            waiting.iter().filter(|(_, w)| w.is_empty()).map(|(&id, _)| Reverse(id)).collect();
        let mut placed = 0;
        while let Some(Reverse(id)) = ready.pop() {
            placed += 1;
            match self.owner[id.index()] {
                None => {
                    copy.copy(id);
                }
                Some(owner) => {
                    let (region, inputs) = regions[owner].clone();
                    let inputs = inputs.iter().map(|&value| copy.value(value)).collect();
                    let new = copy.graph.region(region, inputs, copy.site(self.site(owner)));
                    for (port, &value) in self.groups[owner].outputs.iter().enumerate() {
                        copy.set(value, Value::new(new, port));
                    }
                }
            }
            for &follower in followers.get(&id).into_iter().flatten() {
                let left = waiting.entry(follower).or_default();
                left.remove(&id);
                if left.is_empty() {
                    ready.push(Reverse(follower));
                }
            }
        }
        if placed != waiting.len() {
            let message = "groups depend on each other".to_owned();
            return Err(PlanError::Pass { pass: "fuse", message });
        }
        Ok(copy.finish())
    }

    /// The member whose site the region takes: the last, which yields what the group is for.
    fn site(&self, owner: usize) -> NodeId {
        let members = &self.groups[owner].members;
        let works = members.iter().filter(|&&id| !self.function.graph.node(id).is_op("reduce_sum"));
        works.max().or(members.first()).copied().unwrap_or_default()
    }

    /// Body and inputs of a group. Values that were not listed as inputs and cannot be repeated become further inputs.
    fn region(&self, group: &Group) -> Result<(Region, Vec<Value>), GraphError> {
        let graph = &self.function.graph;
        let mut body = Body {
            graph,
            group,
            body: Graph::new(graph.registry()),
            inputs: vec![],
            values: BTreeMap::new(),
        };
        for &value in &group.inputs {
            body.input(value);
        }
        let mut members = group.members.clone();
        members.sort_unstable();
        for id in members {
            body.member(id);
        }
        let outputs = group.outputs.iter().map(|value| body.values[value]).collect();
        let region = Region { name: group.name.to_owned(), body: body.body, outputs };
        Ok((region, body.inputs))
    }
}

struct Body<'a> {
    graph: &'a Graph,
    group: &'a Group,
    body: Graph,
    inputs: Vec<Value>,
    values: BTreeMap<Value, Value>,
}

impl Body<'_> {
    fn input(&mut self, value: Value) {
        if self.values.contains_key(&value) {
            return;
        }
        let name = self.inputs.len().to_string();
        let site = self.graph.node(value.node).site.clone();
        let own = self.body.input(&name, self.graph.ty(value).clone(), site);
        self.inputs.push(value);
        self.values.insert(value, own);
    }

    fn member(&mut self, id: NodeId) {
        let node = self.graph.node(id).clone();
        let inputs: Vec<Value> = node.inputs.iter().map(|&value| self.value(value)).collect();
        let new = self.body.push(node.kind, inputs, node.outputs, node.site).node;
        for value in self.graph.outputs(id) {
            self.values.insert(value, Value { node: new, port: value.port });
        }
    }

    /// A value inside the body: known, repeated, or a further input.
    fn value(&mut self, value: Value) -> Value {
        if let Some(&own) = self.values.get(&value) {
            return own;
        }
        let node = self.graph.node(value.node);
        let constant = node.is_op("constant") && node.outputs[0].shape.rank() == 0;
        if constant || node.is_op("segment_fill") || self.view_of_member(value) {
            self.member(value.node);
        } else {
            self.input(value);
        }
        self.values[&value]
    }

    /// Whether the value is a reshape of a member's output.
    fn view_of_member(&self, value: Value) -> bool {
        let node = self.graph.node(value.node);
        let is_view = matches!(&node.kind, Kind::Op(op) if op.name == "reshape");
        is_view && self.group.members.contains(&node.inputs[0].node)
    }
}
