//! What planning asks of a machine, answered with data: candidates, times, memory. Knows no machine.

mod h200;
mod host;
pub mod table;

use graph::{Node, Type};
use serde::{Deserialize, Serialize};

pub use h200::h200;
pub use host::{Host, host};

/// How memory of one arena may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryModel {
    /// Buffers are placed at any offset; two that do not live at once may share some of their bytes.
    Offsets,
    /// An arena is a row of blocks, each its own allocation; two buffers share a whole block or nothing.
    Blocks,
}

/// A node for which the planner wants candidates.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operator, region or collective.
    pub node: &'a Node,
    /// Types of its inputs.
    pub inputs: &'a [Type],
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes read and written at least.
    pub bytes: u64,
    /// Number of ranks of the group.
    pub ranks: usize,
}

impl Request<'_> {
    /// The node's name and the types of its inputs: what measured times are filed under.
    pub fn key(&self) -> String {
        let types: Vec<String> = self.inputs.iter().map(Type::to_string).collect();
        format!("{}({})", self.node.name(), types.join(", "))
    }
}

/// One way to carry out a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Names kernel, engine and settings, for example `lt:bias+gelu_aux` or `host:layer_norm`.
    pub id: String,
    /// Scratch bytes.
    pub workspace: usize,
    /// Device kernels it launches.
    pub kernels: u32,
    /// Whether equal inputs give equal bits.
    pub deterministic: bool,
    /// Inputs that may have strides other than row-major; others need a copy.
    pub strided_inputs: Vec<u16>,
    /// Outputs that may be written with strides other than row-major.
    pub strided_outputs: Vec<u16>,
    /// Pairs `(output, input)` that may share memory when the input is not needed afterwards.
    pub reuse: Vec<(u16, u16)>,
    /// Outputs that may be added to what their window holds.
    pub accumulates: Vec<u16>,
    /// Predicted duration in nanoseconds.
    pub nanoseconds: u64,
}

/// Rates from which durations follow where no measurement of the very shape exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Bytes per second of streaming kernels.
    pub memory_bytes_per_second: f64,
    /// Multiplications and additions per second of matrix products, by dtype name.
    pub matrix_flops_per_second: Vec<(String, f64)>,
    /// Nanoseconds between two kernels of one lane.
    pub launch_ns: u64,
    /// Points `(bytes on the wire, nanoseconds)` of a collective over this group, rising.
    pub wire: Vec<(u64, u64)>,
}

/// A machine as the planner sees it: data only.
pub trait Target: Send + Sync {
    /// Name in plans, for example `host` or `h200`.
    fn name(&self) -> &str;

    /// How memory may be used again.
    fn memory_model(&self) -> MemoryModel;

    /// Alignment of buffers in bytes.
    fn alignment(&self) -> usize {
        256
    }

    /// Region patterns the target has kernels for; `fuse` forms no others.
    fn patterns(&self) -> Vec<String>;

    /// Ways to carry out a node, the preferred first; empty where there is none.
    fn candidates(&self, request: &Request<'_>) -> Vec<Candidate>;

    /// Number of communication lanes.
    fn communication_lanes(&self) -> u8 {
        1
    }
}
