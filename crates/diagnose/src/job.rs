//! A job: inputs that belong together, their devices on one clock, accounts, and the replay.
//!
//! Knows timelines; no formats, no causes.

use std::collections::BTreeSet;

use rayon::prelude::*;
use timeline::{Fact, FactValue, Timeline};

use crate::{
    account::{self, Beside, Parts},
    align::{self, Clock, Participant},
    captures, device,
    leaf::Account,
    replay::{Outcome, Replay, Unchanged},
    steps::{self, Steps},
    wall_clock,
};

/// One input as it was read.
#[derive(Debug)]
pub struct Input {
    /// What to call it: its path, or `-`.
    pub name: String,
    /// Name of the format.
    pub format: &'static str,
    /// Everything found in it.
    pub timeline: Timeline,
}

impl Input {
    /// Where the input ended early, if it did; what came before is used.
    pub fn cut_off(&self) -> Option<&str> {
        match self.timeline.find_fact(None, "input.cut_off")? {
            FactValue::Text(place) => Some(place),
            _ => None,
        }
    }
}

/// An input of which nothing could be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What to call it.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// One device of one rank, accounted.
#[derive(Debug)]
pub struct Accounted {
    /// Its steps.
    pub steps: Steps,
    /// When it was in which leaf.
    pub parts: Parts,
    /// Nanoseconds by leaf over the counted steps.
    pub account: Account,
    /// Totals beside the account over the counted steps.
    pub beside: Beside,
}

/// Everything known of a job before any rule looks at it.
#[derive(Debug)]
pub struct Job {
    /// All inputs.
    pub inputs: Vec<Input>,
    /// Inputs of which nothing could be used.
    pub unusable: Vec<Unusable>,
    /// Inputs set aside although readable: `(index, why)`, such as a second capture of a rank.
    pub set_aside: Vec<(usize, String)>,
    /// Devices by rank.
    pub participants: Vec<Participant>,
    /// In the order of `participants`.
    pub accounted: Vec<Accounted>,
    /// How the ranks' clocks relate.
    pub clock: Clock,
    /// The replay; `None` where no device has counted steps.
    pub replay: Option<Replay>,
    /// The replay of the unchanged run.
    pub unchanged: Option<Outcome>,
}

/// No job has more ranks: a larger number is damage.
const MOST_RANKS: u32 = 1 << 18;

/// From this relative error on a replay is unusable.
pub const REPLAY_TOLERANCE: f64 = 0.01;

impl Job {
    /// Joins inputs into a job.
    pub fn new(mut inputs: Vec<Input>, unusable: Vec<Unusable>) -> Job {
        for timeline in inputs.iter_mut().map(|input| &mut input.timeline) {
            for process in &mut timeline.processes {
                process.rank = process.rank.filter(|&rank| rank < MOST_RANKS);
            }
            let zero = &mut timeline.wall_clock_zero;
            *zero = zero.map(|zero| zero.clamp(-wall_clock::FARTHEST, wall_clock::FARTHEST));
        }
        let mut captures = captures::choose(&inputs, captures::device_window);
        let mut participants: Vec<Participant> = captures
            .chosen
            .par_iter()
            .flat_map_iter(|(input, ranks)| {
                device::devices(&inputs[*input].timeline).into_iter().map(|device| {
                    let rank = ranks.get(device.process as usize).copied().unwrap_or(0);
                    Participant { rank, input: *input, device }
                })
            })
            .collect();
        if participants.is_empty() {
            let hosts = captures::choose(&inputs, host_window);
            for (input, ranks) in &hosts.chosen {
                let host = device::host_only(&inputs[*input].timeline);
                participants.extend(host.map(|device| {
                    let rank = ranks.get(device.process as usize).copied().unwrap_or(0);
                    Participant { rank, input: *input, device }
                }));
            }
            if !participants.is_empty() {
                captures = hosts;
            }
        }
        participants.sort_by_key(|p| (p.rank, p.device.number));
        let set_aside = captures.set_aside;
        let timelines: Vec<&Timeline> = inputs.iter().map(|input| &input.timeline).collect();
        let clock = align::align(&mut participants, &timelines);
        let accounted: Vec<Accounted> = participants
            .par_iter()
            .map(|participant| {
                let steps = steps::find(&participant.device);
                let parts = Parts::of(&participant.device);
                let mut account = Account::default();
                for &step in &steps.counted {
                    account.add_all(&parts.account(step));
                }
                let (start, end) = steps.window().unwrap_or((0, 0));
                let beside = account::beside(&participant.device, start, end);
                Accounted { steps, parts, account, beside }
            })
            .collect();
        let all_steps: Vec<Steps> = accounted.iter().map(|a| a.steps.clone()).collect();
        let on_device = participants.iter().any(|p| !p.device.operations.is_empty());
        let counted =
            on_device && accounted.iter().any(|a| !a.steps.counted.is_empty() && !a.steps.weak);
        let replay = counted.then(|| Replay::new(&participants, &clock, &all_steps));
        let unchanged = replay.as_ref().map(|replay| replay.run(&Unchanged));
        Job { inputs, unusable, set_aside, participants, accounted, clock, replay, unchanged }
    }

    /// Whether the recordings hold steps of hosts and no operation of any device.
    pub fn is_host_only(&self) -> bool {
        let mut devices = self.participants.iter().map(|participant| &participant.device);
        !self.participants.is_empty() && devices.all(|device| device.operations.is_empty())
    }

    /// Whether costs may be taken from the replay.
    pub fn replay_is_usable(&self) -> bool {
        self.unchanged.as_ref().is_some_and(|outcome| outcome.error <= REPLAY_TOLERANCE)
    }

    /// Mean length of a counted step over all devices in nanoseconds; 0 where there is none.
    pub fn mean_step(&self) -> f64 {
        let (total, count) = self.accounted.iter().fold((0, 0), |(total, count), accounted| {
            (total + accounted.account.total(), count + accounted.steps.counted.len())
        });
        if count == 0 { 0.0 } else { total as f64 / count as f64 }
    }

    /// The recording of a participant.
    pub fn timeline(&self, participant: usize) -> &Timeline {
        &self.inputs[self.participants[participant].input].timeline
    }

    /// All facts of this key in all inputs, with the index of their input.
    pub fn facts<'a>(&'a self, key: &str) -> impl Iterator<Item = (usize, &'a Fact)> + use<'a> {
        let key = key.to_owned();
        self.inputs.iter().enumerate().flat_map(move |(index, input)| {
            let key = key.clone();
            input.timeline.facts.iter().filter(move |fact| fact.key == key).map(move |f| (index, f))
        })
    }

    /// The first text fact of this key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.facts(key).find_map(|(_, fact)| match &fact.value {
            FactValue::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Number of ranks as stated by the job or the largest process group, or as found.
    pub fn world_size(&self) -> u32 {
        let stated = self.facts("job.world_size").find_map(|(_, fact)| match fact.value {
            FactValue::Int(size) => u32::try_from(size).ok().filter(|&size| size <= MOST_RANKS),
            _ => None,
        });
        let found = self.participants.iter().map(|p| p.rank + 1).max().unwrap_or(0);
        stated.unwrap_or(0).max(found).max(self.clock.largest_group)
    }

    /// Ranks of the job, by its size or by the lists of its process groups, of which no recording is used.
    pub fn missing_ranks(&self) -> Vec<u32> {
        let found: BTreeSet<u32> = self.participants.iter().map(|p| p.rank).collect();
        let listed = self
            .inputs
            .iter()
            .flat_map(|input| &input.timeline.facts)
            .filter(|fact| fact.key.starts_with("group.") && fact.key.ends_with(".ranks"));
        let listed = listed.flat_map(|fact| match &fact.value {
            FactValue::Text(ranks) => {
                ranks.split(',').filter_map(|rank| rank.parse().ok()).collect()
            }
            _ => vec![],
        });
        let all: BTreeSet<u32> =
            (0..self.world_size()).take(MOST_RANKS as usize).chain(listed).collect();
        all.difference(&found).copied().take(MOST_RANKS as usize).collect()
    }
}

/// First start and last end of the steps that a host marked, in wall-clock time.
fn host_window(timeline: &Timeline) -> Option<(i64, i64)> {
    let device = device::host_only(timeline)?;
    Some((device.host_steps.first()?.start, device.host_steps.last()?.end))
}
