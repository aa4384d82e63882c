//! Which parameters share a bucket: consecutive ones in the order in which gradients are ready, up to a size.
//!
//! Knows types and readiness; the rewriting stands in `bucket`.

use graph::{DType, Function, Kind, Program, Segment, State, StateKind, Value};

use super::{reducing, slot_elements};
use crate::{
    Options, PlanError,
    rewrite::{
        Context,
        support::{GRADIENT, WORKING},
    },
};

/// Parameters whose states are laid out together.
pub(super) struct Bucket {
    pub(super) name: String,
    /// Names of the parameters and where their slots begin.
    pub(super) segments: Vec<Segment>,
    /// Elements with all padding.
    pub(super) elements: usize,
    /// Whether each rank keeps only its part of the parameters themselves.
    pub(super) sharded: bool,
}

/// What parameters must have in common to share a bucket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    parameter: DType,
    gradient: DType,
    working: Option<DType>,
    sharded: bool,
}

struct Member<'a> {
    state: &'a State,
    class: Class,
    ready: usize,
    bytes: usize,
}

/// Buckets in order of readiness.
pub(super) fn buckets(program: &Program, cx: &Context<'_>) -> Result<Vec<Bucket>, PlanError> {
    let options = cx.options;
    let mut members = members(program, cx);
    members.sort_by_key(|member| member.ready);
    let mut classes: Vec<Class> = members.iter().map(|member| member.class.clone()).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut groups: Vec<Vec<&Member<'_>>> = vec![];
    for class in &classes {
        let of_class: Vec<&Member<'_>> =
            members.iter().filter(|member| member.class == *class).collect();
        groups.extend(divide(&of_class, options)?);
    }
    groups.sort_by_key(|group| group.last().map(|member| member.ready));
    Ok(groups
        .iter()
        .enumerate()
        .map(|(index, group)| bucket(index, group, options.ranks))
        .collect())
}

/// Parameters that have a gradient in the function that reduces.
fn members<'a>(program: &'a Program, cx: &Context<'_>) -> Vec<Member<'a>> {
    let Some(function) = reducing(program) else { return vec![] };
    let mut members = vec![];
    for update in &function.updates {
        let Some(gradient) = program.state(&update.state) else { continue };
        let StateKind::Gradient { of } = &gradient.kind else { continue };
        let Some(state) = program.state(of).filter(|_| gradient.name.ends_with(GRADIENT)) else {
            continue;
        };
        let working = program.state(&format!("{of}{WORKING}")).map(|copy| copy.ty.dtype);
        let read = program.functions.iter().any(|function| reads(function, of));
        let class = Class {
            parameter: state.ty.dtype,
            gradient: gradient.ty.dtype,
            working,
            sharded: cx.shards() > 1 && working.is_some() && !read,
        };
        let ready = ready(function, update.value);
        members.push(Member { state, class, ready, bytes: gradient.ty.bytes() });
    }
    members
}

fn reads(function: &Function, state: &str) -> bool {
    let is_read = |kind: &Kind| matches!(kind, Kind::State { name } if name == state);
    function.graph.nodes().iter().any(|node| is_read(&node.kind))
}

/// Position of the node that completes a gradient, before any collective.
fn ready(function: &Function, value: Value) -> usize {
    let node = function.graph.node(value.node);
    match node.kind {
        Kind::Collective(_) => node.inputs[0].node.index(),
        _ => value.node.index(),
    }
}

/// Cuts a row of members into groups. The first and the last group have sizes of their own; a member larger than its
/// group's size is a group alone.
fn divide<'a, 'b>(
    members: &[&'b Member<'a>],
    options: &Options,
) -> Result<Vec<Vec<&'b Member<'a>>>, PlanError> {
    let sizes = [
        ("bucket_bytes", options.bucket_bytes),
        ("first_bucket_bytes", options.first_bucket_bytes),
        ("last_bucket_bytes", options.last_bucket_bytes),
    ];
    if let Some((option, _)) = sizes.into_iter().find(|&(_, bytes)| bytes == 0) {
        let expected = "at least 1 byte".to_owned();
        return Err(PlanError::Option { option, found: "0".to_owned(), expected });
    }
    let fitting = |row: &mut dyn Iterator<Item = &&Member<'_>>, limit: usize| {
        let mut bytes = 0;
        let fits = |member: &&&Member<'_>| {
            bytes += member.bytes;
            bytes <= limit
        };
        row.take_while(fits).count().max(1)
    };
    let tail = fitting(&mut members.iter().rev(), options.last_bucket_bytes).min(members.len());
    let (mut row, last) = members.split_at(members.len() - tail);
    let mut groups = vec![];
    while !row.is_empty() {
        let limit =
            if groups.is_empty() { options.first_bucket_bytes } else { options.bucket_bytes };
        let (group, rest) = row.split_at(fitting(&mut row.iter(), limit));
        groups.push(group.to_vec());
        row = rest;
    }
    if !last.is_empty() {
        groups.push(last.to_vec());
    }
    Ok(groups)
}

fn bucket(index: usize, members: &[&Member<'_>], ranks: usize) -> Bucket {
    let class = &members[0].class;
    let dtypes = [class.parameter, class.gradient].into_iter().chain(class.working);
    let slot = slot_elements(dtypes);
    let mut segments = vec![];
    let mut end = 0;
    for member in members {
        let shape = member.state.ty.shape.clone();
        segments.push(Segment { name: member.state.name.clone(), offset: end, shape });
        end += member.state.ty.shape.elements().next_multiple_of(slot);
    }
    let elements = end.next_multiple_of(slot * ranks);
    Bucket { name: format!("bucket.{index}"), segments, elements, sharded: class.sharded }
}
