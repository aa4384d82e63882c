//! Where each process's step went: a partition of the step into five parts, in whole nanoseconds.
//!
//! Knows kinds of spans only, not who recorded them.

use timeline::{Duration, Kind, Span, Time, Timeline};

/// The word that a step's mark begins with: `step 12`.
pub const STEP_MARK: &str = "step ";

/// One training step of one process: a mark named [`STEP_MARK`] and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step {
    /// Index of the process.
    pub process: u32,
    /// Number of the step, from 1.
    pub number: u64,
    /// Its first moment.
    pub start: Time,
    /// The moment after its last.
    pub end: Time,
}

/// The steps of a timeline in the order they were recorded.
pub fn steps(timeline: &Timeline) -> Vec<Step> {
    let spans = timeline.spans.ids();
    spans
        .filter_map(|id| {
            let span = timeline.spans.get(id);
            let number = timeline.name_of(id).strip_prefix(STEP_MARK)?.parse().ok()?;
            let process = timeline.process_of(id);
            let step = Step { process, number, start: span.start, end: span.end() };
            (span.kind == Kind::Mark).then_some(step)
        })
        .collect()
}

/// The parts of one step of one process. They sum to the step exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Kernels ran and no collective was under way.
    pub computing: Duration,
    /// Kernels ran while a collective was under way.
    pub hidden_communication: Duration,
    /// A collective was under way and no kernel ran.
    pub exposed_communication: Duration,
    /// Neither, and the process waited for data.
    pub waiting_for_data: Duration,
    /// None of these.
    pub other: Duration,
}

impl Account {
    /// The parts with their names, in the order of a report.
    pub fn parts(&self) -> [(&'static str, Duration); 5] {
        [
            ("computing", self.computing),
            ("hidden communication", self.hidden_communication),
            ("exposed communication", self.exposed_communication),
            ("waiting for data", self.waiting_for_data),
            ("other", self.other),
        ]
    }

    /// The length of the step.
    pub fn total(&self) -> Duration {
        self.parts().into_iter().map(|(_, length)| length).sum()
    }

    /// Adds another step's parts.
    pub fn add(&mut self, other: &Account) {
        self.computing += other.computing;
        self.hidden_communication += other.hidden_communication;
        self.exposed_communication += other.exposed_communication;
        self.waiting_for_data += other.waiting_for_data;
        self.other += other.other;
    }
}

/// The account of every step of the timeline, in its order.
pub fn account(timeline: &Timeline) -> Vec<(Step, Account)> {
    let steps = steps(timeline);
    let mut changes: Vec<Vec<Change>> = vec![vec![]; steps.len()];
    let finder = StepFinder::new(&steps);
    for span in timeline.spans.iter() {
        let process = timeline.tracks[span.track.0 as usize].process;
        let Some(activity) = activity(span.kind) else { continue };
        for index in finder.overlapping(process, &span) {
            let step = steps[index];
            changes[index].push((span.start.max(step.start), activity, 1));
            changes[index].push((span.end().min(step.end), activity, -1));
        }
    }
    steps.into_iter().zip(changes).map(|(step, c)| (step, partition(step, c))).collect()
}

/// The sum of the accounts of each process, in their order.
pub fn account_by_process(timeline: &Timeline) -> Vec<(u32, Account)> {
    let mut sums: std::collections::BTreeMap<u32, Account> = Default::default();
    for (step, parts) in account(timeline) {
        sums.entry(step.process).or_default().add(&parts);
    }
    sums.into_iter().collect()
}

/// Which of the three activities a span counts for.
fn activity(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Compute => Some(0),
        Kind::Communication => Some(1),
        Kind::Data => Some(2),
        _ => None,
    }
}

/// A moment at which the number of open spans of an activity changes.
type Change = (Time, usize, i64);

fn partition(step: Step, mut changes: Vec<Change>) -> Account {
    changes.push((step.end, 0, 0));
    changes.sort_unstable();
    let mut account = Account::default();
    let mut open = [0i64; 3];
    let mut now = step.start;
    for (at, activity, change) in changes {
        let part = match (open[0] > 0, open[1] > 0, open[2] > 0) {
            (true, false, _) => &mut account.computing,
            (true, true, _) => &mut account.hidden_communication,
            (false, true, _) => &mut account.exposed_communication,
            (false, false, true) => &mut account.waiting_for_data,
            (false, false, false) => &mut account.other,
        };
        *part += at - now;
        open[activity] += change;
        now = at;
    }
    account
}

/// Steps by process and start, so that a long run is not searched once per span.
struct StepFinder<'a> {
    steps: &'a [Step],
    /// Indices ordered by process and start, with the latest end among the steps of the process up to here.
    order: Vec<(usize, Time)>,
}

impl StepFinder<'_> {
    fn new(steps: &[Step]) -> StepFinder<'_> {
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|&i| (steps[i].process, steps[i].start));
        let mut latest: Option<(u32, Time)> = None;
        let order = order
            .into_iter()
            .map(|i| {
                let before = latest.filter(|(process, _)| *process == steps[i].process);
                let end = before.map_or(steps[i].end, |(_, end)| end.max(steps[i].end));
                latest = Some((steps[i].process, end));
                (i, end)
            })
            .collect();
        StepFinder { steps, order }
    }

    fn overlapping<'s>(&'s self, process: u32, span: &'s Span) -> impl Iterator<Item = usize> + 's {
        let (start, end) = (span.start, span.end());
        let before = self.order.partition_point(|&(i, _)| {
            (self.steps[i].process, self.steps[i].start) < (process, end)
        });
        self.order[..before]
            .iter()
            .rev()
            .take_while(move |&&(i, latest)| self.steps[i].process == process && latest > start)
            .map(|&(i, _)| i)
            .filter(move |&i| self.steps[i].end > start)
    }
}
