//! `startup.late_rank` and `startup.slow_init`: the time before the first step.

use crate::{
    facts::{Found, all, between, quote},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Startup;

const LATE: Explanation = Explanation {
    id: "startup.late_rank",
    layer: "launcher/MPI",
    what: "One rank starts later than the others, which wait for it in NCCL's bootstrap.",
    why: "Its process, imports or data came later: a slow file system, a busy host, a cold cache. The late rank is the \
          one that waited least.",
    remedy: "look at what that host did before (image pull, imports from a network file system, its first CUDA context)",
    refuted_by: "the waiting times changing places between starts",
};

const SLOW: Explanation = Explanation {
    id: "startup.slow_init",
    layer: "launcher/MPI",
    what: "Setting up NCCL takes long on all ranks.",
    why: "Loading kernels, discovering the topology or connecting takes its time; the parts say which.",
    remedy: "for kernels CUDA_MODULE_LOADING=LAZY; for the topology a topology file per machine type; for connections \
             fewer communicators and lazy connection (NCCL_RUNTIME_CONNECT=1)",
    refuted_by: "the second start on the same hosts being fast",
};

/// Waiting and initialisation below this many seconds are usual.
const USUAL: f64 = 10.0;

impl Rule for Startup {
    fn explanations(&self) -> &'static [Explanation] {
        &[LATE, SLOW]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        late(job).or_else(|| slow(job)).into_iter().collect()
    }
}

fn late(job: &Job) -> Option<Finding> {
    // The first communicator of each rank.
    let mut waits: Vec<(u32, f64, Found)> = vec![];
    for found in all(job, "nccl.init.bootstrap_seconds") {
        if let (Some(rank), Some(seconds)) = (found.rank(job), found.number())
            && !waits.iter().any(|(other, ..)| *other == rank)
        {
            waits.push((rank, seconds, found));
        }
    }
    if waits.len() < 2 {
        return None;
    }
    waits.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (rank, least, first) = waits[0];
    let (_, next, second) = waits[1];
    if next - least < USUAL {
        return None;
    }
    let title = format!(
        "rank {rank} started {:.0} s after the others, which waited for it in NCCL's bootstrap",
        next - least
    );
    let mut finding = LATE.finding(Severity::Info, title);
    quote(job, &mut finding, [&first, &second], 2);
    finding.ranks = vec![rank];
    finding.confidence = Confidence::High;
    Some(finding)
}

fn slow(job: &Job) -> Option<Finding> {
    let totals = all(job, "nccl.init.total_seconds");
    let longest = totals
        .iter()
        .filter(|found| found.number() >= Some(USUAL))
        .max_by(|a, b| a.number().unwrap_or(0.0).total_cmp(&b.number().unwrap_or(0.0)))?;
    let part = between(job, "nccl.init.", "_seconds")
        .into_iter()
        .filter(|(name, found)| {
            *name != "total" && found.input == longest.input && found.line() == longest.line()
        })
        .max_by(|a, b| a.1.number().unwrap_or(0.0).total_cmp(&b.1.number().unwrap_or(0.0)));
    let total = longest.number().unwrap_or(0.0);
    let title = match part {
        Some((name, found)) => format!(
            "setting up NCCL takes {total:.0} s, {:.0} of them in {name}",
            found.number().unwrap_or(0.0)
        ),
        None => format!("setting up NCCL takes {total:.0} s"),
    };
    let mut finding = SLOW.finding(Severity::Info, title);
    quote(job, &mut finding, [longest], 1);
    finding.confidence = Confidence::High;
    Some(finding)
}
