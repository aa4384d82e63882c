//! Plays a schedule in time: every lane in order, every step after its waits. Knows durations, not what runs.

use graph::{Collective, Graph, Kind};

use crate::{FunctionPlan, Lane, Plan, Step, StepId, target::table::interpolate};

/// When each step starts and ends, in nanoseconds from the call's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Simulated {
    /// Lane, start and end of each step.
    pub steps: Vec<(Lane, u64, u64)>,
}

/// The two figures that plans print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// From start to the end of the last step.
    pub total_ns: u64,
    /// Time in which a communication lane is busy and the compute lane is not.
    pub exposed_ns: u64,
}

/// Plays steps given as lane, waits and duration, in list order.
pub(crate) fn run(steps: &[(Lane, &[StepId], u64)]) -> Simulated {
    let mut played: Vec<(Lane, u64, u64)> = vec![];
    for &(lane, waits, duration) in steps {
        let free = played.iter().rev().find(|(l, ..)| *l == lane).map_or(0, |&(_, _, end)| end);
        let ready = waits.iter().filter_map(|wait| played.get(wait.0 as usize)).map(|step| step.2);
        let start = ready.fold(free, u64::max);
        played.push((lane, start, start + duration));
    }
    Simulated { steps: played }
}

/// Plays the schedule of a function of a finished plan.
pub(crate) fn function(schedule: &FunctionPlan) -> Simulated {
    let steps = schedule.steps.iter();
    let times: Vec<_> =
        steps.map(|step| (step.lane, step.waits.as_slice(), step.predicted_ns)).collect();
    run(&times)
}

impl Simulated {
    /// Total and exposed time.
    pub fn prediction(&self) -> Prediction {
        let on = |want: fn(&Lane) -> bool| {
            union(self.steps.iter().filter(|(l, ..)| want(l)).map(|&(_, s, e)| (s, e)).collect())
        };
        let computing = on(|lane| *lane == Lane::Compute);
        let communicating = on(|lane| matches!(lane, Lane::Communication(_)));
        let length =
            |spans: &[(u64, u64)]| spans.iter().map(|(start, end)| end - start).sum::<u64>();
        let all = union(computing.iter().chain(&communicating).copied().collect());
        Prediction {
            total_ns: self.steps.iter().map(|step| step.2).max().unwrap_or(0),
            exposed_ns: length(&all) - length(&computing),
        }
    }
}

impl Plan {
    /// What a function would take on another number of ranks, all else equal: collectives follow the curve of that
    /// number of ranks, points of bytes on the wire per rank and nanoseconds; work on shards shrinks with the shard.
    /// `None` where the plan has no function of this name.
    pub fn predict(&self, function: &str, ranks: usize, wire: &[(u64, u64)]) -> Option<Prediction> {
        let schedule = self.function(function)?;
        let graph = &self.program.function(function)?.graph;
        let durations: Vec<u64> = schedule
            .steps
            .iter()
            .map(|step| match graph.node(step.node).kind {
                Kind::Collective(collective) => {
                    interpolate(wire, wire_bytes(graph, step, collective, ranks))
                }
                _ if is_sharded(self, schedule, graph, step) => {
                    let whole = step.predicted_ns as u128 * self.ranks as u128;
                    (whole / ranks.max(1) as u128) as u64
                }
                _ => step.predicted_ns,
            })
            .collect();
        let steps = schedule.steps.iter().zip(durations);
        let times: Vec<_> = steps.map(|(s, ns)| (s.lane, s.waits.as_slice(), ns)).collect();
        Some(run(&times).prediction())
    }
}

/// Bytes on the wire per rank if the same whole were exchanged among this many ranks.
fn wire_bytes(graph: &Graph, step: &Step, collective: Collective, ranks: usize) -> u64 {
    let node = graph.node(step.node);
    let input = graph.ty(node.inputs[0]);
    match collective {
        Collective::AllGather { .. } => {
            let whole = node.outputs[0].bytes() as u64;
            whole * (ranks.max(1) as u64 - 1) / ranks.max(1) as u64
        }
        _ => collective.wire_bytes(input, ranks),
    }
}

/// Whether a step works on the rank's part of something.
fn is_sharded(plan: &Plan, schedule: &FunctionPlan, graph: &Graph, step: &Step) -> bool {
    graph.node(step.node).inputs.iter().any(|value| {
        let window = schedule.windows.get(value);
        let part = window.is_some_and(|window| window.elements.per_rank > 0);
        let shards = match &graph.node(value.node).kind {
            Kind::State { name } => plan.program.state(name).is_some_and(|state| state.shards > 1),
            _ => false,
        };
        part || shards
    })
}

/// Overlapping and touching spans joined, in order.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort();
    let mut joined: Vec<(u64, u64)> = vec![];
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}
