//! A thread that reads batches ahead into a bounded queue, and how long its rank waited for them.
//! Knows data sets and the sampler; knows no model and no device.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{Error, data::Dataset, sampler::Sampler};

/// The samples of one rank in one micro-step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Step, counted from 0.
    pub step: u64,
    /// Micro-step of the step, counted from 0.
    pub micro: u64,
    /// Global position of the first sample.
    pub first_sample: u64,
    /// Tokens, samples x length.
    pub inputs: Vec<i32>,
    /// Next tokens, samples x length.
    pub labels: Vec<i32>,
}

/// Reads the batches of one rank ahead.
pub struct Loader {
    queue: Option<Receiver<Result<Batch, Error>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts reading for `rank` from step `steps.start` up to, not including, `steps.end`; at most `prefetch` batches wait.
    pub fn start(
        data: Arc<Dataset>,
        sampler: Sampler,
        rank: u64,
        steps: std::ops::Range<u64>,
        prefetch: usize,
    ) -> Self {
        let (sender, queue) = sync_channel(prefetch.max(1));
        let thread = std::thread::Builder::new().name(format!("loader {rank}")).spawn(move || {
            for step in steps {
                for micro in 0..sampler.accumulation {
                    let batch = read(&data, &sampler, step, rank, micro);
                    let failed = batch.is_err();
                    if sender.send(batch).is_err() || failed {
                        return;
                    }
                }
            }
        });
        // Without a thread the queue is closed and the first wait says so.
        Self { queue: Some(queue), thread: thread.ok() }
    }

    /// The next batch and the time this call waited for it; `None` after the last.
    ///
    /// # Errors
    /// What the loader met while reading.
    pub fn next_batch(&mut self) -> Option<(Result<Batch, Error>, Duration)> {
        let begin = Instant::now();
        let batch = self.queue.as_ref()?.recv().ok()?;
        Some((batch, begin.elapsed()))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends at its next send; it cannot panic on input.
            let _ = thread.join();
        }
    }
}

/// Reads the samples of `rank` in micro-step `micro` of `step`.
///
/// # Errors
/// As [`Dataset::sample`].
pub fn read(
    data: &Dataset,
    sampler: &Sampler,
    step: u64,
    rank: u64,
    micro: u64,
) -> Result<Batch, Error> {
    let first_sample = sampler.first_position(step, rank, micro);
    let samples = usize::try_from(sampler.micro_batch()).unwrap_or(0);
    let length = data.length();
    let mut inputs = vec![0; samples * length];
    let mut labels = vec![0; samples * length];
    for (index, (inputs, labels)) in
        inputs.chunks_exact_mut(length).zip(labels.chunks_exact_mut(length)).enumerate()
    {
        data.sample(sampler.sample(first_sample + index as u64), inputs, labels)?;
    }
    Ok(Batch { step, micro, first_sample, inputs, labels })
}
