//! `counterpoint config`: a recipe with all values and their origins. Knows no meaning of keys.

use std::path::PathBuf;

use ::train::recipe::Recipe;
use anyhow::Result;

use crate::{model, output};

/// Arguments of `counterpoint config`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint config recipes/tiny-gpt.toml
  counterpoint config recipes/tiny-gpt.toml --set train.steps=20 --json")]
pub struct Arguments {
    /// The recipe, a TOML file.
    recipe: PathBuf,
    /// Overrides one key; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the recipe.
///
/// # Errors
/// Every mistake in the recipe.
pub fn run(arguments: &Arguments) -> Result<()> {
    let recipe = Recipe::read(&arguments.recipe, &arguments.set, &model::families())?;
    model::model(&recipe)?;
    if arguments.json {
        output::result(&serde_json::to_string_pretty(&recipe.to_json())?)
    } else {
        output::result(&recipe.with_origins())
    }
}
