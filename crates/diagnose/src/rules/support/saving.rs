//! What a cause costs: a replay without it, on all ranks that carry it and on each alone. Knows no cause.

use super::{WORTH, ranks_of};
use crate::{
    device::Work,
    finding::{Confidence, Cost, CostBy, Finding},
    interval::Set,
    job::{Accounted, Job},
    replay::{CallTiming, Scenario},
};

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

impl Saving {
    /// For operations that will take less time, nobody knows how much: anything up to all of it, half at a guess.
    pub fn at_most(mut self) -> Saving {
        let high = self.cost.high;
        self.cost = Cost { estimate: high / 2.0, low: 0.0, high, by: CostBy::Bound };
        self
    }

    /// Milliseconds per step that another scenario saves on the same participants.
    pub fn saved_by(&self, job: &Job, scenario: &dyn Scenario) -> f64 {
        saved(job, &self.participants, scenario).unwrap_or(0.0)
    }

    /// Puts ranks, cost and how sure they are into a finding.
    pub fn price(self, job: &Job, finding: &mut Finding) {
        finding.confidence = match self.cost.by {
            CostBy::Replay => confidence(job),
            _ if job.is_host_only() => Confidence::Medium,
            _ => confidence(job).max(Confidence::Medium),
        };
        finding.ranks = self.ranks;
        finding.cost = Some(self.cost);
    }
}

/// Replays the job without a cause: on all participants that carry it, and on each alone. `without` is the job in which
/// nobody has it.
///
/// A rank is at fault alone only if removing its part alone saves more than 2 % and at least half of what removing all
/// parts saves; otherwise the cause belongs to all that carry it. `None` where the replay is unusable or nothing worth
/// mentioning is saved.
pub fn saving(job: &Job, carriers: &[usize], without: &dyn Scenario) -> Option<Saving> {
    if carriers.is_empty() {
        return None;
    }
    let worth = WORTH * job.unchanged.as_ref()?.replayed / 1e6;
    let all = saved(job, carriers, without)?;
    if all < worth {
        return None;
    }
    let mut at_fault = carriers.to_vec();
    let enough = |part: &[usize]| {
        saved(job, part, without).is_some_and(|own| own > worth && own >= all / 2.0)
    };
    // What is enough on no rank at all is a matter of transfers, which belong to all ranks.
    if carriers.len() > 1 && !enough(&[]) {
        let (left, right) = carriers.split_at(carriers.len() / 2);
        let alone = [enough_alone(left, &enough), enough_alone(right, &enough)].concat();
        // Where each rank alone would do, none of them is the one: they are equal.
        if !alone.is_empty() && alone.len() < carriers.len() {
            at_fault = alone;
        }
    }
    let late = job.participants.len() > 1 && at_fault.len() < job.participants.len();
    let estimate =
        if at_fault.len() == carriers.len() { all } else { saved(job, &at_fault, without)? };
    let wide = Twins::of(job, &OnlyOn::new(job, &at_fault, without))
        .and_then(|twins| replayed_saving(job, &twins))
        .unwrap_or(estimate);
    let ranks = ranks_of(job, at_fault.iter().copied());
    let cost =
        Cost { estimate, low: estimate.min(wide), high: estimate.max(wide), by: CostBy::Replay };
    Some(Saving { participants: at_fault, ranks, late, cost })
}

/// Milliseconds per step that a scenario saves on these participants; `None` where the replay is unusable.
fn saved(job: &Job, participants: &[usize], scenario: &dyn Scenario) -> Option<f64> {
    replayed_saving(job, &OnlyOn::new(job, participants, scenario))
}

fn replayed_saving(job: &Job, scenario: &dyn Scenario) -> Option<f64> {
    let base = job.unchanged.as_ref().filter(|_| job.replay_is_usable())?.replayed;
    Some((base - job.replay.as_ref()?.run(scenario).replayed) / 1e6)
}

/// The carriers each of which is enough alone. No rank of a part that together is not enough can be: less work never makes a
/// replay longer. So among a thousand ranks one is found in twenty replays.
fn enough_alone(part: &[usize], enough: &impl Fn(&[usize]) -> bool) -> Vec<usize> {
    match part {
        [] => vec![],
        _ if !enough(part) => vec![],
        [one] => vec![*one],
        _ => {
            let (left, right) = part.split_at(part.len() / 2);
            [enough_alone(left, enough), enough_alone(right, enough)].concat()
        }
    }
}

/// What ranks that train on the host lose to what their stepping threads do at these times. They meet in every step, so
/// that the slowest sets the pace; what the others spend bounds the saving from below.
pub fn saving_on_the_host(job: &Job, times: &[&Set]) -> Option<Saving> {
    let per_step = |(accounted, set): (&Accounted, &&Set)| {
        let steps = &accounted.steps.counted;
        let spent: i64 = steps.iter().map(|step| set.total_in(step.start, step.end)).sum();
        spent as f64 / steps.len().max(1) as f64 / 1e6
    };
    let spent: Vec<f64> = job.accounted.iter().zip(times).map(per_step).collect();
    let longest = spent.iter().copied().fold(0.0, f64::max);
    if longest == 0.0 || longest < WORTH * job.mean_step() / 1e6 {
        return None;
    }
    let (at_fault, rest): (Vec<usize>, Vec<usize>) =
        (0..spent.len()).partition(|&index| spent[index] >= longest / 2.0);
    let saved = longest - rest.iter().map(|&index| spent[index]).fold(0.0, f64::max);
    Some(Saving {
        ranks: ranks_of(job, at_fault.iter().copied()),
        late: at_fault.len() < spent.len(),
        participants: at_fault,
        cost: Cost { estimate: saved, low: saved, high: longest, by: CostBy::Bound },
    })
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

/// A scenario on some participants; the others do as recorded. Transfers belong to all.
struct OnlyOn<'a> {
    scenario: &'a dyn Scenario,
    /// For each participant whether it is one of them.
    on: Vec<bool>,
}

impl<'a> OnlyOn<'a> {
    fn new(job: &Job, participants: &[usize], scenario: &'a dyn Scenario) -> OnlyOn<'a> {
        let mut on = vec![false; job.participants.len()];
        for &participant in participants {
            on[participant] = true;
        }
        OnlyOn { scenario, on }
    }
}

impl Scenario for OnlyOn<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
        match self.on[participant] {
            true => self.scenario.call(participant, call, recorded),
            false => recorded,
        }
    }

    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        match self.on[participant] {
            true => self.scenario.operation(participant, operation, recorded),
            false => recorded,
        }
    }

    fn transfer(&self, matched: usize, recorded: i64) -> i64 {
        self.scenario.transfer(matched, recorded)
    }
}

/// A scenario in which, further, computing that a waiting collective slowed runs as fast as on the fastest rank.
struct Twins<'a> {
    inner: &'a dyn Scenario,
    fastest: Vec<Vec<i64>>,
}

impl<'a> Twins<'a> {
    /// `None` where the ranks do not launch the same kernels.
    fn of(job: &Job, inner: &'a dyn Scenario) -> Option<Twins<'a>> {
        if job.participants.len() < 2 {
            return None;
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
        if sequences.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            return None;
        }
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
        Some(Twins { inner, fastest })
    }
}

impl Scenario for Twins<'_> {
    fn call(&self, participant: usize, call: usize, recorded: CallTiming) -> CallTiming {
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
