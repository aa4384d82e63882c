//! The rules, one file each, and the list of them.

mod algorithms;
mod allocator;
mod benchmarks;
mod binding;
mod checkpoint;
mod collection;
mod communication;
mod container;
mod copies;
mod distributed;
mod faults;
mod hangs;
mod host_stall;
mod kernels;
mod launch;
mod layout;
mod loader;
mod memory;
mod messages;
mod nccl_settings;
mod network_interface;
mod nvswitch;
mod pcie;
mod peer_transport;
mod pipeline;
mod precision;
mod ras;
mod rdma_stack;
mod shared_device;
mod startup;
mod step_logs;
mod support;
mod synchronise;
mod throttle;
mod tuning;
mod uneven;
mod versions;

pub use communication::{bus_bandwidth, expected_bandwidth};
pub(crate) use launch::SLOWED_BY_RECORDING;

use crate::finding::Rule;

/// All rules.
pub const ALL: &[&dyn Rule] = &[
    &algorithms::Algorithms,
    &allocator::Allocator,
    &benchmarks::Benchmarks,
    &binding::Binding,
    &checkpoint::Checkpoint,
    &collection::Collection,
    &communication::Communication,
    &container::Container,
    &copies::Copies,
    &distributed::Distributed,
    &faults::Faults,
    &hangs::Hangs,
    &host_stall::HostStall,
    &kernels::Kernels,
    &launch::Launch,
    &layout::Layout,
    &loader::Loader,
    &memory::Memory,
    &nccl_settings::NcclSettings,
    &network_interface::NetworkInterface,
    &nvswitch::Nvswitch,
    &pcie::Pcie,
    &peer_transport::PeerTransport,
    &messages::Messages,
    &pipeline::Pipeline,
    &precision::Precision,
    &ras::Ras,
    &rdma_stack::RdmaStack,
    &shared_device::SharedDevice,
    &startup::Startup,
    &step_logs::StepLogs,
    &synchronise::Synchronise,
    &throttle::Throttle,
    &tuning::Tuning,
    &versions::Versions,
    &uneven::Uneven,
];

/// General causes and the more specific ones that replace them where both are found.
pub const REPLACED_BY: &[(&str, &[&str])] = &[
    (
        "net.socket_fallback",
        &[
            "p2p.disabled_by_env",
            "net.ib_lib",
            "net.rdma_device",
            "net.wrong_interface",
            "net.libfabric",
        ],
    ),
    ("net.gdr_disabled", &["pcie.acs_enabled"]),
    ("cpu.affinity_missing", &["cpu.bound_to_single_core"]),
    ("comm.slow_transport", &["p2p.", "net.", "nvlink.", "pcie.", "topo.", "nccl.", "gpu.thermal"]),
    (
        "cpu.host_stall",
        &["cpu.gc_pause", "rank.blocking_checkpoint", "compile.", "copy.pageable_blocking"],
    ),
    ("rank.late_host", &["cpu.gc_pause", "rank.blocking_checkpoint", "copy.pageable_blocking"]),
    ("copy.pageable_blocking", &["rank.blocking_checkpoint"]),
    ("copy.not_overlapped", &["copy.volume_bound"]),
    ("hang.rank_behind", &["hang.rank_lost"]),
    ("hang.rank_busy_elsewhere", &["hang.rank_lost"]),
    ("comm.not_overlapped", &["comm.volume_bound"]),
    ("nvswitch.fabric_manager", &["nvswitch.fabric_manager_version"]),
];

/// Causes, and those of other sources that are quoted beside them where both concern a rank: what may be behind.
pub const SUPPORTED_BY: &[(&str, &[&str])] = &[
    (
        "rank.late_host",
        &[
            "cpu.bound_to_single_core",
            "cpu.affinity_missing",
            "cpu.debugger_attached",
            "cpu.omp_oversubscription",
        ],
    ),
    ("rank.uneven_compute", &["gpu.thermal_throttle", "gpu.shared_process", "pcie.link_degraded"]),
    (
        "cpu.launch_bound",
        &["cpu.bound_to_single_core", "cpu.debugger_attached", "cpu.omp_oversubscription"],
    ),
    ("data.loader_starved", &["cpu.bound_to_single_core", "cpu.omp_oversubscription"]),
    ("hang.rank_busy_elsewhere", &["hang.rank_behind"]),
    ("memory.allocator_stall", &["memory.fragmentation"]),
    (
        "net.fabric_below_spec",
        &["net.gdr_disabled", "numa.nic_far_from_gpu", "net.single_qp_on_bond"],
    ),
];
