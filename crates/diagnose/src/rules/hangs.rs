//! Jobs that stand still: `hang.uneven_inputs`, `hang.collective_mismatch`, `hang.rank_busy_elsewhere`,
//! `hang.torch270_nonblocking`.

use super::support::{counted, ranks_text};
use crate::{
    facts::{Found, all, quote, rows, texts},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Hangs;

const UNEVEN: Explanation = Explanation {
    id: "hang.uneven_inputs",
    layer: "framework",
    what: "Ranks have different numbers of batches: one still trains while another has left the loop.",
    why: "The next collective of the rank that left meets the gradients of the one that stayed; neither completes. A \
          longer timeout changes nothing.",
    remedy: "give every rank the same number of batches (drop_last=True, a padded sampler), or DistributedDataParallel's \
             join() context; let ranks agree on the end of an epoch by a collective",
    refuted_by: "all ranks' logs showing the same number of batches",
};

const MISMATCH: Explanation = Explanation {
    id: "hang.collective_mismatch",
    layer: "framework",
    what: "Ranks call different collectives, or with different shapes, at the same point.",
    why: "Collectives match by order alone: what one rank calls in a branch must be called by all.",
    remedy: "call collectives on every rank (logging with sync_dist, early exits and `if rank == 0` are the usual \
             places); TORCH_DISTRIBUTED_DEBUG=DETAIL names both sides",
    refuted_by: "equal operations and sizes on all ranks at this sequence number",
};

const BUSY: Explanation = Explanation {
    id: "hang.rank_busy_elsewhere",
    layer: "framework",
    what: "One rank did not come to the collective in time: it was busy with something else.",
    why: "The others wait in the collective until the watchdog ends the job.",
    remedy: "look at what the missing rank did (py-spy dump, its log): saving, evaluating, downloading or a crash; do \
             long work on all ranks, or raise the timeout for it alone",
    refuted_by: "the missing rank also standing in the same collective",
};

const NONBLOCKING: Explanation = Explanation {
    id: "hang.torch270_nonblocking",
    layer: "framework",
    what: "PyTorch 2.7.0 drives NCCL 2.26 without blocking, which now and then hangs.",
    why: "With device_id given to init_process_group, 2.7.0 creates communicators in NCCL's non-blocking mode; in NCCL 2.26 \
          calls of that mode can wait for one another for ever. Another run of the same program may pass.",
    remedy: "PyTorch 2.7.1 or later, which creates blocking communicators again; until then \
             TORCH_NCCL_USE_COMM_NONBLOCKING=0, or no device_id",
    refuted_by: "the hang staying with TORCH_NCCL_USE_COMM_NONBLOCKING=0",
};

impl Rule for Hangs {
    fn explanations(&self) -> &'static [Explanation] {
        &[UNEVEN, MISMATCH, BUSY, NONBLOCKING]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let by_ranks = mismatch(job).or_else(|| desynchronised(job)).or_else(|| busy(job));
        by_ranks.or_else(|| stalled(job)).or_else(|| nonblocking(job)).into_iter().collect()
    }
}

fn mismatch(job: &Job) -> Option<Finding> {
    let mut said = all(job, "collective.mismatch");
    said.extend(
        all(job, "flight.error").into_iter().filter(|found| found.text().contains("MISMATCH")),
    );
    // A line that was cut names no operation.
    let first = said.iter().find(|found| found.text().contains(':')).or(said.first())?;
    let title = format!("ranks call different collectives at the same point ({})", first.text());
    let mut finding = MISMATCH.finding(Severity::Failure, title);
    quote(job, &mut finding, &said, 3);
    finding.confidence = Confidence::High;
    Some(finding)
}

/// A collective that timed out: rank, sequence number, operation and elements.
struct TimedOut<'a> {
    rank: Option<u32>,
    sequence: f64,
    operation: String,
    elements: Option<f64>,
    found: Found<'a>,
}

fn timed_out(job: &Job) -> Vec<TimedOut<'_>> {
    rows(job, "watchdog.operation")
        .into_iter()
        .filter_map(|row| {
            Some(TimedOut {
                rank: row.name.rank(job),
                sequence: row.number("watchdog.sequence")?,
                operation: row.name.text().to_owned(),
                elements: row.number("watchdog.elements"),
                found: row.name,
            })
        })
        .collect()
}

fn desynchronised(job: &Job) -> Option<Finding> {
    let out = timed_out(job);
    let (one, other) = out.iter().enumerate().find_map(|(at, one)| {
        let other = out[at + 1..].iter().find(|other| {
            other.sequence == one.sequence
                && other.rank != one.rank
                && (other.operation != one.operation || other.elements != one.elements)
        })?;
        Some((one, other))
    })?;
    // Lines by which the program tells where its ranks are.
    let mut progress = all(job, "progress.batch");
    progress.extend(all(job, "progress.validation"));
    progress.sort_by_key(|found| (found.input, found.line()));
    let last = |rank: Option<u32>| progress.iter().rfind(|found| found.rank(job) == rank);
    let apart = match (last(one.rank), last(other.rank)) {
        (Some(one), Some(other)) => {
            one.fact.key != other.fact.key || without_digits(one) != without_digits(other)
        }
        _ => false,
    };
    let rank = |rank: Option<u32>| rank.map_or("?".to_owned(), |rank| rank.to_string());
    let what = |out: &TimedOut| match out.elements {
        Some(elements) => format!("{} of {elements:.0} elements", out.operation),
        None => out.operation.clone(),
    };
    let both = format!(
        "at collective {:.0} rank {} stands in {}, rank {} in {}",
        one.sequence,
        rank(one.rank),
        what(one),
        rank(other.rank),
        what(other)
    );
    let (explanation, title) = match apart {
        true => (UNEVEN, format!("ranks have different numbers of batches: {both}")),
        false => (MISMATCH, format!("ranks call different collectives: {both}")),
    };
    let mut finding = explanation.finding(Severity::Failure, title);
    quote(job, &mut finding, [&one.found, &other.found], 2);
    if apart {
        quote(job, &mut finding, last(one.rank), 1);
        quote(job, &mut finding, last(other.rank), 1);
    }
    finding.confidence = if apart { Confidence::High } else { Confidence::Medium };
    Some(finding)
}

/// The line's words without rank numbers, so that the same words of two ranks are equal.
fn without_digits(found: &Found<'_>) -> String {
    let text = found.text().to_lowercase();
    let after = text.split_once("rank").map_or(text.as_str(), |(_, rest)| rest);
    after.trim_start_matches(|c: char| !c.is_ascii_alphabetic() || c == ']').to_owned()
}

fn busy(job: &Job) -> Option<Finding> {
    let out = timed_out(job);
    let first = out.first()?;
    let size = f64::from(job.world_size())
        .max(all(job, "nccl.init.nranks").iter().filter_map(Found::number).fold(0.0, f64::max))
        .max(all(job, "launch.processes").iter().filter_map(Found::number).fold(0.0, f64::max));
    let mut waiting: Vec<u32> =
        out.iter().filter(|o| o.sequence == first.sequence).filter_map(|o| o.rank).collect();
    waiting.sort_unstable();
    waiting.dedup();
    let missing: Vec<u32> = (0..size as u32)
        .take(1 << 16)
        .filter(|rank| waiting.binary_search(rank).is_err())
        .collect();
    if missing.is_empty() || waiting.is_empty() || missing.len() >= waiting.len() {
        return None;
    }
    let title = format!(
        "{} for collective {:.0} until the timeout; {} never came",
        counted(waiting.len(), "rank waited", "ranks waited"),
        first.sequence,
        ranks_text(&missing[..missing.len().min(8)])
    );
    let mut finding = BUSY.finding(Severity::Failure, title);
    quote(job, &mut finding, out.iter().map(|out| &out.found), 3);
    finding.ranks = missing;
    Some(finding)
}

/// Ranks that Horovod's coordinator misses.
fn stalled(job: &Job) -> Option<Finding> {
    let missed = all(job, "horovod.missing_ranks");
    let first = missed.first()?;
    let ranks: Vec<u32> =
        first.text().split(',').filter_map(|rank| rank.trim().parse().ok()).collect();
    let who = ranks_text(&ranks);
    let title = format!("{who} never came to an operation that the others wait in");
    let mut finding = BUSY.finding(Severity::Failure, title);
    quote(job, &mut finding, &missed, 3);
    finding.ranks = ranks;
    finding.confidence = Confidence::High;
    Some(finding)
}

/// All ranks stand in the same collective, and the versions are those that are known for it.
fn nonblocking(job: &Job) -> Option<Finding> {
    let mut torch = texts(job, "torch.version", |version| is_release(version, "2.7.0"));
    torch.extend(texts(job, "package.torch.version", |version| is_release(version, "2.7.0")));
    let nccl = all(job, "nccl.version");
    let affected: Vec<Found> =
        nccl.iter().filter(|found| found.text().starts_with("2.26.")).copied().collect();
    let blocking = texts(job, "env", |set| set == "TORCH_NCCL_USE_COMM_NONBLOCKING=0");
    let mut hangs = all(job, "watchdog.operation");
    hangs.extend(all(job, "transcript.stopped"));
    if torch.is_empty() || hangs.is_empty() || !blocking.is_empty() {
        return None;
    }
    // The release brings NCCL 2.26 along; another one excludes the cause.
    if affected.is_empty() && !nccl.is_empty() {
        return None;
    }
    let title =
        "all ranks wait in one collective under PyTorch 2.7.0, whose non-blocking NCCL hangs";
    let mut finding = NONBLOCKING.finding(Severity::Failure, title);
    quote(job, &mut finding, &torch, 1);
    quote(job, &mut finding, &affected, 1);
    quote(job, &mut finding, &hangs, 2);
    let on = texts(job, "env", |set| set == "TORCH_NCCL_USE_COMM_NONBLOCKING=1");
    quote(job, &mut finding, &on, 1);
    finding.confidence = if on.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("TORCH_NCCL_USE_COMM_NONBLOCKING=0".to_owned());
    Some(finding)
}

/// `2.7.0` and its builds such as `2.7.0+cu126`.
fn is_release(version: &str, release: &str) -> bool {
    version.split('+').next() == Some(release)
}
