//! What collectives cost inside a recorded step, per replay: on the device and on the host.
//!
//! The step is a chain of 24 products on one stream with n all-reduces between them, each waiting for the product
//! before it and waited for at the end, as gradient buckets are. It is recorded once and replayed. Layouts: `in line`
//! puts the all-reduces on the products' stream; otherwise they have one or two streams (lanes) and one or two
//! communicators with few blocks; `grouped` submits all n after the last product as one NCCL group.
//! A sample replays the step without all-reduces and the step with them, and submits the latter eagerly as often, one
//! right after the other and in turns: clocks and power are the same, and differences are taken sample by sample.
//! NCCL reads its variables once a process, so each variant of the environment is a run of its own.

use std::{cell::RefCell, collections::BTreeMap, time::Instant};

use anyhow::Result;
use clap::Args;
use native::{
    DataType::F32,
    driver::{Event, Priority, Stream},
    graph::{self, GraphExec},
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    Rank, RankCandidate, RankOptions, Row, Variant,
    loads::{Exchange, Placement, Product},
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
    /// Samples of each configuration
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

const VARIANTS: [Variant; 4] = [
    ("plain", &[]),
    ("no-mixing", &[("NCCL_GRAPH_MIXING_SUPPORT", "0")]),
    ("no-graph-register", &[("NCCL_GRAPH_REGISTER", "0")]),
    ("launch-group", &[("NCCL_LAUNCH_MODE", "GROUP")]),
];
const COUNTS: [usize; 3] = [1, 6, 12];
const PRODUCTS: usize = 24;
const CTAS: u32 = 4;
const REPLAYS: usize = 4;
/// Name, size of the products, bytes of an all-reduce.
const STEPS: [(&str, usize, usize); 2] = [
    ("short: 24 products of 2048^3, 64 KiB each", 2048, 64 << 10),
    ("step: 24 products of 4096^3, 4 MiB each", 4096, 4 << 20),
];

/// Measures and writes `graph_collectives.VARIANT.json` and `.md`.
pub fn run(options: &Options) -> Result<()> {
    options.ranks.on_ranks(&VARIANTS, |rank| measure(rank, options.rounds))
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    name: &'static str,
    lanes: usize,
    communicators: usize,
    placement: Placement,
    grouped: bool,
}

const fn layout(name: &'static str, lanes: usize, communicators: usize) -> Layout {
    Layout { name, lanes, communicators, placement: Placement::Allocated, grouped: false }
}

const LAYOUTS: [Layout; 6] = [
    layout("in line, one communicator", 0, 1),
    layout("one lane, one communicator", 1, 1),
    layout("one lane, two communicators", 1, 2),
    layout("two lanes, two communicators", 2, 2),
    Layout {
        placement: Placement::Plain,
        ..layout("one lane, one communicator, plain memory", 1, 1)
    },
    Layout { grouped: true, ..layout("one lane, one communicator, grouped at the end", 1, 1) },
];

struct Step<'a> {
    product: &'a Product,
    main: &'a Stream,
    lanes: &'a [Stream],
    fork: &'a [Event],
    join: &'a [Event],
    ends: &'a [(&'a Communicator, [Exchange<'a>; 2])],
    bytes: usize,
}

impl Step<'_> {
    fn all_reduce(&self, layout: Layout, index: usize, on: &Stream) -> native::Result<()> {
        let (communicator, memories) = &self.ends[index % layout.communicators];
        let memory = &memories[usize::from(layout.placement == Placement::Plain)];
        let at = (index / layout.communicators * self.bytes) % MEMORY;
        let (from, to) = (memory.from.offset(at), memory.to.offset(at));
        communicator.all_reduce(from, to, self.bytes / 4, (F32, Reduction::Sum), on)
    }

    /// Submits the step with `count` all-reduces.
    fn submit(&self, layout: Option<Layout>, count: usize) -> native::Result<()> {
        let run =
            || self.product.run(self.main).map_err(|e| native::Error::Argument(format!("{e:#}")));
        let mut sent = 0;
        for turn in 0..PRODUCTS {
            run()?;
            let Some(layout) = layout else { continue };
            let due = count * (turn + 1) / PRODUCTS;
            while sent < due && !layout.grouped {
                if layout.lanes == 0 {
                    self.all_reduce(layout, sent, self.main)?;
                } else {
                    let lane = &self.lanes[sent % layout.lanes];
                    self.fork[sent].record(self.main)?;
                    lane.wait(&self.fork[sent])?;
                    self.all_reduce(layout, sent, lane)?;
                }
                sent += 1;
            }
        }
        let Some(layout) = layout else { return Ok(()) };
        if layout.grouped {
            self.fork[0].record(self.main)?;
            self.lanes[0].wait(&self.fork[0])?;
            nccl::group(|| {
                (0..count).try_for_each(|i| self.all_reduce(layout, i, &self.lanes[0]))
            })?;
        }
        for (lane, join) in self.lanes.iter().zip(self.join).take(layout.lanes.min(count)) {
            join.record(lane)?;
            self.main.wait(join)?;
        }
        Ok(())
    }
}

/// Bytes of each buffer of a communicator.
const MEMORY: usize = 256 << 20;

fn measure(rank: &mut Rank, rounds: usize) -> Result<()> {
    let rank = &*rank;
    let mut report = rank.report(&format!("graph_collectives.{}", rank.variant))?;
    let context = &rank.session.context;
    let main = &rank.session.stream;
    let lanes = [Stream::new(context, Priority::High)?, Stream::new(context, Priority::High)?];
    let most = COUNTS[COUNTS.len() - 1];
    let events = |n: usize| (0..n).map(|_| Event::ordering(context)).collect::<Result<Vec<_>, _>>();
    let (fork, join) = (events(most)?, events(lanes.len())?);
    let communicators = [
        rank.communicator(&nccl::Options::at_most(CTAS))?,
        rank.communicator(&nccl::Options::at_most(CTAS))?,
    ];
    let mut ends = vec![];
    for communicator in &communicators {
        let allocated = Exchange::new(communicator, Placement::Allocated, MEMORY)?;
        let plain = Exchange::new(communicator, Placement::Plain, MEMORY)?;
        ends.push((communicator, [allocated, plain]));
    }
    let marks =
        [(); 2].map(|()| Event::timing(context)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for (name, size, bytes) in STEPS {
        let product = Product::new(&rank.session, size, None)?;
        let (lanes, fork, join, ends) = (&lanes, &fork, &join, &ends);
        let step = Step { product: &product, main, lanes, fork, join, ends, bytes };
        let mut settings: Vec<(Layout, usize)> = vec![];
        for layout in LAYOUTS {
            // Variants of the environment are compared on the plain layouts alone.
            let plain = layout.placement == Placement::Allocated && !layout.grouped;
            if rank.variant == VARIANTS[0].0 || plain {
                let counts = if rank.variant == VARIANTS[0].0 { &COUNTS[..] } else { &COUNTS[2..] };
                settings.extend(counts.iter().map(|count| (layout, *count)));
            }
        }
        let mut none = record(rank, &step, None, 0)?.0;
        let mut graphs = vec![];
        let mut nodes = vec![];
        for (layout, count) in &settings {
            let (graph, kinds) = record(rank, &step, Some(*layout), *count)?;
            graphs.push(graph);
            nodes.push(kinds);
        }
        let none = RefCell::new(&mut none);
        let mut candidates: Vec<RankCandidate> = vec![];
        for (graph, (layout, count)) in graphs.iter_mut().zip(&settings) {
            let (step, none, marks) = (&step, &none, &marks);
            candidates.push(RankCandidate::new(layout.name, move |round| {
                let (mut times, mut hosts) = ([0.0; 3], [0.0; 3]);
                for turn in 0..3 {
                    let which = (turn + round) % 3;
                    rank.align()?;
                    marks[0].record(main)?;
                    let begin = Instant::now();
                    for _ in 0..REPLAYS {
                        match which {
                            0 => none.borrow_mut().launch(main)?,
                            1 => graph.launch(main)?,
                            _ => step.submit(Some(*layout), *count)?,
                        }
                    }
                    hosts[which] = begin.elapsed().as_secs_f64() * 1e6 / REPLAYS as f64;
                    marks[1].record(main)?;
                    marks[1].synchronize()?;
                    times[which] = marks[1].milliseconds_since(&marks[0])? / REPLAYS as f64;
                }
                Ok(times.into_iter().chain(hosts).collect())
            }));
        }
        let results = rank.interleave(&mut candidates, rounds, 2)?;
        drop(candidates);
        let Some(report) = &mut report else { continue };
        for (((layout, count), nodes), figures) in settings.iter().zip(&nodes).zip(&results) {
            let more = figures.difference(1, 0)?;
            let of = |kind: i32| nodes.get(&kind).copied().unwrap_or(0) as u64;
            let row = Row::new()
                .text("step", name)
                .text("layout", layout.name)
                .integer("all-reduces", *count as u64)
                .number("none ms", figures.of(0)?.median, 4)
                .number("replay ms", figures.of(1)?.median, 4)
                .number("more us", more.median * 1e3, 1)
                .number("p10", more.p10 * 1e3, 1)
                .number("p90", more.p90 * 1e3, 1)
                .number("more us each", more.median * 1e3 / *count as f64, 2)
                .number("eager ms", figures.of(2)?.median, 4)
                .number("replay less eager us", figures.difference(1, 2)?.median * 1e3, 1)
                .number("host us none", figures.of(3)?.median, 1)
                .number("host us replay", figures.of(4)?.median, 1)
                .number("host us eager", figures.of(5)?.median, 1)
                .integer("kernels", of(0))
                .integer("waits", of(6))
                .integer("records", of(7))
                .integer("nodes", nodes.values().sum::<usize>() as u64);
            report.add("A recorded step with all-reduces", row)?;
        }
    }
    report.map_or(Ok(()), |r| r.finish())
}

/// The step as a graph that is ready to run, and its nodes by type.
fn record(
    rank: &Rank,
    step: &Step<'_>,
    layout: Option<Layout>,
    count: usize,
) -> Result<(GraphExec, BTreeMap<i32, usize>)> {
    step.submit(layout, count)?;
    rank.barrier()?;
    let graph = graph::capture(step.main, || step.submit(layout, count))?;
    let nodes = graph.nodes()?;
    let mut graph = graph.instantiate()?;
    graph.upload(step.main)?;
    Ok((graph, nodes))
}
