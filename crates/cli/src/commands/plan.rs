//! `counterpoint plan`: plans a recipe's step and prints the plan. Knows no pass and no device.

use std::path::PathBuf;

use ::train::recipe::Recipe;
use anyhow::Result;
use graph::names;

use crate::{model, output, planning};

/// Arguments of `counterpoint plan`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint plan recipes/tiny-gpt.toml
  counterpoint plan recipes/gpt2-124m.toml --target h200
  counterpoint plan recipes/tiny-gpt.toml --passes")]
pub struct Arguments {
    /// The recipe, a TOML file.
    recipe: PathBuf,
    /// Overrides one key; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The machine to plan for; planning for one needs no such machine.
    #[arg(long, default_value = "host", value_name = "host|h200")]
    target: String,
    /// Prints the passes in order instead.
    #[arg(long)]
    passes: bool,
    /// Prints the whole plan as JSON.
    #[arg(long, conflicts_with = "passes")]
    json: bool,
    /// Prints every step of every function.
    #[arg(long, conflicts_with_all = ["passes", "json"])]
    steps: bool,
}

/// Prints the plan.
///
/// # Errors
/// Mistakes in the recipe or the target's name; what planning refuses.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.passes {
        return output::result(&passes());
    }
    let recipe = Recipe::read(&arguments.recipe, &arguments.set, &model::families())?;
    let target = planning::target(&arguments.target, &recipe)?;
    let network = model::model(&recipe)?;
    let plan = planning::for_target(&recipe, network.as_ref(), target.as_ref(), false)?;
    if arguments.json {
        return output::result(&plan.to_json()?);
    }
    if arguments.steps {
        return output::result(&plan.to_string());
    }
    let trains = [names::STEP, names::FIRST, names::MIDDLE, names::LAST];
    let tables: Vec<String> =
        trains.iter().filter_map(|name| plan.table(name)).map(|table| table.to_string()).collect();
    output::result(&tables.join("\n"))
}

fn passes() -> String {
    let passes = ::plan::passes();
    let width = passes.iter().map(|pass| pass.name.len()).max().unwrap_or(0);
    passes.iter().map(|pass| format!("{:width$}  {}\n", pass.name, pass.summary)).collect()
}
