//! `gpu.shared_process`: another process computes on the device of the job.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    facts::{Found, between, quote},
    finding::{Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct SharedDevice;

const SHARED: Explanation = Explanation {
    id: "gpu.shared_process",
    layer: "hardware/network",
    what: "Two processes use one GPU.",
    why: "The device switches between them in turns: kernels wait although the queue is full, and memory is shared.",
    remedy: "end what is left over of earlier runs (nvidia-smi names its pid), give each process a device of its own, or \
             share on purpose with MPS",
    refuted_by: "the second process being idle (nvidia-smi pmon)",
};

/// A process that holds less than this has a context and no data.
const CONTEXT_BYTES: i64 = 1 << 30;

impl Rule for SharedDevice {
    fn explanations(&self) -> &'static [Explanation] {
        &[SHARED]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        shared(job).into_iter().collect()
    }
}

/// Pid and bytes of `PID NAME BYTES`.
fn process<'a>(found: &Found<'a>) -> Option<(&'a str, i64)> {
    let mut words = found.text().split(' ');
    Some((words.next()?, words.next_back()?.parse().ok()?))
}

fn shared(job: &Job) -> Option<Finding> {
    let mut devices: BTreeMap<(usize, &str), BTreeMap<&str, Found>> = BTreeMap::new();
    for (device, found) in between(job, "gpu.", ".process") {
        if let Some((pid, bytes)) = process(&found)
            && bytes >= CONTEXT_BYTES
        {
            devices.entry((found.input, device)).or_default().insert(pid, found);
        }
    }
    let crowded: Vec<(&str, &BTreeMap<&str, Found>)> = devices
        .iter()
        .filter(|(_, own)| own.len() > 1)
        .map(|((_, device), own)| (*device, own))
        .collect();
    let (device, _) = crowded.first()?;
    let pids: BTreeSet<&str> = crowded.iter().flat_map(|(_, own)| own.keys().copied()).collect();
    let title = format!("GPU {device} is used by several processes ({} in all)", pids.len());
    let mut finding = SHARED.finding(Severity::Slow, title);
    quote(job, &mut finding, crowded.iter().flat_map(|(_, own)| own.values()), 4);
    Some(finding)
}
