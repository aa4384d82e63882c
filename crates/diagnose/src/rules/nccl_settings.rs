//! How NCCL was set up: `nccl.env_mismatch`, `nccl.channels_forced`, `topo.bad_topo_file`, `net.gdr_disabled`,
//! `net.single_qp_on_bond`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    facts::{Found, all, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct NcclSettings;

const ENVIRONMENT: Explanation = Explanation {
    id: "nccl.env_mismatch",
    layer: "launcher/MPI",
    what: "NCCL's settings differ between the ranks of one job.",
    why: "Ranks must agree on algorithms, protocols, channels and thresholds: otherwise they hang, or send messages of \
          different sizes.",
    remedy: "pass the variables to every rank (mpirun -x NAME, srun --export=ALL) and take them out of host profiles",
    refuted_by: "all ranks logging the same values",
};

const CHANNELS: Explanation = Explanation {
    id: "nccl.channels_forced",
    layer: "communication",
    what: "The number of NCCL's channels is forced by the environment.",
    why: "Few channels cannot fill the links; many take multiprocessors from computing that runs beside them.",
    remedy: "unset NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_NCHANNELS and the CTA settings: NCCL counts the links \
             itself",
    refuted_by: "all_reduce_perf giving no more without the setting",
};

const TOPOLOGY: Explanation = Explanation {
    id: "topo.bad_topo_file",
    layer: "communication",
    what: "A topology file describes a worse machine than there is.",
    why: "NCCL plans its rings by the file: with slow links in it few channels and poor paths are chosen.",
    remedy: "unset NCCL_TOPO_FILE, or write the file for this machine type (NCCL_TOPO_DUMP_FILE shows what NCCL finds \
             without it)",
    refuted_by: "the same graph being chosen without the file",
};

const GDR: Explanation = Explanation {
    id: "net.gdr_disabled",
    layer: "communication",
    what: "Network transfers go through host memory: GPUDirect RDMA is not used.",
    why: "The kernel module is not loaded, or the card is farther from the GPU than the allowed distance.",
    remedy: "load nvidia-peermem (modprobe nvidia-peermem) or use the open kernel modules with DMA-BUF; where the card is \
             close, NCCL_NET_GDR_LEVEL=PHB or SYS allows it",
    refuted_by: "`via NET/IB/.../GDRDMA` in the connection lines",
};

const BOND: Explanation = Explanation {
    id: "net.single_qp_on_bond",
    layer: "communication",
    what: "A bonded network card is used with one queue pair per connection.",
    why: "A bond spreads traffic over its ports by connection: with one queue pair one port carries everything.",
    remedy: "NCCL_IB_QPS_PER_CONNECTION=2 or 4, with NCCL_IB_SPLIT_DATA_ON_QPS=1",
    refuted_by: "both ports' counters rising alike during a collective",
};

/// Settings on which all ranks must agree.
const AGREED: &[&str] = &[
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_IB_DISABLE",
    "NCCL_NET",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_PXN_DISABLE",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_CUMEM_ENABLE",
    "NCCL_LL_THRESHOLD",
    "NCCL_TREE_THRESHOLD",
];

impl Rule for NcclSettings {
    fn explanations(&self) -> &'static [Explanation] {
        &[ENVIRONMENT, CHANNELS, TOPOLOGY, GDR, BOND]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let checks = [environment, channels, topology, gdr, bond];
        checks.iter().filter_map(|check| check(job)).collect()
    }
}

/// A process that wrote a log.
type Writer = (usize, u32);

fn environment(job: &Job) -> Option<Finding> {
    // Processes of one job: those that say their rank, each rank once.
    let mut writers: BTreeMap<u32, Writer> = BTreeMap::new();
    let mut twice = false;
    for found in all(job, "nccl.init") {
        if let (Some(rank), Some(process)) = (found.rank(job), found.fact.process) {
            let writer = (found.input, process);
            twice |= *writers.entry(rank).or_insert(writer) != writer;
        }
    }
    if writers.len() < 2 || twice {
        return None;
    }
    let mut settings: BTreeMap<&str, BTreeMap<Writer, Found>> = BTreeMap::new();
    for found in all(job, "nccl.env") {
        let Some((name, _)) = found.text().split_once('=') else { continue };
        if let (true, Some(process)) = (AGREED.contains(&name), found.fact.process) {
            settings.entry(name).or_default().insert((found.input, process), found);
        }
    }
    let differing = settings.iter().find(|(name, own)| {
        let values: BTreeSet<&str> = own.values().map(Found::text).collect();
        // Most parameters are logged where they are first used, which may be on some ranks only; these on every one.
        let by_all = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE"].contains(*name);
        values.len() > 1 || (by_all && own.len() < writers.len())
    })?;
    let (name, own) = differing;
    let mut values: Vec<&Found> = own.values().collect();
    values.dedup_by_key(|found| found.text());
    let title = match values.len() {
        1 => format!("{name} is set on {} of {} ranks only", own.len(), writers.len()),
        _ => format!("{name} differs between ranks"),
    };
    let mut finding = ENVIRONMENT.finding(Severity::Slow, title);
    quote(job, &mut finding, values, 4);
    Some(finding)
}

fn channels(job: &Job) -> Option<Finding> {
    let set = texts(job, "nccl.env", |text| {
        let Some((name, _)) = text.split_once('=') else { return false };
        (name.ends_with("_NCHANNELS") || name == "NCCL_NCHANNELS" || name.ends_with("_CTAS"))
            && !name.contains("NVLS")
            && !name.contains("NET")
    });
    let value =
        |found: &Found| found.text().split_once('=').and_then(|(_, v)| v.parse::<i64>().ok());
    let bad: Vec<Found> = set
        .into_iter()
        .filter(|found| {
            let most = found.text().contains("MAX");
            value(found)
                .is_some_and(|value| if most { value < 4 } else { !(4..=32).contains(&value) })
        })
        .collect();
    let first = bad.first()?;
    let title = format!("the environment forces NCCL's channels ({})", first.text());
    let mut finding = CHANNELS.finding(Severity::Slow, title);
    quote(job, &mut finding, &bad, 2);
    quote(job, &mut finding, &all(job, "nccl.channels"), 1);
    finding.remedy.setting = first.text().split_once('=').map(|(name, _)| format!("unset {name}"));
    Some(finding)
}

fn topology(job: &Job) -> Option<Finding> {
    let file = texts(job, "nccl.env", |text| text.starts_with("NCCL_TOPO_FILE="));
    file.first()?;
    // A PCI link below that of generation 1 with four lanes is not a real one.
    let slow = texts(job, "nccl.topology", |link| {
        let rate = link.split_once("PCI[").and_then(|(_, rest)| rest.split_once(']'));
        let device = link.contains("GPU/") || link.contains("PCI/") || link.contains("NIC/");
        device && rate.and_then(|(rate, _)| rate.parse::<f64>().ok()).is_some_and(|rate| rate < 1.0)
    });
    let lost = texts(job, "nccl.info", |text| text.contains("Could not find a path for pattern"));
    let lost_warned = texts(job, "nccl.warning", |text| text.contains("Could not find a path"));
    if slow.is_empty() && lost.is_empty() && lost_warned.is_empty() {
        return None;
    }
    let title = "the topology file describes slower links than a machine of this kind has";
    let mut finding = TOPOLOGY.finding(Severity::Slow, title);
    quote(job, &mut finding, &file, 1);
    quote(job, &mut finding, &slow, 2);
    quote(job, &mut finding, lost.iter().chain(&lost_warned), 1);
    finding.remedy.setting = Some("unset NCCL_TOPO_FILE".to_owned());
    Some(finding)
}

fn gdr(job: &Job) -> Option<Finding> {
    // Sockets never use it; the line about them says nothing.
    let off: Vec<Found> = texts(job, "nccl.gdr", |state| state == "disabled")
        .into_iter()
        .filter(|found| {
            found.fact.source.as_ref().is_none_or(|line| !line.text.contains("NET/Socket"))
        })
        .collect();
    let staged = texts(job, "nccl.transport", |t| t.starts_with("NET/IB") && !t.contains("GDRDMA"));
    let direct = texts(job, "nccl.transport", |transport| transport.contains("GDRDMA"));
    if staged.is_empty() || !direct.is_empty() {
        return None;
    }
    let title = "network transfers go through host memory: GPUDirect RDMA is not used";
    let mut finding = GDR.finding(Severity::Slow, title);
    quote(job, &mut finding, &off, 2);
    quote(job, &mut finding, &staged, 2);
    finding.confidence = if off.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("modprobe nvidia-peermem".to_owned());
    Some(finding)
}

fn bond(job: &Job) -> Option<Finding> {
    let bonded = texts(job, "nccl.network.ib", |list| list.contains("bond"));
    let queues = texts(job, "nccl.env", |text| text.starts_with("NCCL_IB_QPS_PER_CONNECTION="));
    let several = queues.iter().any(|found| !found.text().ends_with("=1"));
    let used = texts(job, "nccl.transport", |transport| transport.starts_with("NET/IB"));
    let failed = !all(job, "nccl.network.ib.completion_status").is_empty();
    if bonded.is_empty() || several || used.is_empty() || failed {
        return None;
    }
    let title = "a bonded network card is used with one queue pair per connection: one port carries everything";
    let mut finding = BOND.finding(Severity::Slow, title);
    quote(job, &mut finding, &bonded, 1);
    quote(job, &mut finding, &used, 1);
    quote(job, &mut finding, &queues, 1);
    finding.remedy.setting = Some("NCCL_IB_QPS_PER_CONNECTION=4".to_owned());
    Some(finding)
}
