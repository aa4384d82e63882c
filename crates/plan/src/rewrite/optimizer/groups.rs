//! Hyperparameters by parameter group: a scalar where a bucket's members agree, else a value per element from the
//! bucket's table of segments. Knows no optimizer.

use graph::{Attributes, DType, Graph, Segment, Site, State, Value};

use crate::{
    PlanError,
    options::ParameterGroup,
    rewrite::{Context, support::constant},
};

/// A parameter state and the number of ranks that share its update.
pub(super) struct View<'a> {
    pub(super) parameter: &'a State,
    pub(super) shards: usize,
}

/// Values that broadcast to the parameter.
pub(super) struct Hyper {
    pub(super) weight_decay: Value,
    /// `None` where it is 1 everywhere.
    pub(super) learning_rate_scale: Option<Value>,
}

/// Adds the hyperparameters of one parameter state.
pub(super) fn values(
    graph: &mut Graph,
    view: View<'_>,
    dtype: DType,
    cx: &Context<'_>,
    site: &Site,
) -> Result<Hyper, PlanError> {
    let state = view.parameter;
    let alone = [Segment { name: state.name.clone(), offset: 0, shape: state.ty.shape.clone() }];
    let segments = if state.segments.is_empty() { &alone[..] } else { &state.segments[..] };
    let groups: Vec<ParameterGroup> =
        segments.iter().map(|s| group(s, &cx.options.groups)).collect::<Result<_, _>>()?;
    let mut fill = |value: fn(&ParameterGroup) -> f64| {
        let values = segments.iter().zip(&groups).map(|(s, g)| (s.offset, value(g)));
        let mut runs: Vec<(usize, f64)> = vec![];
        for (start, value) in values {
            if runs.last().is_none_or(|&(_, last)| last != value) {
                runs.push((start, value));
            }
        }
        match runs.as_slice() {
            [(_, value)] => Ok((constant(graph, *value, dtype, site)?, Some(*value))),
            _ => Ok::<_, PlanError>((segment_fill(graph, &view, &runs, dtype, site)?, None)),
        }
    };
    let (weight_decay, _) = fill(|group| group.weight_decay)?;
    let (scale, known) = fill(|group| group.learning_rate_scale)?;
    let learning_rate_scale = (known != Some(1.0)).then_some(scale);
    Ok(Hyper { weight_decay, learning_rate_scale })
}

fn segment_fill(
    graph: &mut Graph,
    view: &View<'_>,
    runs: &[(usize, f64)],
    dtype: DType,
    site: &Site,
) -> Result<Value, PlanError> {
    let starts: Vec<usize> = runs.iter().map(|&(start, _)| start).collect();
    let values: Vec<f64> = runs.iter().map(|&(_, value)| value).collect();
    let elements = view.parameter.whole_elements();
    let attributes = Attributes::new()
        .int("n", (elements / view.shards) as i64)
        .sizes("starts", &starts)
        .floats("values", &values)
        .int("ranks", view.shards as i64)
        .dtype("dtype", dtype);
    Ok(graph.op1("segment_fill", attributes, &[], site.clone())?)
}

/// The first group that takes a parameter; without any groups the default one.
fn group(segment: &Segment, groups: &[ParameterGroup]) -> Result<ParameterGroup, PlanError> {
    if groups.is_empty() {
        return Ok(ParameterGroup::default());
    }
    let takes = |group: &&ParameterGroup| {
        let named = group.name_endings.is_empty()
            || group.name_endings.iter().any(|ending| segment.name.ends_with(ending.as_str()));
        named && segment.shape.rank() >= group.at_least_axes
    };
    groups.iter().find(takes).cloned().ok_or_else(|| PlanError::Option {
        option: "groups",
        found: format!("no group takes parameter {:?}", segment.name),
        expected: "a last group without name endings and axes, which takes all others".to_owned(),
    })
}
