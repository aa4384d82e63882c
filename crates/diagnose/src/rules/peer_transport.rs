//! `p2p.disabled_by_env` and `net.socket_fallback`: NCCL takes a slower path than there is.

use crate::{
    facts::{Found, all, between, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct PeerTransport;

const DISABLED: Explanation = Explanation {
    id: "p2p.disabled_by_env",
    layer: "communication",
    what: "The environment switches off direct transfers between GPUs or through shared memory.",
    why: "NCCL then sends through host memory, or over sockets even inside one host.",
    remedy: "unset NCCL_P2P_DISABLE, NCCL_SHM_DISABLE and NCCL_P2P_LEVEL (look in profiles, images and launch scripts); \
             they are meant for finding faults",
    refuted_by: "the same rate with the variables unset (all_reduce_perf on these devices)",
};

const SOCKETS: Explanation = Explanation {
    id: "net.socket_fallback",
    layer: "communication",
    what: "NCCL sends over TCP sockets although a faster path is there.",
    why: "The InfiniBand or RoCE device, or the link between the GPUs, was not usable for NCCL at its start.",
    remedy: "look at the lines of NET/IB and NET/Plugin in the NCCL log (device names in NCCL_IB_HCA, permissions of \
             /dev/infiniband, the plug-in's own warning). NCCL_SOCKET_IFNAME only chooses among sockets; it does not move \
             InfiniBand data",
    refuted_by: "ibv_devinfo showing no active port on these hosts",
};

impl Rule for PeerTransport {
    fn explanations(&self) -> &'static [Explanation] {
        &[DISABLED, SOCKETS]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [disabled, sockets].iter().filter_map(|check| check(job)).collect()
    }
}

/// Settings that forbid direct paths between the GPUs of a host.
fn forbidding(text: &str) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    match name {
        "NCCL_P2P_DISABLE" | "NCCL_SHM_DISABLE" => !["0", ""].contains(&value),
        "NCCL_P2P_LEVEL" => ["LOC", "0"].contains(&value),
        _ => false,
    }
}

fn disabled(job: &Job) -> Option<Finding> {
    let set = texts(job, "nccl.env", forbidding);
    set.first()?;
    let mut names: Vec<&str> =
        set.iter().filter_map(|found| found.text().split_once('=')).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    // The path that is taken instead, of the processes concerned.
    let instead: Vec<Found> = texts(job, "nccl.transport", |t| !t.starts_with("P2P"))
        .into_iter()
        .filter(|transport| set.iter().any(|found| found.together(transport)))
        .collect();
    let direct = texts(job, "nccl.transport", |t| t.starts_with("P2P"));
    // One rank a host has nothing to lose: then no pair would be local.
    if instead.is_empty() && !direct.is_empty() {
        return None;
    }
    let path = instead.first().map_or("a slower path".to_owned(), |found| found.text().to_owned());
    let verb = if names.len() == 1 { "forbids" } else { "forbid" };
    let title =
        format!("{} {verb} direct transfers between GPUs, which go by {path}", names.join(" and "));
    let mut finding = DISABLED.finding(Severity::Slow, title);
    for name in &names {
        let own: Vec<Found> =
            set.iter().filter(|found| found.text().starts_with(name)).copied().collect();
        quote(job, &mut finding, &own, 2);
    }
    quote(job, &mut finding, &instead, 2);
    finding.confidence = if instead.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some(format!("unset {}", names.join(" ")));
    Some(finding)
}

fn sockets(job: &Job) -> Option<Finding> {
    let network = texts(job, "nccl.network", |network| network.starts_with("Socket"));
    let sent = texts(job, "nccl.transport", |transport| transport.starts_with("NET/Socket"));
    let forbidden = texts(job, "nccl.env", |text| {
        forbidding(text)
            || (text.starts_with("NCCL_IB_DISABLE=") && !text.ends_with("=0"))
            || text == "NCCL_NET=Socket"
    });
    if network.is_empty() || sent.is_empty() || !forbidden.is_empty() {
        return None;
    }
    let mut better: Vec<Found> = between(job, "ib.", ".state")
        .into_iter()
        .filter(|(_, state)| state.text().to_lowercase().contains("active"))
        .map(|(_, found)| found)
        .collect();
    better.extend(texts(job, "nccl.network", |network| network.starts_with("IB")));
    better.extend(all(job, "topology.card"));
    if one_host(job, &sent) {
        better.extend(texts(job, "topology.link", |link| link.contains(" NV")));
        better.extend(texts(job, "nccl.topology", |link| link.contains("NVL[")));
    }
    better.first()?;
    let title = "NCCL sends over TCP sockets although a faster path is there";
    let mut finding = SOCKETS.finding(Severity::Slow, title);
    quote(job, &mut finding, &network, 1);
    quote(job, &mut finding, &sent, 2);
    quote(job, &mut finding, &better, 2);
    quote(job, &mut finding, &all(job, "nccl.network.ib.none"), 1);
    Some(finding)
}

/// All processes that say how they send run on one host.
fn one_host(job: &Job, sent: &[Found<'_>]) -> bool {
    let mut hosts: Vec<&str> = sent.iter().filter_map(|found| found.host(job)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let ranks: f64 =
        all(job, "nccl.init.nranks").iter().filter_map(Found::number).fold(0.0, f64::max);
    let mut own: Vec<Option<u32>> = sent.iter().map(|found| found.rank(job)).collect();
    own.sort_unstable();
    own.dedup();
    hosts.len() == 1 && own.len() as f64 >= ranks
}
