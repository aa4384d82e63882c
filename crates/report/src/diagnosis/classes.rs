//! Ranks of equal behaviour as one row, so that 64 ranks are read as easily as two.
//!
//! Knows accounts; nothing of how they are shown.

use std::cmp::Reverse;

use diagnose::{
    job::Job,
    leaf::{Account, Leaf},
};

/// Ranks are of one class when no leaf differs by this share of the step.
const ALIKE: f64 = 0.02;

/// Ranks whose accounts are alike.
#[derive(Clone, Debug)]
pub struct Class {
    /// The ranks, in order, each once.
    pub ranks: Vec<u32>,
    /// Indices of its participants in the job.
    pub participants: Vec<usize>,
    /// Nanoseconds of all its ranks.
    pub account: Account,
    /// Steps of all its ranks.
    pub steps: i64,
}

impl Class {
    /// Nanoseconds of a step, by leaf or in all.
    pub fn per_step(&self, nanoseconds: i64) -> f64 {
        nanoseconds as f64 / self.steps.max(1) as f64
    }
}

/// The classes of a job, in the order of their first ranks. Ranks without a counted step are in none.
pub fn classes(job: &Job) -> Vec<Class> {
    let mut classes: Vec<Class> = vec![];
    for (index, (participant, accounted)) in job.participants.iter().zip(&job.accounted).enumerate()
    {
        let steps = accounted.steps.counted.len() as i64;
        if steps == 0 {
            continue;
        }
        let share = |account: &Account, leaf: Leaf| {
            account.get(leaf) as f64 / account.total().max(1) as f64
        };
        let alike = |class: &&mut Class| {
            Leaf::ALL.iter().all(|&leaf| {
                (share(&class.account, leaf) - share(&accounted.account, leaf)).abs() < ALIKE
            })
        };
        match classes.iter_mut().find(alike) {
            Some(class) => {
                // One that has several devices is named once.
                if class.ranks.last() != Some(&participant.rank) {
                    class.ranks.push(participant.rank);
                }
                class.participants.push(index);
                class.account.add_all(&accounted.account);
                class.steps += steps;
            }
            None => classes.push(Class {
                ranks: vec![participant.rank],
                participants: vec![index],
                account: accounted.account,
                steps,
            }),
        }
    }
    classes
}

/// The `most` classes that say most, in their order: those of the ranks `at_fault`, the largest, those whose own host
/// keeps them.
pub fn telling(mut classes: Vec<Class>, at_fault: &[u32], most: usize) -> Vec<Class> {
    classes.sort_by_key(|class| {
        let innocent = !class.ranks.iter().any(|rank| at_fault.contains(rank));
        let own = class.account.iter().filter(|(leaf, _)| *leaf > Leaf::CopyDevice);
        let kept = class.per_step(own.map(|(_, time)| time).sum()) as i64;
        (innocent, Reverse(class.ranks.len()), Reverse(kept))
    });
    classes.truncate(most);
    classes.sort_by_key(|class| class.ranks.first().copied());
    classes
}

/// `rank 0`, `ranks 0-3, 5`.
pub fn rank_list(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = vec![];
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if rank.checked_sub(1) == Some(*last) => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let list: Vec<String> = parts
        .iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}
