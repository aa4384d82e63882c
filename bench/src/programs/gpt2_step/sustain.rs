//! A second choice among a product's fastest algorithms: by what they sustain, one at a time, under the card's power limit.
//! Knows matmuls; not the schedule.
//!
//! At the power limit the step's time is its energy over the limit, and clocks follow. An algorithm that is as fast as another in a mixed
//! run but takes less energy makes everything else faster; run alone for long enough, it shows as time.

use anyhow::Result;
use native::driver::Event;

use super::matmuls::{Choice, Matmuls, median};

/// Slower ones than this multiple of the fastest are left out.
const NEAR: f64 = 1.06;
/// Most candidates of a product.
const MOST: usize = 3;
const ROUNDS: usize = 2;
/// Part of a block in which clocks settle.
const SETTLING: f64 = 0.4;

impl Matmuls {
    /// Runs the nearly fastest algorithms of the named products in blocks of `seconds` and picks each product's best; completes `found`.
    pub fn sustain(&self, names: &[String], seconds: f64, found: &mut [Choice]) -> Result<()> {
        let (stream, context) = (&self.stream, self.stream.context());
        let (start, end) = (Event::timing(context)?, Event::timing(context)?);
        for choice in found.iter_mut().filter(|choice| names.contains(&choice.name)) {
            let mut products = self.products.borrow_mut();
            let Some(tuned) = products.get_mut(&choice.name) else { continue };
            let near = tuned.medians.iter().filter(|(_, ms)| *ms <= choice.best_ms * NEAR);
            let mut near: Vec<(usize, f64)> = near.copied().collect();
            near.sort_by(|a, b| a.1.total_cmp(&b.1));
            near.truncate(MOST);
            let mut sustained: Vec<(usize, Vec<f64>)> =
                near.iter().map(|n| (n.0, vec![])).collect();
            if sustained.len() < 2 {
                continue;
            }
            let runs = (seconds * 1e3 / choice.best_ms).ceil() as usize;
            let settling = (runs as f64 * SETTLING) as usize;
            for _ in 0..ROUNDS {
                for (index, times) in &mut sustained {
                    for run in 0..runs {
                        if run == settling {
                            start.record(stream)?;
                        }
                        let buffers = &tuned.samples[run % tuned.samples.len()];
                        let algorithm = &tuned.algorithms[*index];
                        tuned.matmul.run(stream, algorithm, (1.0, tuned.beta), buffers)?;
                    }
                    end.record(stream)?;
                    stream.synchronize()?;
                    times.push(end.milliseconds_since(&start)? / (runs - settling) as f64);
                }
            }
            let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
            let best = sustained.iter().min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
            if let Some((index, times)) = best {
                tuned.pick = *index;
                choice.sustained_pick = *index;
                choice.sustained_ms = mean(times);
                let quick = sustained.iter().find(|(index, _)| *index == choice.pick);
                choice.sustained_ms_of_pick = quick.map_or(0.0, |(_, times)| median(times));
                choice.settings = tuned.algorithms[*index].describe()?;
            }
        }
        Ok(())
    }
}
