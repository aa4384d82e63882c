//! Versions that do not fit together: `cuda.nccl_cuda_mismatch`, `nccl.version_mismatch`, `lib.cudnn_mismatch`,
//! `build.gpu_arch_missing`, `driver.p2p_bug`.

use std::collections::BTreeMap;

use super::pcie::translating;
use crate::{
    facts::{Found, all, between, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Versions;

const NCCL_CUDA: Explanation = Explanation {
    id: "cuda.nccl_cuda_mismatch",
    layer: "CUDA runtime/driver",
    what: "NCCL was built for a newer CUDA than the driver supports.",
    why: "A library built for a later major version of CUDA calls functions that the driver does not have.",
    remedy: "install the NCCL build for this CUDA (the part after the + of its version), or update the driver",
    refuted_by: "nvidia-smi showing a CUDA version of the same major number or higher",
};

const NCCL_VERSIONS: Explanation = Explanation {
    id: "nccl.version_mismatch",
    layer: "communication",
    what: "Ranks of one job run different NCCL versions.",
    why: "Versions differ in what they exchange at the start: initialisation fails or hangs with truncated messages.",
    remedy: "run one image on all hosts; look for a second libnccl on LD_LIBRARY_PATH or preloaded",
    refuted_by: "the logs belonging to different jobs",
};

const CUDNN: Explanation = Explanation {
    id: "lib.cudnn_mismatch",
    layer: "operator library",
    what: "PyTorch loads a cuDNN other than the one it was built with.",
    why: "LD_LIBRARY_PATH is searched before the library that came with the package.",
    remedy: "take the cuDNN folder out of LD_LIBRARY_PATH (a site's module often adds it); installing PyTorch again \
             changes nothing while it is there",
    refuted_by: "the message staying with LD_LIBRARY_PATH unset",
};

const ARCHITECTURE: Explanation = Explanation {
    id: "build.gpu_arch_missing",
    layer: "operator library",
    what: "The library holds no machine code for this GPU.",
    why: "It was built for other architectures, and without intermediate code that the driver could translate.",
    remedy: "install a build that names this compute capability (torch.cuda.get_arch_list()), or build with \
             TORCH_CUDA_ARCH_LIST",
    refuted_by: "torch.cuda.get_arch_list() naming the device's capability",
};

const DRIVER: Explanation = Explanation {
    id: "driver.p2p_bug",
    layer: "CUDA runtime/driver",
    what: "Direct transfers between GPUs hang under this driver although the machine's settings are right.",
    why: "A known fault of driver branch 560: peer-to-peer transfers of NCCL do not complete on some machines.",
    remedy: "update the driver to branch 570 or later; NCCL_P2P_DISABLE=1 until then, at the price of host-memory \
             transfers",
    refuted_by: "the hang staying with a 570 driver, or going away with ACS or the IOMMU off",
};

/// Driver branches with the fault.
const FAULTY_BRANCHES: &[&str] = &["560."];

impl Rule for Versions {
    fn explanations(&self) -> &'static [Explanation] {
        &[NCCL_CUDA, NCCL_VERSIONS, CUDNN, ARCHITECTURE, DRIVER]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let checks = [nccl_cuda, nccl_versions, cudnn, architecture, driver];
        checks.iter().filter_map(|check| check(job)).collect()
    }
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.trim().parse().ok()?, parts.next()?.trim().parse().ok()?))
}

fn nccl_cuda(job: &Job) -> Option<Finding> {
    let mut built = all(job, "nccl.version");
    built.extend(
        between(job, "package.", ".version")
            .into_iter()
            .filter(|(name, _)| name.contains("libnccl2") || *name == "libnccl")
            .map(|(_, found)| found),
    );
    let built = built.into_iter().filter_map(|found| {
        let (_, cuda) = found.text().split_once("+cuda")?;
        Some((major_minor(cuda)?, found))
    });
    let mut supported: Vec<((u32, u32), Found)> = all(job, "driver.cuda_version")
        .into_iter()
        .filter_map(|found| Some((major_minor(found.text())?, found)))
        .collect();
    supported.extend(all(job, "cuda.driver_version").into_iter().filter_map(|found| {
        let number: u32 = found.text().parse().ok()?;
        Some(((number / 1000, number % 1000 / 10), found))
    }));
    let newest = supported.iter().map(|(version, _)| *version).max()?;
    // From CUDA 11 on minor versions of one major version work together.
    let (needs, found) = built
        .filter(|(needs, _)| needs.0 > newest.0 || (newest.0 < 11 && *needs > newest))
        .max_by_key(|(v, _)| *v)?;
    let title = format!(
        "NCCL is built for CUDA {}.{}, the driver supports {}.{}",
        needs.0, needs.1, newest.0, newest.1
    );
    let mut finding = NCCL_CUDA.finding(Severity::Failure, title);
    let failed =
        |key: &str| texts(job, key, |text| text.contains("driver version is insufficient"));
    let failures: Vec<Found> = ["nccl.warning", "traceback.exception", "test.failure"]
        .iter()
        .flat_map(|key| failed(key))
        .collect();
    quote(job, &mut finding, &failures, 1);
    quote(job, &mut finding, &all(job, "test.failure"), 1);
    quote(job, &mut finding, [&found], 1);
    quote(job, &mut finding, supported.iter().map(|(_, found)| found), 1);
    finding.confidence = if failures.is_empty() { Confidence::Medium } else { Confidence::High };
    Some(finding)
}

fn nccl_versions(job: &Job) -> Option<Finding> {
    let said = texts(job, "nccl.warning", |text| text.contains("Mismatched NCCL version detected"));
    let truncated = texts(job, "nccl.warning", |text| text.contains("Message truncated"));
    // Of processes that say their rank: those of one job.
    let mut versions: BTreeMap<&str, Found> = BTreeMap::new();
    for found in all(job, "nccl.version") {
        if found.rank(job).is_some() {
            versions.entry(found.text()).or_insert(found);
        }
    }
    let differ = versions.len() > 1 && ranks_differ(job, &versions);
    if said.is_empty() && !differ {
        return None;
    }
    let names: Vec<&str> = versions.keys().copied().collect();
    let title = match names.len() {
        0 | 1 => "ranks run different NCCL versions".to_owned(),
        _ => format!("ranks run different NCCL versions: {}", names.join(" and ")),
    };
    let failed = !said.is_empty() || !truncated.is_empty();
    let mut finding =
        NCCL_VERSIONS.finding(if failed { Severity::Failure } else { Severity::Slow }, title);
    quote(job, &mut finding, &said, 1);
    quote(job, &mut finding, versions.values(), 3);
    quote(job, &mut finding, &truncated, 1);
    finding.confidence = if failed { Confidence::High } else { Confidence::Medium };
    Some(finding)
}

/// No rank has two of the versions: two runs in one folder would give a rank both.
fn ranks_differ(job: &Job, versions: &BTreeMap<&str, Found>) -> bool {
    let mut of_rank: BTreeMap<u32, &str> = BTreeMap::new();
    all(job, "nccl.version").iter().filter(|found| versions.contains_key(found.text())).all(
        |found| {
            found
                .rank(job)
                .is_none_or(|rank| *of_rank.entry(rank).or_insert(found.text()) == found.text())
        },
    )
}

fn cudnn(job: &Job) -> Option<Finding> {
    let said = texts(job, "traceback.exception", |text| {
        text.contains("cuDNN version incompatibility") || text.contains("cuDNN version mismatch")
    });
    said.first()?;
    let path = texts(job, "env.library_path", |text| text.contains("cudnn"));
    let title = "PyTorch finds another cuDNN than the one it was built with";
    let mut finding = CUDNN.finding(Severity::Failure, title);
    quote(job, &mut finding, &said, 1);
    quote(job, &mut finding, &path, 1);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("unset LD_LIBRARY_PATH".to_owned());
    Some(finding)
}

fn architecture(job: &Job) -> Option<Finding> {
    let wanted = |text: &str| {
        text.contains("no kernel image is available")
            || text.contains("not compatible with the current PyTorch installation")
    };
    let mut said = texts(job, "torch.warning", wanted);
    said.extend(texts(job, "traceback.exception", wanted));
    said.extend(texts(job, "nccl.warning", |t| wanted(t) || t.contains("named symbol not found")));
    said.first()?;
    let title = "the library holds no machine code for this GPU";
    let mut finding = ARCHITECTURE.finding(Severity::Failure, title);
    quote(job, &mut finding, &said, 2);
    finding.confidence = Confidence::High;
    Some(finding)
}

fn driver(job: &Job) -> Option<Finding> {
    let faulty = texts(job, "driver.version", |version| {
        FAULTY_BRANCHES.iter().any(|branch| version.starts_with(branch))
    });
    let direct = texts(job, "nccl.transport", |transport| transport.starts_with("P2P"));
    let mut hangs = all(job, "transcript.stopped");
    hangs.extend(all(job, "watchdog.sequence"));
    if faulty.is_empty() || direct.is_empty() || hangs.is_empty() {
        return None;
    }
    let acs_on = !texts(job, "pcie.acs", |state| state == "enabled").is_empty()
        || all(job, "pcie.acs.enabled_count").iter().any(|found| found.number() > Some(0.0));
    if acs_on || !translating(job).is_empty() {
        return None;
    }
    let title = format!(
        "transfers between GPUs hang under driver {}, which is known for it",
        faulty[0].text()
    );
    let mut finding = DRIVER.finding(Severity::Failure, title);
    quote(job, &mut finding, &faulty, 1);
    quote(job, &mut finding, &direct, 1);
    quote(job, &mut finding, &texts(job, "kernel.cmdline", |line| line.contains("iommu")), 1);
    quote(job, &mut finding, &all(job, "pcie.acs.enabled_count"), 1);
    quote(job, &mut finding, &hangs, 1);
    Some(finding)
}
