//! What a recipe may say: one field per key, with its kind, range, default and one line of help.
//!
//! Knows no TOML and no meaning beyond the range of a single value. `fields.rs` lists the fields of this crate; the
//! fields of the `[model]` section come from the caller.

use std::fmt;

/// What a value of a key may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both included.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A finite number from `min` to `max`, both included.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// `true` or `false`.
    Boolean,
    /// One of these words.
    Choice(Vec<String>),
    /// Any text.
    Text,
    /// One path or a list of paths; `*`, `?` and `[..]` are patterns.
    Paths,
    /// A list of tables, see [`Group`].
    Groups,
}

impl Kind {
    /// A choice between fixed words.
    pub fn choice(words: &[&str]) -> Self {
        Self::Choice(words.iter().map(|&word| word.to_owned()).collect())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { min, max: i64::MAX } => write!(f, "an integer of at least {min}"),
            Self::Integer { min, max } => write!(f, "an integer from {min} to {max}"),
            Self::Number { min, max: f64::INFINITY } => write!(f, "a number of at least {min}"),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Boolean => write!(f, "true or false"),
            Self::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "one of {}", quoted.join(", "))
            }
            Self::Text => write!(f, "a string"),
            Self::Paths => write!(f, "a path or a list of paths"),
            Self::Groups => {
                write!(
                    f,
                    "a list of tables {{ endings, at_least_axes, weight_decay, learning_rate_scale }}"
                )
            }
        }
    }
}

/// Parameters with values of their own instead of the optimizer's; the first group that matches counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Ends of parameter names that belong here, such as `.bias`; empty takes every name.
    pub endings: Vec<String>,
    /// Least number of axes of a parameter that belongs here.
    pub at_least_axes: u64,
    /// Weight decay of the group.
    pub weight_decay: Option<f64>,
    /// Factor on the learning rate.
    pub learning_rate_scale: Option<f64>,
}

/// A value that is of its field's kind and in its range.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Number(f64),
    /// A switch.
    Boolean(bool),
    /// A word or text.
    Text(String),
    /// Paths and patterns as written.
    Paths(Vec<String>),
    /// Parameter groups.
    Groups(Vec<Group>),
}

impl fmt::Display for Value {
    /// Writes the value as TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value:?}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{}", quoted(value)),
            Self::Paths(paths) if paths.len() == 1 => write!(f, "{}", quoted(&paths[0])),
            Self::Paths(paths) => {
                write!(
                    f,
                    "[{}]",
                    paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(", ")
                )
            }
            Self::Groups(groups) => {
                let entry = |group: &Group| {
                    let mut parts = vec![];
                    if !group.endings.is_empty() {
                        let endings: Vec<String> =
                            group.endings.iter().map(|text| quoted(text)).collect();
                        parts.push(format!("endings = [{}]", endings.join(", ")));
                    }
                    if group.at_least_axes > 0 {
                        parts.push(format!("at_least_axes = {}", group.at_least_axes));
                    }
                    parts.extend(
                        group.weight_decay.map(|value| format!("weight_decay = {value:?}")),
                    );
                    parts.extend(
                        group
                            .learning_rate_scale
                            .map(|value| format!("learning_rate_scale = {value:?}")),
                    );
                    format!("{{ {} }}", parts.join(", "))
                };
                write!(f, "[{}]", groups.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// One key of a recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The dotted key, such as `train.steps`.
    pub key: String,
    /// What its value may be.
    pub kind: Kind,
    /// The value without any mention; `None` for a key that must be given or may be absent.
    pub default: Option<Value>,
    /// Whether the recipe must give it.
    pub required: bool,
    /// One line for people.
    pub help: String,
}

impl Field {
    /// A key that has a default.
    pub fn new(key: &str, kind: Kind, default: Value, help: &str) -> Self {
        Self {
            key: key.to_owned(),
            kind,
            default: Some(default),
            required: false,
            help: help.to_owned(),
        }
    }

    /// A key that may be absent.
    pub fn optional(key: &str, kind: Kind, help: &str) -> Self {
        Self { key: key.to_owned(), kind, default: None, required: false, help: help.to_owned() }
    }

    /// A key that must be given.
    pub fn required(key: &str, kind: Kind, help: &str) -> Self {
        Self { key: key.to_owned(), kind, default: None, required: true, help: help.to_owned() }
    }
}

/// What the `[model]` section may hold for one family of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The word in `model.family`.
    pub name: String,
    /// Its fields; keys start with `model.`.
    pub fields: Vec<Field>,
    /// Names for `model.preset` with the keys that each sets where the recipe does not.
    pub presets: Vec<(String, Vec<(String, Value)>)>,
}
