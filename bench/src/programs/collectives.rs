//! Bus bandwidth of every collective, at every size, for each way to place its buffers; eager and recorded.
//!
//! Bytes are those of the whole buffer: input of a reduce-scatter, output of an all-gather. Bus bandwidth is
//! bytes / time times 2(n-1)/n for the all-reduce, (n-1)/n for reduce-scatter, all-gather and all-to-all, 1 for
//! broadcast and the exchange of neighbours. Values are checked before they are timed. Each collective has processes
//! of its own, so that one that fails costs the others nothing.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use native::{
    DataType::{Bf16, F32},
    driver::{Event, Stream},
    graph,
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    Rank, RankCandidate, RankOptions, Row, Samples, Variant,
    loads::{Exchange, Placement, read, tile},
    say,
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
    /// Samples of each cell
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

const SIZES: [usize; 9] =
    [8 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30];
const LARGEST: usize = SIZES[SIZES.len() - 1];
const PATTERN: usize = 1 << 16;
/// A sample is as many calls as take about this long.
const SAMPLE_MS: f64 = 3.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Collective {
    AllReduce,
    AllReduceBf16,
    ReduceScatter,
    AllGather,
    AllToAll,
    Broadcast,
    Neighbours,
}

use Collective::{
    AllGather, AllReduce, AllReduceBf16, AllToAll, Broadcast, Neighbours, ReduceScatter,
};

const COLLECTIVES: [Collective; 7] =
    [AllReduce, AllReduceBf16, ReduceScatter, AllGather, AllToAll, Broadcast, Neighbours];
/// NCCL says why it refuses a call.
const LOG: &[(&str, &str)] = &[("NCCL_DEBUG", "WARN")];
const VARIANTS: [Variant; 7] = [
    ("all_reduce", LOG),
    ("all_reduce_bf16", LOG),
    ("reduce_scatter", LOG),
    ("all_gather", LOG),
    ("all_to_all", LOG),
    ("broadcast", LOG),
    ("neighbours", LOG),
];

impl Collective {
    fn name(self) -> &'static str {
        match self {
            AllReduce => "all-reduce fp32",
            AllReduceBf16 => "all-reduce bf16",
            ReduceScatter => "reduce-scatter fp32",
            AllGather => "all-gather",
            AllToAll => "all-to-all",
            Broadcast => "broadcast",
            Neighbours => "send + receive",
        }
    }

    fn bus_factor(self, ranks: f64) -> f64 {
        match self {
            AllReduce | AllReduceBf16 => 2.0 * (ranks - 1.0) / ranks,
            ReduceScatter | AllGather | AllToAll => (ranks - 1.0) / ranks,
            Broadcast | Neighbours => 1.0,
        }
    }

    /// Submits it over `bytes`.
    fn submit(
        self,
        c: &Communicator,
        memory: &Exchange<'_>,
        bytes: usize,
        stream: &Stream,
    ) -> native::Result<()> {
        let (from, to, sum) = (memory.from, memory.to, Reduction::Sum);
        let ranks = c.ranks() as usize;
        match self {
            AllReduce => c.all_reduce(from, to, bytes / 4, (F32, sum), stream),
            AllReduceBf16 => c.all_reduce(from, to, bytes / 2, (Bf16, sum), stream),
            ReduceScatter => c.reduce_scatter(from, to, bytes / 4 / ranks, (F32, sum), stream),
            AllGather => c.all_gather(from, to, bytes / 4 / ranks, F32, stream),
            AllToAll => c.all_to_all(from, to, bytes / 4 / ranks, F32, stream),
            Broadcast => c.broadcast(from, to, bytes / 4, (F32, 0), stream),
            Neighbours => nccl::group(|| {
                let (rank, ranks) = (c.rank(), c.ranks());
                c.send(from, bytes / 4, (F32, (rank + 1) % ranks), stream)?;
                c.receive(to, bytes / 4, (F32, (rank + ranks - 1) % ranks), stream)
            }),
        }
    }

    /// What element `i` of the target must be; `None` where values are not checked.
    fn expected(self, rank: u32, ranks: u32, bytes: usize, i: usize) -> Option<f32> {
        let part = bytes / 4 / ranks as usize;
        let sum = |i: usize| (0..ranks).map(|r| value(i, r)).sum::<f32>();
        match self {
            AllReduce => Some(sum(i)),
            AllReduceBf16 => None,
            ReduceScatter => (i < part).then(|| sum(rank as usize * part + i)),
            AllGather => Some(value(i % part, (i / part) as u32)),
            AllToAll => Some(value(rank as usize * part + i % part, (i / part) as u32)),
            Broadcast => Some(value(i, 0)),
            Neighbours => Some(value(i, (rank + ranks - 1) % ranks)),
        }
    }
}

/// Element `i` of rank `rank`'s source; exact in fp32 also when summed.
fn value(i: usize, rank: u32) -> f32 {
    (i % PATTERN % 1021) as f32 + 0.5 * rank as f32
}

/// Measures and writes `collectives.NAME.json` and `.md` for each collective.
pub fn run(options: &Options) -> Result<()> {
    options.ranks.on_ranks(&VARIANTS, |rank| {
        let chosen = VARIANTS.iter().zip(COLLECTIVES).find(|((name, _), _)| *name == rank.variant);
        let (_, collective) = chosen.context("a variant that is not in the list")?;
        measure(rank, collective, options.rounds)
    })
}

struct Way<'a> {
    name: String,
    communicator: &'a Communicator,
    memory: Exchange<'a>,
    zero: bool,
}

fn measure(rank: &mut Rank, collective: Collective, rounds: usize) -> Result<()> {
    let rank = &*rank;
    let mut report = rank.report(&format!("collectives.{}", rank.variant))?;
    let usual = rank.communicator(&nccl::Options::default())?;
    let zero = rank.communicator(&nccl::Options { zero_ctas: true, ..Default::default() })?;
    let mut ways = vec![];
    for (communicator, placement, is_zero) in Placement::ALL
        .map(|p| (&usual, p, false))
        .into_iter()
        .chain([(&zero, Placement::Window, true)])
    {
        let name = if is_zero { "symmetric window, zero-CTA" } else { placement.name() };
        match Exchange::new(communicator, placement, LARGEST) {
            Ok(memory) => {
                let pattern: Vec<f32> = (0..PATTERN).map(|i| value(i, rank.rank)).collect();
                let stream = &rank.session.stream;
                tile(&rank.session.context, memory.from, LARGEST, &pattern, stream)?;
                ways.push(Way { name: name.into(), communicator, memory, zero: is_zero });
            }
            Err(error) => {
                say(&format!("rank {}: {name}: {error:#}", rank.rank));
                if let Some(report) = &mut report {
                    let row = Row::new().text("placement", name).text("error", error.to_string());
                    report.add("Not available", row)?;
                }
            }
        }
    }
    let ways: Vec<&Way> = ways.iter().filter(|w| applies(w, collective)).collect();
    for way in &ways {
        check(rank, way, collective)
            .with_context(|| format!("{} in {}", collective.name(), way.name))?;
    }
    for bytes in SIZES {
        let results = time(rank, &ways, collective, bytes, rounds)?;
        let Some(report) = &mut report else { continue };
        for (way, (eager, recorded)) in ways.iter().zip(results) {
            let factor = collective.bus_factor(f64::from(rank.ranks)) * bytes as f64 / 1e6;
            let row = Row::new()
                .text("collective", collective.name())
                .integer("bytes", bytes as u64)
                .text("placement", way.name.clone())
                .number("us", eager.median * 1e3, 1)
                .number("p10", eager.p10 * 1e3, 1)
                .number("p90", eager.p90 * 1e3, 1)
                .number("busbw GB/s", factor / eager.median, 1)
                .number("recorded us", recorded.median * 1e3, 1)
                .number("recorded p10", recorded.p10 * 1e3, 1)
                .number("recorded p90", recorded.p90 * 1e3, 1)
                .number("recorded busbw GB/s", factor / recorded.median, 1);
            report.add("Collectives", row)?;
        }
    }
    report.map_or(Ok(()), |r| r.finish())
}

/// Copy engines carry all-gather and all-to-all only.
fn applies(way: &Way, collective: Collective) -> bool {
    !way.zero || matches!(collective, AllGather | AllToAll)
}

fn check(rank: &Rank, way: &Way, collective: Collective) -> Result<()> {
    const BYTES: usize = 4 << 20;
    let (context, stream) = (&rank.session.context, &rank.session.stream);
    // The first call of a way prepares it, which NCCL cannot do while a stream is recorded.
    collective.submit(way.communicator, &way.memory, BYTES, stream)?;
    stream.synchronize()?;
    let graph =
        graph::capture(stream, || collective.submit(way.communicator, &way.memory, BYTES, stream))?;
    let mut graph = graph.instantiate()?;
    for recorded in [false, true, true] {
        tile(context, way.memory.to, BYTES, &[f32::NAN; 256], stream)?;
        rank.barrier()?;
        if recorded {
            graph.launch(stream)?;
        } else {
            collective.submit(way.communicator, &way.memory, BYTES, stream)?;
        }
        stream.synchronize()?;
        let got = read(context, way.memory.to, BYTES / 4, stream)?;
        let wrong = got.iter().enumerate().filter(|(i, got)| {
            collective
                .expected(rank.rank, rank.ranks, BYTES, *i)
                .is_some_and(|expected| **got != expected)
        });
        let wrong = wrong.count();
        way.communicator.asynchronous_error()?;
        if wrong > 0 {
            bail!(
                "{}: {wrong} of {} values are wrong on rank {}",
                if recorded { "recorded" } else { "eager" },
                BYTES / 4,
                rank.rank
            );
        }
    }
    Ok(())
}

/// Milliseconds of one call, eager and recorded, for each way.
fn time(
    rank: &Rank,
    ways: &[&Way],
    collective: Collective,
    bytes: usize,
    rounds: usize,
) -> Result<Vec<(Samples, Samples)>> {
    let stream = &rank.session.stream;
    let (start, end) =
        (Event::timing(&rank.session.context)?, Event::timing(&rank.session.context)?);
    let sample = |calls: usize, submit: &mut dyn FnMut() -> Result<()>| -> Result<Vec<f64>> {
        rank.align()?;
        start.record(stream)?;
        submit()?;
        end.record(stream)?;
        end.synchronize()?;
        Ok(vec![end.milliseconds_since(&start)? / calls as f64])
    };
    let Some(first) = ways.first() else { return Ok(vec![]) };
    let mut once = || Ok(collective.submit(first.communicator, &first.memory, bytes, stream)?);
    sample(1, &mut once)?;
    let one = rank.agree(sample(1, &mut once)?[0])?;
    let calls = (SAMPLE_MS / one.max(1e-3)).ceil().clamp(1.0, 100.0) as usize;
    let mut graphs = vec![];
    for way in ways {
        let graph = graph::capture(stream, || {
            (0..calls)
                .try_for_each(|_| collective.submit(way.communicator, &way.memory, bytes, stream))
        })?;
        let mut graph = graph.instantiate()?;
        graph.upload(stream)?;
        graphs.push(graph);
    }
    let mut candidates: Vec<RankCandidate> = vec![];
    let sample = &sample;
    for (way, graph) in ways.iter().zip(&mut graphs) {
        candidates.push(RankCandidate::new(way.name.clone(), move |_| {
            sample(calls, &mut || {
                for _ in 0..calls {
                    collective.submit(way.communicator, &way.memory, bytes, stream)?;
                }
                Ok(())
            })
        }));
        candidates.push(RankCandidate::new(format!("{} recorded", way.name), move |_| {
            sample(calls, &mut || Ok(graph.launch(stream)?))
        }));
    }
    let results = rank.interleave(&mut candidates, rounds, 1)?;
    results.chunks_exact(2).map(|pair| Ok((pair[0].of(0)?, pair[1].of(0)?))).collect()
}
