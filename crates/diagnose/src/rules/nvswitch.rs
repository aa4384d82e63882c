//! `nvswitch.fabric_manager`, `nvswitch.fabric_manager_version` and `nvlink.link_errors`: the links between GPUs and who
//! sets them up.

use super::support::counted;
use crate::{
    facts::{Found, all, between, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Nvswitch;

const FABRIC_MANAGER: Explanation = Explanation {
    id: "nvswitch.fabric_manager",
    layer: "hardware/network",
    what: "The fabric manager, which sets up the NVSwitches, does not run or is in a stale state.",
    why: "Without it CUDA does not start on NVSwitch machines; after a GPU reset or an update it leaves multicast \
          (NVLS) broken.",
    remedy: "`systemctl enable --now nvidia-fabricmanager` of the driver's own version, restart it after GPU resets; \
             NCCL_NVLS_ENABLE=0 until then where only multicast fails",
    refuted_by: "`systemctl status` showing it active with the driver's version and nvidia-smi -q showing fabric state Completed",
};

const FABRIC_MANAGER_VERSION: Explanation = Explanation {
    id: "nvswitch.fabric_manager_version",
    layer: "CUDA runtime/driver",
    what: "The fabric manager is of another version than the driver.",
    why: "It refuses to start with any version but its own driver's; without it CUDA does not start on NVSwitch machines. \
          An update of one of the two packages is enough.",
    remedy: "install the fabric manager of exactly the driver's version and hold both packages together",
    refuted_by: "nvidia-smi and nv-fabricmanager --version showing one version",
};

const LINK_ERRORS: Explanation = Explanation {
    id: "nvlink.link_errors",
    layer: "hardware/network",
    what: "NVLink links between GPUs are down or repeat transfers.",
    why: "A faulty link takes bandwidth away, or makes NCCL avoid NVLink.",
    remedy: "drain the host, reset the GPUs; if counters rise again, have the board or bridge replaced",
    refuted_by: "nvidia-smi nvlink -e counters staying at zero and all links active under load",
};

impl Rule for Nvswitch {
    fn explanations(&self) -> &'static [Explanation] {
        &[FABRIC_MANAGER, FABRIC_MANAGER_VERSION, LINK_ERRORS]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let checks = [fabric_manager, fabric_manager_version, link_errors];
        checks.iter().filter_map(|check| check(job)).collect()
    }
}

/// States of the service that are not active.
fn stopped(job: &Job) -> Vec<Found<'_>> {
    let states = between(job, "service.", ".state").into_iter();
    let down = states.filter(|(name, state)| {
        name.contains("fabricmanager") && !state.text().starts_with("active")
    });
    down.map(|(_, state)| state).collect()
}

fn fabric_manager(job: &Job) -> Option<Finding> {
    let down = stopped(job);
    let failures = ["test.failure", "traceback.exception", "nccl.warning", "nccl.error.last"];
    let said = |wanted: &dyn Fn(&str) -> bool| -> Vec<Found> {
        failures.iter().flat_map(|key| texts(job, key, wanted)).collect()
    };
    let start = said(&|text| {
        text.contains("system not yet initialized") || text.contains("CUDA error 802")
    });
    let mut multicast = said(&|text| {
        (text.contains("NVLS") && text.contains("ulticast") && text.contains("Failed"))
            || text.contains("Fabric Manager")
    });
    // The file that reports it is the one that binds multicast memory.
    multicast.extend(
        texts(job, "nccl.warning", |text| text.contains("Cuda failure")).into_iter().filter(
            |found| found.fact.source.as_ref().is_some_and(|line| line.text.contains("nvls.cc:")),
        ),
    );
    let title = match (down.first(), start.is_empty(), multicast.is_empty()) {
        (Some(_), false, _) => "CUDA does not start: the fabric manager is not running",
        (Some(_), true, false) => "NVLink multicast fails: the fabric manager is not running",
        (None, false, _) => {
            "CUDA does not start (system not yet initialized), as without a fabric manager"
        }
        (None, true, false) => {
            "NVLink multicast (NVLS) fails: the fabric manager is in a stale state"
        }
        (_, true, true) => return None,
    };
    let mut finding = FABRIC_MANAGER.finding(Severity::Failure, title);
    quote(job, &mut finding, &start, 2);
    quote(job, &mut finding, &multicast, 3);
    quote(job, &mut finding, &down, 1);
    let available =
        texts(job, "nccl.info", |text| text.contains("NVLS multicast support is available"));
    quote(job, &mut finding, &available, 1);
    finding.confidence = if down.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("systemctl restart nvidia-fabricmanager".to_owned());
    Some(finding)
}

fn fabric_manager_version(job: &Job) -> Option<Finding> {
    let mut managers = all(job, "fabric_manager.version");
    let packages = between(job, "package.", ".version").into_iter();
    let packages = packages.filter(|(name, _)| {
        name.contains("nvidia-fabricmanager") || name.contains("nvidia-fabric-manager")
    });
    managers.extend(packages.map(|(_, version)| version));
    let drivers = all(job, "driver.version");
    // Of the same host: of the same input, or the only version there is.
    let of_host = |manager: &Found| -> Option<Found> {
        let own = drivers.iter().find(|driver| driver.input == manager.input);
        let only = drivers.first().filter(|first| drivers.iter().all(|d| d.text() == first.text()));
        own.or(only).copied()
    };
    // `550.54.15-1` of a package is version 550.54.15.
    let number =
        |version: &Found<'_>| version.text().split(['-', '~', '+']).next().map(str::to_owned);
    let differing = managers.iter().find_map(|manager| {
        let driver = of_host(manager)?;
        (number(manager) != number(&driver)).then_some((*manager, driver))
    });
    let (manager, driver) = differing?;
    let failed = !stopped(job).is_empty() || manager.fact.key == "fabric_manager.version";
    let title = format!(
        "the fabric manager is of version {}, the driver of {}",
        number(&manager).unwrap_or_default(),
        driver.text()
    );
    let severity = if failed { Severity::Failure } else { Severity::Slow };
    let mut finding = FABRIC_MANAGER_VERSION.finding(severity, title);
    quote(job, &mut finding, [&manager, &driver], 2);
    quote(job, &mut finding, &stopped(job), 1);
    finding.confidence = if failed { Confidence::High } else { Confidence::Medium };
    finding.remedy.setting = Some(format!("nvidia-fabricmanager={}", driver.text()));
    Some(finding)
}

fn link_errors(job: &Job) -> Option<Finding> {
    let mut errors: Vec<Found> =
        between(job, "gpu.", ".nvlink_errors").into_iter().map(|(_, found)| found).collect();
    let active = between(job, "gpu.", ".nvlink_gbs");
    let inactive = between(job, "gpu.", ".nvlink_inactive")
        .into_iter()
        .filter(|(device, found)| {
            active.iter().any(|(own, other)| own == device && other.input == found.input)
        })
        .map(|(_, found)| found);
    errors.extend(inactive);
    for key in ["nccl.warning", "nccl.info", "nccl.p2p"] {
        errors.extend(texts(job, key, |text| {
            text.contains("disabled between NVLINK connected GPUs")
        }));
    }
    errors.first()?;
    let lines = counted(errors.len(), "line says", "lines say");
    let title = format!("NVLink links are down or repeat transfers ({lines} so)");
    let mut finding = LINK_ERRORS.finding(Severity::Slow, title);
    quote(job, &mut finding, &errors, 4);
    quote(job, &mut finding, &all(job, "gpu.xid"), 1);
    finding.confidence = Confidence::High;
    Some(finding)
}
