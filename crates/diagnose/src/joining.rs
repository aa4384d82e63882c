//! Findings of several rules about one cause become one: same ids merge, specific causes replace general ones.
//!
//! Knows ids and processes; no rule.

use crate::{
    finding::{Confidence, CostBy, Finding},
    job::Job,
    rules, wording,
};

/// Merges findings of one id, then lets specific causes take the place of general ones.
pub fn join(job: &Job, findings: Vec<Finding>) -> Vec<Finding> {
    let mut joined: Vec<Finding> = vec![];
    for finding in findings.into_iter().filter(|finding| !finding.evidence.is_empty()) {
        match joined.iter_mut().find(|other| other.id == finding.id) {
            Some(other) => merge(other, finding),
            None => joined.push(finding),
        }
    }
    for (general, specific) in rules::REPLACED_BY {
        let Some(at) = joined.iter().position(|finding| finding.id == *general) else { continue };
        let best = (0..joined.len())
            .filter(|&other| other != at)
            .filter_map(|other| {
                let own = &joined[other];
                let place = specific.iter().position(|start| own.id.starts_with(start))?;
                of_one_job(job, own).then_some((own.confidence, place, other))
            })
            .min();
        let Some((_, _, other)) = best else { continue };
        let taken = joined[at].clone();
        let finding = &mut joined[other];
        if let (None, Some(cost)) = (finding.cost, taken.cost) {
            finding.cost = Some(cost);
            let share = wording::milliseconds(cost.estimate);
            finding.title = format!("{}: {share} of every step", finding.title);
        }
        if taken.cost.is_some() || finding.ranks.is_empty() {
            finding.ranks = taken.ranks;
        }
        finding.evidence.extend(taken.evidence);
        joined.remove(at);
    }
    support(job, &mut joined);
    joined
}

/// What another source says of the same ranks is quoted beside a finding that it may explain.
fn support(job: &Job, findings: &mut [Finding]) {
    for (id, sources) in rules::SUPPORTED_BY {
        let Some(at) = findings.iter().position(|finding| finding.id == *id) else { continue };
        let ranks = findings[at].ranks.clone();
        let meets = |other: &Finding| {
            ranks.is_empty()
                || other.ranks.is_empty()
                || other.ranks.iter().any(|rank| ranks.contains(rank))
        };
        let evidence: Vec<_> = findings
            .iter()
            .filter(|other| sources.contains(&other.id) && meets(other) && of_one_job(job, other))
            .flat_map(|other| other.evidence.iter().take(2).cloned())
            .collect();
        for evidence in evidence {
            if !findings[at].evidence.contains(&evidence) {
                findings[at].evidence.push(evidence);
            }
        }
    }
}

/// The finding whose cost is a replay leads; the other one adds its evidence.
fn merge(own: &mut Finding, mut other: Finding) {
    let replayed = |finding: &Finding| finding.cost.is_some_and(|cost| cost.by == CostBy::Replay);
    if replayed(&other) && !replayed(own) {
        std::mem::swap(own, &mut other);
    }
    for evidence in other.evidence {
        if !own.evidence.contains(&evidence) {
            own.evidence.push(evidence);
        }
    }
    own.cost = own.cost.or(other.cost);
    own.severity = own.severity.min(other.severity);
    own.remedy.setting = own.remedy.setting.take().or(other.remedy.setting);
    if own.confidence != Confidence::Low || !replayed(own) {
        own.confidence = own.confidence.min(other.confidence);
    }
    if own.ranks.is_empty() {
        own.ranks = other.ranks;
    }
}

/// Whether what a finding quotes may be of the processes that were traced: some pid in common, or none known.
fn of_one_job(job: &Job, finding: &Finding) -> bool {
    let pids = |input: usize| -> Vec<i64> {
        job.inputs[input].timeline.processes.iter().filter_map(|process| process.pid).collect()
    };
    let traced: Vec<i64> = job.participants.iter().flat_map(|own| pids(own.input)).collect();
    let quoted: Vec<i64> = job
        .inputs
        .iter()
        .enumerate()
        .filter(|(_, input)| finding.evidence.iter().any(|evidence| evidence.file == input.name))
        .flat_map(|(index, _)| pids(index))
        .collect();
    traced.is_empty() || quoted.is_empty() || quoted.iter().any(|pid| traced.contains(pid))
}
