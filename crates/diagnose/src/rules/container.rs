//! `container.shm_too_small` and `limits.memlock`: limits of a container or shell that a job runs into.

use crate::{
    facts::{Found, all, quote, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Container;

const SHM: Explanation = Explanation {
    id: "container.shm_too_small",
    layer: "launcher/MPI",
    what: "The shared memory of the container is full.",
    why: "NCCL and loader workers keep buffers in /dev/shm, of which docker gives 64 MB by default.",
    remedy: "start the container with --ipc=host or --shm-size=16g; in Kubernetes mount an emptyDir with medium: Memory \
             at /dev/shm",
    refuted_by: "`df -h /dev/shm` showing room at the moment of the failure",
};

const MEMLOCK: Explanation = Explanation {
    id: "limits.memlock",
    layer: "launcher/MPI",
    what: "The job may not lock enough memory for RDMA.",
    why: "RDMA pins its buffers; the limit of locked memory is too low, and the library reports it as no memory.",
    remedy: "raise the limit where the ranks start: ulimit -l unlimited, --ulimit memlock=-1 (docker), LimitMEMLOCK=infinity \
             (systemd, for slurmd too), or memlock in limits.conf with a new session",
    refuted_by: "`ulimit -l` printing unlimited when started by the same launcher",
};

impl Rule for Container {
    fn explanations(&self) -> &'static [Explanation] {
        &[SHM, MEMLOCK]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [shm, memlock].iter().filter_map(|check| check(job)).collect()
    }
}

fn shm(job: &Job) -> Option<Finding> {
    let shared = |text: &str| {
        text.contains("shared memory segment")
            || text.contains("/dev/shm")
            || text.contains("posix_fallocate")
    };
    let mut full =
        texts(job, "nccl.warning", |t| t.contains("No space left on device") && shared(t));
    let loader = |text: &str| {
        text.contains("unable to open shared memory object")
            || text.contains("killed by signal: Bus error")
            || text.contains("insufficient shared memory")
    };
    full.extend(texts(job, "torch.warning", loader));
    full.extend(texts(job, "traceback.exception", loader));
    full.first()?;
    let size = all(job, "mount./dev/shm.bytes");
    let title = match size.first().and_then(Found::number) {
        Some(bytes) => {
            format!("shared memory is full: /dev/shm holds {:.0} MiB", bytes / 1_048_576.0)
        }
        None => "shared memory (/dev/shm) is full".to_owned(),
    };
    let mut finding = SHM.finding(Severity::Failure, title);
    quote(job, &mut finding, &full, 3);
    quote(job, &mut finding, &texts(job, "nccl.warning", shared), 2);
    quote(job, &mut finding, &size, 1);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("--shm-size=16g".to_owned());
    Some(finding)
}

fn memlock(job: &Job) -> Option<Finding> {
    let refused = texts(job, "nccl.warning", |text| {
        (text.contains("ibv_reg_mr") || text.contains("ibv_create"))
            && (text.contains("Cannot allocate memory")
                || text.contains("errno 12")
                || text.contains("with 12 "))
    });
    refused.first()?;
    let limits = all(job, "limits.memlock_kb");
    // An unlimited shell refutes it.
    if !limits.is_empty() && limits.iter().all(|found| found.number().is_none()) {
        return None;
    }
    let title = match limits.iter().find_map(Found::number) {
        Some(kilobytes) => {
            format!("RDMA cannot lock its buffers: the limit of locked memory is {kilobytes:.0} kB")
        }
        None => "RDMA cannot lock its buffers: the limit of locked memory is too low".to_owned(),
    };
    let mut finding = MEMLOCK.finding(Severity::Failure, title);
    quote(job, &mut finding, &refused, 2);
    quote(job, &mut finding, &limits, 2);
    finding.confidence = if limits.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("ulimit -l unlimited".to_owned());
    Some(finding)
}
