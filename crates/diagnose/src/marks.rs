//! What the hosts of a recording marked: steps, the loader, saves, garbage collections, the profiler's own work.
//!
//! Knows names of marks; no devices.

use timeline::{Kind, Timeline, TrackId};

use crate::{
    classify,
    interval::{Interval, Set},
    wall_clock::WallClock,
};

/// Who marks steps, the one that bounds them best first: a program's own marks lie inside a profiler's.
const STEP_SOURCES: [&str; 3] = ["ProfilerStep", "engine", "nvtx"];

/// A step as the host marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// The program's number of the step.
    pub number: i64,
    /// Start of the mark.
    pub start: i64,
    /// End of the mark.
    pub end: i64,
}

/// A stretch that a thread marked.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// The thread.
    pub track: TrackId,
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
}

/// The marks of a process, which all its devices share.
#[derive(Debug)]
pub struct Marks {
    /// Steps in order.
    pub steps: Vec<HostStep>,
    /// Who marked them: `ProfilerStep`, `engine`, `nvtx` or `none`.
    pub step_source: &'static str,
    /// Stays in the loader.
    pub loader: Vec<Mark>,
    /// Checkpoints written.
    pub saves: Vec<Mark>,
    /// Garbage collected.
    pub collections: Set,
    /// When the profiler worked, full launch queues excepted.
    pub profiler: Set,
}

impl Marks {
    /// The marks of each process.
    pub fn by_process(timeline: &Timeline, clock: &WallClock<'_>) -> Vec<Marks> {
        let meanings: Vec<Meaning> = timeline.names.iter().map(Meaning::of).collect();
        let processes = timeline.tracks.iter().map(|track| track.process as usize + 1).max();
        let mut found: Vec<Found> = vec![];
        found.resize_with(processes.unwrap_or(0), Found::default);
        for id in timeline.spans.ids() {
            let span = timeline.spans.get(id);
            let own = &mut found[timeline.tracks[span.track.0 as usize].process as usize];
            let mark = || {
                let (start, end) = clock.times(id);
                Mark { track: span.track, start, end }
            };
            match (span.kind, meanings[span.name.index()]) {
                (Kind::Overhead, Meaning::FullQueue) => {}
                (Kind::Overhead, _) => own.profiler.push(clock.times(id)),
                (Kind::Data, _) | (Kind::Mark | Kind::HostOp, Meaning::Loader) => {
                    own.loader.push(mark());
                }
                (Kind::Mark, Meaning::Save) => own.saves.push(mark()),
                (Kind::Mark, Meaning::Collection) => own.collections.push(clock.times(id)),
                (Kind::Mark, Meaning::Step(number, source)) => {
                    let (start, end) = clock.times(id);
                    own.steps.push((source, HostStep { number, start, end }));
                }
                _ => {}
            }
        }
        found.into_iter().map(Found::into_marks).collect()
    }
}

/// Marks in the order of the recording.
#[derive(Default)]
struct Found {
    steps: Vec<(&'static str, HostStep)>,
    loader: Vec<Mark>,
    saves: Vec<Mark>,
    collections: Vec<Interval>,
    profiler: Vec<Interval>,
}

impl Found {
    fn into_marks(self) -> Marks {
        let marked_by = |source: &&str| self.steps.iter().any(|(own, _)| own == source);
        let step_source = STEP_SOURCES.into_iter().find(marked_by).unwrap_or("none");
        let own = self.steps.iter().filter(|(source, _)| *source == step_source);
        let mut steps: Vec<HostStep> = own.map(|(_, step)| *step).collect();
        steps.sort_by_key(|step| step.start);
        Marks {
            steps,
            step_source,
            loader: self.loader,
            saves: self.saves,
            collections: Set::union_of(self.collections),
            profiler: Set::union_of(self.profiler),
        }
    }
}

/// What a name means wherever it occurs.
#[derive(Clone, Copy)]
enum Meaning {
    Loader,
    Save,
    Collection,
    Step(i64, &'static str),
    /// "Command Buffer Full": the device is behind, not the profiler.
    FullQueue,
    Nothing,
}

impl Meaning {
    fn of(name: &str) -> Meaning {
        if classify::is_loader(name) {
            Meaning::Loader
        } else if classify::is_save(name) {
            Meaning::Save
        } else if classify::is_collection(name) {
            Meaning::Collection
        } else if name.contains("Command Buffer Full") {
            Meaning::FullQueue
        } else {
            step_number(name).map_or(Meaning::Nothing, |(number, from)| Meaning::Step(number, from))
        }
    }
}

/// The number of a step's mark and who makes such marks.
pub fn step_number(name: &str) -> Option<(i64, &'static str)> {
    let (number, source) = if let Some(number) = name.strip_prefix("ProfilerStep#") {
        (number, "ProfilerStep")
    } else if let Some(number) = name.strip_prefix("counterpoint.step#") {
        (number, "engine")
    } else {
        (name.strip_prefix("step ").or_else(|| name.strip_prefix("iteration "))?, "nvtx")
    };
    Some((number.trim().parse().ok()?, source))
}
