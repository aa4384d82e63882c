//! `memory.fragmentation` and `memory.context_on_gpu0`: memory that is there and cannot be used.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    facts::{Found, all, between, quote, rows, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Memory;

const FRAGMENTATION: Explanation = Explanation {
    id: "memory.fragmentation",
    layer: "memory",
    what: "The allocator holds more free memory than was asked for, in pieces that cannot be used.",
    why: "Small tensors that stay alive sit in segments made for large ones; what is left of such a segment can \
          neither be joined with others nor returned (empty_cache() does not help).",
    remedy: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (torch 2.1 and later), else max_split_size_mb; allocate the \
             largest buffers first and keep them",
    refuted_by: "the failure staying at the same size with expandable segments: then the memory is truly needed",
};

const CONTEXT: Explanation = Explanation {
    id: "memory.context_on_gpu0",
    layer: "memory",
    what: "Every process of the host also holds memory on GPU 0.",
    why: "Something touched the default device before the process chose its own: each context costs some hundred MiB.",
    remedy: "torch.cuda.set_device(local_rank) before anything else uses CUDA, map_location in torch.load, or \
             CUDA_VISIBLE_DEVICES per process",
    refuted_by: "nvidia-smi listing each process on one GPU",
};

impl Rule for Memory {
    fn explanations(&self) -> &'static [Explanation] {
        &[FRAGMENTATION, CONTEXT]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        fragmentation(job).into_iter().chain(context(job)).collect()
    }
}

fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / (1u64 << 30) as f64)
}

fn fragmentation(job: &Job) -> Option<Finding> {
    let mut found: Vec<(Severity, String, Found)> = vec![];
    for row in rows(job, "oom.requested_bytes") {
        let (Some(requested), Some(unused)) =
            (row.name.number(), row.number("oom.unallocated_bytes"))
        else {
            continue;
        };
        if unused >= requested {
            let title = format!(
                "{} could not be had although {} lie reserved and unused",
                gib(requested),
                gib(unused)
            );
            found.push((Severity::Failure, title, row.name));
        }
    }
    let failures = all(job, "memory.ooms");
    let reserved = all(job, "memory.reserved_bytes");
    for unusable in all(job, "memory.non_releasable_bytes") {
        let near = |other: &&Found| other.input == unusable.input && other.line() < unusable.line();
        let (Some(failed), Some(all)) = (
            failures.iter().rfind(near).and_then(Found::number),
            reserved.iter().rfind(near).and_then(Found::number),
        ) else {
            continue;
        };
        let share = unusable.number().unwrap_or(0.0) / all.max(1.0);
        if failed > 0.0 && share >= 0.5 {
            let title = format!(
                "{} of {} reserved can be neither used nor released, and allocation has failed",
                gib(unusable.number().unwrap_or(0.0)),
                gib(all)
            );
            found.push((Severity::Failure, title, unusable));
        }
    }
    for row in rows(job, "segment.total_bytes") {
        let (Some(total), Some(active), Some(free)) = (
            row.name.number(),
            row.number("segment.active_bytes"),
            row.number("segment.largest_free_bytes"),
        ) else {
            continue;
        };
        if active > 0.0 && free >= 0.5 * total {
            let title =
                format!("a segment of {} is held by {} of small tensors", gib(total), gib(active));
            found.push((Severity::Slow, title, row.name));
        }
    }
    let (severity, title, _) = found.iter().min_by_key(|(severity, ..)| *severity)?.clone();
    let mut finding = FRAGMENTATION.finding(severity, title);
    quote(job, &mut finding, found.iter().map(|(_, _, found)| found), 3);
    quote(job, &mut finding, failures.iter().filter(|count| count.number() > Some(0.0)), 1);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned());
    Some(finding)
}

fn context(job: &Job) -> Option<Finding> {
    // Devices of each process, by the table that names it.
    let mut devices: BTreeMap<(usize, &str), BTreeSet<&str>> = BTreeMap::new();
    let processes = between(job, "gpu.", ".process");
    for (device, found) in &processes {
        let pid = found.text().split(' ').next().unwrap_or("");
        devices.entry((found.input, pid)).or_default().insert(device);
    }
    let strays: Vec<Found> = processes
        .iter()
        .filter(|(device, found)| {
            let pid = found.text().split(' ').next().unwrap_or("");
            *device == "0" && devices[&(found.input, pid)].len() == 2
        })
        .map(|(_, found)| *found)
        .collect();
    if strays.len() < 2 {
        return None;
    }
    let title = format!("{} processes of other GPUs hold memory on GPU 0 as well", strays.len());
    let mut finding = CONTEXT.finding(Severity::Slow, title);
    quote(job, &mut finding, &strays, 4);
    finding.confidence = Confidence::High;
    quote(
        job,
        &mut finding,
        &texts(job, "traceback.exception", |t| t.contains("out of memory")),
        1,
    );
    finding.remedy.setting = Some("torch.cuda.set_device(local_rank)".to_owned());
    Some(finding)
}
