//! Interleaved timing on one stream. Knows candidates as closures; not what they compute.
//!
//! Clocks move times by several percent within seconds, so candidates alternate: in each round every candidate
//! gives one sample, and the round's order rotates. A sample is the replay of a CUDA graph of several calls over
//! rotating buffer sets, which keeps the host out of the figures and the second-level cache cold.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use native::{
    driver::{Event, Stream},
    graph::{self, GraphExec},
};

use super::{Samples, Session};

type Body<'a> = Box<dyn FnMut(&Stream, usize) -> Result<()> + 'a>;

/// One way of doing the work under measurement.
pub struct Candidate<'a> {
    /// Name in the table.
    pub name: String,
    body: Body<'a>,
}

impl<'a> Candidate<'a> {
    /// `body(stream, set)` submits one call that uses the buffers of `set`.
    pub fn new(
        name: impl Into<String>,
        body: impl FnMut(&Stream, usize) -> Result<()> + 'a,
    ) -> Candidate<'a> {
        Candidate { name: name.into(), body: Box::new(body) }
    }
}

/// How long to measure.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Samples of each candidate.
    pub rounds: usize,
    /// Rounds that are thrown away.
    pub discarded: usize,
    /// Aim for the length of a sample; a sample has at least one call for each buffer set.
    pub sample: Duration,
    /// Buffer sets that the candidates rotate over.
    pub sets: usize,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { rounds: 15, discarded: 2, sample: Duration::from_millis(2), sets: 1 }
    }
}

/// What came of one candidate.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The candidate's name.
    pub name: String,
    /// Milliseconds a call.
    pub samples: Samples,
}

/// Times all candidates against each other, in the order given. An error of any candidate ends the measurement.
pub fn interleave(
    session: &Session,
    candidates: &mut [Candidate<'_>],
    timing: &Timing,
) -> Result<Vec<Outcome>> {
    let results = interleave_each(session, candidates, timing)?;
    let named = candidates.iter().zip(results);
    named
        .map(|(candidate, result)| {
            let samples = result.with_context(|| candidate.name.clone())?;
            Ok(Outcome { name: candidate.name.clone(), samples })
        })
        .collect()
}

/// As [`interleave`], but a candidate that cannot be submitted or recorded is left out and its error returned in
/// its place.
pub fn interleave_each(
    session: &Session,
    candidates: &mut [Candidate<'_>],
    timing: &Timing,
) -> Result<Vec<Result<Samples>>> {
    let stream = &session.stream;
    let mut prepared: Vec<Result<Prepared>> =
        candidates.iter_mut().map(|c| Prepared::new(session, c, timing)).collect();
    let count = prepared.len();
    let mut samples: Vec<Vec<f64>> = vec![vec![]; count];
    for round in 0..timing.rounds + timing.discarded {
        let order = (0..count).map(|i| (i + round) % count);
        for index in order.clone() {
            if let Ok(ready) = &mut prepared[index] {
                ready.submit(stream)?;
            }
        }
        stream.synchronize()?;
        for index in order.filter(|_| round >= timing.discarded) {
            if let Ok(ready) = &prepared[index] {
                samples[index].push(ready.milliseconds()?);
            }
        }
    }
    let results = prepared.into_iter().zip(samples);
    Ok(results
        .map(|(ready, samples)| {
            ready?;
            Samples::new(samples).context("no rounds were asked for")
        })
        .collect())
}

/// A candidate recorded into a graph, with the events around its samples.
struct Prepared {
    graph: GraphExec,
    calls: usize,
    start: Event,
    end: Event,
}

impl Prepared {
    fn new(session: &Session, candidate: &mut Candidate<'_>, timing: &Timing) -> Result<Prepared> {
        let stream = &session.stream;
        let sets = timing.sets.max(1);
        let (start, end) = (Event::timing(&session.context)?, Event::timing(&session.context)?);
        // Once for lazy loading, once on the clock.
        (candidate.body)(stream, 0)?;
        stream.synchronize()?;
        start.record(stream)?;
        (candidate.body)(stream, 0)?;
        end.record(stream)?;
        stream.synchronize()?;
        let one = end.milliseconds_since(&start)?.max(1e-3);
        let wanted = (timing.sample.as_secs_f64() * 1e3 / one).ceil() as usize;
        let calls = wanted.clamp(1, 64).max(sets).next_multiple_of(sets);
        let mut failed = None;
        let graph = graph::capture(stream, || {
            for call in 0..calls {
                if let Err(error) = (candidate.body)(stream, call % sets) {
                    failed = Some(error);
                    break;
                }
            }
            Ok(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut graph = graph?.instantiate()?;
        graph.upload(stream)?;
        Ok(Prepared { graph, calls, start, end })
    }

    fn submit(&mut self, stream: &Stream) -> Result<()> {
        self.start.record(stream)?;
        self.graph.launch(stream)?;
        Ok(self.end.record(stream)?)
    }

    fn milliseconds(&self) -> Result<f64> {
        Ok(self.end.milliseconds_since(&self.start)? / self.calls as f64)
    }
}

/// Keeps the device busy with `body` for `length`, so that clocks and power settle.
pub(super) fn warm_up(
    stream: &Stream,
    length: Duration,
    mut body: impl FnMut() -> Result<()>,
) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < length {
        for _ in 0..8 {
            body()?;
        }
        stream.synchronize()?;
    }
    Ok(())
}
