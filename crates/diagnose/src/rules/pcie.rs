//! `pcie.acs_enabled`, `pcie.iommu_breaks_p2p`, `pcie.link_degraded`: the bus between devices.

use super::support::counted;
use crate::{
    facts::{Found, all, between, quote, rows, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Pcie;

const ACS: Explanation = Explanation {
    id: "pcie.acs_enabled",
    layer: "hardware/network",
    what: "Access control services are on at PCIe switches or bridges.",
    why: "They send transfers between two devices up to the root complex, where GPUDirect fails or slows down.",
    remedy: "switch ACS off on the bridges above GPUs and network cards (BIOS, or setpci per bridge at boot); inside a \
             virtual machine the host must do it and have ATS on",
    refuted_by: "`lspci -vvv` showing SrcValid- and ReqRedir- on every bridge, or the failure staying with NCCL_NET_GDR_LEVEL=LOC",
};

const IOMMU: Explanation = Explanation {
    id: "pcie.iommu_breaks_p2p",
    layer: "hardware/network",
    what: "The IOMMU translates transfers between GPUs, which then never arrive.",
    why: "Direct transfers use bus addresses that a translating IOMMU does not map: kernels that wait for a peer spin \
          for ever.",
    remedy: "boot with iommu=pt (pass-through), or intel_iommu=off / amd_iommu=off; NCCL_P2P_DISABLE=1 only hides it at \
             the price of host-memory transfers",
    refuted_by: "p2pBandwidthLatencyTest running to its end under this kernel command line",
};

const LINK: Explanation = Explanation {
    id: "pcie.link_degraded",
    layer: "hardware/network",
    what: "A PCIe link runs with fewer lanes or at a lower generation than both ends can.",
    why: "A dirty or badly seated connector, a riser, or a BIOS setting: copies and network traffic get a fraction of \
          the rate.",
    remedy: "reseat the card or move it to another slot, check the BIOS' slot settings; compare with the same slot of a \
             healthy host",
    refuted_by: "the width or generation rising to its maximum under load (idle links save power)",
};

impl Rule for Pcie {
    fn explanations(&self) -> &'static [Explanation] {
        &[ACS, IOMMU, LINK]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [acs, iommu, link].iter().filter_map(|check| check(job)).collect()
    }
}

fn acs(job: &Job) -> Option<Finding> {
    let enabled = texts(job, "pcie.acs", |state| state == "enabled");
    enabled.first()?;
    // 4 is a local protection error: the device was not allowed to read or write there.
    let refused: Vec<Found> = all(job, "nccl.network.ib.completion_status")
        .into_iter()
        .filter(|found| found.number() == Some(4.0))
        .collect();
    let direct = texts(job, "nccl.transport", |t| t.contains("GDRDMA") || t.starts_with("P2P"));
    let (severity, title) = match refused.is_empty() {
        false => (
            Severity::Failure,
            format!(
                "GPUDirect transfers are refused, and access control (ACS) is on at {}",
                counted(enabled.len(), "bridge", "bridges")
            ),
        ),
        true if direct.is_empty() => return None,
        true => (
            Severity::Slow,
            format!(
                "access control (ACS) is on at {}: transfers between devices go up to the root complex",
                counted(enabled.len(), "bridge", "bridges")
            ),
        ),
    };
    let mut finding = ACS.finding(severity, title);
    quote(job, &mut finding, &refused, 1);
    quote(job, &mut finding, &direct, 1);
    quote(job, &mut finding, &enabled, 2);
    finding.confidence = if refused.is_empty() { Confidence::Medium } else { Confidence::High };
    Some(finding)
}

/// Facts that say that the IOMMU translates.
pub(super) fn translating(job: &Job) -> Vec<Found<'_>> {
    let on = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let has = |word: &str| words.contains(&word);
        (has("intel_iommu=on") || has("amd_iommu=on") || has("iommu=on")) && !has("iommu=pt")
    };
    texts(job, "kernel.cmdline", on)
}

fn iommu(job: &Job) -> Option<Finding> {
    let cmdline = translating(job);
    let through = !texts(job, "kernel.cmdline", |line| line.contains("iommu=pt")).is_empty();
    let messages =
        texts(job, "kernel.iommu", |text| text.contains("enabled") || text.contains("Translated"));
    if cmdline.is_empty() && (messages.is_empty() || through) {
        return None;
    }
    let unfinished: Vec<Found> = all(job, "peer.test.rows")
        .into_iter()
        .filter(|found| found.number() == Some(0.0))
        .collect();
    let stopped = all(job, "transcript.stopped");
    if unfinished.is_empty() && (stopped.is_empty() || all(job, "nccl.transport").is_empty()) {
        return None;
    }
    let title = "transfers between GPUs hang while the IOMMU translates addresses";
    let mut finding = IOMMU.finding(Severity::Failure, title);
    quote(job, &mut finding, &cmdline, 1);
    quote(job, &mut finding, &messages, 1);
    quote(job, &mut finding, &unfinished, 1);
    quote(job, &mut finding, &all(job, "peer.access"), 2);
    quote(job, &mut finding, &stopped, 1);
    finding.confidence = if unfinished.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("iommu=pt".to_owned());
    Some(finding)
}

fn link(job: &Job) -> Option<Finding> {
    let mut degraded: Vec<(String, Found)> = vec![];
    for row in rows(job, "pcie.link") {
        let (Some(width), Some(wide)) =
            (row.number("pcie.link.width"), row.number("pcie.link.capable_width"))
        else {
            continue;
        };
        // The speed of an idle link falls to save power; its width does not.
        if width > 0.0 && width < wide {
            degraded.push((format!("x{width} of x{wide}"), row.name));
        }
    }
    let widths = between(job, "gpu.", ".pcie_width_max");
    for (device, found) in between(job, "gpu.", ".pcie_width") {
        let most = widths.iter().find(|(own, most)| *own == device && most.input == found.input);
        if let (Some((_, most)), Some(width)) = (most, found.number())
            && Some(width) < most.number()
        {
            degraded.push((format!("x{width} of x{}", most.number().unwrap_or(0.0)), found));
        }
    }
    let mut states = between(job, "gpu.", ".performance_state");
    states.retain(|(_, state)| ["P0", "P1", "P2"].contains(&state.text()));
    let most = between(job, "gpu.", ".pcie_generation_max");
    for (device, found) in between(job, "gpu.", ".pcie_generation") {
        let loaded = states.iter().any(|(own, state)| *own == device && state.input == found.input);
        let best = most.iter().find(|(own, best)| *own == device && best.input == found.input);
        if let (true, Some((_, best)), Some(generation)) = (loaded, best, found.number())
            && Some(generation) < best.number()
        {
            let most = best.number().unwrap_or(0.0);
            degraded.push((format!("generation {generation} of {most}"), found));
        }
    }
    let (first, _) = degraded.first()?;
    let title = format!(
        "{} below what both ends can: {first}",
        counted(degraded.len(), "PCIe link runs", "PCIe links run")
    );
    let mut finding = LINK.finding(Severity::Slow, title);
    quote(job, &mut finding, degraded.iter().map(|(_, found)| found), 4);
    finding.confidence = Confidence::High;
    Some(finding)
}
