//! Spans in columns: 29 bytes each, details aside. Knows no names' texts and no tracks' meaning.

use crate::{Detail, Duration, NameId, Time, TrackId};

/// Index of a span in its [`Spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u32);

impl SpanId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happened during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Computing on a device or lane.
    Compute,
    /// A collective or point-to-point exchange on a device or lane.
    Communication,
    /// A copy on a device or lane.
    Copy,
    /// A fill of device memory.
    Fill,
    /// A call into the device's runtime or driver by a host thread.
    Call,
    /// An operator of a framework on a host thread.
    HostOp,
    /// A region marked by the program: a step, a loader, a named range.
    Mark,
    /// A lane or thread waits for other work.
    Wait,
    /// A lane or thread waits for data.
    Data,
    /// Work of the recorder itself.
    Overhead,
    /// Anything else.
    Other,
}

/// One span, as pushed and as read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it lies.
    pub track: TrackId,
    /// What happened.
    pub kind: Kind,
    /// Its name.
    pub name: NameId,
    /// Its start.
    pub start: Time,
    /// Its length.
    pub duration: Duration,
}

impl Span {
    /// Its end.
    pub fn end(&self) -> Time {
        self.start + self.duration
    }
}

const NO_SPAN: u32 = u32::MAX;

/// All spans of a timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans {
    start: Vec<i64>,
    duration: Vec<i64>,
    name: Vec<NameId>,
    track: Vec<TrackId>,
    kind: Vec<Kind>,
    /// The call that launched the span; `NO_SPAN` where unknown. Empty while no span has one.
    launcher: Vec<u32>,
    /// Sorted by span: most spans have none.
    details: Vec<(u32, Detail)>,
}

impl Spans {
    /// Spans that fit: an id has four bytes, and one of its values means none. Readers leave out what comes after.
    pub const MOST: usize = NO_SPAN as usize;

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.start.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty()
    }

    /// Whether [`Spans::MOST`] is reached.
    pub fn is_full(&self) -> bool {
        self.len() >= Spans::MOST
    }

    /// Adds a span.
    pub fn push(&mut self, span: Span) -> SpanId {
        self.start.push(span.start.nanos());
        self.duration.push(span.duration.nanos());
        self.name.push(span.name);
        self.track.push(span.track);
        self.kind.push(span.kind);
        if !self.launcher.is_empty() {
            self.launcher.push(NO_SPAN);
        }
        SpanId(self.len() as u32 - 1)
    }

    /// The span of this id.
    pub fn get(&self, id: SpanId) -> Span {
        let index = id.index();
        Span {
            track: self.track[index],
            kind: self.kind[index],
            name: self.name[index],
            start: Time::from_nanos(self.start[index]),
            duration: Duration::from_nanos(self.duration[index]),
        }
    }

    /// All ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = SpanId> + use<> {
        (0..self.len() as u32).map(SpanId)
    }

    /// All spans in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span> + '_ {
        self.ids().map(|id| self.get(id))
    }

    /// States which call launched a span.
    pub fn set_launcher(&mut self, span: SpanId, launcher: SpanId) {
        if self.launcher.is_empty() {
            self.launcher = vec![NO_SPAN; self.len()];
        }
        self.launcher[span.index()] = launcher.0;
    }

    /// The call that launched a span.
    pub fn launcher(&self, span: SpanId) -> Option<SpanId> {
        self.launcher.get(span.index()).copied().filter(|&id| id != NO_SPAN).map(SpanId)
    }

    /// Moves starts and ends to where `to` puts them.
    pub fn move_times(&mut self, to: impl Fn(Time) -> Time) {
        for (start, duration) in self.start.iter_mut().zip(&mut self.duration) {
            let from = Time::from_nanos(*start);
            let end = to(from + Duration::from_nanos(*duration));
            *start = to(from).nanos();
            *duration = end.nanos().saturating_sub(*start);
        }
    }

    /// Gives back room that nothing was put in: for spans of which no more are added.
    pub fn shrink_to_fit(&mut self) {
        self.start.shrink_to_fit();
        self.duration.shrink_to_fit();
        self.name.shrink_to_fit();
        self.track.shrink_to_fit();
        self.kind.shrink_to_fit();
        self.launcher.shrink_to_fit();
        self.details.shrink_to_fit();
    }

    /// Adds a detail to a span. Quick when spans get their details in order.
    pub fn add_detail(&mut self, span: SpanId, detail: Detail) {
        match self.details.last() {
            Some((last, _)) if *last > span.0 => {
                let place = self.details.partition_point(|(id, _)| *id <= span.0);
                self.details.insert(place, (span.0, detail));
            }
            _ => self.details.push((span.0, detail)),
        }
    }

    /// Details of a span, in the order they were added.
    pub fn details(&self, span: SpanId) -> impl Iterator<Item = &Detail> {
        let first = self.details.partition_point(|(id, _)| *id < span.0);
        self.details[first..]
            .iter()
            .take_while(move |(id, _)| *id == span.0)
            .map(|(_, detail)| detail)
    }
}
