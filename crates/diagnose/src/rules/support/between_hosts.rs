//! Transfers that leave their host: what they reach, and what faster ones would save. Knows no cause.

use std::collections::BTreeSet;

use crate::{
    align::{Matched, median},
    job::Job,
    replay::Scenario,
    rules::communication::bus_bandwidth,
};

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
