//! A whole GPT-2 training step scheduled by hand: the proof of what the planner can reach, before the planner does it.
//!
//! cuBLASLt with epilogues, cuDNN attention on packed queries, keys and values, our kernels, one CUDA graph. Starts, reports
//! what it chose, and then obeys requests on standard input, one JSON object a line:
//! `{"do":"train","steps":n}` gives the losses, `{"do":"time","steps":n}` the milliseconds of every step,
//! `{"do":"profile","steps":n}` the time by class (`"variant":i` picks one of several), `{"do":"gradients","path":p}` writes the gradient slots.
//! `{"do":"reset"}` goes back to the initial weights.
//! `bench/peers/gpt2_step.py` starts it and compares it with PyTorch.

mod attention;
mod backward;
mod files;
mod lanes;
mod matmuls;
mod memory;
mod products;
mod profile;
mod schedule;
mod size;
mod step;
mod sums;
mod sustain;
mod task;
mod variant;

use std::{
    io::BufRead,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use bench::harness::{Common, say};
use clap::{Args, ValueEnum};
use native::{
    DataType,
    kernels::{KERNELS, Settings},
};
use serde_json::{Value, json};

use self::{size::Size, step::Step, variant::Variant};

/// A number format of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// 32 bits.
    Fp32,
    /// 16 bits, the upper half of fp32.
    Bf16,
}

impl Format {
    fn data_type(self) -> DataType {
        match self {
            Format::Fp32 => DataType::F32,
            Format::Bf16 => DataType::Bf16,
        }
    }
}

/// How to run.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    size: Size,
    /// Initial weights, fp32, under Hugging Face's names; matrices as [out, in]
    #[arg(long)]
    weights: PathBuf,
    /// Batches: tokens and targets [count, batch, seq] in 32-bit integers
    #[arg(long)]
    batches: PathBuf,
    /// The residual stream's format
    #[arg(long, value_enum, default_value = "bf16")]
    residual: Format,
    /// The gradient slots' format
    #[arg(long, value_enum, default_value = "fp32")]
    gradient: Format,
    /// The optimizer's learning rate
    #[arg(long, default_value_t = 3e-4)]
    learning_rate: f32,
    /// A way to run the step, such as `two-lanes,beside=44`; may be given several times to compare, requests name one by number
    #[arg(long = "variant", default_value = "")]
    variants: Vec<Variant>,
    /// Rounds of timing at the start
    #[arg(long, default_value_t = 7)]
    tune: usize,
    /// Seconds for which each of the fastest algorithms of a product runs alone, to choose by what it sustains; 0 leaves this out
    #[arg(long, default_value_t = 0.12)]
    sustain: f64,
}

/// Prepares the step and obeys requests until the input ends.
pub fn run(options: &Options) -> Result<()> {
    options.size.check()?;
    if options.common.dry_run {
        return check_without_device(options);
    }
    let Some(session) = options.common.open()? else { return Ok(()) };
    let mut step = Step::prepare(&session, options)?;
    say(&Value::Object(step.describe(session.header()?)).to_string());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let request: Value =
            serde_json::from_str(&line).with_context(|| format!("not a JSON object: {line}"))?;
        say(&answer(&mut step, &request)?.to_string());
    }
    Ok(())
}

/// Compiles the kernels for Hopper and asks cuDNN about an H200.
fn check_without_device(options: &Options) -> Result<()> {
    let settings = options.settings();
    for kernel in KERNELS {
        let compiled = kernel.compile("sm_90", &settings)?;
        say(&format!("{}.cu: {} bytes of machine code", kernel.name, compiled.cubin.len()));
    }
    attention::check_without_device(&options.size)
}

impl Options {
    fn settings(&self) -> Settings {
        Settings {
            columns: self.size.width,
            residual: self.residual.data_type(),
            gradient: self.gradient.data_type(),
        }
    }
}

fn answer(step: &mut Step, request: &Value) -> Result<Value> {
    let steps = request["steps"].as_u64().unwrap_or(1).clamp(1, memory::HISTORY as u64) as usize;
    let variant = request["variant"].as_u64().unwrap_or(0) as usize;
    match request["do"].as_str() {
        Some("train") => Ok(json!({"losses": step.train(variant, steps)?})),
        Some("time") => Ok(json!({"ms": step.time(variant, steps)?})),
        Some("profile") => step.profile(variant, steps),
        Some("reset") => {
            step.reset()?;
            Ok(json!({"step": 0}))
        }
        Some("gradients") => {
            let path = request["path"].as_str().context("\"gradients\" needs a \"path\"")?;
            step.write_gradients(Path::new(path))?;
            Ok(json!({"written": path}))
        }
        _ => bail!(
            "unknown request {request}: expected \"do\" to be train, time, profile, reset or gradients"
        ),
    }
}
