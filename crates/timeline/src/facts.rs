//! What is known beside the spans: details of single spans, values over time, facts of the run. Knows no rules.

use crate::{NameId, Time, TrackId};

/// What is known of one span beyond its name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Detail {
    /// An exchange between ranks.
    Collective {
        /// Operation in lower case with underscores, for example `all_reduce`.
        operation: String,
        /// Process group, empty where unknown.
        group: String,
        /// Number of ranks of the group.
        ranks: Option<u32>,
        /// Bytes of the input message of one rank.
        bytes: Option<u64>,
        /// Sequence number within the group.
        sequence: Option<u64>,
    },
    /// A copy or fill.
    Transfer {
        /// Bytes moved.
        bytes: u64,
    },
    /// What the planner expected of the node that the span carried out.
    Planned {
        /// Node of the plan's graph.
        node: u32,
        /// Module path.
        path: String,
        /// Multiplications and additions.
        flops: u64,
        /// Bytes read and written at least, or on the wire.
        bytes: u64,
        /// Predicted duration in nanoseconds.
        predicted_ns: u64,
    },
    /// A number as recorded, such as a correlation or an event id.
    Number {
        /// Name of the number.
        key: &'static str,
        /// The number.
        value: i64,
    },
}

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// Where it was measured.
    pub track: TrackId,
    /// What was measured, with its unit.
    pub name: NameId,
    /// When.
    pub time: Time,
    /// The value.
    pub value: f64,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum FactValue {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for FactValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FactValue::Int(value) => write!(f, "{value}"),
            FactValue::Float(value) => write!(f, "{value}"),
            FactValue::Text(text) => f.write_str(text),
        }
    }
}

impl From<i64> for FactValue {
    fn from(value: i64) -> FactValue {
        FactValue::Int(value)
    }
}

impl From<f64> for FactValue {
    fn from(value: f64) -> FactValue {
        FactValue::Float(value)
    }
}

impl From<&str> for FactValue {
    fn from(value: &str) -> FactValue {
        FactValue::Text(value.to_owned())
    }
}

impl From<String> for FactValue {
    fn from(value: String) -> FactValue {
        FactValue::Text(value)
    }
}

/// What is known of the run as a whole, or of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Index of the process; `None` for the run.
    pub process: Option<u32>,
    /// What it is about, with its unit, for example `device.name`.
    pub key: String,
    /// The value.
    pub value: FactValue,
    /// The line that says so, where the input has lines.
    pub source: Option<Line>,
}

/// A line of an input, quoted as evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: u32,
    /// Its text, without the line's end.
    pub text: String,
}

/// Something left out while reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}
