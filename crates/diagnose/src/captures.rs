//! Which recordings are of one moment of one job: captures told apart by rank, host and process, grouped by the wall
//! time and the step numbers they cover.
//!
//! Knows inputs; nothing of what is in their steps.

use std::collections::{BTreeMap, BTreeSet};

use timeline::{Timeline, TrackKind};

use crate::{job::Input, marks::step_number, wall_clock::WallClock};

/// The recordings to join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// `(input, rank of each of its processes)`.
    pub chosen: Vec<(usize, Vec<u32>)>,
    /// Readable inputs set aside: `(input, why)`.
    pub set_aside: Vec<(usize, String)>,
}

/// Whose recording an input is, as far as it tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Rank(u32),
    /// Process ids repeat between hosts, so one without its host tells nothing.
    Process(String, i64),
    /// The input alone.
    Nobody(usize),
}

/// First start and last end of what counts in a recording, in wall-clock time.
pub type Window = fn(&Timeline) -> Option<(i64, i64)>;

/// What decides whether two captures belong together.
#[derive(Clone, Debug)]
struct Capture {
    input: usize,
    /// First start and last end of what counts, in wall-clock time.
    window: (i64, i64),
    steps: BTreeSet<i64>,
    spans: usize,
}

impl Capture {
    fn of(input: usize, timeline: &Timeline, window: Window) -> Option<Capture> {
        let window = window(timeline)?;
        let steps = timeline.names.iter().filter_map(|name| Some(step_number(name)?.0)).collect();
        Some(Capture { input, window, steps, spans: timeline.spans.len() })
    }

    fn overlaps(&self, other: &Capture) -> bool {
        self.window.1.min(other.window.1) > self.window.0.max(other.window.0)
    }

    fn shares_steps(&self, other: &Capture) -> bool {
        self.steps.is_empty() || other.steps.is_empty() || !self.steps.is_disjoint(&other.steps)
    }

    /// Copies of one file hold the same operations at the same times.
    fn same(&self, other: &Capture) -> bool {
        self.window == other.window && self.spans == other.spans
    }
}

/// Chooses one capture per rank: the one that belongs together with those of most other ranks; ties go to the latest.
/// Recordings without a rank stand under the next free numbers.
///
/// `window` yields what of a recording counts; a recording without is set aside.
pub fn choose(inputs: &[Input], window: Window) -> Captures {
    let mut owners: BTreeMap<Owner, Vec<Capture>> = BTreeMap::new();
    let mut captures = Captures::default();
    for (index, input) in inputs.iter().enumerate() {
        let Some(capture) = Capture::of(index, &input.timeline, window) else {
            if !input.timeline.spans.is_empty() {
                let why = match input.cut_off() {
                    Some(place) => format!("{place}, with no operation of a device before that"),
                    None => "no operations of a device".to_owned(),
                };
                captures.set_aside.push((index, why));
            }
            continue;
        };
        let owner = owner(index, &input.timeline);
        if let Owner::Nobody(_) = owner
            && owners.values().flatten().any(|other| other.same(&capture))
        {
            captures.set_aside.push((index, "a copy of another input".to_owned()));
            continue;
        }
        owners.entry(owner).or_default().push(capture);
    }
    // Clocks that count from each machine's start never overlap: then only step numbers tell.
    let all: Vec<(&Owner, &Capture)> =
        owners.iter().flat_map(|(owner, own)| own.iter().map(move |c| (owner, c))).collect();
    let comparable =
        all.iter().any(|(own, a)| all.iter().any(|(other, b)| own != other && a.overlaps(b)));
    let together = |a: &Capture, b: &Capture| (!comparable || a.overlaps(b)) && a.shares_steps(b);
    let mut chosen: Vec<(&Owner, &Capture)> = vec![];
    for (owner, candidates) in &owners {
        let score = |capture: &&Capture| {
            let others = owners.iter().filter(|(other, _)| *other != owner);
            let met = others.filter(|(_, o)| o.iter().any(|o| together(capture, o))).count();
            (met, capture.steps.last().copied(), capture.window.0)
        };
        let Some(best) = candidates.iter().max_by_key(score) else { continue };
        chosen.push((owner, best));
        for other in candidates.iter().filter(|other| other.input != best.input) {
            let why = if other.same(best) { "a copy of another input" } else { "another capture" };
            let whose = match owner {
                Owner::Rank(rank) => format!(" of rank {rank}"),
                Owner::Process(host, pid) => format!(" of process {pid} on {host}"),
                Owner::Nobody(_) => String::new(),
            };
            captures.set_aside.push((other.input, format!("{why}{whose}")));
        }
    }
    let meets = |position: usize| {
        let own = chosen[position].1;
        let others = chosen.iter().enumerate().filter(|(other, _)| *other != position);
        others.filter(|(_, (_, other))| together(own, other)).count()
    };
    let met: Vec<usize> = (0..chosen.len()).map(meets).collect();
    let some_meet = met.iter().any(|&count| count > 0);
    let mut free =
        owners.keys().filter_map(|o| if let Owner::Rank(r) = o { Some(r + 1) } else { None }).max();
    for ((owner, capture), met) in chosen.iter().zip(met) {
        if some_meet && met == 0 {
            let why = "recorded at another time than the other ranks".to_owned();
            captures.set_aside.push((capture.input, why));
            continue;
        }
        let processes = &inputs[capture.input].timeline.processes;
        let next = free.get_or_insert(0);
        let devices = processes_with_devices(&inputs[capture.input].timeline);
        let ranks = (0..processes.len().max(1))
            .map(|process| match (owner, processes.get(process).and_then(|p| p.rank)) {
                (_, Some(rank)) => rank,
                (Owner::Rank(rank), None) => *rank,
                _ if devices.contains(&(process as u32)) => {
                    *next += 1;
                    *next - 1
                }
                _ => *next,
            })
            .collect();
        captures.chosen.push((capture.input, ranks));
    }
    captures
}

fn owner(input: usize, timeline: &Timeline) -> Owner {
    let mut with_devices = processes_with_devices(timeline);
    if with_devices.is_empty() && !timeline.processes.is_empty() {
        with_devices.insert(0);
    }
    let mut owners = with_devices.iter().map(|&process| &timeline.processes[process as usize]);
    match (owners.next(), owners.next()) {
        (Some(only), None) => match (only.rank, &only.host, only.pid) {
            (Some(rank), ..) => Owner::Rank(rank),
            (None, Some(host), Some(pid)) => Owner::Process(host.clone(), pid),
            _ => Owner::Nobody(input),
        },
        _ => Owner::Nobody(input),
    }
}

fn processes_with_devices(timeline: &Timeline) -> BTreeSet<u32> {
    let streams = timeline.tracks.iter().filter(|t| matches!(t.kind, TrackKind::Stream { .. }));
    streams
        .map(|track| track.process)
        .filter(|&p| (p as usize) < timeline.processes.len())
        .collect()
}

/// First start and last end of device operations in wall-clock time.
pub fn device_window(timeline: &Timeline) -> Option<(i64, i64)> {
    let clock = WallClock::of(timeline);
    let on_device: Vec<bool> =
        timeline.tracks.iter().map(|t| matches!(t.kind, TrackKind::Stream { .. })).collect();
    let mut window: Option<(i64, i64)> = None;
    let spans = &timeline.spans;
    for id in spans.ids().filter(|&id| on_device[spans.get(id).track.0 as usize]) {
        let (start, end) = clock.times(id);
        let (first, last) = window.unwrap_or((start, end));
        window = Some((first.min(start), last.max(end)));
    }
    window
}
