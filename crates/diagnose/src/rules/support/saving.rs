//! What a cause costs: a replay without it, on all ranks that carry it and on each alone. Knows no cause.

use super::WORTH;
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
        let enough = |part: &[usize]| {
            let own = saves(&without(part.to_vec()));
            own > worth && own >= all / 2.0
        };
        let (left, right) = carriers.split_at(carriers.len() / 2);
        let alone = [enough_alone(left, &enough), enough_alone(right, &enough)].concat();
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
        ranks: at_fault.iter().map(|&index| job.participants[index].rank).collect(),
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

/// A scenario in which, further, computing that a waiting collective slowed runs as fast as on the fastest rank.
struct Twins<'a> {
    inner: &'a dyn Scenario,
    fastest: Vec<Vec<i64>>,
    found: bool,
}

impl<'a> Twins<'a> {
    fn new(job: &Job, inner: &'a dyn Scenario) -> Twins<'a> {
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
