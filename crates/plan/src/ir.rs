//! The plan as data: steps on lanes, waits, windows into arenas. The contract between planning and running.
//!
//! Knows neither how it was found nor how it is carried out.

use std::{collections::BTreeMap, fmt};

use graph::{NodeId, Program, Strided, Value};
use serde::{Deserialize, Serialize};

/// An in-order queue of work. A device maps it to a stream or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Operators.
    Compute,
    /// Collectives of one communicator.
    Communication(u8),
    /// Copies between host and device.
    Copy,
    /// Work on the host that the device does not wait for.
    Host,
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lane::Compute => write!(f, "compute"),
            Lane::Communication(index) => write!(f, "communication {index}"),
            Lane::Copy => write!(f, "copy"),
            Lane::Host => write!(f, "host"),
        }
    }
}

/// One contiguous range of memory whose lifetime ends where its offsets may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arena {
    /// States: offsets hold for the whole program.
    State,
    /// Values of one call.
    Transient,
    /// Memory that collectives read and write: the same offsets on all ranks.
    Communication,
}

/// Index into [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BufferId(pub u32);

/// What a buffer is for: the rows of the memory table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// Parameters in their own precision.
    Parameter,
    /// Low-precision copies of parameters.
    WorkingCopy,
    /// Optimizer memory.
    Moment,
    /// Gradients, in buckets or across micro-steps.
    Gradient,
    /// Values of the forward computation kept for the backward one, and other intermediate values.
    Activation,
    /// Inputs of a function.
    Input,
    /// Scratch memory of one step.
    Workspace,
    /// Scalars and counters.
    Scalar,
}

impl BufferKind {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            BufferKind::Parameter => "parameter",
            BufferKind::WorkingCopy => "working copy",
            BufferKind::Moment => "moment",
            BufferKind::Gradient => "gradient",
            BufferKind::Activation => "activation",
            BufferKind::Input => "input",
            BufferKind::Workspace => "workspace",
            BufferKind::Scalar => "scalar",
        }
    }
}

/// A range of bytes of an arena. In `block` targets, buffers with equal `offset` share one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffer {
    /// Which memory.
    pub arena: Arena,
    /// First byte within the arena.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// What it is for.
    pub kind: BufferKind,
    /// The function whose calls use it; `None` for states and other buffers that live across calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// Where a value lies: strided elements of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The buffer.
    pub buffer: BufferId,
    /// Elements of the value's dtype, counted from the buffer's first byte.
    pub elements: Strided,
}

/// Index into [`FunctionPlan::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub u32);

/// One piece of work on a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// The node carried out. View nodes that are pure windows have no step.
    pub node: NodeId,
    /// The lane; steps of one lane run in the order of the list.
    pub lane: Lane,
    /// Steps of other lanes that must have completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<StepId>,
    /// Which of the target's candidates.
    pub candidate: String,
    /// Scratch memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<BufferId>,
    /// Outputs that are added to what their window holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accumulates: Vec<u16>,
    /// Device kernels it launches.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub kernels: u32,
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes read and written at least; for collectives bytes on the wire per rank.
    pub bytes: u64,
    /// Predicted duration in nanoseconds.
    pub predicted_ns: u64,
}

fn one() -> u32 {
    1
}

fn is_one(kernels: &u32) -> bool {
    *kernels == 1
}

/// The schedule of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionPlan {
    /// Name of the function in the program.
    pub name: String,
    /// Work in an order that respects every dependency; the order within each lane is binding.
    pub steps: Vec<Step>,
    /// Window of every value that has memory. A state's update lies in the state's own window.
    #[serde(with = "windows_as_list")]
    pub windows: BTreeMap<Value, Window>,
    /// Predicted duration of the call in nanoseconds.
    pub predicted_ns: u64,
    /// Predicted time in which only communication runs, in nanoseconds.
    pub predicted_exposed_ns: u64,
}

/// Where a state lies for the whole program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePlacement {
    /// Name of the state.
    pub state: String,
    /// Its window.
    pub window: Window,
}

/// Everything a device needs: a pure function of program, target and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format.
    pub version: u32,
    /// Name of the target it was made for.
    pub target: String,
    /// Number of ranks of the data-parallel group. The rank number is symbolic everywhere.
    pub ranks: usize,
    /// The rewritten program.
    pub program: Program,
    /// All buffers of all arenas.
    pub buffers: Vec<Buffer>,
    /// Where each state lies.
    pub states: Vec<StatePlacement>,
    /// One schedule per function of the program.
    pub functions: Vec<FunctionPlan>,
    /// Passes that ran, in order.
    pub passes: Vec<String>,
}

impl Plan {
    /// The version written by this crate.
    pub const VERSION: u32 = 1;

    /// The buffer of this id.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// The schedule of the function of this name.
    pub fn function(&self, name: &str) -> Option<&FunctionPlan> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Bytes of one arena: the end of its last buffer.
    pub fn arena_bytes(&self, arena: Arena) -> usize {
        let ends = self.buffers.iter().filter(|b| b.arena == arena).map(|b| b.offset + b.bytes);
        ends.max().unwrap_or(0)
    }

    /// Bytes of all arenas: what a device allocates.
    pub fn peak_bytes(&self) -> usize {
        [Arena::State, Arena::Transient, Arena::Communication]
            .into_iter()
            .map(|arena| self.arena_bytes(arena))
            .sum()
    }
}

/// Maps with structured keys as lists of pairs, which JSON can hold.
mod windows_as_list {
    use std::collections::BTreeMap;

    use graph::Value;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Window;

    pub fn serialize<S: Serializer>(
        windows: &BTreeMap<Value, Window>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        windows.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Value, Window>, D::Error> {
        Ok(Vec::<(Value, Window)>::deserialize(deserializer)?.into_iter().collect())
    }
}
