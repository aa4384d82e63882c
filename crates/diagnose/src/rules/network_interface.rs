//! `net.wrong_interface` and `net.loopback_selected`: NCCL listens where its peers cannot reach it.

use crate::{
    facts::{Found, all, quote},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct NetworkInterface;

const WRONG_INTERFACE: Explanation = Explanation {
    id: "net.wrong_interface",
    layer: "hardware/network",
    what: "NCCL takes a bridge or virtual interface for a network between hosts.",
    why: "Bridges of containers have the same addresses on every host: a peer that connects there reaches itself, or \
          nobody.",
    remedy: "name the interfaces that join the hosts: NCCL_SOCKET_IFNAME==eth0 (a second = means exactly this name; ^br-,veth \
             excludes). It moves bootstrap and socket traffic only: InfiniBand and RoCE data follow NCCL_IB_HCA",
    refuted_by: "the refused address belonging to an interface that other hosts can reach (ping it from there)",
};

const LOOPBACK: Explanation = Explanation {
    id: "net.loopback_selected",
    layer: "hardware/network",
    what: "NCCL offers the loopback address to ranks on other hosts.",
    why: "The host's own name resolves to 127.0.0.1, or NCCL_SOCKET_IFNAME names lo; 127.0.0.1 is a different host on \
          every host.",
    remedy: "NCCL_SOCKET_IFNAME with the interface that joins the hosts, and the host's real address in /etc/hosts; it \
             does not move InfiniBand data",
    refuted_by: "all ranks running on one host: there loopback is right",
};

/// Beginnings of names of bridges, container and tunnel interfaces.
const VIRTUAL: &[&str] = &[
    "br-", "docker", "veth", "virbr", "cni", "flannel", "cali", "vxlan", "podman", "lxc", "tun",
    "tap", "kube",
];

impl Rule for NetworkInterface {
    fn explanations(&self) -> &'static [Explanation] {
        &[WRONG_INTERFACE, LOOPBACK]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        wrong_interface(job).into_iter().chain(loopback(job)).collect()
    }
}

fn split<'a>(found: &Found<'a>) -> (&'a str, &'a str) {
    found.text().split_once(' ').unwrap_or((found.text(), ""))
}

fn wrong_interface(job: &Job) -> Option<Finding> {
    let mut listed = all(job, "nccl.network.interface");
    listed.extend(all(job, "nccl.bootstrap.interface"));
    listed.retain(|found| VIRTUAL.iter().any(|start| split(found).0.starts_with(start)));
    let failed: Vec<Found> = all(job, "nccl.connect.failed")
        .into_iter()
        .filter(|failed| listed.iter().any(|found| same_network(split(found).1, failed.text())))
        .collect();
    let first = failed.first()?;
    let (name, _) = split(listed.iter().find(|f| same_network(split(f).1, first.text()))?);
    let title = format!(
        "the connection to {} was refused: that is the virtual interface {name}, not the network between the hosts",
        first.text()
    );
    let mut finding = WRONG_INTERFACE.finding(Severity::Failure, title);
    quote(job, &mut finding, &failed, 2);
    quote(job, &mut finding, &listed, 2);
    quote(job, &mut finding, &all(job, "nccl.network.ib.none"), 1);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("NCCL_SOCKET_IFNAME==eth0".to_owned());
    Some(finding)
}

/// Equal, or IPv4 addresses that share their first two numbers, as the bridges of two hosts do.
fn same_network(one: &str, other: &str) -> bool {
    let start = |text: &str| {
        let mut parts = text.split('.');
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    one == other || (start(one).is_some() && start(one) == start(other))
}

fn loopback(job: &Job) -> Option<Finding> {
    let mut chosen = all(job, "nccl.bootstrap.interface");
    chosen.extend(all(job, "nccl.network.interface"));
    chosen.extend(all(job, "nccl.oob.interface"));
    chosen.retain(|found| {
        let (name, address) = split(found);
        name == "lo" || address.starts_with("127.") || address == "::1"
    });
    chosen.first()?;
    let failed: Vec<Found> = all(job, "nccl.connect.failed")
        .into_iter()
        .filter(|failed| failed.text().starts_with("127."))
        .collect();
    let mut hosts: Vec<&str> = all(job, "nccl.init").iter().filter_map(|f| f.host(job)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let nodes = all(job, "nccl.topology.nodes");
    let several = hosts.len() > 1 || nodes.iter().any(|found| found.number() > Some(1.0));
    if failed.is_empty() && !several {
        return None;
    }
    let severity = if failed.is_empty() { Severity::Slow } else { Severity::Failure };
    let title = "NCCL chose the loopback interface in a job of several hosts";
    let mut finding = LOOPBACK.finding(severity, title);
    quote(job, &mut finding, &chosen, 2);
    quote(job, &mut finding, &failed, 2);
    quote(job, &mut finding, &nodes, 1);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("NCCL_SOCKET_IFNAME=^lo".to_owned());
    Some(finding)
}
