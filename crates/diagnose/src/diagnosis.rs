//! The diagnosis of a job: findings in order, and the one sentence that comes first.
//!
//! Knows jobs and rules; no output format.

use crate::{
    finding::{Finding, Severity},
    job::Job,
    joining,
    leaf::{Account, Leaf},
    rules::{self, SLOWED_BY_RECORDING},
    wording,
};

/// What bounds the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundBy {
    /// The host.
    Host,
    /// The data loader.
    Data,
    /// Copies.
    Copy,
    /// Transfers between ranks.
    Communication,
    /// Another rank.
    Peer,
    /// Computing.
    Compute,
    /// No one thing.
    Mixed,
    /// The job failed.
    Failed,
    /// The input does not tell.
    Unknown,
}

impl BoundBy {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            BoundBy::Host => "host",
            BoundBy::Data => "data",
            BoundBy::Copy => "copy",
            BoundBy::Communication => "communication",
            BoundBy::Peer => "peer",
            BoundBy::Compute => "compute",
            BoundBy::Mixed => "mixed",
            BoundBy::Failed => "failed",
            BoundBy::Unknown => "unknown",
        }
    }
}

/// Findings and the verdict on a job.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The answer in one sentence.
    pub sentence: String,
    /// What bounds the job.
    pub bound_by: BoundBy,
    /// Share of the devices' counted steps in which they neither computed nor were needed by a transfer.
    pub waiting_fraction: Option<f64>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
}

/// Looks at a job with every rule.
pub fn diagnose(job: &Job) -> Diagnosis {
    let found = rules::ALL.iter().flat_map(|rule| rule.check(job)).collect();
    let mut findings = joining::join(job, found);
    let cost = |finding: &Finding| finding.cost.map_or(0.0, |cost| cost.estimate);
    findings.sort_by(|a, b| {
        let failed = |finding: &Finding| finding.severity != Severity::Failure;
        failed(a)
            .cmp(&failed(b))
            .then(cost(b).total_cmp(&cost(a)))
            .then(a.severity.cmp(&b.severity))
            .then(a.id.cmp(b.id))
    });
    let mut account = Account::default();
    for accounted in &job.accounted {
        account.add_all(&accounted.account);
    }
    let total = account.total();
    let busy = account.compute() + account.get(Leaf::Transfer) + account.get(Leaf::CopyDevice);
    let waiting_fraction = (total > 0).then(|| 1.0 - busy as f64 / total as f64);
    let bound_by = bound_by(&account, &findings);
    let sentence = sentence(job, &account, &findings);
    Diagnosis { sentence, bound_by, waiting_fraction, findings }
}

fn bound_by(account: &Account, findings: &[Finding]) -> BoundBy {
    if findings.first().is_some_and(|finding| finding.severity == Severity::Failure) {
        return BoundBy::Failed;
    }
    let total = account.total();
    if total == 0 {
        return BoundBy::Unknown;
    }
    let sum = |leaves: &[Leaf]| leaves.iter().map(|&leaf| account.get(leaf)).sum::<i64>();
    let shares = [
        (BoundBy::Compute, account.compute()),
        (BoundBy::Communication, sum(&[Leaf::Transfer, Leaf::Unsplit])),
        (BoundBy::Peer, sum(&[Leaf::CommWait])),
        (BoundBy::Copy, sum(&[Leaf::CopyDevice, Leaf::CopyStaging])),
        (BoundBy::Data, sum(&[Leaf::HostData])),
        (
            BoundBy::Host,
            sum(&[
                Leaf::HostAlloc,
                Leaf::HostSync,
                Leaf::HostCompile,
                Leaf::HostGc,
                Leaf::HostOther,
                Leaf::HostLaunch,
                Leaf::Profiler,
            ]),
        ),
        (BoundBy::Unknown, sum(&[Leaf::Unknown])),
    ];
    match shares.into_iter().max_by_key(|(_, share)| *share) {
        Some((bound, share)) if share * 5 >= total * 2 => bound,
        _ => BoundBy::Mixed,
    }
}

fn sentence(job: &Job, account: &Account, findings: &[Finding]) -> String {
    if let Some(first) = findings.first().filter(|f| f.severity != Severity::Info) {
        return match first.cost {
            Some(cost) if job.mean_step() > cost.estimate * 1e6 => {
                wording::sentence(&format!("{} (of {:.1} ms)", first.title, job.mean_step() / 1e6))
            }
            _ => wording::sentence(&first.title),
        };
    }
    let total = account.total();
    if total == 0 && job.inputs.iter().all(|input| input.timeline.spans.is_empty()) {
        return "Nothing in the input points at a fault; it holds no recording of a device, so there is no account to give."
            .to_owned();
    }
    if total == 0 {
        return "The input holds no operations of a device, so there is no account to give."
            .to_owned();
    }
    if job.is_host_only() {
        return format!(
            "The input holds no operations of a device; on the host a step takes {:.1} ms, {:.0} % of it in operators.",
            job.mean_step() / 1e6,
            100.0 * account.compute() as f64 / total as f64
        );
    }
    if let Some(finding) = findings.iter().find(|finding| finding.id == SLOWED_BY_RECORDING.id) {
        return format!("Nothing above 2 % is lost to waiting: {}.", finding.title);
    }
    // Gaps between queued operations are no waiting that a person could end.
    let gaps = [Leaf::GapGraph, Leaf::GapShort, Leaf::GapLong];
    let waits =
        |leaf: &Leaf| *leaf > Leaf::Transfer && *leaf != Leaf::CopyDevice && !gaps.contains(leaf);
    let longest = account.iter().filter(|(leaf, _)| waits(leaf)).max_by_key(|(_, time)| *time);
    if let Some((leaf, time)) = longest.filter(|(_, time)| time * 20 > total) {
        return format!(
            "{:.0} % of the step goes to {} ({}), and no rule names the cause; {:.0} % is computing.",
            100.0 * time as f64 / total as f64,
            leaf.name(),
            leaf.meaning(),
            100.0 * account.compute() as f64 / total as f64
        );
    }
    let mut split: Vec<(Leaf, i64)> =
        account.iter().filter(|(leaf, time)| leaf.is_compute() && *time > 0).collect();
    split.sort_by_key(|(_, time)| -time);
    let parts: Vec<String> = split
        .iter()
        .take(3)
        .map(|(leaf, time)| {
            let name = leaf.name().trim_start_matches("compute.");
            format!("{name} {:.0} %", 100.0 * *time as f64 / total as f64)
        })
        .collect();
    format!(
        "Nothing above 2 % is lost to waiting: {:.0} % of the step is computing ({}).",
        100.0 * account.compute() as f64 / total as f64,
        parts.join(", ")
    )
}
