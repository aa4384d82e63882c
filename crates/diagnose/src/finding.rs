//! What a rule may conclude: an id, its evidence, its cost, its remedy. Knows no particular cause.

use serde::Serialize;
use timeline::SpanId;

use crate::job::Job;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job failed or hangs.
    Failure,
    /// The job is slower than it need be.
    Slow,
    /// Worth knowing.
    Info,
}

/// Where a cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostBy {
    /// A replay without the cause.
    Replay,
    /// A bound by bytes, rates or counts.
    Bound,
    /// Figures of a log.
    Log,
    /// Not known.
    None,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The cause itself is in the evidence, and its cost is a usable replay.
    High,
    /// Inferred from a pattern.
    Medium,
    /// No complete step, one rank of several, or no replay.
    Low,
}

/// Milliseconds per step: the estimate and its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Best estimate.
    pub estimate: f64,
    /// The narrower form of the cause removed.
    pub low: f64,
    /// The wider form removed.
    pub high: f64,
    /// Where the figures come from.
    pub by: CostBy,
}

/// A span as evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpanEvidence {
    /// Index in its recording.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Start in the recording's clock.
    pub start_ns: i64,
    /// End in the recording's clock.
    pub end_ns: i64,
}

/// What a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Name of the input.
    pub file: String,
    /// Number of the line, where it has lines.
    pub line: Option<u32>,
    /// The span, where it has spans.
    pub span: Option<SpanEvidence>,
    /// The line itself, or what was counted.
    pub text: String,
}

impl Evidence {
    /// A figure counted over an input.
    pub fn counted(job: &Job, input: usize, text: impl Into<String>) -> Evidence {
        let file = job.inputs[input].name.clone();
        Evidence { file, line: None, span: None, text: text.into() }
    }

    /// A span of an input.
    pub fn span(job: &Job, input: usize, span: SpanId, text: impl Into<String>) -> Evidence {
        let timeline = &job.inputs[input].timeline;
        let found = timeline.spans.get(span);
        Evidence {
            file: job.inputs[input].name.clone(),
            line: None,
            span: Some(SpanEvidence {
                index: span.0,
                name: timeline.name_of(span).to_owned(),
                start_ns: found.start.nanos(),
                end_ns: found.end().nanos(),
            }),
            text: text.into(),
        }
    }

    /// The line that states a fact; the fact itself where its input has no lines.
    pub fn fact(job: &Job, input: usize, fact: &timeline::Fact) -> Evidence {
        let file = job.inputs[input].name.clone();
        match &fact.source {
            Some(source) => {
                Evidence { file, line: Some(source.number), span: None, text: source.text.clone() }
            }
            None => {
                let text = format!("{} = {}", fact.key, fact.value);
                Evidence { file, line: None, span: None, text }
            }
        }
    }
}

/// A setting that would help.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// What to do.
    pub text: String,
    /// The setting itself, where it is one.
    pub setting: Option<String>,
}

/// One conclusion. Without evidence there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Id of the cause.
    pub id: &'static str,
    /// Layer of the stack.
    pub layer: &'static str,
    /// Ranks at fault; empty where the input names none.
    pub ranks: Vec<u32>,
    /// How bad it is.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// Cost; `None` where unknown.
    pub cost: Option<Cost>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What would show it wrong.
    pub refuted_by: String,
    /// What to do.
    pub remedy: Remedy,
    /// How to see that the remedy helped.
    pub verify: String,
}

/// What a cause is, for `explain` and for findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Id of the cause.
    pub id: &'static str,
    /// Layer of the stack.
    pub layer: &'static str,
    /// What happens.
    pub what: &'static str,
    /// Why it costs.
    pub why: &'static str,
    /// What helps.
    pub remedy: &'static str,
    /// What would show it wrong.
    pub refuted_by: &'static str,
}

impl Explanation {
    /// A finding of this cause with its general texts; the rule fills in the rest.
    pub fn finding(&self, severity: Severity, title: impl Into<String>) -> Finding {
        Finding {
            id: self.id,
            layer: self.layer,
            ranks: vec![],
            severity,
            title: title.into(),
            cost: None,
            confidence: Confidence::Medium,
            evidence: vec![],
            refuted_by: self.refuted_by.to_owned(),
            remedy: Remedy { text: self.remedy.to_owned(), setting: None },
            verify: "counterpoint compare BEFORE AFTER".to_owned(),
        }
    }
}

/// One rule: a file in `rules/`, listed there.
pub trait Rule: Sync {
    /// The causes it may find.
    fn explanations(&self) -> &'static [Explanation];

    /// Looks at a job.
    fn check(&self, job: &Job) -> Vec<Finding>;
}
