//! Times of a recording on its wall clock, within what is plausible, so that differences and sums of them stay numbers.
//!
//! Knows timelines; not what their spans are.

use timeline::{SpanId, Timeline};

/// No recording reaches further than this from its middle, in nanoseconds: 52 days.
const REACH: i64 = 1 << 52;
/// No single thing lasts longer, in nanoseconds: 19 hours.
const LONGEST: i64 = 1 << 46;
/// No wall clock is further from 1970, in nanoseconds: 127 years. Twice as much is still a number.
pub const FARTHEST: i64 = 4_000_000_000_000_000_000;
/// Spans that the middle is taken of.
const SAMPLE: usize = 1 << 10;

/// The wall clock of a recording.
#[derive(Clone, Copy, Debug)]
pub struct WallClock<'t> {
    timeline: &'t Timeline,
    zero: i64,
    middle: i64,
}

impl<'t> WallClock<'t> {
    /// The recording's own.
    pub fn of(timeline: &'t Timeline) -> WallClock<'t> {
        let zero = timeline.wall_clock_zero.unwrap_or(0);
        let spans = &timeline.spans;
        let every = (spans.len() / SAMPLE).max(1);
        let mut sample: Vec<i64> =
            spans.ids().step_by(every).map(|id| spans.get(id).start.nanos()).collect();
        let middle = crate::align::median(&mut sample).unwrap_or(0);
        let middle = middle.saturating_add(zero).clamp(-FARTHEST, FARTHEST);
        WallClock { timeline, zero, middle }
    }

    /// Start and end of a span in nanoseconds since 1970. What damage put elsewhere lies at the edge of the recording.
    pub fn times(&self, id: SpanId) -> (i64, i64) {
        let span = self.timeline.spans.get(id);
        let start = span.start.nanos().saturating_add(self.zero);
        let start = start.clamp(self.middle - REACH, self.middle + REACH);
        (start, start + span.duration.nanos().clamp(0, LONGEST))
    }
}
