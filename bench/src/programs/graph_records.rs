//! From CUPTI's records of a replay back to what was recorded: which node ids the records carry.
//!
//! Every call is recorded under its own label while CUPTI tells of the nodes that appear and of the copies that
//! instantiation makes. The graph is replayed three times, instantiated again and replayed once, with the tracer on. A
//! record is found if its id is that of a recorded node, or of a copy of one. Also measured: what tracing costs.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use native::{
    DataType::{Bf16, F32},
    cupti::{NodeWatch, Record, Seen, Trace, Work},
    driver::{Event, Priority, Stream},
    graph, memory,
    nccl::{self, Communicator, Reduction},
};

use bench::harness::{
    PLAIN, Rank, RankOptions, Row, Samples,
    loads::{Exchange, Placement, Product, Sweep},
    say,
};

/// How to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    ranks: RankOptions,
}

const BYTES: usize = 16 << 20;
const LABELS: [&str; 7] = [
    "matmul",
    "kernel",
    "all-reduce, 4 CTAs",
    "all-reduce, default CTAs",
    "copy",
    "fill",
    "all-gather, zero-CTA",
];

/// Measures and writes `graph_records.json` and `graph_records.md`.
pub fn run(options: &Options) -> Result<()> {
    options.ranks.on_ranks(&[PLAIN], measure)
}

struct Step<'a> {
    main: &'a Stream,
    lane: &'a Stream,
    fork: Event,
    join: Event,
    product: Product,
    sweep: Sweep,
    few: (&'a Communicator, Exchange<'a>),
    many: (&'a Communicator, Exchange<'a>),
    zero: Option<(&'a Communicator, Exchange<'a>)>,
}

impl Step<'_> {
    /// Submits the step; `label` is called with the number of what comes next.
    fn submit(&self, label: &dyn Fn(u64)) -> native::Result<()> {
        let fail = |e: anyhow::Error| native::Error::Argument(format!("{e:#}"));
        let sum = (F32, Reduction::Sum);
        label(0);
        self.fork.record(self.main)?;
        self.lane.wait(&self.fork)?;
        label(1);
        self.product.run(self.main).map_err(fail)?;
        label(2);
        self.sweep.run(self.main, None).map_err(fail)?;
        label(3);
        let (communicator, at) = &self.few;
        communicator.all_reduce(at.from, at.to, BYTES / 4, sum, self.lane)?;
        label(4);
        let (communicator, at) = &self.many;
        communicator.all_reduce(at.from, at.to, BYTES / 4, sum, self.lane)?;
        label(5);
        memory::copy_on(at.to, at.from, BYTES, self.main)?;
        label(6);
        memory::fill_on(at.to, 0, BYTES, self.main)?;
        if let Some((communicator, at)) = &self.zero {
            label(7);
            let part = BYTES / 2 / communicator.ranks() as usize;
            let own = at.from.offset(2 * part * communicator.rank() as usize);
            communicator.all_gather(own, at.from, part, Bf16, self.lane)?;
        }
        label(0);
        self.join.record(self.lane)?;
        self.main.wait(&self.join)
    }
}

fn measure(rank: &mut Rank) -> Result<()> {
    let rank = &*rank;
    let report = rank.report("graph_records")?;
    let (context, main) = (&rank.session.context, &rank.session.stream);
    let lane = Stream::new(context, Priority::High)?;
    let few = rank.communicator(&nccl::Options::at_most(4))?;
    let many = rank.communicator(&nccl::Options::default())?;
    let zero = rank.communicator(&nccl::Options { zero_ctas: true, ..Default::default() })?;
    let step = Step {
        main,
        lane: &lane,
        fork: Event::ordering(context)?,
        join: Event::ordering(context)?,
        product: Product::new(&rank.session, 4096, None)?,
        sweep: Sweep::new(&rank.session, 64 << 20)?,
        few: (&few, Exchange::new(&few, Placement::Allocated, BYTES)?),
        many: (&many, Exchange::new(&many, Placement::Allocated, BYTES)?),
        zero: Exchange::new(&zero, Placement::Window, BYTES).ok().map(|m| (&zero, m)),
    };
    step.submit(&|_| ())?;
    rank.barrier()?;

    let cost = tracing_cost(rank, &step)?;
    let watch = NodeWatch::start()?;
    let trace = Trace::start()?;
    let recorded = graph::capture(main, || step.submit(&|label| watch.label(label)))?;
    let at_recording = watch.take();
    let mut passes = vec![];
    for replays in [3, 1] {
        let mut ready = recorded.instantiate()?;
        let at_instantiation = watch.take();
        rank.barrier()?;
        trace.take()?;
        for _ in 0..replays {
            ready.launch(main)?;
        }
        context.synchronize()?;
        passes.push((replays, at_instantiation, trace.take()?));
    }
    let lost = trace.lost()?;
    say(&format!("rank {}: {} records lost", rank.rank, lost));
    let Some(mut report) = report else { return Ok(()) };
    for (name, samples) in cost {
        report.add("A replay of the step", Row::new().text("tracer", name).timing(&samples))?;
    }
    for (number, (replays, copies, records)) in passes.iter().enumerate() {
        for row in mapping(&at_recording, copies, records, *replays) {
            report.add(&format!("Records of instantiation {}", number + 1), row)?;
        }
    }
    report.add("Lost", Row::new().integer("records", lost))?;
    report.finish()
}

/// Milliseconds of a replay without a tracer, with one, and after it.
fn tracing_cost(rank: &Rank, step: &Step<'_>) -> Result<Vec<(&'static str, Samples)>> {
    const REPLAYS: usize = 20;
    let main = step.main;
    let (start, end) =
        (Event::timing(&rank.session.context)?, Event::timing(&rank.session.context)?);
    let mut ready = graph::capture(main, || step.submit(&|_| ()))?.instantiate()?;
    let mut time = || -> Result<Samples> {
        let mut samples = vec![];
        for _ in 0..REPLAYS {
            rank.align()?;
            start.record(main)?;
            ready.launch(main)?;
            end.record(main)?;
            end.synchronize()?;
            samples.push(end.milliseconds_since(&start)?);
        }
        Samples::new(samples).ok_or_else(|| anyhow::anyhow!("no replay"))
    };
    time()?;
    let before = time()?;
    let trace = Trace::start()?;
    time()?;
    let during = time()?;
    trace.take()?;
    drop(trace);
    time()?;
    Ok(vec![("off", before), ("on", during), ("off again", time()?)])
}

/// One row for each label: its nodes, and the records found by either id.
fn mapping(recorded: &[Seen], copied: &[Seen], records: &[Record], replays: usize) -> Vec<Row> {
    let mut labels: BTreeMap<u64, u64> = BTreeMap::new();
    for seen in recorded {
        if let Seen::Recorded { label, node } = seen {
            labels.insert(*node, *label);
        }
    }
    let mut origin: BTreeMap<u64, u64> = BTreeMap::new();
    for seen in copied {
        if let Seen::Copied { from, to } = seen {
            // A copy of a copy leads back to the node that was recorded.
            origin.insert(*to, origin.get(from).copied().unwrap_or(*from));
        }
    }
    let mut rows = vec![];
    for (index, name) in LABELS.iter().enumerate() {
        let label = index as u64 + 1;
        let nodes: Vec<String> =
            labels.iter().filter(|(_, l)| **l == label).map(|(n, _)| n.to_string()).collect();
        let of = |found: &dyn Fn(u64) -> Option<u64>| -> Vec<&Record> {
            let is = |r: &&Record| found(r.node).and_then(|n| labels.get(&n)) == Some(&label);
            records.iter().filter(is).collect()
        };
        let direct = of(&|node| Some(node));
        let by_copy = of(&|node| origin.get(&node).copied());
        let found = if direct.is_empty() { &by_copy } else { &direct };
        let kernels = found.iter().filter(|r| r.work == Work::Kernel).count();
        let blocks = found.iter().map(|r| r.blocks).max().unwrap_or(0);
        let name_of = found.iter().find(|r| !r.name.is_empty()).map_or("", |r| r.name.as_str());
        rows.push(
            Row::new()
                .text("label", *name)
                .text("recorded nodes", nodes.join(", "))
                .integer("records by the recorded id", direct.len() as u64)
                .integer("records by a copy's id", by_copy.len() as u64)
                .integer("kernels among them", kernels as u64)
                .integer("replays", replays as u64)
                .integer("blocks", u64::from(blocks))
                .text("kernel", name_of.chars().take(60).collect::<String>()),
        );
    }
    let known = |r: &&Record| {
        !labels.contains_key(&r.node)
            && !origin.get(&r.node).is_some_and(|n| labels.contains_key(n))
    };
    let unknown: Vec<&Record> = records.iter().filter(known).collect();
    rows.push(
        Row::new()
            .text("label", "not found")
            .integer("replays", replays as u64)
            .integer("records", unknown.len() as u64)
            .integer(
                "of them outside a graph",
                unknown.iter().filter(|r| r.node == 0).count() as u64,
            ),
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::{Record, Seen, Work, mapping};

    fn record(node: u64, work: Work) -> Record {
        let (name, stream) = (String::from("k"), 7);
        let (start, end, device, blocks, bytes, correlation, graph) = (0, 1, 0, 4, 0, 3, 2);
        Record { work, name, start, end, device, stream, blocks, bytes, correlation, graph, node }
    }

    #[test]
    fn records_lead_back_through_copies_of_copies() {
        let recorded =
            [Seen::Recorded { label: 1, node: 10 }, Seen::Recorded { label: 6, node: 11 }];
        let copied = [
            Seen::Copied { from: 10, to: 20 },
            Seen::Copied { from: 20, to: 30 },
            Seen::Copied { from: 11, to: 31 },
        ];
        let records = [record(30, Work::Kernel), record(31, Work::Fill), record(99, Work::Kernel)];
        let text = format!("{:?}", mapping(&recorded, &copied, &records, 1));
        let count = |what: &str| text.matches(what).count();
        // One record each for the product and the fill, by a copy's id; one that belongs to nothing.
        assert_eq!(count("(\"records by a copy's id\", Number(1), \"1\")"), 2, "{text}");
        assert_eq!(count("(\"records by the recorded id\", Number(0), \"0\")"), 7, "{text}");
        assert_eq!(count("(\"records\", Number(1), \"1\")"), 1, "{text}");
    }
}
