//! The leaves of the account: where a nanosecond of a device's step can go. Knows their names and order.

use serde::{Serialize, Serializer};

/// A leaf. The order of the busy leaves is their precedence: the first that applies takes the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leaf {
    /// Attention kernels.
    Attention,
    /// Convolution kernels.
    Convolution,
    /// Matrix-product kernels.
    Matmul,
    /// Normalisation kernels.
    Norm,
    /// Optimizer kernels.
    Optimizer,
    /// Elementwise and reduction kernels.
    Elementwise,
    /// Any other computing kernel.
    OtherCompute,
    /// A collective runs and all ranks of its group have arrived.
    Transfer,
    /// A collective runs and some rank has not arrived.
    CommWait,
    /// A collective runs and the other ranks are not in the input.
    Unsplit,
    /// Only copies or fills run.
    CopyDevice,
    /// Between kernels of one graph launch.
    GapGraph,
    /// Up to 20 us between queued operations.
    GapShort,
    /// More than 20 us between queued operations.
    GapLong,
    /// The host was in the data loader.
    HostData,
    /// The host allocated or freed device memory.
    HostAlloc,
    /// The host was inside a copy call.
    CopyStaging,
    /// The host waited for the device, or refilled the queue after such a wait.
    HostSync,
    /// The host compiled, tuned or loaded.
    HostCompile,
    /// The host collected garbage.
    HostGc,
    /// The profiler worked.
    Profiler,
    /// The host did something without a mark for 1 ms and more.
    HostOther,
    /// The host issued work, launch latency included.
    HostLaunch,
    /// No launch record exists.
    Unknown,
}

impl Leaf {
    /// All leaves in order.
    pub const ALL: [Leaf; 24] = [
        Leaf::Attention,
        Leaf::Convolution,
        Leaf::Matmul,
        Leaf::Norm,
        Leaf::Optimizer,
        Leaf::Elementwise,
        Leaf::OtherCompute,
        Leaf::Transfer,
        Leaf::CommWait,
        Leaf::Unsplit,
        Leaf::CopyDevice,
        Leaf::GapGraph,
        Leaf::GapShort,
        Leaf::GapLong,
        Leaf::HostData,
        Leaf::HostAlloc,
        Leaf::CopyStaging,
        Leaf::HostSync,
        Leaf::HostCompile,
        Leaf::HostGc,
        Leaf::Profiler,
        Leaf::HostOther,
        Leaf::HostLaunch,
        Leaf::Unknown,
    ];

    /// The leaves of computing, in order.
    pub const COMPUTE: [Leaf; 7] = [
        Leaf::Attention,
        Leaf::Convolution,
        Leaf::Matmul,
        Leaf::Norm,
        Leaf::Optimizer,
        Leaf::Elementwise,
        Leaf::OtherCompute,
    ];

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Leaf::Attention => "compute.attention",
            Leaf::Convolution => "compute.conv",
            Leaf::Matmul => "compute.matmul",
            Leaf::Norm => "compute.norm",
            Leaf::Optimizer => "compute.optimizer",
            Leaf::Elementwise => "compute.elementwise",
            Leaf::OtherCompute => "compute.other",
            Leaf::Transfer => "comm.transfer",
            Leaf::CommWait => "comm.wait",
            Leaf::Unsplit => "comm.unsplit",
            Leaf::CopyDevice => "copy.device",
            Leaf::GapGraph => "gap.graph",
            Leaf::GapShort => "gap.short",
            Leaf::GapLong => "gap.long",
            Leaf::HostData => "host.data",
            Leaf::HostAlloc => "host.alloc",
            Leaf::CopyStaging => "copy.staging",
            Leaf::HostSync => "host.sync",
            Leaf::HostCompile => "host.compile",
            Leaf::HostGc => "host.gc",
            Leaf::Profiler => "profiler",
            Leaf::HostOther => "host.other",
            Leaf::HostLaunch => "host.launch",
            Leaf::Unknown => "unknown",
        }
    }

    /// The leaf in a few plain words.
    pub fn meaning(self) -> &'static str {
        match self {
            Leaf::Attention => "attention kernels",
            Leaf::Convolution => "convolution kernels",
            Leaf::Matmul => "kernels of matrix products",
            Leaf::Norm => "normalisation kernels",
            Leaf::Optimizer => "optimizer kernels",
            Leaf::Elementwise => "elementwise and reduction kernels",
            Leaf::OtherCompute => "other computing kernels",
            Leaf::Transfer => "collectives move data",
            Leaf::CommWait => "collectives wait for another rank",
            Leaf::Unsplit => "collectives, waiting included",
            Leaf::CopyDevice => "only copies and fills run",
            Leaf::GapGraph => "between kernels of one CUDA graph",
            Leaf::GapShort => "up to 20 us between queued kernels",
            Leaf::GapLong => "over 20 us between queued kernels",
            Leaf::HostData => "the CPU is in the data loader",
            Leaf::HostAlloc => "the CPU allocates device memory",
            Leaf::CopyStaging => "the CPU is inside a copy call",
            Leaf::HostSync => "the CPU waits for the device",
            Leaf::HostCompile => "the CPU compiles, tunes or loads",
            Leaf::HostGc => "the CPU collects garbage",
            Leaf::Profiler => "the profiler works",
            Leaf::HostOther => "the CPU runs unmarked code",
            Leaf::HostLaunch => "the CPU issues the next work",
            Leaf::Unknown => "no record says why it is idle",
        }
    }

    /// Whether the device computes.
    pub fn is_compute(self) -> bool {
        self <= Leaf::OtherCompute
    }

    /// The leaf of this name.
    pub fn from_name(name: &str) -> Option<Leaf> {
        Leaf::ALL.into_iter().find(|leaf| leaf.name() == name)
    }
}

impl Serialize for Leaf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Nanoseconds by leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account([i64; Leaf::ALL.len()]);

impl Account {
    /// Nanoseconds of a leaf.
    pub fn get(&self, leaf: Leaf) -> i64 {
        self.0[leaf as usize]
    }

    /// Adds nanoseconds to a leaf.
    pub fn add(&mut self, leaf: Leaf, nanoseconds: i64) {
        self.0[leaf as usize] += nanoseconds;
    }

    /// Adds another account.
    pub fn add_all(&mut self, other: &Account) {
        for (own, others) in self.0.iter_mut().zip(other.0) {
            *own += others;
        }
    }

    /// Sum over all leaves.
    pub fn total(&self) -> i64 {
        self.0.iter().sum()
    }

    /// Sum over the computing leaves.
    pub fn compute(&self) -> i64 {
        Leaf::COMPUTE.iter().map(|&leaf| self.get(leaf)).sum()
    }

    /// Leaves and their nanoseconds in order.
    pub fn iter(&self) -> impl Iterator<Item = (Leaf, i64)> + '_ {
        Leaf::ALL.into_iter().map(|leaf| (leaf, self.get(leaf)))
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(leaf, nanoseconds)| (leaf.name(), nanoseconds)))
    }
}
