//! `comm.not_overlapped` and `comm.slow_transport`: transfers that computing does not hide, or that run too slowly.

use super::support::{WORTH, confidence, milliseconds, saving};
use crate::{
    align::{Matched, median},
    device::{Device, Operation},
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    index::Index,
    interval::Set,
    job::Job,
    leaf::Leaf,
    replay::Scenario,
};

/// The rule.
#[derive(Debug)]
pub struct Communication;

const NOT_OVERLAPPED: Explanation = Explanation {
    id: "comm.not_overlapped",
    layer: "communication",
    what: "Gradients are exchanged after the backward pass instead of beside it.",
    why: "One large bucket is complete only when the last gradient is; nothing is left to compute beside it.",
    remedy: "use buckets of 25 to 64 MB (bucket_cap_mb), so that the first are exchanged while the backward pass runs",
    refuted_by: "several buckets giving the same exposed time: then the link is too slow to be hidden",
};

const SLOW_TRANSPORT: Explanation = Explanation {
    id: "comm.slow_transport",
    layer: "communication",
    what: "Collectives move bytes far below the rate of the link between these devices.",
    why: "They run over a slower path than the machine has: host memory or sockets instead of NVLink or RDMA.",
    remedy: "read which transport NCCL chose (NCCL_DEBUG=INFO) and what forbids a better one; compare with \
             all_reduce_perf on the same devices",
    refuted_by: "nccl-tests reaching no more on the same devices",
};

/// Messages below this size are bounded by latency.
const LARGE: u64 = 4 << 20;
/// A bus bandwidth below this share of the expected one is slow.
const SLOW: f64 = 0.5;
/// Multiprocessors' share that a collective holds beside computing (24 of 132), times the least lengthening of a
/// collective that runs beside matrix products, as measured.
const HIDDEN_COST: f64 = 24.0 / 132.0 * 1.5;

impl Rule for Communication {
    fn explanations(&self) -> &'static [Explanation] {
        &[NOT_OVERLAPPED, SLOW_TRANSPORT]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        not_overlapped(job).into_iter().chain(slow_transport(job)).collect()
    }
}

/// Whether a collective brings gradients together; others, such as an exchange of tokens, have no buckets.
fn is_reduction(matched: &Matched) -> bool {
    matches!(matched.operation.as_str(), "all_reduce" | "reduce_scatter")
}

/// Bus bandwidth of a collective as nccl-tests counts it, in bytes per nanosecond (GB/s).
pub fn bus_bandwidth(matched: &Matched) -> f64 {
    let ranks = f64::from(matched.group_size.max(2));
    let bytes = matched.bytes as f64;
    let moved = match matched.operation.as_str() {
        "all_reduce" => 2.0 * (ranks - 1.0) / ranks * bytes,
        // The input message is one rank's part of an all-gather, the whole of the others.
        "all_gather" => (ranks - 1.0) * bytes,
        "reduce_scatter" | "all_to_all" => (ranks - 1.0) / ranks * bytes,
        _ => bytes,
    };
    moved / matched.transfer.max(1) as f64
}

/// What the links between the devices of one host give, GB/s of bus bandwidth, by the device's name; `None` where
/// the name does not tell.
pub fn expected_bandwidth(job: &Job) -> Option<(f64, String)> {
    let name = job.inputs.iter().find_map(|input| {
        input.timeline.facts.iter().find_map(|fact| match &fact.value {
            timeline::FactValue::Text(text)
                if fact.key.starts_with("device.") && fact.key.ends_with(".name") =>
            {
                Some(text.clone())
            }
            _ => None,
        })
    })?;
    if job.world_size() > 8 {
        return None;
    }
    let rate = match name.as_str() {
        n if n.contains("H200") || n.contains("H100 80GB HBM3") || n.contains("H800") => 250.0,
        n if n.contains("A100-SXM") || n.contains("A800-SXM") => 200.0,
        n if n.contains("V100-SXM") => 100.0,
        n if n.contains("B200") => 500.0,
        _ => return None,
    };
    Some((rate, format!("{name} over NVLink")))
}

fn slow_transport(job: &Job) -> Option<Finding> {
    let (expected, from) = expected_bandwidth(job)?;
    let mut rates: Vec<i64> = job
        .clock
        .matched
        .iter()
        .filter(|m| m.bytes >= LARGE && m.operation == "all_reduce")
        .map(|matched| (bus_bandwidth(matched) * 1000.0) as i64)
        .collect();
    // Beside computing a collective slows down: its best is what the link can do.
    rates.sort_unstable();
    let best = *rates.last()? as f64 / 1000.0;
    let middle = median(&mut rates)? as f64 / 1000.0;
    if best > SLOW * expected {
        return None;
    }
    let all: Vec<usize> = (0..job.participants.len()).collect();
    let saving = saving(job, &all, &AtRate { job, expected })?;
    let title = format!(
        "collectives run at {middle:.0} GB/s where {expected:.0} are usual: {} of every step",
        milliseconds(saving.cost.estimate)
    );
    let mut finding = SLOW_TRANSPORT.finding(Severity::Slow, title);
    let largest = job.clock.matched.iter().max_by_key(|matched| matched.bytes)?;
    for &(participant, operation) in &largest.members {
        let found = &job.participants[participant];
        let text = format!(
            "rank {}: {} of {:.1} MB at {:.1} GB/s; {from} gives {expected:.0}",
            found.rank,
            largest.operation,
            largest.bytes as f64 / 1e6,
            bus_bandwidth(largest)
        );
        let span = found.device.operations[operation].span;
        finding.evidence.push(Evidence::span(job, found.input, span, text));
    }
    finding.ranks = saving.ranks;
    finding.cost = Some(saving.cost);
    finding.confidence = confidence(job).max(Confidence::Medium);
    Some(finding)
}

fn not_overlapped(job: &Job) -> Option<Finding> {
    let exposed = |index: usize| job.accounted[index].account.get(Leaf::Transfer) as f64;
    let steps = |index: usize| job.accounted[index].steps.counted.len().max(1) as f64;
    // One message holds most of the step's bytes, and computing hides next to nothing of it.
    let mut concerned = vec![];
    for (index, accounted) in job.accounted.iter().enumerate() {
        let Some((start, end)) = accounted.steps.window() else { continue };
        let device = &job.participants[index].device;
        let inside = |o: &&Operation| start <= o.start && o.start < end;
        let own = device.operations.iter().filter(|o| o.matched.is_some()).filter(inside);
        let bytes: f64 = own.clone().map(|o| o.bytes as f64).sum();
        let largest = reductions(job, device).filter(inside).map(|o| o.bytes).max().unwrap_or(0);
        let transfer = own.map(|o| (o.all_arrived().unwrap_or(o.start), o.end));
        let transfer = Set::union_of(transfer).total() as f64;
        let one_bucket = largest as f64 * steps(index) >= 0.5 * bytes;
        let compute = accounted.account.compute() as f64;
        if largest >= LARGE
            && one_bucket
            && exposed(index) > 0.8 * transfer
            && compute > 0.5 * transfer
            && exposed(index) > WORTH * accounted.account.total() as f64
        {
            concerned.push(index);
        }
    }
    if concerned.is_empty() || concerned.len() < job.participants.len() {
        return None;
    }
    let saving = saving(job, &concerned, &NoReduction { job })?;
    // At the high end nothing is exposed. In truth the last bucket always is, up to a quarter of the bytes where a
    // tied embedding comes last, and what is hidden slows the computing beside it.
    let nothing = saving.cost.high.max(saving.cost.estimate);
    let reductions_of_job = job.clock.matched.iter().filter(|matched| is_reduction(matched));
    let largest = reductions_of_job.map(|matched| matched.bytes).max().unwrap_or(1).max(1) as f64;
    let last_bucket = 25e6_f64.min(0.25 * largest) / largest;
    let estimate = nothing * (1.0 - last_bucket);
    let low = nothing * 0.75 * (1.0 - HIDDEN_COST);
    let title = format!(
        "gradients are exchanged after the backward pass, in one bucket: {} of every step",
        milliseconds(estimate)
    );
    let mut finding = NOT_OVERLAPPED.finding(Severity::Slow, title);
    for &index in &concerned {
        let participant = &job.participants[index];
        if let Some(largest) = reductions(job, &participant.device).max_by_key(|o| o.bytes) {
            let text = format!(
                "rank {}: {:.1} MB in one collective, {} per step with nothing beside it",
                participant.rank,
                largest.bytes as f64 / 1e6,
                milliseconds(exposed(index) / 1e6 / steps(index))
            );
            finding.evidence.push(Evidence::span(job, participant.input, largest.span, text));
        }
    }
    finding.ranks = saving.ranks;
    finding.cost = Some(Cost { estimate, low, high: nothing, by: CostBy::Replay });
    finding.confidence = confidence(job);
    finding.remedy.setting = Some("bucket_cap_mb=25".to_owned());
    Some(finding)
}

/// The matched collectives of a device that bring gradients together.
fn reductions<'a>(job: &'a Job, device: &'a Device) -> impl Iterator<Item = &'a Operation> {
    let is_reduction = |index: Index| is_reduction(&job.clock.matched[index.get()]);
    device.operations.iter().filter(move |o| o.matched.is_some_and(is_reduction))
}

/// The job in which bringing gradients together takes no time once all have arrived.
struct NoReduction<'a> {
    job: &'a Job,
}

impl Scenario for NoReduction<'_> {
    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        if is_reduction(&self.job.clock.matched[matched]) { 0 } else { recorded }
    }
}

struct AtRate<'a> {
    job: &'a Job,
    expected: f64,
}

impl Scenario for AtRate<'_> {
    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        let found = &self.job.clock.matched[matched];
        let faster = bus_bandwidth(found) / self.expected;
        if found.transfer == 0 || faster >= 1.0 {
            return recorded;
        }
        (recorded as f64 * faster) as i64
    }
}
