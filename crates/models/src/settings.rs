//! What a family of models lets people choose: names, ranges, defaults and presets. Knows no file format.

use std::collections::BTreeMap;

use crate::{LanguageModel, ModelError};

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both included.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number from `min` to `max`, both included.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// `true` or `false`.
    Boolean,
}

/// A value of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingValue {
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A switch.
    Boolean(bool),
}

/// One thing people may choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its name, as in `model.NAME`.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Its value when nobody chooses.
    pub default: SettingValue,
    /// One line for people.
    pub help: &'static str,
}

/// A known size under a short name; values of its settings unless they are chosen one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Settings and their values.
    pub values: Vec<(&'static str, SettingValue)>,
}

/// A family of models: one entry of the zoo.
pub trait Family: Sync {
    /// The word in `model.family`.
    fn name(&self) -> &'static str;

    /// What people may choose.
    fn settings(&self) -> Vec<Setting>;

    /// Known sizes.
    fn presets(&self) -> Vec<Preset>;

    /// The model with these settings.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for settings that do not fit each other.
    fn model(&self, settings: &Settings) -> Result<Box<dyn LanguageModel>, ModelError>;
}

/// Values by name; every setting of the family has one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(pub BTreeMap<String, SettingValue>);

impl Settings {
    /// The family's defaults, or those of a preset.
    pub fn of(family: &dyn Family, preset: Option<&str>) -> Self {
        let mut values: BTreeMap<String, SettingValue> = family
            .settings()
            .iter()
            .map(|setting| (setting.name.to_owned(), setting.default))
            .collect();
        let presets = family.presets();
        if let Some(preset) = presets.iter().find(|known| Some(known.name) == preset) {
            values.extend(preset.values.iter().map(|&(name, value)| (name.to_owned(), value)));
        }
        Self(values)
    }

    /// The same with one value chosen.
    #[must_use]
    pub fn with(mut self, name: &str, value: SettingValue) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// A whole number; 0 where there is none of this name.
    pub fn size(&self, name: &str) -> usize {
        match self.0.get(name) {
            Some(SettingValue::Integer(value)) => usize::try_from(*value).unwrap_or(0),
            _ => 0,
        }
    }

    /// A number; 0 where there is none of this name.
    pub fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(SettingValue::Number(value)) => *value,
            _ => 0.0,
        }
    }

    /// A switch; off where there is none of this name.
    pub fn switch(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(SettingValue::Boolean(true)))
    }
}
