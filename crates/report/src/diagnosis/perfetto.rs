//! All ranks of a job on one clock as a Chrome trace, with the findings as tracks of their own.
//!
//! Knows jobs and findings; how events are written is `chrome_trace`'s matter.

use std::io::{self, Write};

use diagnose::{align::Relation, diagnosis::Diagnosis, job::Job};
use timeline::{Duration, Kind, Process, Time, Timeline, TrackKind};

use crate::chrome_trace;

/// What a joined timeline states first, so that it is not taken for a recording.
const JOINED: &str = "counterpoint.joined/1";

/// Writes the joined timeline.
///
/// # Errors
/// Those of `out`.
pub fn write(job: &Job, diagnosis: &Diagnosis, out: &mut impl Write) -> io::Result<()> {
    chrome_trace::write(&joined(job, diagnosis), JOINED, out)
}

/// Ranks on the first one's clock, then one track for each finding with the spans it cites.
fn joined(job: &Job, diagnosis: &Diagnosis) -> Timeline {
    let mut all = Timeline::new();
    let mut inputs: Vec<(usize, Relation)> = vec![];
    for (index, participant) in job.participants.iter().enumerate() {
        if !inputs.iter().any(|(input, _)| *input == participant.input) {
            inputs.push((participant.input, job.clock.relation(index)));
        }
    }
    if inputs.is_empty() {
        let recorded = |index: &usize| !job.inputs[*index].timeline.spans.is_empty();
        inputs.extend(
            (0..job.inputs.len()).filter(recorded).map(|index| (index, Relation::default())),
        );
    }
    let wall_clock_zero =
        inputs.first().and_then(|(input, _)| job.inputs[*input].timeline.wall_clock_zero);
    let zero = wall_clock_zero.unwrap_or(0);
    // A time of an input on the first rank's clock.
    let moved = |input: usize, clock: &Relation, time: Time| {
        let own = job.inputs[input].timeline.wall_clock_zero.unwrap_or(0);
        let time = clock.reference(own.saturating_add(time.nanos()));
        Time::from_nanos(time.saturating_sub(zero))
    };
    for (input, clock) in &inputs {
        let mut own = job.inputs[*input].timeline.clone();
        own.move_times(|time| moved(*input, clock, time));
        own.wall_clock_zero = wall_clock_zero;
        all.append(own);
    }
    let process = all.add_process(Process { name: "findings".to_owned(), ..Process::default() });
    let window = job.accounted.first().and_then(|accounted| accounted.steps.window());
    for (number, finding) in diagnosis.findings.iter().enumerate() {
        let kind = TrackKind::Thread { thread: number as i64 };
        let track = all.track(process, kind, &format!("{}: {}", finding.id, finding.title));
        let mut add = |name: &str, start: i64, end: i64| {
            let length = Duration::from_nanos(end.saturating_sub(start).max(0));
            all.add(track, Kind::Mark, name, Time::from_nanos(start), length);
        };
        let mut cited = false;
        for evidence in &finding.evidence {
            let Some(span) = &evidence.span else { continue };
            let found = inputs.iter().find(|(input, _)| job.inputs[*input].name == evidence.file);
            let Some((input, clock)) = found else { continue };
            let at = |time: i64| moved(*input, clock, Time::from_nanos(time)).nanos();
            add(&evidence.text, at(span.start_ns), at(span.end_ns));
            cited = true;
        }
        // What is not in single spans holds for all counted steps.
        if let Some((start, end)) = window.filter(|_| !cited) {
            add(&finding.title, start - zero, end - zero);
        }
    }
    all
}
