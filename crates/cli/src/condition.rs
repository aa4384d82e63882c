//! `--fail-on`: a condition on a diagnosis, and whether it holds. Knows ids and leaves by name; no output.

use diagnose::{diagnosis::Diagnosis, finding::Finding, job::Job, leaf::Leaf, rules};

use crate::{failure::Mistake, nearest};

/// One condition.
#[derive(Debug)]
pub enum Condition {
    /// A finding of this id is there.
    Id(String),
    /// A leaf, or all leaves that start with a word, take more than a share of the step.
    Share {
        /// As the person wrote it.
        text: String,
        /// The leaves.
        leaves: Vec<Leaf>,
        /// Between 0 and 1.
        more_than: f64,
    },
}

/// What a condition comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It does not hold.
    No,
    /// It holds, with what was found.
    Yes(String),
    /// The input does not tell, with the reason.
    Undecidable(String),
}

/// Every id a finding may have.
pub fn ids() -> Vec<&'static str> {
    let rules = rules::ALL.iter().flat_map(|rule| rule.explanations());
    let mut ids: Vec<&str> = rules.map(|explanation| explanation.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

impl Condition {
    /// From `ID` or `LEAF>PERCENT%`.
    ///
    /// # Errors
    /// A mistake: an unknown id or leaf, or no percentage.
    pub fn parse(text: &str) -> Result<Condition, Mistake> {
        let Some((leaf, percent)) = text.split_once('>') else {
            let ids = ids();
            if ids.contains(&text.trim()) {
                return Ok(Condition::Id(text.trim().to_owned()));
            }
            let hint = nearest::hint(text, ids);
            return Err(Mistake(format!(
                "--fail-on {text}: no such id{hint}; expected one that `counterpoint explain` lists, or 'LEAF>PERCENT%'"
            )));
        };
        // As the screen calls all leaves of computing together.
        let leaf = if leaf.trim() == "computing" { "compute" } else { leaf.trim() };
        let leaves: Vec<Leaf> = Leaf::ALL
            .into_iter()
            .filter(|own| {
                own.name() == leaf
                    || own.name().strip_prefix(leaf).is_some_and(|rest| rest.starts_with('.'))
            })
            .collect();
        if leaves.is_empty() {
            let hint = nearest::hint(leaf, Leaf::ALL.map(Leaf::name));
            return Err(Mistake(format!(
                "--fail-on {text}: no leaf {leaf:?} in the account{hint}"
            )));
        }
        let number = percent.trim().trim_end_matches('%').trim().parse::<f64>().ok();
        match number.filter(|number| (0.0..=100.0).contains(number)) {
            Some(number) => {
                Ok(Condition::Share { text: text.to_owned(), leaves, more_than: number / 100.0 })
            }
            None => Err(Mistake(format!(
                "--fail-on {text}: found {:?}, expected a percentage such as 10%",
                percent.trim()
            ))),
        }
    }

    /// Whether it holds.
    pub fn holds(&self, job: &Job, diagnosis: &Diagnosis) -> Outcome {
        match self {
            Condition::Id(id) => {
                let found = diagnosis.findings.iter().find(|finding| finding.id == id);
                let holds =
                    |finding: &Finding| Outcome::Yes(format!("--fail-on {id}: {}", finding.title));
                found.map_or(Outcome::No, holds)
            }
            Condition::Share { text, leaves, more_than } => share(job, text, leaves, *more_than),
        }
    }
}

fn share(job: &Job, text: &str, leaves: &[Leaf], more_than: f64) -> Outcome {
    let undecidable = |why: &str| Outcome::Undecidable(format!("--fail-on {text}: {why}"));
    let sum = |wanted: &dyn Fn(Leaf) -> bool| -> i64 {
        let accounts = job.accounted.iter().flat_map(|accounted| accounted.account.iter());
        accounts.filter(|(leaf, _)| wanted(*leaf)).map(|(_, time)| time).sum()
    };
    let total = sum(&|_| true);
    if total == 0 {
        return undecidable("the input holds no counted step of a device");
    }
    #[expect(clippy::cast_precision_loss, reason = "a share of nanoseconds")]
    let share = |wanted: &dyn Fn(Leaf) -> bool| sum(wanted) as f64 / total as f64;
    let found = share(&|leaf| leaves.contains(&leaf));
    if found > more_than {
        return Outcome::Yes(format!("--fail-on {text}: {:.1} % of the step", 100.0 * found));
    }
    // Time in a leaf that stands for others which were not told apart.
    let asks = |leaf: Leaf| leaves.contains(&leaf);
    let stands_for_asked = |leaf: Leaf| match leaf {
        Leaf::Unsplit => asks(Leaf::Transfer) || asks(Leaf::CommWait),
        Leaf::Unknown => leaves.iter().any(|leaf| *leaf > Leaf::CopyDevice),
        _ => false,
    };
    if share(&|leaf| asks(leaf) || stands_for_asked(leaf)) > more_than {
        return undecidable(
            "the input does not tell this leaf apart from others; hand over every rank",
        );
    }
    Outcome::No
}
