//! What rules share: cost by replay with and without the other ranks, marks of a host's chain. Knows no cause.

pub mod chosen;

use std::collections::BTreeSet;

use super::communication::bus_bandwidth;
use crate::{
    align::{Matched, median},
    device::Device,
    finding::{Confidence, Cost, CostBy},
    interval::Set,
    job::Job,
    replay::Scenario,
};

/// A saving below this share of the step is not worth a finding.
pub const WORTH: f64 = 0.02;

/// What removing a cause saves, and whose cause it is.
#[derive(Clone, Debug)]
pub struct Saving {
    /// Participants at fault.
    pub participants: Vec<usize>,
    /// Their ranks.
    pub ranks: Vec<u32>,
    /// Whether one part of the carriers alone is at fault while others carry the cause too, or wait for it.
    pub late: bool,
    /// Milliseconds per step.
    pub cost: Cost,
}

/// Replays the job without a cause: on all participants that carry it, and on each alone.
///
/// A rank is at fault alone only if removing its part alone saves more than 2 % and at least half of what removing all
/// parts saves; otherwise the cause belongs to all that carry it. `None` where the replay is unusable or nothing worth
/// mentioning is saved.
pub fn saving<'a, S: Scenario + 'a>(
    job: &'a Job,
    carriers: &[usize],
    without: impl Fn(Vec<usize>) -> S,
) -> Option<Saving> {
    let base = job.unchanged.as_ref().filter(|_| job.replay_is_usable())?.replayed;
    let replay = job.replay.as_ref()?;
    let saves = |scenario: &dyn Scenario| (base - replay.run(scenario).replayed) / 1e6;
    let worth = WORTH * base / 1e6;
    if carriers.is_empty() {
        return None;
    }
    let all = saves(&without(carriers.to_vec()));
    if all < worth {
        return None;
    }
    let mut at_fault = carriers.to_vec();
    if carriers.len() > 1 {
        let alone: Vec<usize> = carriers
            .iter()
            .copied()
            .filter(|&carrier| {
                let own = saves(&without(vec![carrier]));
                own > worth && own >= all / 2.0
            })
            .collect();
        // Where each rank alone would do, none of them is the one: they are equal.
        if !alone.is_empty() && alone.len() < carriers.len() {
            at_fault = alone;
        }
    }
    let late = job.participants.len() > 1 && at_fault.len() < job.participants.len();
    let estimate =
        if at_fault.len() == carriers.len() { all } else { saves(&without(at_fault.clone())) };
    let scenario = without(at_fault.clone());
    let twins = Twins::new(job, &scenario);
    let wide = if twins.found { saves(&twins) } else { estimate };
    let ranks = at_fault.iter().map(|&index| job.participants[index].rank).collect();
    let cost =
        Cost { estimate, low: estimate.min(wide), high: estimate.max(wide), by: CostBy::Replay };
    Some(Saving { participants: at_fault, ranks, late, cost })
}

/// How sure a finding with a usable replay is, by whether the job is whole.
pub fn confidence(job: &Job) -> Confidence {
    match job.clock.split {
        "full" => Confidence::High,
        _ if job.world_size() <= 1 => Confidence::High,
        "partial" => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// A scenario in which, further, computing that a waiting collective slowed runs as fast as on the fastest rank.
struct Twins<'a> {
    inner: &'a dyn Scenario,
    fastest: Vec<Vec<i64>>,
    found: bool,
}

impl<'a> Twins<'a> {
    fn new(job: &Job, inner: &'a dyn Scenario) -> Twins<'a> {
        use crate::device::Work;
        if job.participants.len() < 2 {
            return Twins { inner, fastest: vec![], found: false };
        }
        let mut fastest: Vec<Vec<i64>> =
            job.participants.iter().map(|p| vec![i64::MAX; p.device.operations.len()]).collect();
        // Kernels of the busiest stream in launch order, which equal ranks share.
        let sequences: Vec<Vec<usize>> = job
            .participants
            .iter()
            .map(|participant| {
                let device = &participant.device;
                let mut own: Vec<usize> = (0..device.operations.len())
                    .filter(|&index| {
                        let operation = &device.operations[index];
                        matches!(operation.work, Work::Compute(_))
                            && operation.stream == device.primary_stream
                            && operation.launch.is_some()
                    })
                    .collect();
                own.sort_by_key(|&index| {
                    let operation = &device.operations[index];
                    (device.launch(operation).map(|launch| launch.start), operation.start)
                });
                own
            })
            .collect();
        let name = |participant: usize, index: usize| {
            let operation = &job.participants[participant].device.operations[index];
            job.timeline(participant).name_of(operation.span)
        };
        let equal = sequences.windows(2).all(|pair| pair[0].len() == pair[1].len());
        if equal {
            for position in 0..sequences[0].len() {
                let own: Vec<usize> = sequences.iter().map(|sequence| sequence[position]).collect();
                let first = name(0, own[0]);
                if !own.iter().enumerate().all(|(p, &index)| name(p, index) == first) {
                    continue;
                }
                let length = |(p, &index): (usize, &usize)| {
                    let operation = &job.participants[p].device.operations[index];
                    operation.end - operation.start
                };
                let least = own.iter().enumerate().map(length).min().unwrap_or(i64::MAX);
                for (p, &index) in own.iter().enumerate() {
                    fastest[p][index] = least;
                }
            }
        }
        Twins { inner, fastest, found: equal }
    }
}

impl Scenario for Twins<'_> {
    fn call(
        &self,
        participant: usize,
        call: usize,
        recorded: crate::replay::CallTiming,
    ) -> crate::replay::CallTiming {
        self.inner.call(participant, call, recorded)
    }

    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        let inner = self.inner.operation(participant, operation, recorded);
        inner.min(self.fastest[participant][operation])
    }

    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        self.inner.transfer(matched, recorded)
    }
}

/// Milliseconds per step saved if transfers between hosts took this share of their time; `None` where the replay is
/// unusable or no collective is known to leave its host.
pub fn faster_between_hosts(job: &Job, share: f64) -> Option<f64> {
    let base = job.unchanged.as_ref().filter(|_| job.replay_is_usable())?.replayed;
    let crossing: Vec<bool> =
        job.clock.matched.iter().map(|matched| hosts(job, matched).len() > 1).collect();
    crossing.iter().any(|&crosses| crosses).then_some(())?;
    let scenario = FasterBetweenHosts { crossing, share };
    Some((base - job.replay.as_ref()?.run(&scenario).replayed) / 1e6)
}

/// Bus bandwidth between hosts that the job's large collectives reach, as nccl-tests over all ranks would count it:
/// the median, in GB/s, scaled to all ranks of a host.
pub fn rate_between_hosts(job: &Job) -> Option<f64> {
    const LARGE: u64 = 16 << 20;
    let mut all: Vec<(u32, &str)> = (0..job.participants.len())
        .filter_map(|participant| {
            Some((job.participants[participant].rank, host(job, participant)?))
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    let hosts_of_job = all.iter().map(|(_, host)| *host).collect::<BTreeSet<_>>().len();
    let per_host = all.len().div_ceil(hosts_of_job.max(1)) as f64;
    let mut rates: Vec<i64> = job
        .clock
        .matched
        .iter()
        .filter(|m| m.bytes >= LARGE && m.operation == "all_reduce" && m.transfer > 0)
        .filter_map(|matched| {
            let hosts = hosts(job, matched).len();
            let own = matched.members.len().div_ceil(hosts.max(1)) as f64;
            // Groups of other ranks use the hosts' other ports at the same time.
            (hosts > 1).then_some((bus_bandwidth(matched) * per_host / own * 1e3) as i64)
        })
        .collect();
    median(&mut rates).map(|rate| rate as f64 / 1e3)
}

fn host(job: &Job, participant: usize) -> Option<&str> {
    let process = job.participants[participant].device.process as usize;
    job.timeline(participant).processes.get(process)?.host.as_deref()
}

/// Hosts of a collective's members, as far as recordings name them.
fn hosts<'a>(job: &'a Job, matched: &Matched) -> BTreeSet<&'a str> {
    matched.members.iter().filter_map(|(participant, _)| host(job, *participant)).collect()
}

struct FasterBetweenHosts {
    crossing: Vec<bool>,
    share: f64,
}

impl Scenario for FasterBetweenHosts {
    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        if self.crossing[matched] { (recorded as f64 * self.share) as i64 } else { recorded }
    }
}

/// Participants in whose host chain the given time makes up at least `share` of their counted steps.
pub fn carriers(job: &Job, share: f64, time: impl Fn(usize) -> Set) -> Vec<usize> {
    (0..job.participants.len())
        .filter(|&index| {
            let Some((start, end)) = job.accounted[index].steps.window() else { return false };
            time(index).total_in(start, end) as f64 >= share * (end - start) as f64
        })
        .collect()
}

/// Host time of 1 ms and more between calls that nothing marks, by participant.
pub fn unmarked_stalls(job: &Job) -> Vec<&Set> {
    job.participants.iter().map(|participant| &participant.device.unmarked_stalls).collect()
}

/// The part of the gap before a call that lies in a set.
pub fn in_gap(device: &Device, call: usize, gap: i64, set: &Set) -> i64 {
    let start = device.calls[call].start;
    set.total_in(start - gap, start)
}

/// `12.3 ms` with the digits that matter.
pub fn milliseconds(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0} ms"),
        v if v >= 10.0 => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

/// For each call of a device, whether it launched one of the chosen operations, or waits within three calls of one.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// The call launched a chosen operation.
    pub starts: Vec<bool>,
    /// The call follows such a call closely.
    pub follows: Vec<bool>,
}

impl Launches {
    /// From the chosen operations of a device.
    pub fn of(device: &Device, chosen: &[bool]) -> Launches {
        let mut starts = vec![false; device.calls.len()];
        for (operation, _) in device.operations.iter().zip(chosen).filter(|(_, own)| **own) {
            if let Some(launch) = operation.launch {
                starts[launch.get()] = true;
            }
        }
        let near =
            |call: usize| (1..4).any(|back| call.checked_sub(back).is_some_and(|c| starts[c]));
        let follows = (0..starts.len()).map(near).collect();
        Launches { starts, follows }
    }
}
