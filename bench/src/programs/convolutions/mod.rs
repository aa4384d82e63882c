//! ResNet-50's convolutions, plain and with batch normalisation's parts fused into them: the first few of cuDNN's
//! proposals for each, held against a reference and timed against each other.

mod buffers;
mod patterns;
mod shapes;

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Context as _, Result, bail};
use bench::{
    engines::{self, Choice},
    harness::{Candidate, Common, Report, Row, Session, Timing, interleave_each, say},
};
use clap::Args;
use native::{
    DataType,
    cudnn::{Bound, DeviceProperties, EngineFacts, Handle, Place},
    memory::DeviceBuffer,
};

use self::{
    buffers::{Buffers, Patterns},
    patterns::{Pattern, graph},
    shapes::{Shape, resnet50},
};

/// What to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Images of a batch
    #[arg(long, default_value_t = 256)]
    batch: i64,
    /// Only shapes whose name holds this text
    #[arg(long, default_value = "", value_parser = part_of_a_name)]
    only: String,
    /// How many of the library's proposals are built for each pattern
    #[arg(long, default_value_t = 6)]
    engines: usize,
    /// Samples of each candidate
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

const TYPES: [DataType; 2] = [DataType::F16, DataType::Bf16];

/// Measures and writes `convolutions.json` and `convolutions.md`.
pub fn run(options: &Options) -> Result<()> {
    let shapes: Vec<Shape> = resnet50(options.batch)
        .into_iter()
        .filter(|shape| shape.name.contains(&options.only))
        .collect();
    let Some(session) = options.common.open()? else { return dry_run(options, &shapes) };
    let handle = Handle::new(&session.stream)?;
    let mut report = Report::new(&options.common, session.header()?, "convolutions")?;
    let mut totals = Totals::default();
    let mut wrong = vec![];
    for data_type in TYPES {
        let patterns = Patterns::new(data_type);
        for shape in &shapes {
            let buffers = Buffers::new(&session, shape, data_type, &patterns)?;
            let case = Case { shape, data_type, buffers };
            let outcomes = case.measure(&session, &handle, options, &mut wrong)?;
            case.report(&outcomes, &mut totals, &mut report)?;
        }
    }
    totals.report(&mut report)?;
    report.finish()?;
    if !wrong.is_empty() {
        bail!("{} results are wrong: {}", wrong.len(), wrong.join("; "));
    }
    Ok(())
}

fn part_of_a_name(text: &str) -> Result<String> {
    let names: Vec<String> = resnet50(1).into_iter().map(|shape| shape.name).collect();
    if !names.iter().any(|name| name.contains(text)) {
        bail!("no shape has it in its name; there are {}", names.join("; "));
    }
    Ok(text.to_owned())
}

/// Builds the plans for an H200 with no device and prints which engines they have.
fn dry_run(options: &Options, shapes: &[Shape]) -> Result<()> {
    let properties = DeviceProperties::h200()?;
    let place = Place::Properties(&properties);
    for data_type in TYPES {
        for shape in shapes {
            for pattern in Pattern::ALL.into_iter().filter(|p| p.applies(shape, data_type)) {
                let start = Instant::now();
                let graph = graph(shape, pattern, data_type)?.0.finish(place)?;
                let found = engines::candidates(&graph, place, &Choice::first(options.engines))?;
                let plans: Vec<String> = found
                    .plans
                    .iter()
                    .map(|c| format!("{} e{} {} B", c.origin, c.facts.engine, c.plan.workspace()))
                    .collect();
                say(&format!(
                    "{} {} {}: {} proposals, {} in {} ms{}",
                    data_type.name(),
                    shape.name,
                    pattern.name(),
                    found.proposed,
                    plans.join(", "),
                    start.elapsed().as_millis(),
                    found.refused.first().map_or(String::new(), |r| format!(", refused {r}")),
                ));
            }
        }
    }
    Ok(())
}

/// A shape in a type, with its buffers.
struct Case<'a> {
    shape: &'a Shape,
    data_type: DataType,
    buffers: Buffers,
}

/// A plan bound to every buffer set, with its errors.
struct Ready {
    pattern: Pattern,
    origin: String,
    facts: EngineFacts,
    bound: Vec<Bound>,
    workspace: DeviceBuffer<u8>,
    build_ms: f64,
    error: f64,
    reduction_error: Option<f64>,
}

/// What came of a plan, or why a pattern has none.
struct Outcome {
    pattern: Pattern,
    timed: Result<(Ready, bench::harness::Samples), String>,
}

impl Case<'_> {
    fn measure(
        &self,
        session: &Session,
        handle: &Handle,
        options: &Options,
        wrong: &mut Vec<String>,
    ) -> Result<Vec<Outcome>> {
        let mut ready = vec![];
        let mut outcomes = vec![];
        for pattern in Pattern::ALL.into_iter().filter(|p| p.applies(self.shape, self.data_type)) {
            match self.prepare(session, handle, options, pattern) {
                Ok(plans) if !plans.is_empty() => ready.extend(plans),
                Ok(_) => outcomes.push(Outcome { pattern, timed: Err("no plan".into()) }),
                Err(error) => outcomes.push(Outcome { pattern, timed: Err(format!("{error:#}")) }),
            }
        }
        // Engines that split a long sum round its parts to 16 bits: up to 5e-3 in the stem's weight gradient.
        let bound = 1e-2;
        for r in &ready {
            let is_wrong = r.error.is_nan()
                || r.error > bound
                || r.reduction_error.is_some_and(|error| error.is_nan() || error > 1e-2);
            if is_wrong {
                let (shape, pattern) = (&self.shape.name, r.pattern.name());
                wrong.push(format!("{shape} {pattern} engine {}: {:.1e}", r.facts.engine, r.error));
            }
        }
        let mut candidates: Vec<Candidate> = ready
            .iter()
            .map(|r| {
                Candidate::new(r.pattern.name(), |_, set| {
                    Ok(r.bound[set % r.bound.len()].execute(handle)?)
                })
            })
            .collect();
        let timing = Timing {
            rounds: options.rounds,
            sets: self.buffers.sets(),
            sample: std::time::Duration::from_millis(1),
            ..Timing::default()
        };
        let results = interleave_each(session, &mut candidates, &timing)?;
        drop(candidates);
        for (r, result) in ready.into_iter().zip(results) {
            let pattern = r.pattern;
            let timed = match result {
                Ok(samples) => Ok((r, samples)),
                Err(error) => Err(format!("engine {}: {error:#}", r.facts.engine)),
            };
            outcomes.push(Outcome { pattern, timed });
        }
        Ok(outcomes)
    }

    fn prepare(
        &self,
        session: &Session,
        handle: &Handle,
        options: &Options,
        pattern: Pattern,
    ) -> Result<Vec<Ready>> {
        let place = Place::Device(handle);
        let (graph, tensors) = graph(self.shape, pattern, self.data_type)?;
        let graph = graph.finish(place)?;
        let start = Instant::now();
        let found = engines::candidates(&graph, place, &Choice::first(options.engines))?;
        let build_ms = start.elapsed().as_secs_f64() * 1e3 / found.plans.len().max(1) as f64;
        if found.plans.is_empty() {
            let why = found.refused.first().map_or("nothing is proposed", String::as_str);
            bail!("{why}");
        }
        let expected = self.buffers.expected(session, self.shape, pattern)?;
        let mut ready = vec![];
        for c in found.plans {
            let workspace = DeviceBuffer::new(&session.context, c.plan.workspace())?;
            let bound = self.buffers.bind(&c.plan, &tensors, workspace.pointer())?;
            let errors =
                self.buffers.errors(session, handle, self.shape, pattern, &bound[0], &expected);
            let (error, reduction_error) =
                errors.with_context(|| format!("engine {}", c.facts.engine))?;
            ready.push(Ready {
                pattern,
                origin: c.origin,
                facts: c.facts,
                bound,
                workspace,
                build_ms,
                error,
                reduction_error,
            });
        }
        Ok(ready)
    }

    /// One row for the best plan of each pattern, one for every plan in the table of candidates.
    fn report(&self, outcomes: &[Outcome], totals: &mut Totals, report: &mut Report) -> Result<()> {
        let mut plain: BTreeMap<Pattern, f64> = BTreeMap::new();
        for pattern in Pattern::ALL {
            let of_pattern: Vec<&Outcome> =
                outcomes.iter().filter(|o| o.pattern == pattern).collect();
            let timed = || of_pattern.iter().filter_map(|o| o.timed.as_ref().ok());
            let base = Row::new()
                .text("type", self.data_type.name())
                .text("shape", &self.shape.name)
                .text("pattern", pattern.name());
            for (r, samples) in timed() {
                let row = base
                    .clone()
                    .text("proposed as", &r.origin)
                    .integer("engine", r.facts.engine as u64)
                    .text("knobs", engines::knobs(&r.facts))
                    .timing(samples)
                    .integer("workspace", r.workspace.bytes() as u64)
                    .number("build ms", r.build_ms, 1)
                    .error("error", r.error);
                report.add_detail("Every candidate", row)?;
            }
            let best = timed().min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
            let Some((r, samples)) = best else {
                for o in &of_pattern {
                    let why = o.timed.as_ref().err().cloned().unwrap_or_default();
                    report.add("Best of each pattern", base.clone().text("refused", why))?;
                }
                continue;
            };
            plain.entry(pattern.plain()).or_insert(samples.median);
            let speed = self.shape.operations() / samples.median / 1e9;
            let row = base
                .timing(samples)
                .number("TFLOP/s", speed, 0)
                .number("to plain", samples.median / plain[&pattern.plain()], 3)
                .integer("engine", r.facts.engine as u64)
                .text(
                    "compiled",
                    if r.facts.compiles_at_run_time { "at run time" } else { "before" },
                )
                .integer("count", self.shape.count as u64)
                .error("error", r.error);
            let row = match r.reduction_error {
                Some(error) => row.error("error of sums", error),
                None => row,
            };
            report.add("Best of each pattern", row)?;
            totals.add(self.data_type, pattern, self.shape, samples.median);
        }
        Ok(())
    }
}

/// Milliseconds of a whole network's convolutions for each type and pattern, without the stem.
#[derive(Default)]
struct Totals(BTreeMap<(DataType, Pattern), (usize, f64)>);

impl Totals {
    fn add(&mut self, data_type: DataType, pattern: Pattern, shape: &Shape, ms: f64) {
        if !shape.is_stem {
            let total = self.0.entry((data_type, pattern)).or_default();
            total.0 += shape.count;
            total.1 += shape.count as f64 * ms;
        }
    }

    fn report(&self, report: &mut Report) -> Result<()> {
        for ((data_type, pattern), (count, ms)) in &self.0 {
            let row = Row::new()
                .text("type", data_type.name())
                .text("pattern", pattern.name())
                .integer("convolutions", *count as u64)
                .number("ms", *ms, 3);
            report.add("Sum over the network's convolutions without the stem", row)?;
        }
        Ok(())
    }
}
