//! Groups parameters into flat buckets in the order in which their gradients are ready, and lays every state of theirs
//! out in that order: values, working copies, gradients.
//!
//! A bucket's gradients are `pack`ed and reduced by one collective; parameters become windows of the flat state. Slots
//! begin at multiples of 256 bytes of the narrowest state, so that one element has one offset in all of them, and a bucket
//! divides evenly among the ranks. Knows no optimizer.

mod partition;

use std::collections::BTreeMap;

use graph::{
    Attributes, Collective, DType, Function, Initial, Kind, NodeId, Program, Reduction, Segment,
    State, StateKind, Type, Update, Value, names,
};

use self::partition::Bucket;
use super::{
    Context,
    support::{GRADIENT, GRADIENT_SUM, Rebuild, WORKING, reduction_site, settle},
};
use crate::PlanError;

pub(super) fn run(mut program: Program, cx: &Context<'_>) -> Result<Program, PlanError> {
    program.functions = program.functions.iter().map(settle).collect();
    let buckets = partition::buckets(&program, cx)?;
    if buckets.is_empty() {
        return Ok(program);
    }
    let flat = Flat::new(&program, &buckets, cx.shards());
    let mut functions = vec![];
    for function in &program.functions {
        functions.push(settle(&flat.rewrite(function)?));
    }
    Ok(Program { states: flat.states(&program), functions })
}

/// Where a state of the old program lies now: flat state, first element, shape.
struct Place {
    flat: String,
    offset: usize,
    ty: Type,
}

struct Flat<'a> {
    buckets: &'a [Bucket],
    shards: usize,
    /// By name of the old state.
    places: BTreeMap<String, Place>,
    flat_types: BTreeMap<String, Type>,
}

impl<'a> Flat<'a> {
    fn new(program: &Program, buckets: &'a [Bucket], shards: usize) -> Flat<'a> {
        let mut flat =
            Flat { buckets, shards, places: BTreeMap::new(), flat_types: BTreeMap::new() };
        for bucket in buckets {
            for segment in &bucket.segments {
                for suffix in ["", WORKING, GRADIENT, GRADIENT_SUM] {
                    let old = format!("{}{suffix}", segment.name);
                    let Some(state) = program.state(&old) else { continue };
                    let name = format!("{}{suffix}", bucket.name);
                    let ty = state.ty.with_shape([bucket.elements]);
                    flat.flat_types.insert(name.clone(), ty);
                    let place = Place { flat: name, offset: segment.offset, ty: state.ty.clone() };
                    flat.places.insert(old, place);
                }
            }
        }
        flat
    }

    /// All states: the flat ones stand where the first of their members stood.
    fn states(&self, program: &Program) -> Vec<State> {
        let mut states: Vec<State> = vec![];
        for old in &program.states {
            let Some(place) = self.places.get(&old.name) else {
                states.push(old.clone());
                continue;
            };
            if states.iter().any(|state| state.name == place.flat) {
                continue;
            }
            let family = place.flat.split('#').next().unwrap_or_default();
            let suffix = &place.flat[family.len()..];
            let bucket = self.buckets.iter().find(|bucket| bucket.name == family);
            states.extend(bucket.map(|bucket| self.flat_state(program, bucket, old, suffix)));
        }
        states
    }

    fn flat_state(&self, program: &Program, bucket: &Bucket, first: &State, suffix: &str) -> State {
        let of = bucket.name.clone();
        let kind = match &first.kind {
            StateKind::Parameter => StateKind::Parameter,
            StateKind::WorkingCopy { .. } => StateKind::WorkingCopy { of },
            StateKind::Moment { slot, .. } => StateKind::Moment { of, slot: slot.clone() },
            StateKind::Gradient { .. } => StateKind::Gradient { of },
            StateKind::Scalar => StateKind::Scalar,
        };
        let sharded = match suffix {
            "" => bucket.sharded,
            GRADIENT => self.shards > 1,
            _ => false,
        };
        let shards = if sharded { self.shards } else { 1 };
        let renamed = |segment: &Segment| Segment {
            name: format!("{}{suffix}", segment.name),
            ..segment.clone()
        };
        let initial = match &first.kind {
            StateKind::Parameter => Initial::Segments(
                bucket
                    .segments
                    .iter()
                    .filter_map(|segment| program.state(&segment.name))
                    .map(|state| state.initial.clone())
                    .collect(),
            ),
            StateKind::WorkingCopy { .. } => Initial::CopyOf(bucket.name.clone()),
            _ => Initial::Zeros,
        };
        let name = format!("{}{suffix}", bucket.name);
        let ty = Type::new(first.ty.dtype, [bucket.elements / shards]);
        let segments = bucket.segments.iter().map(renamed).collect();
        State { segments, shards, ..State::new(&name, ty, kind, initial) }
    }

    fn rewrite(&self, function: &Function) -> Result<Function, PlanError> {
        let mut copy = Rebuild::new(function);
        for id in function.graph.ids() {
            let place = match &function.graph.node(id).kind {
                Kind::State { name } => self.places.get(name),
                _ => None,
            };
            match place {
                Some(place) => self.unpack(&mut copy, id, place)?,
                None => {
                    copy.copy(id);
                }
            }
        }
        let mut function = copy.finish();
        let old = std::mem::take(&mut function.updates);
        let (members, others): (Vec<Update>, Vec<Update>) =
            old.into_iter().partition(|update| self.places.contains_key(&update.state));
        function.updates = others;
        let members: BTreeMap<String, Value> =
            members.into_iter().map(|update| (update.state, update.value)).collect();
        for bucket in self.buckets {
            self.update(bucket, &members, &mut function)?;
        }
        Ok(function)
    }

    /// A state becomes a window of its flat state.
    fn unpack(&self, copy: &mut Rebuild<'_>, id: NodeId, place: &Place) -> Result<(), PlanError> {
        let flat = copy.graph.state(&place.flat, self.flat_types[&place.flat].clone());
        let site = copy.site(id);
        let attributes = Attributes::new().int("offset", place.offset as i64);
        let attributes = attributes.sizes("shape", place.ty.shape.extents());
        let window = copy.graph.op1("unpack", attributes, &[flat], site)?;
        copy.set(Value::new(id, 0), window);
        Ok(())
    }

    /// Merges the updates of a bucket's members into one of the flat state, and their collectives into one.
    fn update(
        &self,
        bucket: &Bucket,
        members: &BTreeMap<String, Value>,
        function: &mut Function,
    ) -> Result<(), PlanError> {
        let mut packed: Vec<(Vec<Value>, Value)> = vec![];
        for suffix in [GRADIENT, GRADIENT_SUM] {
            let values: Option<Vec<Value>> = bucket
                .segments
                .iter()
                .map(|segment| members.get(&format!("{}{suffix}", segment.name)).copied())
                .collect();
            let Some(values) = values else { continue };
            let reduced = self.reduced(function, &values);
            let local = reduced.clone().map_or(values.clone(), |(_, local)| local);
            let whole = match packed.iter().find(|(from, _)| *from == local) {
                Some((_, whole)) => *whole,
                None => {
                    let whole = self.pack(bucket, function, &local)?;
                    packed.push((local, whole));
                    whole
                }
            };
            let value = match reduced {
                None => whole,
                Some((reduction, _)) => {
                    let site = reduction_site(&bucket.name);
                    let collective = match self.shards {
                        1 => Collective::AllReduce { reduction },
                        ranks => Collective::ReduceScatter { reduction, ranks },
                    };
                    collective_once(&mut function.graph, collective, whole, site)?
                }
            };
            let state = format!("{}{suffix}", bucket.name);
            function.updates.push(Update { state, value });
        }
        Ok(())
    }

    /// Where all values are all-reduced: the reduction and the values before it.
    fn reduced(&self, function: &Function, values: &[Value]) -> Option<(Reduction, Vec<Value>)> {
        let mut found = None;
        let mut local = vec![];
        for value in values {
            let node = function.graph.node(value.node);
            let Kind::Collective(Collective::AllReduce { reduction }) = node.kind else {
                return None;
            };
            if *found.get_or_insert(reduction) != reduction {
                return None;
            }
            local.push(node.inputs[0]);
        }
        found.map(|reduction| (reduction, local))
    }

    fn pack(
        &self,
        bucket: &Bucket,
        function: &mut Function,
        values: &[Value],
    ) -> Result<Value, PlanError> {
        let offsets: Vec<usize> = bucket.segments.iter().map(|segment| segment.offset).collect();
        let attributes = Attributes::new().sizes("offsets", &offsets);
        let attributes = attributes.int("total", bucket.elements as i64);
        let site = reduction_site(&bucket.name);
        Ok(function.graph.op1("pack", attributes, values, site)?)
    }
}

/// A collective of this value, shared by all who want it.
fn collective_once(
    graph: &mut graph::Graph,
    collective: Collective,
    value: Value,
    site: graph::Site,
) -> Result<Value, PlanError> {
    let same = graph.ids().rev().find(|&id| {
        let node = graph.node(id);
        node.kind == Kind::Collective(collective) && node.inputs == [value]
    });
    match same {
        Some(id) => Ok(Value::new(id, 0)),
        None => Ok(graph.collective(collective, value, site)?),
    }
}

/// The function whose gradients are reduced.
fn reducing(program: &Program) -> Option<&Function> {
    program.function(names::STEP).or_else(|| program.function(names::LAST))
}

/// Bytes of the narrowest state of a family decide how many elements 256 bytes are.
fn slot_elements(dtypes: impl Iterator<Item = DType>) -> usize {
    256 / dtypes.map(DType::bytes).min().unwrap_or(1)
}
