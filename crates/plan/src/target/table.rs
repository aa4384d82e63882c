//! A target that is nothing but a table: rules by node name, rates, curves, measured times.
//!
//! Knows no device and no library; a table names them in the candidates' ids.

use std::collections::BTreeMap;

use graph::{DType, Kind};
use serde::{Deserialize, Serialize};

use super::{Candidate, Curves, MemoryModel, Request, Target, host};
use crate::PlanError;

/// A number and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sourced {
    /// The number.
    pub value: f64,
    /// `measured`, `derived` or `data sheet`, and how.
    pub source: String,
}

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bytes moved.
    Memory,
    /// Matrix units; operands of the epilogue are moved besides.
    Matrix,
    /// Attention, forward.
    AttentionForward,
    /// Attention, backward.
    AttentionBackward,
}

/// Inputs of a node by index: all of them or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Indices {
    /// The word `all`.
    All(String),
    /// A list; negative numbers count from the end.
    List(Vec<i64>),
}

impl Default for Indices {
    fn default() -> Indices {
        Indices::List(vec![])
    }
}

impl Indices {
    fn of(&self, count: usize) -> Vec<u16> {
        match self {
            Indices::All(_) => (0..count as u16).collect(),
            Indices::List(list) => {
                let from_end = |&index: &i64| if index < 0 { index + count as i64 } else { index };
                let list = list.iter().map(from_end).filter(|&i| (0..count as i64).contains(&i));
                list.map(|index| index as u16).collect()
            }
        }
    }
}

/// How one kind of node is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name of the operator or region.
    pub node: String,
    /// Name of the candidate.
    pub id: String,
    /// What limits it.
    pub bound: Bound,
    /// Kernels it launches.
    #[serde(default = "one")]
    pub kernels: u32,
    /// Whether equal inputs give equal bits.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// An output that a kernel of its own sums up.
    #[serde(default)]
    pub column_sum: Option<ColumnSum>,
    /// Scratch bytes.
    #[serde(default)]
    pub workspace: usize,
    /// Inputs read with any strides.
    #[serde(default)]
    pub strided_inputs: Indices,
    /// Outputs written with any strides.
    #[serde(default)]
    pub strided_outputs: Indices,
    /// Outputs that may be added to what their memory holds.
    #[serde(default)]
    pub accumulates: Indices,
    /// Pairs of output and input that may share memory.
    #[serde(default)]
    pub reuse: Vec<(u16, u16)>,
    /// Inputs that an epilogue reads besides the product's operands.
    #[serde(default)]
    pub epilogue_inputs: Indices,
    /// Outputs that an epilogue writes besides the product.
    #[serde(default)]
    pub epilogue_outputs: Indices,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// An output that is the column sum of another value of the node, read once more by a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSum {
    /// The output; where a node lacks it there is no such kernel.
    pub output: usize,
    /// The output that is summed.
    #[serde(default)]
    pub of_output: Option<usize>,
    /// The input that is summed.
    #[serde(default)]
    pub of_input: Option<usize>,
}

impl ColumnSum {
    /// Bytes that the kernel reads.
    fn bytes(self, request: &Request<'_>) -> u64 {
        let outputs = &request.node.outputs;
        let of_output = self.of_output.and_then(|index| outputs.get(index));
        let summed = of_output.or(self.of_input.and_then(|index| request.inputs.get(index)));
        summed.map_or(0, |ty| ty.bytes() as u64)
    }
}

/// Rates of attention for one size of a head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRates {
    /// Elements of one head.
    pub head: usize,
    /// Multiplications and additions per second of the forward kernel.
    pub forward_flops_per_second: f64,
    /// Multiplications and additions per second of the backward kernels.
    pub backward_flops_per_second: f64,
    /// Where the rates come from.
    pub source: String,
}

/// Times of a collective over one number of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Number of ranks.
    pub ranks: usize,
    /// The collective; all that have no curve of their own where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<String>,
    /// Where the points come from.
    pub source: String,
    /// Points of bytes on the wire per rank and nanoseconds, rising.
    pub points: Vec<(u64, u64)>,
}

/// A measured time of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The node's name and the types of its inputs, for example `linear(bf16[8, 16], bf16[16, 4], bf16[4])`.
    pub node: String,
    /// Nanoseconds, median.
    pub ns: u64,
    /// The file with the measurement.
    pub source: String,
}

/// Elementwise operators and regions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elementwise {
    /// Name of the candidate.
    pub id: String,
    /// Kernels it launches.
    pub kernels: u32,
}

/// A target made of data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Name of the target.
    pub name: String,
    /// Alignment of buffers in bytes.
    pub alignment: usize,
    /// Nanoseconds between two kernels of one lane.
    pub launch_ns: Sourced,
    /// Bytes per second of streaming kernels.
    pub memory_bytes_per_second: Sourced,
    /// Multiplications and additions per second of matrix products, by dtype.
    pub matrix_flops_per_second: BTreeMap<String, Sourced>,
    /// Attention by head size.
    pub attention: Vec<AttentionRates>,
    /// Collectives by number of ranks.
    pub wire: Vec<Wire>,
    /// Region patterns there are kernels for.
    pub patterns: Vec<String>,
    /// Elementwise operators and regions.
    pub elementwise: Elementwise,
    /// All other nodes.
    pub kernels: Vec<Rule>,
    /// Times that were measured for the very node.
    pub measured: Vec<Measured>,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// Where the text is no table.
    pub fn from_json(text: &str) -> Result<Table, PlanError> {
        serde_json::from_str(text).map_err(|error| PlanError::File(error.to_string()))
    }

    /// The rates from which durations follow, for this number of ranks.
    pub fn curves(&self, ranks: usize) -> Curves {
        let rates = self.matrix_flops_per_second.iter();
        Curves {
            memory_bytes_per_second: self.memory_bytes_per_second.value,
            matrix_flops_per_second: rates.map(|(d, rate)| (d.clone(), rate.value)).collect(),
            launch_ns: self.launch_ns.value as u64,
            wire: self.points("", ranks).to_vec(),
        }
    }

    /// The collective's curve of the nearest number of ranks that was measured, of two equally near the larger.
    fn points(&self, collective: &str, ranks: usize) -> &[(u64, u64)] {
        let fits = |wire: &&Wire| wire.collective.as_ref().is_none_or(|name| name == collective);
        let key = |wire: &&Wire| {
            (wire.ranks.abs_diff(ranks), usize::MAX - wire.ranks, wire.collective.is_none())
        };
        let nearest = self.wire.iter().filter(fits).min_by_key(key);
        nearest.map_or(&[], |wire| &wire.points)
    }

    /// Duration of a node: its measured time, or what its rates give, and the gaps and sums around it.
    fn nanoseconds(&self, request: &Request<'_>, rule: Option<&Rule>) -> u64 {
        let key = request.key();
        let measured = self.measured.iter().find(|measured| measured.node == key);
        let work = measured.map_or_else(|| self.derived(request, rule), |m| m.ns as f64);
        let sum = rule.and_then(|rule| column_sum(rule, request));
        let summing = sum.map_or(0.0, |sum| self.stream(sum.bytes(request)));
        let kernels = rule.map_or(self.elementwise.kernels, |rule| kernels(rule, request));
        (work + summing + self.launch_ns.value * f64::from(kernels)) as u64
    }

    /// Nanoseconds to move bytes.
    fn stream(&self, bytes: u64) -> f64 {
        bytes as f64 / self.memory_bytes_per_second.value * 1e9
    }

    /// Nanoseconds that rates give.
    fn derived(&self, request: &Request<'_>, rule: Option<&Rule>) -> f64 {
        let moved = self.stream(request.bytes);
        match rule.map(|rule| (rule, rule.bound)) {
            None | Some((_, Bound::Memory)) => moved,
            Some((rule, Bound::Matrix)) => {
                let dtype = request.inputs.first().map_or(DType::F32, |ty| ty.dtype);
                let rate = self.matrix_flops_per_second.get(&dtype.to_string());
                let product = request.flops as f64 / rate.map_or(1e12, |rate| rate.value) * 1e9;
                let bytes = |types: &[graph::Type], indices: &Indices| -> u64 {
                    let indices = indices.of(types.len());
                    indices.iter().map(|&i| types[usize::from(i)].bytes() as u64).sum()
                };
                let epilogue = bytes(request.inputs, &rule.epilogue_inputs)
                    + bytes(&request.node.outputs, &rule.epilogue_outputs);
                (product + self.stream(epilogue)).max(moved)
            }
            Some((_, bound)) => {
                let head = request.inputs.first().map_or(0, |ty| ty.shape.last());
                let rates = self.attention.iter().min_by_key(|rates| rates.head.abs_diff(head));
                let rate = rates.map_or(1e12, |rates| match bound {
                    Bound::AttentionForward => rates.forward_flops_per_second,
                    _ => rates.backward_flops_per_second,
                });
                (request.flops as f64 / rate * 1e9).max(moved)
            }
        }
    }
}

/// The rule's column sum, where the node yields it.
fn column_sum(rule: &Rule, request: &Request<'_>) -> Option<ColumnSum> {
    rule.column_sum.filter(|sum| sum.output < request.node.outputs.len())
}

fn kernels(rule: &Rule, request: &Request<'_>) -> u32 {
    rule.kernels + u32::from(column_sum(rule, request).is_some())
}

impl Target for Table {
    fn name(&self) -> &str {
        &self.name
    }

    fn memory_model(&self) -> MemoryModel {
        MemoryModel::Offsets
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn patterns(&self) -> Vec<String> {
        self.patterns.clone()
    }

    fn candidates(&self, request: &Request<'_>) -> Vec<Candidate> {
        let node = request.node;
        let name = node.name();
        let (inputs, outputs) = (request.inputs.len(), node.outputs.len());
        let blank = Candidate {
            id: String::new(),
            workspace: 0,
            kernels: 1,
            deterministic: true,
            strided_inputs: vec![],
            strided_outputs: vec![],
            reuse: host::reuse(request),
            accumulates: vec![],
            nanoseconds: 0,
        };
        if let Kind::Collective(_) = node.kind {
            let nanoseconds = interpolate(self.points(name, request.ranks), request.bytes);
            return vec![Candidate { id: format!("nccl:{name}"), nanoseconds, ..blank }];
        }
        if host::is_elementwise(node) {
            return vec![Candidate {
                id: self.elementwise.id.clone(),
                kernels: self.elementwise.kernels,
                strided_inputs: (0..inputs as u16).collect(),
                strided_outputs: (0..outputs as u16).collect(),
                nanoseconds: self.nanoseconds(request, None),
                ..blank
            }];
        }
        let rules = self.kernels.iter().filter(|rule| rule.node == name);
        let candidate = |rule: &Rule| Candidate {
            id: rule.id.clone(),
            workspace: rule.workspace,
            kernels: kernels(rule, request),
            deterministic: rule.deterministic,
            strided_inputs: rule.strided_inputs.of(inputs),
            strided_outputs: rule.strided_outputs.of(outputs),
            reuse: rule.reuse.clone(),
            accumulates: rule.accumulates.of(outputs),
            nanoseconds: self.nanoseconds(request, Some(rule)),
        };
        let mut candidates: Vec<Candidate> = rules.map(candidate).collect();
        candidates.sort_by_key(|candidate| candidate.nanoseconds);
        candidates
    }
}

/// Nanoseconds for a number of bytes on a curve: linear between points, by the last two beyond.
pub(crate) fn interpolate(points: &[(u64, u64)], bytes: u64) -> u64 {
    let (first, last) = match points {
        [] => return 0,
        [only] => return only.1,
        [first, ..] => (first, points.len() - 1),
    };
    if bytes <= first.0 {
        return first.1;
    }
    let upper = points.iter().position(|point| point.0 >= bytes).unwrap_or(last).max(1);
    let ((x0, y0), (x1, y1)) = (points[upper - 1], points[upper]);
    let slope = (y1 as f64 - y0 as f64) / ((x1 - x0).max(1) as f64);
    (y0 as f64 + slope * (bytes as f64 - x0 as f64)).max(0.0) as u64
}
