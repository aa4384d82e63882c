//! Orders work on lanes: what can start first runs first, in the program's order where several could. Collectives are
//! issued as soon as what they send is complete. Waits are the fewest that order every dependency.
//!
//! Knows predicted times; not where anything lies.

use std::collections::BTreeSet;

use graph::{Class, Graph, Kind, NodeId};

use super::{
    clocks::Clocks,
    cost::Work,
    dependencies,
    layout::Laid,
    roles::Role,
    simulate::{self, Prediction},
};
use crate::{Lane, PlanError, StepId};

/// One step before it has memory.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    pub node: NodeId,
    pub lane: Lane,
    pub waits: Vec<StepId>,
    pub work: Work,
}

/// The steps of a function in order.
#[derive(Debug)]
pub(super) struct Order {
    pub steps: Vec<Ordered>,
    pub clocks: Clocks,
    pub prediction: Prediction,
}

/// Orders the steps of a function.
pub(super) fn run(laid: &Laid, overlap: bool) -> Result<Order, PlanError> {
    let needs = dependencies::of(laid);
    let order = list_schedule(laid, &needs, overlap)?;
    let mut at = vec![StepId(0); laid.roles.len()];
    let mut clocks = Clocks::over(order.iter().map(|&id| lane_of(laid, id)).collect());
    let mut steps: Vec<Ordered> = vec![];
    // The latest step of the compute lane and of the communication lane.
    let mut latest = [None, None];
    for &id in &order {
        let lane = lane_of(laid, id);
        let Some(work) = laid.works[id.index()].clone() else { continue };
        let mut waits: Vec<StepId> = needs[id.index()].iter().map(|n| at[n.index()]).collect();
        if !overlap {
            // Nothing runs beside a collective: it follows everything before, everything after follows it.
            let other = if lane == Lane::Compute { 1 } else { 0 };
            waits.extend(latest[other]);
        }
        let waits = fewest(&clocks, lane, waits);
        at[id.index()] = StepId(steps.len() as u32);
        match lane {
            Lane::Compute => latest[0] = Some(at[id.index()]),
            Lane::Communication(_) => latest[1] = Some(at[id.index()]),
            _ => {}
        }
        clocks.push(lane, &waits);
        steps.push(Ordered { node: id, lane, waits, work });
    }
    let times: Vec<_> = steps
        .iter()
        .map(|step| (step.lane, step.waits.as_slice(), step.work.candidate.nanoseconds))
        .collect();
    let prediction = simulate::run(&times).prediction();
    Ok(Order { steps, clocks, prediction })
}

/// The lane of a node.
fn lane_of(laid: &Laid, id: NodeId) -> Lane {
    match laid.roles[id.index()] {
        Role::Input => Lane::Copy,
        Role::Collective => Lane::Communication(0),
        _ => Lane::Compute,
    }
}

/// Drops waits that lane order or other waits imply.
fn fewest(clocks: &Clocks, lane: Lane, mut waits: Vec<StepId>) -> Vec<StepId> {
    waits.sort();
    waits.dedup();
    // A later step knows more: what it implies is dropped.
    let mut kept: Vec<StepId> = vec![];
    let mut start = clocks.probe(lane, &kept);
    for &wait in waits.iter().rev() {
        let step = wait.0 as usize;
        if start[clocks.lane(step)] <= clocks.position(step) {
            kept.push(wait);
            start = clocks.probe(lane, &kept);
        }
    }
    kept.sort();
    kept
}

/// Nodes with steps in the order in which they are issued.
fn list_schedule(
    laid: &Laid,
    needs: &[Vec<NodeId>],
    overlap: bool,
) -> Result<Vec<NodeId>, PlanError> {
    let graph = &laid.function.graph;
    let total = graph.nodes().len();
    let keys = keys(laid, needs);
    let mut users: Vec<Vec<NodeId>> = vec![vec![]; total];
    let mut missing: Vec<usize> = vec![0; total];
    for id in graph.ids() {
        missing[id.index()] = needs[id.index()].len();
        for need in &needs[id.index()] {
            users[need.index()].push(id);
        }
    }
    // Ready nodes as (key, node, when everything it needs is done), per lane class.
    let mut ready: [BTreeSet<(u32, NodeId)>; 3] = Default::default();
    let mut done = vec![0_u64; total];
    let mut free = [0_u64; 3];
    let class = |id: NodeId| match lane_of(laid, id) {
        Lane::Copy => 0,
        Lane::Communication(_) => 1,
        _ => 2,
    };
    let steps = graph.ids().filter(|id| laid.roles[id.index()].has_step());
    let mut remaining = 0;
    for id in steps {
        remaining += 1;
        if missing[id.index()] == 0 {
            ready[class(id)].insert((keys[id.index()], id));
        }
    }
    let mut earliest = vec![0_u64; total];
    let mut order = vec![];
    while remaining > 0 {
        // Per lane the node that can start first, in key order where several can.
        let start = |lane: usize, id: NodeId| free[lane].max(earliest[id.index()]);
        let best = |lane: usize| {
            let work = ready[lane].iter().filter(|(_, id)| !is_source(graph, *id));
            let pick = work.min_by_key(|(key, id)| (start(lane, *id), *key));
            let source = ready[lane].iter().find(|(_, id)| is_source(graph, *id));
            let pick = match (pick, source) {
                (Some(pick), Some(source)) => Some(pick.min(source)),
                (pick, source) => pick.or(source),
            };
            pick.map(|&(key, id)| (start(lane, id), lane, key, id))
        };
        let lanes = [best(0), best(1), best(2)];
        let pick = if overlap {
            lanes.into_iter().flatten().min()
        } else {
            lanes[0].or(lanes[2]).or(lanes[1])
        };
        let Some((start, lane, key, id)) = pick else {
            return Err(PlanError::Pass {
                pass: "schedule",
                message: format!("function {} has a cycle", laid.function.name),
            });
        };
        ready[lane].remove(&(key, id));
        let work = laid.works[id.index()].as_ref();
        // Inputs are staged ahead of the call.
        let duration =
            if lane == 0 { 0 } else { work.map_or(0, |work| work.candidate.nanoseconds) };
        done[id.index()] = start + duration;
        free[lane] = start + duration;
        order.push(id);
        remaining -= 1;
        for &user in &users[id.index()] {
            let at = &mut earliest[user.index()];
            *at = (*at).max(start + duration);
            missing[user.index()] -= 1;
            if missing[user.index()] == 0 {
                ready[class(user)].insert((keys[user.index()], user));
            }
        }
    }
    Ok(order)
}

fn is_source(graph: &Graph, id: NodeId) -> bool {
    match &graph.node(id).kind {
        Kind::Op(op) => {
            let definition = graph.registry().get(&op.name);
            definition.is_ok_and(|definition| definition.class() == Class::Source)
        }
        _ => false,
    }
}

/// Program order; what reads nothing comes right before its first reader so that it does not hold memory for longer.
fn keys(laid: &Laid, needs: &[Vec<NodeId>]) -> Vec<u32> {
    let graph = &laid.function.graph;
    let mut keys: Vec<u32> = graph.ids().map(|id| id.0).collect();
    let mut first_user = vec![u32::MAX; keys.len()];
    for id in graph.ids().rev() {
        if is_source(graph, id) && first_user[id.index()] != u32::MAX {
            keys[id.index()] = first_user[id.index()];
        }
        for need in &needs[id.index()] {
            let at = &mut first_user[need.index()];
            *at = (*at).min(keys[id.index()]);
        }
    }
    keys
}
