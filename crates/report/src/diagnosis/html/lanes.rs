//! The lanes of the page's timeline: what each drawn device did, stream by stream, and what it did not compute for.
//!
//! Knows jobs; nothing of colours or pixels.

use std::collections::{HashMap, HashSet};

use diagnose::{
    device::{Operation, Work},
    job::Job,
    leaf::Leaf,
    wall_clock::WallClock,
};
use serde_json::{Value, json};
use timeline::SpanId;

/// Spans drawn at most on all lanes together, so that a page stays a few megabytes.
const SPANS: usize = 100_000;

/// What a span shows; the numbers are those of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Compute,
    Transfer,
    Copy,
    Host,
    Wait,
}

/// A span on the page's clock.
struct Drawn {
    start: i64,
    end: i64,
    show: Show,
    name: usize,
    /// A span that a finding cites stays whatever is left out.
    cited: bool,
}

/// One row of the timeline.
struct Lane {
    group: String,
    name: String,
    spans: Vec<Drawn>,
}

/// The timeline of some devices.
pub struct Lanes {
    lanes: Vec<Lane>,
    names: Names,
    steps: Vec<Value>,
    /// Lane, start and length of the recorded spans that findings cite, by input and span.
    places: HashMap<(usize, u32), (usize, i64, i64)>,
}

impl Lanes {
    /// Draws `participants` of a job, whose findings cite `cited` (input and span).
    pub fn of(job: &Job, participants: &[usize], cited: &HashSet<(usize, u32)>) -> Lanes {
        let mut lanes =
            Lanes { lanes: vec![], names: Names::default(), steps: vec![], places: HashMap::new() };
        let Some(&first) = participants.first() else { return lanes };
        // Times are relative to one moment, so that numbers stay exact in the page.
        let device = &job.participants[first].device;
        let first_step = device.host_steps.first().map_or(0, |step| step.start);
        let first_start = device.operations.first().map_or(first_step, |first| first.start);
        let origin = job.clock.relation(first).reference(first_start);
        for &index in participants {
            Drawing { job, index, origin, cited }.draw(&mut lanes);
        }
        let clock = job.clock.relation(first);
        let counted = &job.accounted[first].steps.counted;
        lanes.steps = counted
            .iter()
            .map(|step| {
                json!([
                    step.number,
                    clock.reference(step.start) - origin,
                    clock.reference(step.end) - origin
                ])
            })
            .collect();
        lanes
    }

    /// Where the page shows a recorded span: lane, start, length.
    pub fn place(&self, input: usize, span: u32) -> Option<Value> {
        let (lane, start, length) = self.places.get(&(input, span))?;
        Some(json!([lane, start, length]))
    }

    /// Leaves the shortest spans out where there are too many: they are below a pixel until far into the zoom.
    fn thin_out(&mut self) -> Option<String> {
        let spans = self.lanes.iter().flat_map(|lane| &lane.spans);
        let mut lengths: Vec<i64> = spans.map(|span| span.end - span.start).collect();
        let surplus = lengths.len().checked_sub(SPANS + 1)?;
        let (_, &mut longest, _) = lengths.select_nth_unstable(surplus);
        let longer = lengths.iter().filter(|length| **length > longest).count();
        let mut as_long = SPANS - longer;
        for lane in &mut self.lanes {
            lane.spans.retain(|span| {
                let length = span.end - span.start;
                let room = length == longest && as_long > 0;
                as_long -= usize::from(room);
                span.cited || length > longest || room
            });
        }
        let kept = self.lanes.iter().map(|lane| lane.spans.len()).sum::<usize>();
        let (count, longest) = (lengths.len() - kept, longest as f64 / 1e3);
        Some(format!("{count} spans of up to {longest:.1} us are not drawn."))
    }

    /// The data of the page, and what is left out of it.
    pub fn into_json(mut self) -> (Value, Option<String>) {
        let note = self.thin_out();
        let span = |s: &Drawn| json!([s.start, s.end - s.start, s.show as u8, s.name]);
        let lane = |lane: &Lane| {
            let spans: Vec<Value> = lane.spans.iter().map(span).collect();
            json!({"group": lane.group, "name": lane.name, "spans": spans})
        };
        let lanes: Vec<Value> = self.lanes.iter().map(lane).collect();
        (json!({"lanes": lanes, "names": self.names.texts, "steps": self.steps}), note)
    }
}

/// One device on its way into the lanes.
struct Drawing<'a> {
    job: &'a Job,
    index: usize,
    origin: i64,
    cited: &'a HashSet<(usize, u32)>,
}

impl Drawing<'_> {
    fn draw(&self, lanes: &mut Lanes) {
        let (start, end) = self.window();
        self.not_computing(lanes, start, end);
        if self.job.is_host_only() {
            self.host_operators(lanes, start, end);
            return;
        }
        let device = &self.job.participants[self.index].device;
        let inside: Vec<&Operation> =
            device.operations.iter().filter(|o| o.end > start && o.start < end).collect();
        let mut streams: Vec<i64> = inside.iter().map(|operation| operation.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let own: Vec<&Operation> =
                inside.iter().copied().filter(|o| o.stream == stream).collect();
            self.stream(lanes, stream, &own);
        }
        let calls = device.calls.iter().filter(|call| call.end > start && call.start < end);
        let calls = calls.map(|call| (call.start, call.end, Show::Host, call.span));
        self.recorded(lanes, "host calls", calls.collect());
    }

    /// The counted steps and a little on both sides, and evidence that is not far; everything where no step counts.
    fn window(&self) -> (i64, i64) {
        let participant = &self.job.participants[self.index];
        let window = self.job.accounted[self.index].steps.window();
        let Some((start, end)) = window else { return (i64::MIN, i64::MAX) };
        let (margin, far) = ((end - start) / 20, 2 * (end - start));
        let mut shown = (start - margin, end + margin);
        for operation in &participant.device.operations {
            let cited = self.cited.contains(&(participant.input, operation.span.0));
            if cited && operation.start > start - far && operation.end < end + far {
                shown =
                    (shown.0.min(operation.start - margin), shown.1.max(operation.end + margin));
            }
        }
        shown
    }

    fn relative(&self, time: i64) -> i64 {
        self.job.clock.relation(self.index).reference(time) - self.origin
    }

    fn group(&self) -> String {
        format!("rank {}", self.job.participants[self.index].rank)
    }

    /// The account of the device but for what it computes and the gaps that say little.
    fn not_computing(&self, lanes: &mut Lanes, start: i64, end: i64) {
        let parts = &self.job.accounted[self.index].parts;
        let told =
            |leaf: &Leaf| !leaf.is_compute() && !matches!(leaf, Leaf::GapShort | Leaf::GapGraph);
        let mut spans = vec![];
        for leaf in Leaf::ALL.into_iter().filter(told) {
            let show = match leaf {
                Leaf::Transfer | Leaf::Unsplit => Show::Transfer,
                Leaf::CommWait => Show::Wait,
                Leaf::CopyDevice => Show::Copy,
                _ => Show::Host,
            };
            let name = lanes.names.of(&format!("{}: {}", leaf.name(), leaf.meaning()));
            let set = parts.leaf(leaf).clip(start, end);
            spans.extend(set.intervals().iter().map(|&(from, to)| Drawn {
                start: self.relative(from),
                end: self.relative(to),
                show,
                name,
                cited: false,
            }));
        }
        self.add(lanes, "not computing", spans);
    }

    fn stream(&self, lanes: &mut Lanes, stream: i64, operations: &[&Operation]) {
        let timeline = self.job.timeline(self.index);
        let lane = lanes.lanes.len();
        let mut spans = vec![];
        for operation in operations {
            let (start, end) = (self.relative(operation.start), self.relative(operation.end));
            let name = lanes.names.of(timeline.name_of(operation.span));
            let cited = self.cite(lanes, lane, operation.span, start, end);
            let mut add = |start: i64, end: i64, show: Show| {
                spans.push(Drawn { start, end, show, name, cited });
            };
            let arrived = operation.all_arrived().map(|time| self.relative(time));
            match (operation.work, arrived) {
                (Work::Compute(_), _) => add(start, end, Show::Compute),
                // Until the last rank has arrived it waits.
                (Work::Collective, Some(arrived)) if arrived > start && arrived < end => {
                    add(start, arrived, Show::Wait);
                    add(arrived, end, Show::Transfer);
                }
                (Work::Collective, _) => add(start, end, Show::Transfer),
                (Work::Copy | Work::Fill, _) => add(start, end, Show::Copy),
            }
        }
        let (mut computing, mut collectives, mut copies) = (0, 0, 0);
        for operation in operations {
            let time = match operation.work {
                Work::Compute(_) => &mut computing,
                Work::Collective => &mut collectives,
                Work::Copy | Work::Fill => &mut copies,
            };
            *time += operation.end - operation.start;
        }
        let most = [(computing, "computing"), (collectives, "collectives"), (copies, "copies")];
        let what = most.into_iter().max_by_key(|(time, _)| *time).map_or("", |(_, what)| what);
        self.add(lanes, &format!("{what}, stream {stream}"), spans);
    }

    /// Operators and the loader of a rank without a device.
    fn host_operators(&self, lanes: &mut Lanes, start: i64, end: i64) {
        let device = &self.job.participants[self.index].device;
        let wall = WallClock::of(self.job.timeline(self.index));
        let operators = device.host_op_spans.iter().map(|&span| (wall.times(span), span));
        let mut spans: Vec<(i64, i64, Show, SpanId)> = operators
            .filter(|((from, to), _)| *to > start && *from < end)
            .map(|((from, to), span)| (from, to, Show::Compute, span))
            .collect();
        spans.sort_by_key(|&(from, to, ..)| (from, -to));
        self.recorded(lanes, "host", spans);
        let loader = device.loader.clip(start, end);
        let name = lanes.names.of("data loader");
        let loader = loader.intervals().iter().map(|&(from, to)| Drawn {
            start: self.relative(from),
            end: self.relative(to),
            show: Show::Host,
            name,
            cited: false,
        });
        self.add(lanes, "data loader", loader.collect());
    }

    fn recorded(&self, lanes: &mut Lanes, name: &str, spans: Vec<(i64, i64, Show, SpanId)>) {
        let timeline = self.job.timeline(self.index);
        let lane = lanes.lanes.len();
        let mut drawn = vec![];
        for (from, to, show, span) in spans {
            let (start, end) = (self.relative(from), self.relative(to));
            let name = lanes.names.of(timeline.name_of(span));
            let cited = self.cite(lanes, lane, span, start, end);
            drawn.push(Drawn { start, end, show, name, cited });
        }
        self.add(lanes, name, drawn);
    }

    /// Notes where a span is, if a finding cites it.
    fn cite(&self, lanes: &mut Lanes, lane: usize, span: SpanId, start: i64, end: i64) -> bool {
        let key = (self.job.participants[self.index].input, span.0);
        let cited = self.cited.contains(&key);
        if cited {
            lanes.places.insert(key, (lane, start, end - start));
        }
        cited
    }

    fn add(&self, lanes: &mut Lanes, name: &str, mut spans: Vec<Drawn>) {
        spans.sort_by_key(|span| span.start);
        if !spans.is_empty() {
            lanes.lanes.push(Lane { group: self.group(), name: name.to_owned(), spans });
        }
    }
}

#[derive(Default)]
struct Names {
    texts: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    fn of(&mut self, text: &str) -> usize {
        if let Some(&index) = self.index.get(text) {
            return index;
        }
        self.texts.push(text.to_owned());
        self.index.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}
