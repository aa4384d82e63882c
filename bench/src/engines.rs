//! cuDNN's candidates for a graph: which engines build, which refuse and why. Knows no pattern.

use std::collections::BTreeSet;

use anyhow::Result;
use native::cudnn::{EngineFacts, Heuristic, OperationGraph, Place, Plan};

/// Which of the library's proposals to build.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Heuristics to ask, in order.
    pub heuristics: Vec<Heuristic>,
    /// Most plans.
    pub most: usize,
    /// Whether engines that compile at run time are built even where a precompiled one was found.
    pub run_time: bool,
    /// Whether engines that no heuristic proposes are tried with their default knobs.
    pub every_engine: bool,
}

impl Choice {
    /// The first `most` proposals; run-time compilation only where nothing else is there.
    pub fn first(most: usize) -> Choice {
        Choice {
            heuristics: vec![Heuristic::A, Heuristic::Fallback],
            most,
            run_time: false,
            every_engine: false,
        }
    }

    /// All that there is.
    pub fn everything() -> Choice {
        Choice { heuristics: Heuristic::ALL.to_vec(), most: 64, run_time: true, every_engine: true }
    }
}

/// A plan that was built.
pub struct Candidate {
    /// Who proposed it: `A0` is heuristic A's first, `E3` is engine 3 by its number.
    pub origin: String,
    /// Engine, knobs, notes.
    pub facts: EngineFacts,
    /// The plan.
    pub plan: Plan,
}

/// Plans and refusals of a graph.
#[derive(Default)]
pub struct Candidates {
    /// Distinct plans in the order of proposal.
    pub plans: Vec<Candidate>,
    /// Refusals, one line each.
    pub refused: Vec<String>,
    /// Engines that no heuristic proposes and that refuse the graph with their default knobs.
    pub unfit: Vec<i64>,
    /// Number of distinct proposals by the heuristics.
    pub proposed: usize,
}

/// Builds the candidates of a graph. A graph that nothing supports gives no plans and no error.
pub fn candidates(graph: &OperationGraph, place: Place<'_>, choice: &Choice) -> Result<Candidates> {
    let mut found = Candidates::default();
    let mut seen: BTreeSet<(i64, Vec<(i32, i64)>)> = BTreeSet::new();
    for heuristic in &choice.heuristics {
        let configs = match graph.propose(place, *heuristic) {
            Ok(configs) => configs,
            Err(error) => {
                found.refused.push(refusal(&format!("{heuristic:?}"), -1, &error));
                continue;
            }
        };
        for (index, config) in configs.iter().enumerate() {
            let facts = config.facts()?;
            if !seen.insert((facts.engine, facts.knobs.clone())) {
                continue;
            }
            found.proposed += 1;
            let has_precompiled = found.plans.iter().any(|c| !c.facts.compiles_at_run_time);
            let unwanted = facts.compiles_at_run_time && has_precompiled && !choice.run_time;
            if found.plans.len() >= choice.most || unwanted {
                continue;
            }
            let origin = format!("{heuristic:?}{index}");
            match graph.plan(place, config) {
                Ok(plan) => found.plans.push(Candidate { origin, facts, plan }),
                Err(error) => {
                    found.refused.push(refusal(&origin, facts.engine, &error));
                }
            }
        }
    }
    if choice.every_engine {
        for engine in 0..graph.engine_count()? {
            if seen.iter().any(|(known, _)| *known == engine) {
                continue;
            }
            let made = graph.configure(place, engine, &[]).and_then(|config| {
                let (facts, plan) = (config.facts()?, graph.plan(place, &config)?);
                Ok(Candidate { origin: format!("E{engine}"), facts, plan })
            });
            match made {
                Ok(candidate) => found.plans.push(candidate),
                // Most engines are for other patterns: that they refuse is no news.
                Err(_) => found.unfit.push(engine),
            }
        }
    }
    Ok(found)
}

/// One line: cuDNN's explanations run over many.
fn refusal(origin: &str, engine: i64, error: &native::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!("{origin} engine {engine}: {line}")
}

/// Knobs as text, for a table and for making the configuration again.
pub fn knobs(facts: &EngineFacts) -> String {
    let knobs: Vec<String> =
        facts.knobs.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    knobs.join(",")
}
