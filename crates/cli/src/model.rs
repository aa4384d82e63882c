//! The bridge between the zoo and recipes: what `[model]` may hold, and the model that a recipe means.
//! Knows no particular model.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use models::{Family, LanguageModel, SettingValue, Settings, zoo};
use train::recipe::{self, Field, Recipe, Value};

/// The families of the zoo as recipes see them.
pub fn families() -> Vec<recipe::Family> {
    let key = |name: &str| format!("model.{name}");
    let family = |family: &&dyn Family| recipe::Family {
        name: family.name().to_owned(),
        fields: family
            .settings()
            .iter()
            .map(|setting| {
                let kind = match setting.kind {
                    models::Kind::Integer { min, max } => recipe::Kind::Integer { min, max },
                    models::Kind::Number { min, max } => recipe::Kind::Number { min, max },
                    models::Kind::Boolean => recipe::Kind::Boolean,
                };
                Field::new(&key(setting.name), kind, to_recipe(setting.default), setting.help)
            })
            .collect(),
        presets: family
            .presets()
            .iter()
            .map(|preset| {
                let values =
                    preset.values.iter().map(|&(name, value)| (key(name), to_recipe(value)));
                (preset.name.to_owned(), values.collect())
            })
            .collect(),
    };
    zoo::FAMILIES.iter().map(family).collect()
}

/// The model that the recipe means.
///
/// # Errors
/// Settings that do not fit each other, with the recipe's line.
pub fn model(recipe: &Recipe) -> Result<Box<dyn LanguageModel>> {
    let family =
        zoo::family(&recipe.model.family).context("the schema admits only families of the zoo")?;
    let mut settings = Settings::of(family, None);
    for (name, value) in &recipe.model.settings {
        if let Some(value) = from_recipe(value) {
            settings = settings.with(name, value);
        }
    }
    family.model(&settings).map_err(|error| match error {
        models::ModelError::Setting { setting, message } => {
            recipe.problem(&format!("model.{setting}"), message).into()
        }
        other => other.into(),
    })
}

/// The `[model]` section as a checkpoint's manifest keeps it.
pub fn description(recipe: &Recipe) -> BTreeMap<String, serde_json::Value> {
    let json = |value: &Value| match value {
        Value::Integer(value) => serde_json::json!(value),
        Value::Number(value) => serde_json::json!(value),
        Value::Boolean(value) => serde_json::json!(value),
        other => serde_json::json!(other.to_string()),
    };
    let settings = recipe.model.settings.iter().map(|(name, value)| (name.clone(), json(value)));
    let family = ("family".to_owned(), serde_json::json!(recipe.model.family));
    std::iter::once(family).chain(settings).collect()
}

/// The model that a manifest's `[model]` section describes.
///
/// # Errors
/// A family that is not in the zoo, or settings that do not fit each other.
pub fn described(
    description: &BTreeMap<String, serde_json::Value>,
) -> Result<Box<dyn LanguageModel>> {
    let name = description.get("family").and_then(serde_json::Value::as_str).unwrap_or_default();
    let family = zoo::family(name).with_context(|| format!("there is no model family {name:?}"))?;
    let mut settings = Settings::of(family, None);
    for setting in family.settings() {
        let Some(value) = description.get(setting.name) else { continue };
        let value = match setting.kind {
            models::Kind::Integer { .. } => value.as_i64().map(SettingValue::Integer),
            models::Kind::Number { .. } => value.as_f64().map(SettingValue::Number),
            models::Kind::Boolean => value.as_bool().map(SettingValue::Boolean),
        };
        let value = value.with_context(|| format!("model.{} has another type", setting.name))?;
        settings = settings.with(setting.name, value);
    }
    Ok(family.model(&settings)?)
}

fn to_recipe(value: SettingValue) -> Value {
    match value {
        SettingValue::Integer(value) => Value::Integer(value),
        SettingValue::Number(value) => Value::Number(value),
        SettingValue::Boolean(value) => Value::Boolean(value),
    }
}

fn from_recipe(value: &Value) -> Option<SettingValue> {
    match value {
        Value::Integer(value) => Some(SettingValue::Integer(*value)),
        Value::Number(value) => Some(SettingValue::Number(*value)),
        Value::Boolean(value) => Some(SettingValue::Boolean(*value)),
        _ => None,
    }
}
