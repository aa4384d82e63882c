//! Ways to bring gradients together, bucket by bucket: all-reduce, reduce-scatter + all-gather, all-to-all + all-gather.
//!
//! A bucket of n parameters has 4n bytes of fp32 gradients. Every way ends with the same n parameters (fp32 or bf16) on
//! every rank; the sharded ways leave the optimizer between their halves, which is not timed. All are recorded into
//! CUDA graphs, in NCCL's memory; ways with "zero-CTA" use symmetric windows and copy engines.

use anyhow::Result;
use clap::Args;
use native::{
    DataType::{Bf16, F32},
    driver::{Event, Stream},
    graph,
    memory::DevicePointer,
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    PLAIN, Rank, RankCandidate, RankOptions, Row,
    loads::{Exchange, Placement},
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
    /// Samples of each cell
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

const MEBIBYTES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SAMPLE_MS: f64 = 4.0;

/// Measures and writes `gradient_sync.json` and `gradient_sync.md`.
pub fn run(options: &Options) -> Result<()> {
    options.ranks.on_ranks(&[PLAIN], |rank| measure(rank, options.rounds))
}

type Submit<'a> = Box<dyn Fn(usize, &Stream) -> native::Result<()> + 'a>;

/// The ways by name; each submits the synchronisation of `n` parameters.
fn ways<'a>(
    usual: (&'a Communicator, &'a Exchange<'a>),
    window: Option<(&'a Communicator, &'a Exchange<'a>)>,
    zero: Option<(&'a Communicator, &'a Exchange<'a>)>,
) -> Vec<(&'static str, Submit<'a>)> {
    const SUM: Reduction = Reduction::Sum;
    let (c, m) = usual;
    let ranks = c.ranks() as usize;
    let shard = move |at: DevicePointer, c: &Communicator, bytes: usize| -> DevicePointer {
        at.offset(c.rank() as usize * bytes / ranks)
    };
    let mut all: Vec<(&'static str, Submit<'a>)> = vec![
        ("all-reduce fp32", Box::new(move |n, s| c.all_reduce(m.from, m.to, n, (F32, SUM), s))),
        ("all-reduce bf16", Box::new(move |n, s| c.all_reduce(m.from, m.to, n, (Bf16, SUM), s))),
        (
            "reduce-scatter fp32 + all-gather fp32",
            Box::new(move |n, s| {
                c.reduce_scatter(m.from, shard(m.to, c, 4 * n), n / ranks, (F32, SUM), s)?;
                c.all_gather(shard(m.from, c, 4 * n), m.from, n / ranks, F32, s)
            }),
        ),
        (
            "reduce-scatter fp32 + all-gather bf16",
            Box::new(move |n, s| {
                c.reduce_scatter(m.from, shard(m.to, c, 4 * n), n / ranks, (F32, SUM), s)?;
                c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)
            }),
        ),
        (
            "reduce-scatter bf16 + all-gather bf16",
            Box::new(move |n, s| {
                c.reduce_scatter(m.from, shard(m.to, c, 2 * n), n / ranks, (Bf16, SUM), s)?;
                c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)
            }),
        ),
        (
            "all-to-all bf16 + all-gather bf16",
            Box::new(move |n, s| {
                c.all_to_all(m.from, m.to, n / ranks, Bf16, s)?;
                c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)
            }),
        ),
    ];
    if let Some((c, m)) = window {
        all.push((
            "all-reduce fp32, windows",
            Box::new(move |n, s| c.all_reduce(m.from, m.to, n, (F32, SUM), s)),
        ));
        all.push((
            "reduce-scatter fp32 + all-gather bf16, windows",
            Box::new(move |n, s| {
                c.reduce_scatter(m.from, shard(m.to, c, 4 * n), n / ranks, (F32, SUM), s)?;
                c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)
            }),
        ));
    }
    if let Some((c, m)) = zero {
        all.push((
            "all-to-all bf16 + all-gather bf16, zero-CTA",
            Box::new(move |n, s| {
                c.all_to_all(m.from, m.to, n / ranks, Bf16, s)?;
                c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)
            }),
        ));
        all.push((
            "all-gather bf16 alone, zero-CTA",
            Box::new(move |n, s| c.all_gather(shard(m.from, c, 2 * n), m.from, n / ranks, Bf16, s)),
        ));
    }
    all
}

fn measure(rank: &mut Rank, rounds: usize) -> Result<()> {
    let rank = &*rank;
    let mut report = rank.report("gradient_sync")?;
    let largest = MEBIBYTES[MEBIBYTES.len() - 1] << 20;
    let usual = rank.communicator(&nccl::Options::default())?;
    let zero = rank.communicator(&nccl::Options { zero_ctas: true, ..Default::default() })?;
    let memory = Exchange::new(&usual, Placement::Allocated, largest)?;
    // Where devices cannot map each other's memory there are no windows, on any rank.
    let window = Exchange::new(&usual, Placement::Window, largest).ok();
    let zero_window = Exchange::new(&zero, Placement::Window, largest).ok();
    let ways = ways(
        (&usual, &memory),
        window.as_ref().map(|w| (&usual, w)),
        zero_window.as_ref().map(|w| (&zero, w)),
    );
    let stream = &rank.session.stream;
    let (start, end) =
        (Event::timing(&rank.session.context)?, Event::timing(&rank.session.context)?);
    for mebibytes in MEBIBYTES {
        let n = (mebibytes << 20) / 4;
        let sample = |calls: usize, submit: &mut dyn FnMut() -> Result<()>| -> Result<Vec<f64>> {
            rank.align()?;
            start.record(stream)?;
            submit()?;
            end.record(stream)?;
            end.synchronize()?;
            Ok(vec![end.milliseconds_since(&start)? / calls as f64])
        };
        let mut graphs = vec![];
        let mut calls = 0;
        for (_, submit) in &ways {
            let mut once = || Ok(submit(n, stream)?);
            sample(1, &mut once)?;
            if calls == 0 {
                let one = rank.agree(sample(1, &mut once)?[0])?;
                calls = (SAMPLE_MS / one.max(1e-3)).ceil().clamp(1.0, 64.0) as usize;
            }
            let graph = graph::capture(stream, || (0..calls).try_for_each(|_| submit(n, stream)))?;
            let mut graph = graph.instantiate()?;
            graph.upload(stream)?;
            graphs.push(graph);
        }
        let sample = &sample;
        let mut candidates: Vec<RankCandidate> = ways
            .iter()
            .zip(&mut graphs)
            .map(|((name, _), graph)| {
                RankCandidate::new(*name, move |_| sample(calls, &mut || Ok(graph.launch(stream)?)))
            })
            .collect();
        let results = rank.interleave(&mut candidates, rounds, 1)?;
        let Some(report) = &mut report else { continue };
        let base = results[0].of(0)?.median;
        for ((name, _), figures) in ways.iter().zip(&results) {
            let samples = figures.of(0)?;
            let row = Row::new()
                .text("way", *name)
                .integer("bucket MiB of fp32", mebibytes as u64)
                .timing(&samples)
                .number("against all-reduce fp32", samples.median / base, 3)
                .number("gradient GB/s", 4.0 * n as f64 / samples.median / 1e6, 1);
            report.add("Gradient synchronisation, recorded", row)?;
        }
    }
    report.map_or(Ok(()), |r| r.finish())
}
