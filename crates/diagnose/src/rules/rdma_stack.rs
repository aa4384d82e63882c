//! `net.ib_lib_missing`, `net.rdma_device_not_exposed`, `net.libfabric_too_old`, `net.roce_gid_index`,
//! `net.mtu_mismatch`: RDMA is there and cannot be used.

use crate::{
    facts::{Found, all, between, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct RdmaStack;

const LIBRARY: Explanation = Explanation {
    id: "net.ib_lib_missing",
    layer: "communication",
    what: "The RDMA user library is not installed where NCCL runs, so NCCL uses TCP sockets.",
    why: "NCCL opens libibverbs when it starts; images without rdma-core have none.",
    remedy: "install libibverbs1 and ibverbs-providers (rdma-core) in the image and expose /dev/infiniband",
    refuted_by: "the host having no RDMA network at all (ibv_devinfo on the host)",
};

const NOT_EXPOSED: Explanation = Explanation {
    id: "net.rdma_device_not_exposed",
    layer: "launcher/MPI",
    what: "The RDMA or EFA device of the host is not visible inside the container.",
    why: "The device plug-in or the --device option is missing: the library finds no provider and NCCL uses TCP sockets.",
    remedy: "pass the devices in: --device=/dev/infiniband (docker), vpc.amazonaws.com/efa or rdma resources \
             (Kubernetes); check with fi_info -p efa or ibv_devinfo inside the container",
    refuted_by: "fi_info or ibv_devinfo listing the device inside the same container",
};

const LIBFABRIC: Explanation = Explanation {
    id: "net.libfabric_too_old",
    layer: "communication",
    what: "The libfabric network plug-in cannot register memory the way this NCCL asks.",
    why: "NCCL from 2.19 on registers buffers by other means than an old plug-in or libfabric supports; registration \
          fails as an invalid argument.",
    remedy: "update aws-ofi-nccl and libfabric (or the EFA installer) to releases that name this NCCL version",
    refuted_by: "the same plug-in and libfabric working with this NCCL version elsewhere",
};

const GID: Explanation = Explanation {
    id: "net.roce_gid_index",
    layer: "hardware/network",
    what: "RoCE packets leave under a GID that the fabric does not route.",
    why: "Index 0 is a link-local RoCE v1 address; routed fabrics need the RoCE v2 entry with the IPv4 address.",
    remedy: "NCCL_IB_GID_INDEX with the index of the RoCE v2 entry that carries the IPv4 address, by show_gids, on every \
             host (NCCL 2.21 and later choose it themselves)",
    refuted_by: "ib_write_bw with that index (-x) failing between the same hosts too",
};

const MTU: Explanation = Explanation {
    id: "net.mtu_mismatch",
    layer: "hardware/network",
    what: "The two ends of an RDMA connection use different MTUs.",
    why: "Packets larger than the path carries are dropped; the sender retries until it gives up.",
    remedy: "set one MTU on hosts and switches (ip link set mtu 9000 for an RDMA MTU of 4096)",
    refuted_by: "ibv_devinfo showing the same active_mtu on both hosts",
};

impl Rule for RdmaStack {
    fn explanations(&self) -> &'static [Explanation] {
        &[LIBRARY, NOT_EXPOSED, LIBFABRIC, GID, MTU]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let checks = [library, not_exposed, libfabric, gid, mtu];
        checks.iter().filter_map(|check| check(job)).collect()
    }
}

/// Texts of warnings, notes and plug-in lines that contain a text.
fn said<'a>(job: &'a Job, text: &str) -> Vec<Found<'a>> {
    ["nccl.warning", "nccl.info", "nccl.plugin"]
        .iter()
        .flat_map(|key| texts(job, key, |own| own.contains(text)))
        .collect()
}

fn sockets(job: &Job) -> Vec<Found<'_>> {
    texts(job, "nccl.network", |network| network.starts_with("Socket"))
}

fn library(job: &Job) -> Option<Finding> {
    let missing = said(job, "Failed to open libibverbs");
    let sockets = sockets(job);
    let transports = texts(job, "nccl.transport", |t| t.starts_with("NET/Socket"));
    let local_only = transports.is_empty() && !all(job, "nccl.transport").is_empty();
    if missing.is_empty() || sockets.is_empty() || local_only {
        return None;
    }
    let title = "NCCL found no RDMA library (libibverbs) and sends over TCP sockets";
    let mut finding = LIBRARY.finding(Severity::Slow, title);
    quote(job, &mut finding, &missing, 1);
    quote(job, &mut finding, &sockets, 1);
    quote(job, &mut finding, &transports, 2);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("apt-get install libibverbs1 ibverbs-providers".to_owned());
    Some(finding)
}

fn not_exposed(job: &Job) -> Option<Finding> {
    let mut failed = said(job, "fi_getinfo() call failed");
    failed.extend(said(job, "Call to ibv_open_device failed"));
    failed.extend(said(job, "NET/IB : Unable to open device"));
    let listing =
        texts(job, "fabric.error", |text| text.contains("-61") || text.contains("No data"));
    let sockets = sockets(job);
    if failed.is_empty() && (listing.is_empty() || sockets.is_empty()) {
        return None;
    }
    let title =
        "the RDMA device is not visible where NCCL runs, which therefore sends over TCP sockets";
    let mut finding = NOT_EXPOSED.finding(Severity::Slow, title);
    quote(job, &mut finding, &failed, 2);
    quote(job, &mut finding, &listing, 1);
    quote(job, &mut finding, &sockets, 1);
    finding.confidence =
        if failed.is_empty() || listing.is_empty() { Confidence::Medium } else { Confidence::High };
    Some(finding)
}

fn libfabric(job: &Job) -> Option<Finding> {
    let refused: Vec<Found> = said(job, "Unable to register memory")
        .into_iter()
        .filter(|found| {
            found.text().contains("RC: -22") || found.text().contains("Invalid argument")
        })
        .collect();
    refused.first()?;
    let title = "the libfabric plug-in cannot register memory (invalid argument): it is too old for this NCCL";
    let mut finding = LIBFABRIC.finding(Severity::Failure, title);
    quote(job, &mut finding, &refused, 1);
    quote(job, &mut finding, &all(job, "nccl.version"), 1);
    let mut plugin = said(job, "NET/OFI Initializing");
    plugin.extend(said(job, "Selected Provider is"));
    quote(job, &mut finding, &plugin, 2);
    Some(finding)
}

fn gid(job: &Job) -> Option<Finding> {
    let given_up: Vec<Found> = all(job, "nccl.network.ib.completion_status")
        .into_iter()
        .filter(|found| found.number() == Some(12.0))
        .collect();
    let ethernet = texts(job, "nccl.network.ib", |list| list.contains("/RoCE"));
    if given_up.is_empty() || ethernet.is_empty() {
        return None;
    }
    let routed = all(job, "ib.gid.v2_ipv4");
    let set = texts(job, "nccl.env", |env| env.starts_with("NCCL_IB_GID_INDEX="));
    let index = |found: &Found| found.text().split(' ').nth(1).unwrap_or("").to_owned();
    let value = set.first().and_then(|found| found.text().split_once('=')).map(|(_, value)| value);
    if let Some(value) = value
        && (routed.is_empty() || routed.iter().any(|found| index(found) == value))
    {
        return None;
    }
    let wanted = routed.first().map(&index);
    let title = match (&wanted, value) {
        (Some(wanted), None) => {
            format!(
                "RoCE packets get no answer: the routed GID has index {wanted}, and none is chosen"
            )
        }
        (Some(wanted), Some(value)) => {
            format!(
                "RoCE packets get no answer: the routed GID has index {wanted}, {value} is chosen"
            )
        }
        (None, _) => "RoCE packets get no answer, and no GID index is chosen".to_owned(),
    };
    let mut finding = GID.finding(Severity::Failure, title);
    quote(job, &mut finding, &given_up, 1);
    quote(job, &mut finding, &ethernet, 1);
    quote(job, &mut finding, &routed, 2);
    quote(job, &mut finding, &set, 1);
    finding.confidence = if routed.is_empty() { Confidence::Low } else { Confidence::High };
    finding.remedy.setting = wanted.map(|wanted| format!("NCCL_IB_GID_INDEX={wanted}"));
    Some(finding)
}

fn mtu(job: &Job) -> Option<Finding> {
    let mtus = between(job, "ib.", ".active_mtu");
    let (_, first) = mtus.first()?;
    let (_, other) = mtus.iter().find(|(device, found)| {
        found.number() != first.number() && mtus.first().is_some_and(|(own, _)| own == device)
    })?;
    let given_up: Vec<Found> = all(job, "nccl.network.ib.completion_status")
        .into_iter()
        .filter(|found| found.number() == Some(12.0))
        .collect();
    let title = format!(
        "the active MTU of the RDMA devices differs: {:.0} against {:.0}",
        first.number().unwrap_or(0.0),
        other.number().unwrap_or(0.0)
    );
    let severity = if given_up.is_empty() { Severity::Slow } else { Severity::Failure };
    let mut finding = MTU.finding(severity, title);
    quote(job, &mut finding, &given_up, 1);
    quote(job, &mut finding, [first, other], 2);
    Some(finding)
}
