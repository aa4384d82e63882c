//! `copy.pageable_blocking`, `copy.not_overlapped` and `copy.volume_bound`: copies between host and device hold the step up.

use super::support::{
    WORTH, carriers,
    chosen::{Chosen, Launches, size_and_rate},
    host_time::{in_gap, unmarked_stalls},
    milliseconds, ranks_of, saving,
};
use crate::{
    classify::{self, Call},
    device::{Operation, Work},
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    leaf::Leaf,
    replay::{CallTiming, Scenario},
};

/// The rule.
#[derive(Debug)]
pub struct Copies;

pub(super) const PAGEABLE: Explanation = Explanation {
    id: "copy.pageable_blocking",
    layer: "CUDA runtime/driver",
    what: "Batches are copied from pageable host memory.",
    why: "The driver stages such a copy through its own buffer and the host waits inside the call; nothing overlaps it.",
    remedy: "use pin_memory=True in the loader and .to(device, non_blocking=True); send small types (uint8 pixels) and \
             convert on the device",
    refuted_by: "the copies being pinned, or the step not getting shorter with pinned ones",
};

const VOLUME: Explanation = Explanation {
    id: "copy.volume_bound",
    layer: "CUDA runtime/driver",
    what: "Copies run at the link's rate and fill the step.",
    why: "More bytes cross the link between host and device than fit beside the computing.",
    remedy: "keep data on the device, send smaller types, copy ahead on a stream of its own",
    refuted_by: "copies well below the link's rate: then the cause is how they are issued",
};

const NOT_OVERLAPPED: Explanation = Explanation {
    id: "copy.not_overlapped",
    layer: "CUDA runtime/driver",
    what: "Pinned copies between host and device run with nothing beside them.",
    why: "They are issued on the computing stream, or waited for at once, so computing starts after them.",
    remedy: "copy the next batch ahead on a stream of its own and let the computing stream wait for its event; read \
             results back a step later",
    refuted_by: "the step not getting shorter with the copies left out",
};

/// Bytes per nanosecond of a pinned copy over PCIe 5 x16, and the least that counts as the link's rate.
const PINNED_RATE: f64 = 50.0;
/// A batch smaller than this is not worth pinning.
const LARGE: u64 = 1 << 20;

impl Rule for Copies {
    fn explanations(&self) -> &'static [Explanation] {
        &[PAGEABLE, NOT_OVERLAPPED, VOLUME]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        pageable(job).into_iter().chain(not_overlapped(job)).chain(volume(job)).collect()
    }
}

fn pageable(job: &Job) -> Option<Finding> {
    let chosen = Chosen::of(job, |o| o.work == Work::Copy && o.pageable, classify::is_upload);
    // Small pageable copies are pinned along with the large ones, but alone they are no cause.
    let large = |index: usize| chosen.operations(job, index).filter(|o| o.bytes >= LARGE);
    let carrying =
        carriers(job, 0.01, |index| Set::union_of(large(index).map(|o| (o.start, o.end))));
    let stalls = unmarked_stalls(job);
    let launches = chosen.launches(job);
    let narrow = Pinned { job, chosen: &chosen, launches: &launches, stalls: None };
    let mut saving = saving(job, &carrying, &narrow)?;
    // The wider form: releasing a large pageable batch holds the host up too, right after the copy.
    let wide = Pinned { stalls: Some(&stalls), ..narrow };
    saving.cost.high = saving.cost.high.max(saving.saved_by(job, &wide));
    let mut finding = PAGEABLE.finding(
        Severity::Slow,
        format!(
            "batches are copied from pageable memory: {} of every step",
            milliseconds(saving.cost.estimate)
        ),
    );
    finding.evidence = chosen.longest(job, &saving.participants, |copy| {
        format!("{}, a pinned copy reaches about {PINNED_RATE:.0}", size_and_rate(copy))
    });
    saving.price(job, &mut finding);
    finding.remedy.setting = Some("pin_memory=True, non_blocking=True".to_owned());
    Some(finding)
}

struct Pinned<'a> {
    job: &'a Job,
    chosen: &'a Chosen,
    launches: &'a [Launches],
    stalls: Option<&'a [&'a Set]>,
}

impl Scenario for Pinned<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        let device = &self.job.participants[participant].device;
        let mut timing = recorded;
        if let Some(stalls) = self.stalls {
            let stalled = in_gap(device, call, recorded.gap, stalls[participant]);
            timing.gap = (recorded.gap - stalled).max(0);
        }
        let launches = &self.launches[participant];
        match device.calls[call].class {
            Call::Copy if launches.starts[call] => {
                CallTiming { duration: 20_000, returns_at_once: true, ..timing }
            }
            Call::Synchronise if launches.follows[call] => {
                CallTiming { duration: 3_000, returns_at_once: true, ..timing }
            }
            _ => timing,
        }
    }

    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        if !self.chosen.contains(participant, operation) {
            return recorded;
        }
        let bytes = self.job.participants[participant].device.operations[operation].bytes;
        recorded.min((bytes as f64 / PINNED_RATE) as i64)
    }
}

/// Large pinned copies that the step waits for.
fn not_overlapped(job: &Job) -> Option<Finding> {
    let large = |o: &Operation| o.work == Work::Copy && !o.pageable && o.bytes >= LARGE;
    let chosen = Chosen::of(job, large, classify::is_host_copy);
    let saving = chosen.saving(job, WORTH)?;
    let cost = milliseconds(saving.cost.estimate);
    let title = format!("pinned copies run with nothing beside them: {cost} of every step");
    let mut finding = NOT_OVERLAPPED.finding(Severity::Slow, title);
    finding.evidence = chosen.longest(job, &saving.participants, |copy| {
        format!("{}, the longest of them", size_and_rate(copy))
    });
    saving.price(job, &mut finding);
    finding.confidence = finding.confidence.max(Confidence::Medium);
    Some(finding)
}

/// Copies that fill the steps: found by share and rate, whatever launched them.
fn volume(job: &Job) -> Option<Finding> {
    let mut filled = vec![];
    let mut evidence = vec![];
    let mut cost: f64 = 0.0;
    for (index, participant) in job.participants.iter().enumerate() {
        let accounted = &job.accounted[index];
        let Some((start, end)) = accounted.steps.window() else { continue };
        let copied = accounted.account.get(Leaf::CopyDevice);
        if (copied as f64) < 0.3 * accounted.account.total() as f64 {
            continue;
        }
        let timeline = job.timeline(index);
        let large: Vec<_> = participant
            .device
            .operations
            .iter()
            .filter(|o| {
                o.work == Work::Copy && o.bytes >= LARGE && start <= o.start && o.start < end
            })
            .filter(|o| classify::is_host_copy(timeline.name_of(o.span)))
            .collect();
        let bytes: f64 = large.iter().map(|o| o.bytes as f64).sum();
        let time = Set::union_of(large.iter().map(|o| (o.start, o.end))).total();
        let rate = bytes / time.max(1) as f64;
        let pageable = large.iter().filter(|o| o.pageable).count() * 2 > large.len();
        if time * 2 < copied || rate < PINNED_RATE * 0.3 || pageable {
            continue;
        }
        let steps = accounted.steps.counted.len().max(1) as f64;
        let text = format!(
            "rank {}: {:.1} GB between host and device in {}, {rate:.1} GB/s; {} with nothing beside them",
            participant.rank,
            bytes / 1e9,
            milliseconds(time as f64 / 1e6),
            milliseconds(copied as f64 / 1e6)
        );
        evidence.push(Evidence::counted(job, participant.input, text));
        filled.push(index);
        cost = cost.max(copied as f64 / 1e6 / steps);
    }
    if filled.is_empty() || cost < WORTH * job.mean_step() / 1e6 {
        return None;
    }
    // Without step marks the whole recording counts as one step.
    let weak = job.accounted.iter().any(|accounted| accounted.steps.weak);
    let of = if weak { "of the recording" } else { "of every step" };
    let title = format!("copies at the link's rate fill {} {of}", milliseconds(cost));
    let mut finding = VOLUME.finding(Severity::Slow, title);
    finding.ranks = ranks_of(job, filled);
    finding.evidence = evidence;
    finding.cost = Some(Cost { estimate: cost, low: 0.0, high: cost, by: CostBy::Bound });
    finding.confidence = if weak { Confidence::Low } else { Confidence::Medium };
    Some(finding)
}
