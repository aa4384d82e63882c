//! Collectives beside a neighbour: what it costs to hide them, by number of blocks (CTAs), stream priority and the
//! neighbour's share of the device.
//!
//! A sample runs neighbours on one stream and collectives on another, with about as much communication as takes
//! `--share` of the neighbours' time alone. Alone and together alternate within each round. The neighbour is a large
//! product or a memory-bound kernel; with a target it is told to leave as many multiprocessors as the collective has
//! blocks.

use anyhow::Result;
use clap::Args;
use native::{
    DataType::{Bf16, F32},
    driver::{Event, Priority, Stream},
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    PLAIN, Rank, RankCandidate, RankOptions, Report, Row, Samples,
    loads::{Exchange, Placement, Product, Sweep, compile_sweep},
    say,
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
    /// Samples of each configuration
    #[arg(long, default_value_t = 9)]
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
            Kind::Usual | Kind::Window => nccl::Options::at_most(ctas),
            _ => nccl::Options { zero_ctas: true, ..Default::default() },
        };
        Ok(Lane { kind, ctas, communicator: rank.communicator(&options)? })
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Usual => "all-reduce fp32",
            Kind::Window => "all-reduce fp32, windows",
            Kind::CopyGather => "all-gather bf16, zero-CTA",
            Kind::CopyExchange => "all-to-all bf16, zero-CTA",
        }
    }

    fn placement(&self) -> Placement {
        if self.kind == Kind::Usual { Placement::Allocated } else { Placement::Window }
    }

    fn submit(&self, memory: &Exchange<'_>, stream: &Stream) -> native::Result<()> {
        let (c, ranks) = (&self.communicator, self.communicator.ranks() as usize);
        let part = BUCKET / 2 / ranks;
        match self.kind {
            Kind::Usual | Kind::Window => {
                let kind = (F32, Reduction::Sum);
                c.all_reduce(memory.from, memory.to, BUCKET / 4, kind, stream)
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

/// One configuration: lane, priority, the neighbour's target.
type Setting = (usize, Priority, Option<u32>);

fn neighbour(
    rank: &Rank,
    report: &mut Option<Report>,
    streams: &Streams,
    lanes: &[(&Lane, &Exchange<'_>)],
    (name, run): Neighbour<'_>,
    (rounds, share): (usize, f64),
) -> Result<()> {
    let total = rank.session.context.device().multiprocessors;
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
    let mut settings: Vec<Setting> = vec![];
    for (index, (lane, _)) in lanes.iter().enumerate() {
        let target = Some(total - lane.ctas).filter(|_| lane.kind == Kind::Usual);
        for priority in [Priority::Normal, Priority::High] {
            settings.push((index, priority, None));
            if target.is_some() {
                settings.push((index, priority, target));
            }
        }
    }
    let targets: Vec<Option<u32>> =
        std::iter::once(None).chain(CTAS.map(|c| Some(total - c))).collect();
    let mut candidates: Vec<RankCandidate> = vec![];
    for target in &targets {
        candidates.push(RankCandidate::new(format!("alone {target:?}"), || alone(*target)));
    }
    for (index, (lane, memory)) in lanes.iter().enumerate() {
        let count = counts[index];
        candidates.push(RankCandidate::new(lane.name(), move || {
            let submit = |stream: &Stream| Ok(lane.submit(memory, stream)?);
            streams.sample(rank, Priority::Normal, None, Some((count, &submit)))
        }));
    }
    for (index, priority, target) in &settings {
        let ((lane, memory), count) = (lanes[*index], counts[*index]);
        candidates.push(RankCandidate::new(lane.name(), move || {
            let submit = |stream: &Stream| Ok(lane.submit(memory, stream)?);
            let neighbour = |stream: &Stream| run(*target, stream);
            streams.sample(rank, *priority, Some(&neighbour), Some((count, &submit)))
        }));
    }
    let results = rank.interleave(&mut candidates, rounds, 2)?;
    drop(candidates);
    let Some(report) = report else { return Ok(()) };
    let (alone, rest) = results.split_at(targets.len());
    let (lone, together) = rest.split_at(lanes.len());
    for (target, samples) in targets.iter().zip(alone) {
        let row = Row::new()
            .text("neighbour", name)
            .integer("multiprocessors", u64::from(target.unwrap_or(total)))
            .timing(&samples[1])
            .number("against all", samples[1].median / alone[0][1].median, 4);
        report.add("Neighbours alone", row)?;
    }
    for ((lane, _), (samples, count)) in lanes.iter().zip(lone.iter().zip(&counts)) {
        let bytes = BUCKET * count;
        let row = Row::new()
            .text("neighbour", name)
            .text("collective", lane.name())
            .integer("ctas", u64::from(lane.ctas))
            .integer("calls", *count as u64)
            .timing(&samples[2])
            .number("bucket GB/s", bytes as f64 / samples[2].median / 1e6, 1);
        report.add("Collectives alone (16 MiB each)", row)?;
    }
    for ((index, priority, target), samples) in settings.iter().zip(together) {
        let setting = (*index, *priority, *target);
        let row = together_row(name, lanes, setting, samples, &alone[0][1], &lone[*index][2]);
        report.add("Together", row.integer("calls", counts[*index] as u64))?;
    }
    Ok(())
}

fn together_row(
    name: &str,
    lanes: &[(&Lane, &Exchange<'_>)],
    (index, priority, target): Setting,
    samples: &[Samples],
    neighbour: &Samples,
    collective: &Samples,
) -> Row {
    let lane = lanes[index].0;
    let (both, first, second) = (&samples[0], &samples[1], &samples[2]);
    let cost = both.median - neighbour.median;
    Row::new()
        .text("neighbour", name)
        .text("collective", lane.name())
        .integer("ctas", u64::from(lane.ctas))
        .text("priority", if priority == Priority::High { "high" } else { "normal" })
        .text("target", target.map_or("all".into(), |t| t.to_string()))
        .number("neighbour alone ms", neighbour.median, 3)
        .number("collective alone ms", collective.median, 3)
        .number("together ms", both.median, 3)
        .number("p10", both.p10, 3)
        .number("p90", both.p90, 3)
        .number("cost ms", cost, 3)
        .number("cost of the collective %", cost / collective.median * 100.0, 1)
        .number("neighbour slower %", (first.median / neighbour.median - 1.0) * 100.0, 1)
        .number("collective slower %", (second.median / collective.median - 1.0) * 100.0, 1)
        .number(
            "against one after the other",
            (neighbour.median + collective.median) / both.median,
            3,
        )
}
