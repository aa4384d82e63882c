//! dropout keyed by seed, step, site, global sample and element: the mask is a function, not a tensor.
//!
//! Knows samples and their elements only.

use graph::random;

use super::{
    real::Real,
    workers::{Workers, vectorised},
};

/// What a mask depends on besides sample and element.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the step.
    pub step: u64,
    /// Where in the model, fixed at tracing.
    pub site: u64,
    /// Share of elements that become zero.
    pub probability: f64,
    /// Global position of the first sample.
    pub first_sample: u64,
}

/// `y = x / (1 - p)` where kept, 0 elsewhere; `elements` elements a sample.
pub fn dropout<T: Real>(workers: &Workers, mask: Mask, x: &[T], elements: usize, y: &mut [T]) {
    let threshold = random::keep_threshold(mask.probability);
    let scale = T::from_f64(1.0 / (1.0 - mask.probability));
    let total = x.len();
    let elements = elements.max(1);
    let items: Vec<_> = x.chunks(elements).zip(y.chunks_mut(elements)).enumerate().collect();
    workers.each(items, total, |(sample, (x, y))| {
        let sample = mask.first_sample.wrapping_add(sample as u64);
        let key = random::sample_key(mask.seed, mask.step, mask.site, sample);
        vectorised(
            #[inline(always)]
            || {
                for (element, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                    let kept = key.keeps(element as u32, threshold);
                    *y = if kept { x * scale } else { T::ZERO };
                }
            },
        );
    });
}
