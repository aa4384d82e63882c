//! What ran when: tracks, spans, links, counters and facts of a run, whoever recorded it.
//!
//! Knows no file format, no rule and no engine. Everything is in integer nanoseconds; spans are stored in columns
//! so that millions of them stay small.

mod facts;
mod names;
mod span;
mod time;

pub use facts::{Counter, Detail, Fact, FactValue, Line, Skipped};
pub use names::{NameId, Names};
pub use span::{Kind, Span, SpanId, Spans};
pub use time::{Duration, Time};

/// A process of the recorded job: one rank, as far as the recording tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Rank in the whole job.
    pub rank: Option<u32>,
    /// Host name.
    pub host: Option<String>,
    /// Process id on its host.
    pub pid: Option<i64>,
    /// What to show where there is no rank.
    pub name: String,
}

/// What a track stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrackKind {
    /// An in-order queue of a device: a CUDA stream.
    Stream {
        /// Device number within the process's view.
        device: u32,
        /// Stream number.
        stream: i64,
    },
    /// A host thread.
    Thread {
        /// Thread id.
        thread: i64,
    },
    /// A lane of our engine.
    Lane {
        /// Position among the rank's lanes.
        index: u32,
    },
    /// Anything else, such as marks without a thread.
    Other,
}

/// Where spans lie: they may nest on a thread and follow one another on a stream or lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Index into [`Timeline::processes`].
    pub process: u32,
    /// What it stands for.
    pub kind: TrackKind,
    /// What to show.
    pub name: String,
}

/// Index into [`Timeline::tracks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u32);

/// One recording, or several joined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Interned names of spans and counters.
    pub names: Names,
    /// Processes.
    pub processes: Vec<Process>,
    /// Tracks.
    pub tracks: Vec<Track>,
    /// Spans in columns, in the order they were added.
    pub spans: Spans,
    /// `(from, to)`: `to` could not start before `from` had ended, or had launched it.
    pub flows: Vec<(SpanId, SpanId)>,
    /// Values over time.
    pub counters: Vec<Counter>,
    /// What is known of the run as a whole or of one process.
    pub facts: Vec<Fact>,
    /// What was left out while reading, with reasons.
    pub skipped: Vec<Skipped>,
    /// Wall-clock time of `Time` zero in nanoseconds since 1970, where known.
    pub wall_clock_zero: Option<i64>,
}

impl Timeline {
    /// An empty recording.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Adds a process and yields its index.
    pub fn add_process(&mut self, process: Process) -> u32 {
        self.processes.push(process);
        self.processes.len() as u32 - 1
    }

    /// The track of this kind in a process: added on first use.
    pub fn track(&mut self, process: u32, kind: TrackKind, name: &str) -> TrackId {
        let found = self.tracks.iter().position(|t| t.process == process && t.kind == kind);
        let index = found.unwrap_or_else(|| {
            self.tracks.push(Track { process, kind, name: name.to_owned() });
            self.tracks.len() - 1
        });
        TrackId(index as u32)
    }

    /// Adds a span by its name's text.
    pub fn add(
        &mut self,
        track: TrackId,
        kind: Kind,
        name: &str,
        start: Time,
        duration: Duration,
    ) -> SpanId {
        let name = self.names.intern(name);
        self.spans.push(Span { track, kind, name, start, duration })
    }

    /// The text of a span's name.
    pub fn name_of(&self, span: SpanId) -> &str {
        self.names.text(self.spans.get(span).name)
    }

    /// The process of a span's track.
    pub fn process_of(&self, span: SpanId) -> u32 {
        self.tracks[self.spans.get(span).track.0 as usize].process
    }

    /// Counts something left out.
    pub fn skip(&mut self, reason: &str) {
        match self.skipped.iter_mut().find(|skipped| skipped.reason == reason) {
            Some(skipped) => skipped.count += 1,
            None => self.skipped.push(Skipped { reason: reason.to_owned(), count: 1 }),
        }
    }

    /// States a fact of the whole run or of one process; a later one of the same key is kept beside it.
    pub fn fact(&mut self, process: Option<u32>, key: &str, value: impl Into<FactValue>) {
        self.facts.push(Fact { process, key: key.to_owned(), value: value.into(), source: None });
    }

    /// States a fact and the line that says so.
    pub fn fact_at(
        &mut self,
        process: Option<u32>,
        key: &str,
        value: impl Into<FactValue>,
        source: Line,
    ) {
        let (key, value) = (key.to_owned(), value.into());
        self.facts.push(Fact { process, key, value, source: Some(source) });
    }

    /// The last fact of this key about this process, or about the run where there is none.
    pub fn find_fact(&self, process: Option<u32>, key: &str) -> Option<&FactValue> {
        let of = |process: Option<u32>| {
            self.facts.iter().rev().find(|fact| fact.process == process && fact.key == key)
        };
        of(process).or_else(|| of(None)).map(|fact| &fact.value)
    }

    /// Moves all spans and counters onto another clock: `to` says what one of its times is there.
    pub fn move_times(&mut self, to: impl Fn(Time) -> Time) {
        self.spans.move_times(&to);
        for counter in &mut self.counters {
            counter.time = to(counter.time);
        }
    }

    /// Appends another recording. Its times are shifted onto this one's clock where both know their wall clock.
    pub fn append(&mut self, other: Timeline) {
        let (processes, tracks) = (self.processes.len() as u32, self.tracks.len() as u32);
        let spans = self.spans.len() as u32;
        let shift = match (self.wall_clock_zero, other.wall_clock_zero) {
            (Some(own), Some(others)) => Time::from_nanos(others) - Time::from_nanos(own),
            (None, Some(others)) if self.spans.is_empty() => {
                self.wall_clock_zero = Some(others);
                Duration::ZERO
            }
            _ => Duration::ZERO,
        };
        let names: Vec<NameId> = other.names.iter().map(|text| self.names.intern(text)).collect();
        self.processes.extend(other.processes);
        self.tracks.extend(other.tracks.into_iter().map(|mut track| {
            track.process += processes;
            track
        }));
        for span in other.spans.iter() {
            self.spans.push(Span {
                track: TrackId(span.track.0 + tracks),
                name: names[span.name.index()],
                start: span.start + shift,
                ..span
            });
        }
        for id in other.spans.ids() {
            let own = SpanId(id.0 + spans);
            if let Some(launcher) = other.spans.launcher(id) {
                self.spans.set_launcher(own, SpanId(launcher.0 + spans));
            }
            for detail in other.spans.details(id) {
                self.spans.add_detail(own, detail.clone());
            }
        }
        let moved = |id: SpanId| SpanId(id.0 + spans);
        self.flows.extend(other.flows.into_iter().map(|(from, to)| (moved(from), moved(to))));
        self.counters.extend(other.counters.into_iter().map(|counter| Counter {
            track: TrackId(counter.track.0 + tracks),
            name: names[counter.name.index()],
            time: counter.time + shift,
            value: counter.value,
        }));
        self.facts.extend(
            other.facts.into_iter().map(|fact| Fact {
                process: fact.process.map(|process| process + processes),
                ..fact
            }),
        );
        for skipped in other.skipped {
            match self.skipped.iter_mut().find(|own| own.reason == skipped.reason) {
                Some(own) => own.count += skipped.count,
                None => self.skipped.push(skipped),
            }
        }
    }
}
