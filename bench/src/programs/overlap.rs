//! Collectives beside a neighbour: what it costs to hide them, by number of blocks (CTAs), stream priority and the
//! neighbour's share of the device.
//!
//! A sample runs neighbours alone on the whole device, and neighbours on one stream beside collectives on another, one
//! right after the other and in turns: clocks and power are the same for both, and their difference is the cost. There is
//! about as much communication as takes `--share` of the neighbours' time, alone. The neighbour is a large product or a
//! memory-bound kernel; with a target it is told to leave as many multiprocessors as the collective has blocks.

use anyhow::Result;
use clap::Args;
use native::{
    DataType::{Bf16, F32},
    driver::{Event, Priority, Stream},
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    Figures, PLAIN, Rank, RankCandidate, RankOptions, Report, Row, Samples,
    loads::{Exchange, Placement, Product, Sweep, compile_sweep},
    say,
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
    /// Samples of each configuration
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Communication as a part of the neighbours' time, each alone
    #[arg(long, default_value_t = 0.4)]
    share: f64,
}

const CTAS: [u32; 6] = [1, 2, 4, 8, 16, 24];
const BUCKET: usize = 16 << 20;
const PRODUCT: usize = 8192;
const NEIGHBOURS: usize = 6;

/// Measures and writes `overlap.json` and `overlap.md`.
pub fn run(options: &Options) -> Result<()> {
    if options.ranks.dry_run() {
        compile_sweep("sm_90")?;
    }
    options.ranks.on_ranks(&[PLAIN], |rank| measure(rank, options.rounds, options.share))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All-reduce in NCCL's registered memory.
    Usual,
    /// All-reduce in symmetric windows.
    Window,
    /// Reduce-scatter in NCCL's registered memory.
    Scatter,
    /// All-gather by copy engines.
    CopyGather,
    /// All-to-all by copy engines.
    CopyExchange,
}

struct Lane {
    kind: Kind,
    ctas: u32,
    communicator: Communicator,
}

impl Lane {
    fn new(rank: &Rank, kind: Kind, ctas: u32) -> Result<Lane> {
        let options = match kind {
            Kind::Usual | Kind::Window | Kind::Scatter => nccl::Options::at_most(ctas),
            _ => nccl::Options { zero_ctas: true, ..Default::default() },
        };
        Ok(Lane { kind, ctas, communicator: rank.communicator(&options)? })
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Usual => "all-reduce fp32",
            Kind::Window => "all-reduce fp32, windows",
            Kind::Scatter => "reduce-scatter fp32",
            Kind::CopyGather => "all-gather bf16, zero-CTA",
            Kind::CopyExchange => "all-to-all bf16, zero-CTA",
        }
    }

    fn placement(&self) -> Placement {
        match self.kind {
            Kind::Usual | Kind::Scatter => Placement::Allocated,
            _ => Placement::Window,
        }
    }

    fn submit(&self, memory: &Exchange<'_>, stream: &Stream) -> native::Result<()> {
        let (c, ranks) = (&self.communicator, self.communicator.ranks() as usize);
        let part = BUCKET / 4 / ranks;
        match self.kind {
            Kind::Usual | Kind::Window => {
                let kind = (F32, Reduction::Sum);
                c.all_reduce(memory.from, memory.to, BUCKET / 4, kind, stream)
            }
            Kind::Scatter => {
                let kind = (F32, Reduction::Sum);
                c.reduce_scatter(memory.from, memory.to, BUCKET / 4 / ranks, kind, stream)
            }
            Kind::CopyGather => {
                let own = memory.to.offset(2 * part * c.rank() as usize);
                c.all_gather(own, memory.to, part, Bf16, stream)
            }
            Kind::CopyExchange => c.all_to_all(memory.from, memory.to, part, Bf16, stream),
        }
    }
}

/// Submits one piece of work.
type Work<'a> = &'a dyn Fn(&Stream) -> Result<()>;

struct Streams {
    low: Stream,
    high: Stream,
    /// Start, end of the neighbours, end of the collectives, end of both.
    marks: [Event; 4],
}

impl Streams {
    fn new(rank: &Rank) -> Result<Streams> {
        let context = &rank.session.context;
        let mark = || Event::timing(context);
        Ok(Streams {
            low: Stream::new(context, Priority::Normal)?,
            high: Stream::new(context, Priority::High)?,
            marks: [mark()?, mark()?, mark()?, mark()?],
        })
    }

    /// Milliseconds: both, neighbours, collectives.
    fn sample(
        &self,
        rank: &Rank,
        priority: Priority,
        neighbour: Option<Work<'_>>,
        collective: Option<(usize, Work<'_>)>,
    ) -> Result<Vec<f64>> {
        let main = &rank.session.stream;
        let side = if priority == Priority::High { &self.high } else { &self.low };
        let [start, first, second, both] = &self.marks;
        rank.align()?;
        start.record(main)?;
        side.wait(start)?;
        let wanted = collective.map_or(0, |(count, _)| count);
        let neighbours = if neighbour.is_some() { NEIGHBOURS } else { 0 };
        let mut submitted = 0;
        for turn in 0..neighbours.max(1) {
            if let Some(neighbour) = neighbour {
                neighbour(main)?;
            }
            // The collectives are spread evenly over the neighbours, as gradients become ready.
            let due = wanted * (turn + 1) / neighbours.max(1);
            while submitted < due {
                if let Some((_, submit)) = collective {
                    submit(side)?;
                }
                submitted += 1;
            }
        }
        first.record(main)?;
        second.record(side)?;
        main.wait(second)?;
        both.record(main)?;
        both.synchronize()?;
        Ok(vec![
            both.milliseconds_since(start)?,
            first.milliseconds_since(start)?,
            second.milliseconds_since(start)?,
        ])
    }
}

fn measure(rank: &mut Rank, rounds: usize, share: f64) -> Result<()> {
    let rank = &*rank;
    let mut report = rank.report("overlap")?;
    let streams = Streams::new(rank)?;
    let total = rank.session.context.device().multiprocessors;
    let mut lanes = vec![];
    for ctas in CTAS {
        lanes.push(Lane::new(rank, Kind::Usual, ctas)?);
    }
    for ctas in [2, 4, 8, 16] {
        lanes.push(Lane::new(rank, Kind::Window, ctas)?);
    }
    for ctas in [2, 4, 8] {
        lanes.push(Lane::new(rank, Kind::Scatter, ctas)?);
    }
    lanes.push(Lane::new(rank, Kind::CopyGather, 0)?);
    lanes.push(Lane::new(rank, Kind::CopyExchange, 0)?);
    let mut memories = vec![];
    for lane in &lanes {
        let made = Exchange::new(&lane.communicator, lane.placement(), BUCKET);
        if let Err(error) = &made {
            say(&format!("rank {}: {} is not available: {error:#}", rank.rank, lane.name()));
        }
        memories.push(made.ok());
    }
    let ready: Vec<(&Lane, &Exchange)> =
        lanes.iter().zip(&memories).filter_map(|(l, m)| Some((l, m.as_ref()?))).collect();

    let products = std::iter::once(None)
        .chain(CTAS.map(|c| Some(total - c)))
        .map(|target| Ok((target, Product::new(&rank.session, PRODUCT, target)?)))
        .collect::<Result<Vec<_>>>()?;
    let product = |target: Option<u32>, stream: &Stream| -> Result<()> {
        let found = products.iter().find(|(t, _)| *t == target);
        found.map_or(Ok(()), |(_, product)| product.run(stream))
    };
    neighbour(
        rank,
        &mut report,
        &streams,
        &ready,
        ("matmul 8192^3 bf16", &product),
        (rounds, share),
    )?;
    drop(products);

    let sweep = Sweep::new(&rank.session, 2 << 30)?;
    let run = |target: Option<u32>, stream: &Stream| sweep.run(stream, target);
    neighbour(rank, &mut report, &streams, &ready, ("memory-bound kernel", &run), (rounds, share))?;
    report.map_or(Ok(()), |r| r.finish())
}

type Neighbour<'a> = (&'static str, &'a dyn Fn(Option<u32>, &Stream) -> Result<()>);

/// One configuration: lane (none: neighbours alone), priority, the neighbour's target.
type Setting = (Option<usize>, Priority, Option<u32>);

fn settings(lanes: &[(&Lane, &Exchange<'_>)], total: u32) -> Vec<Setting> {
    let mut all: Vec<Setting> = vec![(None, Priority::Normal, None)];
    all.extend(CTAS.map(|c| (None, Priority::Normal, Some(total - c))));
    for (index, (lane, _)) in lanes.iter().enumerate() {
        let target = Some(total - lane.ctas).filter(|_| lane.ctas > 0);
        for priority in [Priority::Normal, Priority::High] {
            // The priority is compared for the usual all-reduce alone.
            if priority == Priority::Normal && lane.kind != Kind::Usual {
                continue;
            }
            all.push((Some(index), priority, None));
            if target.is_some() {
                all.push((Some(index), priority, target));
            }
        }
    }
    all
}

fn neighbour(
    rank: &Rank,
    report: &mut Option<Report>,
    streams: &Streams,
    lanes: &[(&Lane, &Exchange<'_>)],
    (name, run): Neighbour<'_>,
    (rounds, share): (usize, f64),
) -> Result<()> {
    let alone = |target| streams.sample(rank, Priority::Normal, Some(&|s| run(target, s)), None);
    alone(None)?;
    let length = rank.agree(alone(None)?[1])?;
    let mut counts = vec![];
    for (lane, memory) in lanes {
        let submit = |stream: &Stream| Ok(lane.submit(memory, stream)?);
        let once = |n| streams.sample(rank, Priority::Normal, None, Some((n, &submit)));
        once(2)?;
        let one = rank.agree(once(4)?[2] / 4.0)?;
        counts.push((share * length / one).round().clamp(1.0, 400.0) as usize);
    }
    let settings = settings(lanes, rank.session.context.device().multiprocessors);
    let mut candidates: Vec<RankCandidate> = vec![];
    for (index, (lane, memory)) in lanes.iter().enumerate() {
        let count = counts[index];
        candidates.push(RankCandidate::new(lane.name(), move |_| {
            let submit = |stream: &Stream| Ok(lane.submit(memory, stream)?);
            streams.sample(rank, Priority::Normal, None, Some((count, &submit)))
        }));
    }
    let (alone, counts) = (&alone, &counts);
    for (lane, priority, target) in &settings {
        let title = lane.map_or("alone", |index| lanes[index].0.name());
        candidates.push(RankCandidate::new(title, move |round| {
            let together = || {
                let neighbour = |stream: &Stream| run(*target, stream);
                let Some(index) = lane else { return alone(*target) };
                let (lane, memory) = lanes[*index];
                let submit = |stream: &Stream| Ok(lane.submit(memory, stream)?);
                let collective = Some((counts[*index], &submit as Work<'_>));
                streams.sample(rank, *priority, Some(&neighbour), collective)
            };
            let (first, second) = if round % 2 == 0 {
                let first = alone(None)?;
                (first, together()?)
            } else {
                let second = together()?;
                (alone(None)?, second)
            };
            Ok(vec![first[1], second[0], second[1], second[2]])
        }));
    }
    let results = rank.interleave(&mut candidates, rounds, 2)?;
    drop(candidates);
    let Some(report) = report else { return Ok(()) };
    let (lone, together) = results.split_at(lanes.len());
    for ((lane, _), (samples, count)) in lanes.iter().zip(lone.iter().zip(counts)) {
        let (bytes, samples) = (BUCKET * count, samples.of(2)?);
        let row = Row::new()
            .text("neighbour", name)
            .text("collective", lane.name())
            .integer("ctas", u64::from(lane.ctas))
            .integer("calls", *count as u64)
            .timing(&samples)
            .number("fp32 bucket GB/s", bytes as f64 / samples.median / 1e6, 1);
        report.add("Collectives alone (buckets of 16 MiB of fp32)", row)?;
    }
    for ((lane, priority, target), samples) in settings.iter().zip(together) {
        let row = Row::new().text("neighbour", name);
        match lane {
            None => report.add("Neighbours alone", alone_row(row, *target, samples)?)?,
            Some(index) => {
                let row = row
                    .text("collective", lanes[*index].0.name())
                    .integer("ctas", u64::from(lanes[*index].0.ctas))
                    .text("priority", if *priority == Priority::High { "high" } else { "normal" });
                let gigabytes = (BUCKET * counts[*index]) as f64 / 1e9;
                let row = together_row(row, *target, samples, &lone[*index].of(2)?, gigabytes)?;
                report.add("Together", row)?;
            }
        }
    }
    Ok(())
}

fn alone_row(row: Row, target: Option<u32>, figures: &Figures) -> Result<Row> {
    let (all, slower) = (figures.of(0)?.median, figures.difference(2, 0)?);
    Ok(row
        .text("target", target.map_or("all".into(), |t| t.to_string()))
        .number("all ms", all, 3)
        .number("with the target ms", figures.of(2)?.median, 3)
        .number("slower %", slower.median / all * 100.0, 2)
        .number("p10 %", slower.p10 / all * 100.0, 2)
        .number("p90 %", slower.p90 / all * 100.0, 2))
}

fn together_row(
    row: Row,
    target: Option<u32>,
    figures: &Figures,
    collective: &Samples,
    gigabytes: f64,
) -> Result<Row> {
    let (alone, both) = (figures.of(0)?.median, figures.of(1)?.median);
    let (first, second) = (figures.of(2)?.median, figures.of(3)?.median);
    let cost = figures.difference(1, 0)?;
    Ok(row
        .text("target", target.map_or("all".into(), |t| t.to_string()))
        .number("neighbour alone ms", alone, 3)
        .number("collective alone ms", collective.median, 3)
        .number("together ms", both, 3)
        .number("cost ms", cost.median, 3)
        .number("p10", cost.p10, 3)
        .number("p90", cost.p90, 3)
        .number("cost of the collective %", cost.median / collective.median * 100.0, 1)
        .number("cost ms a GB of fp32", cost.median / gigabytes, 2)
        .number("neighbour slower %", (first / alone - 1.0) * 100.0, 1)
        .number("collective slower %", (second / collective.median - 1.0) * 100.0, 1)
        .number("against one after the other", (alone + collective.median) / both, 3))
}
