//! `counterpoint generate`: continues a text with the model of a checkpoint. Knows no model.

use std::{path::PathBuf, sync::Arc};

use ::train::{checkpoint, generate, run::states};
use anyhow::{Context, Result};
use models::Shapes;

use crate::{failure::Mistake, model, output, planning};

/// Arguments of `counterpoint generate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint generate --checkpoint runs/tiny-gpt --prompt \"ROMEO.\"
  counterpoint generate --checkpoint runs/tiny-gpt --prompt \"To be\" --tokens 500 --temperature 0.7 --top-k 20 --seed 3")]
pub struct Arguments {
    /// A run's folder (its newest checkpoint) or one checkpoint.
    #[arg(long, value_name = "FOLDER")]
    checkpoint: PathBuf,
    /// The text to continue, one token per byte.
    #[arg(long, default_value = "\n")]
    prompt: String,
    /// Tokens to add.
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// Logits are divided by this; 0 takes the most likely token.
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Draws among this many of the most likely tokens; 0: among all.
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Prints the prompt and what follows.
///
/// # Errors
/// Mistakes in arguments or checkpoint.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !(0.0..=100.0).contains(&arguments.temperature) {
        let message =
            format!("--temperature {}: expected a number from 0 to 100", arguments.temperature);
        return Err(Mistake(message).into());
    }
    let snapshot = checkpoint::load(&arguments.checkpoint)?;
    let network = model::described(&snapshot.manifest.model)?;
    if network.vocabulary() != 256 {
        let message = format!(
            "{}: the model has a vocabulary of {}, expected 256: generate knows bytes only",
            arguments.checkpoint.display(),
            network.vocabulary()
        );
        return Err(Mistake(message).into());
    }
    let shapes = Shapes { batch: 1, length: network.context(), generate: true };
    let plan = Arc::new(planning::inference(network.as_ref(), shapes)?);
    let communicator = runtime::in_process::world(1, None).pop().context("a world of one rank")?;
    let device: &dyn runtime::Device = &runtime::host::HostDevice::for_ranks(1);
    let mut executable = device.load(plan.clone(), communicator, 0)?;
    states::write_parameters(executable.as_mut(), &plan, &snapshot.parameters)
        .with_context(|| arguments.checkpoint.display().to_string())?;
    let prompt: Vec<i32> = arguments.prompt.bytes().map(i32::from).collect();
    let choice = generate::Choice {
        temperature: arguments.temperature,
        top: Some(arguments.top_k).filter(|&top| top > 0),
        seed: arguments.seed,
    };
    let tokens = generate::generate(
        executable.as_mut(),
        &plan.program,
        network.context(),
        &prompt,
        arguments.tokens,
        &choice,
    )?;
    let bytes: Vec<u8> = tokens.iter().map(|&token| u8::try_from(token).unwrap_or(b'?')).collect();
    output::result(&format!("{}{}", arguments.prompt, String::from_utf8_lossy(&bytes)))
}
