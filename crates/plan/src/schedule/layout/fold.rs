//! Sums of two values without a step: the producer of one adds to what the other left in memory (a product's beta of
//! 1, a micro-step's gradient in its slot).
//!
//! Knows layout's demands; which kernels can add is the candidate's statement.

use graph::{NodeId, Value};

use super::{Layout, Place, Root, roles, roles::Role, same_elements};

impl Layout<'_> {
    /// Lets the producer of one of two summed values add to what the other left in the sum's place, if it can.
    pub(super) fn fold(&mut self, sum: NodeId) {
        let graph = &self.function.graph;
        let [first, second] = graph.node(sum).inputs[..] else { return };
        let place = self.placed(Value::new(sum, 0));
        // The later one adds.
        let order = if first.node < second.node { [1, 0] } else { [0, 1] };
        for added in order {
            let (value, base) = if added == 0 { (first, second) } else { (second, first) };
            let writer = roles::written_value(graph, &self.roles, value);
            let able = self.works[writer.node.index()]
                .as_ref()
                .is_some_and(|work| work.candidate.accumulates.contains(&writer.port));
            if !able || !self.is_read_only_by(value, sum) {
                continue;
            }
            let before = (self.demands.clone(), self.orders.clone(), self.successors.clone());
            if self.fold_into(sum, value, base, &place) {
                self.accumulated.insert(writer);
                self.roles[sum.index()] = Role::Folded { added };
                return;
            }
            // Half of it would only restrict others.
            (self.demands, self.orders, self.successors) = before;
        }
    }

    /// Whether a value, and whatever it is a view of, is read by this node alone.
    fn is_read_only_by(&self, value: Value, reader: NodeId) -> bool {
        let graph = &self.function.graph;
        let (mut value, mut reader) = (value, reader);
        loop {
            let alone = self.users.get(&value).is_some_and(|users| users.as_slice() == [reader])
                && graph.node(reader).inputs.iter().filter(|&&input| input == value).count() == 1
                && self.function.roots().all(|root| root != value);
            if !alone || self.roles[value.node.index()] != Role::View {
                return alone;
            }
            (reader, value) = (value.node, graph.node(value.node).inputs[0]);
        }
    }

    /// Puts the base into the sum's place and the added value over it, after everything that reads the base.
    fn fold_into(&mut self, sum: NodeId, value: Value, base: Value, place: &Place) -> bool {
        let graph = &self.function.graph;
        let writer = roles::written_value(graph, &self.roles, value).node;
        let origin = roles::written_value(graph, &self.roles, base).node;
        let in_place = self.of_state.get(&base).is_some_and(|(state, elements)| {
            place.root == Root::State(*state) && same_elements(elements, &place.elements)
        });
        let based = in_place || {
            let written = matches!(self.roles[origin.index()], Role::Work | Role::Collective);
            written
                && origin != writer
                && self.is_read_only_by(base, sum)
                && self.demand_with(base, place.clone(), None)
        };
        if !based || !self.demand_with(value, place.clone(), Some(sum)) {
            return false;
        }
        if !in_place {
            if self.reaches(writer)[origin.index()] {
                return false;
            }
            self.orders.insert((origin, writer));
            self.successors[origin.index()].push(writer);
        }
        true
    }
}
