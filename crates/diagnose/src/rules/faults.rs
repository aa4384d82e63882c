//! Faults that end a job whatever it does: `gpu.fell_off_bus`, `host.out_of_memory`, `tests.wrong_results`.

use crate::{
    facts::{Found, all, quote},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Faults;

const FELL_OFF: Explanation = Explanation {
    id: "gpu.fell_off_bus",
    layer: "hardware/network",
    what: "A GPU no longer answers on the PCIe bus (Xid 79).",
    why: "Its process fails at the next call; the others wait in the next collective until their timeout.",
    remedy: "drain the host and power-cycle it; if it comes back, check power, cooling and seating, and have the board \
             replaced",
    refuted_by: "`lspci` and nvidia-smi listing the device without a reboot",
};

const HOST_MEMORY: Explanation = Explanation {
    id: "host.out_of_memory",
    layer: "launcher/MPI",
    what: "The kernel killed a process of the host for want of memory.",
    why: "A killed rank or loader worker says nothing itself: the others report a lost connection or a timeout.",
    remedy: "fewer loader workers and less prefetching, one copy of the data set per host (memory mapping), a higher \
             memory limit of the container",
    refuted_by: "the killed process not being one of the job's",
};

const WRONG_RESULTS: Explanation = Explanation {
    id: "tests.wrong_results",
    layer: "hardware/network",
    what: "nccl-tests found wrong values in the results of collectives.",
    why: "Bytes are damaged on their way: transfers between GPUs past an IOMMU or ACS, a faulty link, or a driver.",
    remedy: "repeat with NCCL_P2P_DISABLE=1: right results then point to ACS, the IOMMU or a link between GPUs; do not \
             train on this machine before",
    refuted_by: "no wrong values in several runs with -c 1",
};

impl Rule for Faults {
    fn explanations(&self) -> &'static [Explanation] {
        &[FELL_OFF, HOST_MEMORY, WRONG_RESULTS]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let mut fallen = all(job, "gpu.fell_off");
        fallen.extend(all(job, "gpu.xid").into_iter().filter(|xid| xid.number() == Some(79.0)));
        let wrong = all(job, "test.wrong").into_iter().filter(|count| count.number() > Some(0.0));
        [
            (FELL_OFF, "a GPU has fallen off the bus", fallen),
            (
                HOST_MEMORY,
                "the host ran out of memory and killed a process",
                all(job, "kernel.out_of_memory"),
            ),
            (WRONG_RESULTS, "collectives give wrong results", wrong.collect()),
        ]
        .into_iter()
        .filter_map(|(explanation, title, lines)| said(job, explanation, title, &lines))
        .collect()
    }
}

fn said(job: &Job, explanation: Explanation, title: &str, lines: &[Found]) -> Option<Finding> {
    lines.first()?;
    let mut finding = explanation.finding(Severity::Failure, title);
    quote(job, &mut finding, lines, 3);
    finding.confidence = Confidence::High;
    Some(finding)
}
