//! Attributes of an operator: data that compares, hashes and serialises canonically. Knows no operator.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{DType, OpError};

/// One attribute value. Floats are kept by their bits so that equality and hashing are exact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// A signed integer.
    Int(i64),
    /// The bits of an `f64`.
    Float(u64),
    /// A truth value.
    Bool(bool),
    /// A short text, for closed choices.
    Text(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// The bits of a list of `f64`.
    Floats(Vec<u64>),
    /// An element type.
    DType(DType),
}

/// Attributes by name, in name order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    /// No attributes.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// With an integer.
    pub fn int(self, name: &str, value: i64) -> Attributes {
        self.with(name, Attribute::Int(value))
    }

    /// With a float.
    pub fn float(self, name: &str, value: f64) -> Attributes {
        self.with(name, Attribute::Float(value.to_bits()))
    }

    /// With a truth value.
    pub fn bool(self, name: &str, value: bool) -> Attributes {
        self.with(name, Attribute::Bool(value))
    }

    /// With a text.
    pub fn text(self, name: &str, value: &str) -> Attributes {
        self.with(name, Attribute::Text(value.to_owned()))
    }

    /// With a list of integers.
    pub fn ints(self, name: &str, values: impl IntoIterator<Item = i64>) -> Attributes {
        self.with(name, Attribute::Ints(values.into_iter().collect()))
    }

    /// With a list of extents, axes or offsets.
    pub fn sizes(self, name: &str, values: &[usize]) -> Attributes {
        self.ints(name, values.iter().map(|&value| value as i64))
    }

    /// With a list of floats.
    pub fn floats(self, name: &str, values: &[f64]) -> Attributes {
        self.with(name, Attribute::Floats(values.iter().map(|value| value.to_bits()).collect()))
    }

    /// With an element type.
    pub fn dtype(self, name: &str, value: DType) -> Attributes {
        self.with(name, Attribute::DType(value))
    }

    /// With any attribute; an earlier one of this name is replaced.
    pub fn with(mut self, name: &str, value: Attribute) -> Attributes {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// The attribute of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// All attributes in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The integer `name`; an error where it is missing or of another kind. The other `*_of` are alike.
    pub fn int_of(&self, name: &str) -> Result<i64, OpError> {
        match self.get(name) {
            Some(Attribute::Int(value)) => Ok(*value),
            other => Err(wrong(name, "an integer", other)),
        }
    }

    /// The integer `name` as an extent, axis or offset.
    pub fn size_of(&self, name: &str) -> Result<usize, OpError> {
        let value = self.int_of(name)?;
        usize::try_from(value).map_err(|_| wrong(name, "a size", self.get(name)))
    }

    /// The float `name`.
    pub fn float_of(&self, name: &str) -> Result<f64, OpError> {
        match self.get(name) {
            Some(Attribute::Float(bits)) => Ok(f64::from_bits(*bits)),
            other => Err(wrong(name, "a float", other)),
        }
    }

    /// The truth value `name`; `false` where it is missing.
    pub fn flag(&self, name: &str) -> Result<bool, OpError> {
        match self.get(name) {
            None => Ok(false),
            Some(Attribute::Bool(value)) => Ok(*value),
            other => Err(wrong(name, "true or false", other)),
        }
    }

    /// The text `name`.
    pub fn text_of(&self, name: &str) -> Result<&str, OpError> {
        match self.get(name) {
            Some(Attribute::Text(value)) => Ok(value),
            other => Err(wrong(name, "a text", other)),
        }
    }

    /// The integers `name`.
    pub fn ints_of(&self, name: &str) -> Result<&[i64], OpError> {
        match self.get(name) {
            Some(Attribute::Ints(values)) => Ok(values),
            other => Err(wrong(name, "a list of integers", other)),
        }
    }

    /// The integers `name` as extents, axes or offsets.
    pub fn sizes_of(&self, name: &str) -> Result<Vec<usize>, OpError> {
        self.ints_of(name)?
            .iter()
            .map(|&v| {
                usize::try_from(v).map_err(|_| wrong(name, "a list of sizes", self.get(name)))
            })
            .collect()
    }

    /// The floats `name`.
    pub fn floats_of(&self, name: &str) -> Result<Vec<f64>, OpError> {
        match self.get(name) {
            Some(Attribute::Floats(bits)) => Ok(bits.iter().map(|&b| f64::from_bits(b)).collect()),
            other => Err(wrong(name, "a list of floats", other)),
        }
    }

    /// The element type `name`.
    pub fn dtype_of(&self, name: &str) -> Result<DType, OpError> {
        match self.get(name) {
            Some(Attribute::DType(value)) => Ok(*value),
            other => Err(wrong(name, "an element type", other)),
        }
    }

    /// The element type `name`, or `default` where it is missing.
    pub fn dtype_or(&self, name: &str, default: DType) -> Result<DType, OpError> {
        if self.get(name).is_none() { Ok(default) } else { self.dtype_of(name) }
    }
}

fn wrong(name: &str, expected: &str, found: Option<&Attribute>) -> OpError {
    let found = found.map_or("nothing".to_owned(), ToString::to_string);
    OpError::new(format!("attribute {name:?} is {found}, expected {expected}"))
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Int(value) => write!(f, "{value}"),
            Attribute::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Attribute::Bool(value) => write!(f, "{value}"),
            Attribute::Text(value) => write!(f, "{value}"),
            Attribute::Ints(values) => write!(f, "{values:?}"),
            Attribute::Floats(bits) => {
                let values: Vec<f64> = bits.iter().map(|&b| f64::from_bits(b)).collect();
                write!(f, "{values:?}")
            }
            Attribute::DType(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Attributes {
    /// `name=value, name=value`, shortened lists excepted: a plan's text must be exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                write!(f, ", ")?;
            }
            write!(f, "{name}={value}")?;
        }
        Ok(())
    }
}
