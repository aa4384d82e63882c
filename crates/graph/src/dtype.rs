//! Element types and their rounding. Knows no layouts and no devices.

use std::{fmt, str::FromStr};

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Two's complement, 64 bits.
    I64,
    /// Two's complement, 32 bits.
    I32,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, in the order of declaration.
    pub const ALL: [DType; 8] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether gradients can have this type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Whether indices and labels can have this type.
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::U8)
    }

    /// The dtype in which sums over this dtype are accumulated unless an operator names another: `f64` for `f64`,
    /// otherwise `f32`.
    pub const fn accumulator(self) -> DType {
        if matches!(self, DType::F64) { DType::F64 } else { DType::F32 }
    }

    /// The lower-case name used in plans, recipes and files.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// The representable value nearest to `value` (ties to even); integers wrap as `as` casts do.
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F64 => value,
            DType::F32 => f64::from(value as f32),
            DType::F16 => f16::from_f64(value).to_f64(),
            DType::BF16 => bf16::from_f64(value).to_f64(),
            DType::I64 => (value as i64) as f64,
            DType::I32 => f64::from(value as i32),
            DType::U8 => f64::from(value as u8),
            DType::Bool => f64::from(u8::from(value != 0.0)),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| format!("unknown dtype {text:?}"))
    }
}
