//! Exposed communication on the host with a slow modelled wire: gradients in buckets as they become ready against one
//! bucket at the end, the same GPT on two ranks of this process.
//!
//! The two variants run in turns; figures are medians over rounds and ranks.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use bench::harness::say;
use clap::Args;
use graph::{names, optim::AdamW};
use models::{SettingValue, Settings, Shapes, zoo};
use plan::{Options as PlanOptions, Plan, options::Strategy};
use report::account::{Account, STEP_MARK, account};
use runtime::{
    Communicator, Device, HostDevice, HostTensor, Inputs,
    in_process::{LinkModel, world},
};
use timeline::{Kind, Timeline};

/// The sizes of recipes/tiny-gpt.toml.
const SIZES: [(&str, i64); 5] =
    [("layers", 3), ("width", 96), ("heads", 3), ("context", 64), ("vocabulary", 256)];

/// How to measure.
#[derive(Args)]
pub struct Options {
    /// Bytes per second of the modelled wire
    #[arg(long, default_value_t = 200e6)]
    bytes_per_second: f64,
    /// Microseconds before a collective's first byte arrives
    #[arg(long, default_value_t = 20)]
    latency_us: u64,
    /// Samples of one step over both ranks
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Recorded steps of a round
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// Rounds of both variants
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Measures and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let buckets = PlanOptions {
        ranks: 2,
        strategy: Strategy::Ddp,
        clip_norm: Some(1.0),
        bucket_bytes: 256 << 10,
        first_bucket_bytes: 64 << 10,
        last_bucket_bytes: 64 << 10,
        ..PlanOptions::default()
    };
    let whole = usize::MAX / 4;
    let one = PlanOptions {
        bucket_bytes: whole,
        first_bucket_bytes: whole,
        last_bucket_bytes: whole,
        ..buckets.clone()
    };
    let variants = [("buckets as they become ready", buckets), ("one bucket at the end", one)];
    let mut plans = vec![];
    for (name, plan_options) in variants {
        plans.push((name, compile(options, &plan_options)?));
    }
    let mut samples = vec![vec![]; plans.len()];
    for _ in 0..options.rounds {
        for ((_, plan), samples) in plans.iter().zip(&mut samples) {
            samples.extend(round(options, plan)?);
        }
    }
    say(&format!(
        "{:32} {:>11} {:>9} {:>9} {:>10} {:>22}",
        "variant", "collectives", "step ms", "hidden ms", "exposed ms", "of the later rank, ms"
    ));
    let mut figures = vec![];
    for ((name, plan), samples) in plans.iter().zip(&mut samples) {
        let [step, hidden, exposed, wire] = [0, 1, 2, 3].map(|part| median(samples, part));
        let count = collectives(plan);
        say(&format!("{name:32} {count:11} {step:9.3} {hidden:9.3} {exposed:10.3} {wire:22.3}"));
        figures.push([exposed, wire]);
    }
    let [all, later] = [0, 1].map(|part| figures[0][part] / figures[1][part]);
    say(&format!("first over second: {all:.3} exposed, {later:.3} of the later rank"));
    Ok(())
}

/// Milliseconds of a rank's step: all of it, hidden and exposed communication, and the latter of the rank that has least.
type Sample = [f64; 4];

fn median(samples: &mut [Sample], part: usize) -> f64 {
    samples.sort_by(|a, b| a[part].total_cmp(&b[part]));
    samples.get(samples.len() / 2).map_or(f64::NAN, |sample| sample[part])
}

fn collectives(plan: &Plan) -> usize {
    let step = plan.function(names::STEP).map_or(&[] as &[plan::Step], |f| &f.steps);
    step.iter().filter(|step| matches!(step.lane, plan::Lane::Communication(_))).count()
}

fn compile(options: &Options, plan_options: &PlanOptions) -> Result<Arc<Plan>> {
    let family = zoo::family("gpt2").context("the zoo has no gpt2")?;
    let mut settings = Settings::of(family, None);
    for (name, value) in SIZES {
        settings = settings.with(name, SettingValue::Integer(value));
    }
    let model = family.model(&settings)?;
    let length = model.context();
    let shapes = Shapes { batch: options.batch / plan_options.ranks, length, generate: false };
    let program = models::program(&graph::ops::registry(), &*model, shapes)?;
    let target = plan::target::host();
    Ok(Arc::new(plan::compile(&program, &AdamW::default(), &target, plan_options)?))
}

fn round(options: &Options, plan: &Arc<Plan>) -> Result<Vec<Sample>> {
    let latency = Duration::from_micros(options.latency_us);
    let link = LinkModel { latency, bytes_per_second: options.bytes_per_second };
    let timelines: Vec<Result<Timeline>> = thread::scope(|scope| {
        let ranks: Vec<_> = world(plan.ranks, Some(link))
            .into_iter()
            .map(|member| scope.spawn(move || steps(options, plan, member)))
            .collect();
        let join = |rank: thread::ScopedJoinHandle<'_, Result<Timeline>>| {
            rank.join().unwrap_or_else(|_| Err(anyhow!("a rank's thread panicked")))
        };
        ranks.into_iter().map(join).collect()
    });
    let accounts = timelines
        .into_iter()
        .map(|timeline| Ok(account(&timeline?)))
        .collect::<Result<Vec<_>>>()?;
    let mut samples = vec![];
    for (number, _) in accounts.first().into_iter().flatten() {
        let of_step = accounts.iter().flatten().filter(|(step, _)| step.number == number.number);
        let parts: Vec<Account> = of_step.map(|(_, parts)| *parts).collect();
        // The rank that comes last to a collective does not wait for another one: what it spends is the wire alone.
        let wire = parts.iter().map(|parts| parts.exposed_communication).min();
        for parts in &parts {
            let exposed = parts.exposed_communication;
            let parts = [parts.total(), parts.hidden_communication, exposed];
            let [step, hidden, exposed] = parts.map(|length| length.millis());
            samples.push([step, hidden, exposed, wire.map_or(exposed, |wire| wire.millis())]);
        }
    }
    if samples.is_empty() {
        bail!("no steps were recorded");
    }
    Ok(samples)
}

fn steps(options: &Options, plan: &Arc<Plan>, member: Box<dyn Communicator>) -> Result<Timeline> {
    let rank = member.rank();
    let device = HostDevice::for_ranks(plan.ranks);
    let mut executable = device.load(plan.clone(), member, 1)?;
    let warm = 3;
    for number in 1..=warm + options.steps {
        if number == warm + 1 {
            executable.record(true);
        }
        let start = Instant::now();
        executable.submit(names::STEP, inputs(plan, rank, number)?)?.wait()?;
        let name = format!("{STEP_MARK}{number}");
        executable.record_host(Kind::Mark, &name, start, Instant::now());
    }
    Ok(executable.take_timeline())
}

fn inputs(plan: &Plan, rank: usize, step: u64) -> Result<Inputs> {
    let function = plan.program.function(names::STEP).context("the plan has no step")?;
    let value = |name: &str, element: usize| match name {
        names::LOCAL_COUNT => 1024.0,
        names::LEARNING_RATE => 1e-3,
        names::TOKENS | names::LABELS => {
            ((element * 7 + step as usize * 13 + rank * 5) % 256) as f64
        }
        _ => 0.0,
    };
    let tensor = |name: &str, ty: &graph::Type| {
        let values = (0..ty.shape.elements()).map(|element| value(name, element));
        HostTensor::from_tensor(&graph::Tensor::from_f64(ty.clone(), values))
    };
    let inputs = function.inputs.iter();
    Ok(inputs.map(|i| (i.name.clone(), tensor(&i.name, function.graph.ty(i.value)))).collect())
}
