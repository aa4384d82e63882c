//! Looking facts up across the inputs of a job: by key, by part of a key, by the row of a table.
//!
//! Knows keys' shape (dotted words), not their meaning.

use timeline::{Fact, FactValue};

use crate::{
    finding::{Evidence, Finding},
    job::Job,
};

/// A fact and the input that states it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Index of the input.
    pub input: usize,
    /// The fact.
    pub fact: &'a Fact,
}

impl<'a> Found<'a> {
    /// Its text; empty where it is a number.
    pub fn text(&self) -> &'a str {
        match &self.fact.value {
            FactValue::Text(text) => text,
            _ => "",
        }
    }

    /// Its number; `None` where it is a text.
    pub fn number(&self) -> Option<f64> {
        match &self.fact.value {
            FactValue::Int(number) => Some(*number as f64),
            FactValue::Float(number) => Some(*number),
            FactValue::Text(_) => None,
        }
    }

    /// Number of its line; 0 where its input has no lines.
    pub fn line(&self) -> u32 {
        self.fact.source.as_ref().map_or(0, |line| line.number)
    }

    /// Rank of the process it is about.
    pub fn rank(&self, job: &Job) -> Option<u32> {
        let process = self.fact.process? as usize;
        job.inputs[self.input].timeline.processes.get(process)?.rank
    }

    /// Host of the process it is about.
    pub fn host<'j>(&self, job: &'j Job) -> Option<&'j str> {
        let process = self.fact.process? as usize;
        job.inputs[self.input].timeline.processes.get(process)?.host.as_deref()
    }

    /// Whether both are about the same process, or one of them about its whole input.
    pub fn together(&self, other: &Found<'_>) -> bool {
        match (self.fact.process, other.fact.process) {
            (Some(one), Some(two)) => self.input == other.input && one == two,
            _ => true,
        }
    }
}

/// All facts of a key.
pub fn all<'a>(job: &'a Job, key: &str) -> Vec<Found<'a>> {
    job.facts(key).map(|(input, fact)| Found { input, fact }).collect()
}

/// All facts of a key whose text satisfies a condition.
pub fn texts<'a>(job: &'a Job, key: &str, wanted: impl Fn(&str) -> bool) -> Vec<Found<'a>> {
    all(job, key).into_iter().filter(|found| wanted(found.text())).collect()
}

/// All facts whose key begins and ends so, with what stands between: `gpu.` and `.throttle` give `3`.
pub fn between<'a>(job: &'a Job, start: &str, end: &str) -> Vec<(&'a str, Found<'a>)> {
    let mut found = vec![];
    for (input, read) in job.inputs.iter().enumerate() {
        for fact in &read.timeline.facts {
            let middle = fact.key.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            if let Some(middle) = middle.filter(|middle| !middle.is_empty()) {
                found.push((middle, Found { input, fact }));
            }
        }
    }
    found
}

/// One row of a table: the facts of one line.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The fact that names the row.
    pub name: Found<'a>,
    facts: &'a [Fact],
}

impl<'a> Row<'a> {
    /// The number under a key.
    pub fn number(&self, key: &str) -> Option<f64> {
        let fact = self.facts.iter().find(|fact| fact.key == key)?;
        Found { input: self.name.input, fact }.number()
    }

    /// The text under a key.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        let fact = self.facts.iter().find(|fact| fact.key == key)?;
        match &fact.value {
            FactValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Keys and numbers of the row.
    pub fn numbers(&self) -> impl Iterator<Item = (&'a str, f64)> + use<'a> {
        let input = self.name.input;
        self.facts.iter().filter_map(move |fact| {
            Found { input, fact }.number().map(|number| (fact.key.as_str(), number))
        })
    }
}

/// The rows that facts of a key name.
pub fn rows<'a>(job: &'a Job, key: &str) -> Vec<Row<'a>> {
    let mut rows = vec![];
    for (input, read) in job.inputs.iter().enumerate() {
        let facts = &read.timeline.facts;
        let line = |fact: &Fact| fact.source.as_ref().map(|line| line.number);
        for (at, fact) in facts.iter().enumerate().filter(|(_, fact)| fact.key == key) {
            let own = line(fact);
            let before = facts[..at].iter().rev().take_while(|f| line(f) == own).count();
            let after = facts[at..].iter().take_while(|f| line(f) == own).count();
            let name = Found { input, fact };
            rows.push(Row { name, facts: &facts[at - before..at + after] });
        }
    }
    rows
}

/// Quotes up to `most` facts in a finding, each line once, and adds the ranks they are about.
pub fn quote<'a>(
    job: &Job,
    finding: &mut Finding,
    found: impl IntoIterator<Item = &'a Found<'a>>,
    most: usize,
) {
    let mut added = 0;
    for found in found {
        if let Some(rank) = found.rank(job)
            && let Err(place) = finding.ranks.binary_search(&rank)
        {
            finding.ranks.insert(place, rank);
        }
        if added == most {
            continue;
        }
        let evidence = Evidence::fact(job, found.input, found.fact);
        if !finding.evidence.contains(&evidence) {
            finding.evidence.push(evidence);
            added += 1;
        }
    }
}
