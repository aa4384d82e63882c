//! Device memory bandwidth: the driver's copy at several sizes. The least program that shows the harness's use.

use anyhow::Result;
use clap::Args;
use native::{
    DataType,
    memory::{self, DeviceBuffer},
};

use bench::harness::{Candidate, Common, Random, Report, Row, Timing, interleave};

/// A large copy is split into such pieces for comparison.
const PIECE: usize = 256 << 20;

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
}

/// Measures and writes `copy.json` and `copy.md`.
pub fn run(options: &Options) -> Result<()> {
    let sizes = [1usize << 20, 16 << 20, 256 << 20, 1 << 30];
    let Some(session) = options.common.open()? else { return Ok(()) };
    let mut report = Report::new(&options.common, session.header()?, "copy")?;
    let pattern = Random::new(1).normals(DataType::Bf16, 1 << 18, 1.0);
    for bytes in sizes {
        let sets = session.rotating_sets(2 * bytes);
        let buffers = (0..sets)
            .map(|_| {
                let mut from = DeviceBuffer::<u8>::new(&session.context, bytes)?;
                from.fill_repeating(bytemuck::cast_slice(&pattern))?;
                Ok((from, DeviceBuffer::<u8>::new(&session.context, bytes)?))
            })
            .collect::<Result<Vec<_>>>()?;
        let piece = bytes.min(PIECE);
        let mut candidates = vec![
            Candidate::new("one copy", |stream, set| {
                let (from, to) = &buffers[set % sets];
                Ok(memory::copy_on(to.pointer(), from.pointer(), bytes, stream)?)
            }),
            Candidate::new("pieces of 256 MiB", |stream, set| {
                let (from, to) = &buffers[set % sets];
                for at in (0..bytes).step_by(piece) {
                    let (to, from) = (to.pointer().offset(at), from.pointer().offset(at));
                    memory::copy_on(to, from, piece, stream)?;
                }
                Ok(())
            }),
        ];
        let timing = Timing { sets, ..Timing::default() };
        for result in interleave(&session, &mut candidates, &timing)? {
            let speed = 2.0 * bytes as f64 / result.samples.median / 1e9;
            let row = Row::new()
                .integer("bytes", bytes as u64)
                .text("as", &result.name)
                .timing(&result.samples)
                .number("TB/s", speed, 2);
            report.add("Driver copy (read and written bytes)", row)?;
        }
    }
    report.finish()
}
