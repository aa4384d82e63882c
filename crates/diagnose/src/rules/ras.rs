//! `hang.rank_lost`, `hang.rank_behind`: what NCCL's RAS says of a job that stands still.

use crate::{
    facts::{Found, all, quote},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Ras;

const LOST: Explanation = Explanation {
    id: "hang.rank_lost",
    layer: "framework",
    what: "A process of the job is dead or does not answer.",
    why: "Every other rank waits in the next collective for it; none of them shows an error until the watchdog ends the job.",
    remedy: "look at that process on its host: its log, dmesg (Xid, out of memory), nvidia-smi; py-spy dump where it still \
             runs",
    refuted_by: "`ncclras -v` a minute later, with no process missing",
};

const BEHIND: Explanation = Explanation {
    id: "hang.rank_behind",
    layer: "framework",
    what: "A rank has launched fewer collectives than the others.",
    why: "The others wait in the collective that it has not reached. Where the counts still move, the rank is slow; where they \
          do not, the job stands still because of it.",
    remedy: "run ncclras again: the same counts mean a hang (py-spy dump of that rank), higher ones a slow rank (record it and \
             another one)",
    refuted_by: "a second ncclras in which another rank is behind",
};

/// So many collectives behind, a rank is not just the last to launch.
const FAR: i64 = 2;

impl Rule for Ras {
    fn explanations(&self) -> &'static [Explanation] {
        &[LOST, BEHIND]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [lost, behind].iter().filter_map(|check| check(job)).collect()
    }
}

fn lost(job: &Job) -> Option<Finding> {
    let dead = all(job, "ras.dead");
    let lost: Vec<Found> = dead.iter().copied().chain(all(job, "ras.missing")).collect();
    let first = lost.first()?;
    let whose = match (first.rank(job), first.host(job)) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => format!("a process on {host}"),
        (None, None) => "a process of the job".to_owned(),
    };
    let state = if dead.is_empty() { "does not answer" } else { "is dead" };
    let title = format!("{whose} {state}, and the others wait for it");
    let mut finding = LOST.finding(Severity::Failure, title);
    quote(job, &mut finding, &lost, 4);
    quote(job, &mut finding, &all(job, "ras.error"), 2);
    finding.confidence = if dead.is_empty() { Confidence::Medium } else { Confidence::High };
    Some(finding)
}

/// A rank's last operation of a collective, or one that so many ranks share.
struct Launched<'a> {
    found: Found<'a>,
    operation: &'a str,
    count: i64,
    ranks: i64,
}

impl<'a> Launched<'a> {
    fn read(found: Found<'a>) -> Option<Launched<'a>> {
        let mut words = found.text().split(' ');
        let (operation, count) = (words.next()?, words.next()?.parse().ok()?);
        let ranks = words.next().and_then(|ranks| ranks.parse().ok()).unwrap_or(1);
        Some(Launched { found, operation, count, ranks })
    }
}

fn behind(job: &Job) -> Option<Finding> {
    let read = |key: &str| all(job, key).into_iter().filter_map(Launched::read);
    let usual: Vec<Launched> = read("ras.usual").collect();
    let most_have = |own: &Launched<'_>| {
        let same = usual.iter().filter(|usual| {
            usual.found.input == own.found.input && usual.operation == own.operation
        });
        same.max_by_key(|usual| usual.ranks)
    };
    let mut outliers: Vec<(i64, Launched)> = read("ras.launched")
        .filter_map(|own| Some((most_have(&own)?.count.saturating_sub(own.count), own)))
        .filter(|(gap, _)| *gap > 0)
        .collect();
    outliers.sort_by_key(|(gap, own)| (-gap, own.found.rank(job)));
    let (gap, last) = outliers.first()?;
    let most = most_have(last)?;
    let rank = last.found.rank(job).map_or("?".to_owned(), |rank| rank.to_string());
    let title = format!(
        "rank {rank} has launched {} {}, most others {}: they wait for it",
        last.operation, last.count, most.count
    );
    let far = *gap >= FAR;
    let severity = if far { Severity::Failure } else { Severity::Slow };
    let mut finding = BEHIND.finding(severity, title);
    quote(job, &mut finding, outliers.iter().map(|(_, outlier)| &outlier.found), 4);
    quote(job, &mut finding, [&most.found], 1);
    finding.confidence = if far { Confidence::Medium } else { Confidence::Low };
    Some(finding)
}
