//! What started the job and how many cores each rank may use. Knows two facts; no launcher.

use std::collections::{BTreeMap, BTreeSet};

use diagnose::{facts, job::Job};

/// What started the job, as its ranks say.
pub fn launcher(job: &Job) -> Option<&str> {
    job.text("job.launcher")
}

/// Ranks by the number of cores that they may run on.
pub fn cores(job: &Job) -> BTreeMap<u64, BTreeSet<u32>> {
    let mut all: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for found in facts::all(job, "binding.cores") {
        if let (Some(cores), Some(rank)) = (found.number(), found.rank(job)) {
            all.entry(cores.max(0.0) as u64).or_default().insert(rank);
        }
    }
    all
}
