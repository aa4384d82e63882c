//! Random inputs and comparisons in 16 bits. Knows no tensors.

use half::{bf16, f16};
use native::DataType;

/// A small reproducible generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Roughly normal with deviation 1.
    pub fn normal(&mut self) -> f32 {
        ((0..4).map(|_| self.unit()).sum::<f32>() - 2.0) * 1.732
    }

    /// Uniform below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// `count` normal values of deviation `deviation` in 16 bits.
    pub fn normals(&mut self, data_type: DataType, count: usize, deviation: f32) -> Vec<u16> {
        (0..count).map(|_| encode(data_type, self.normal() * deviation)).collect()
    }
}

/// A value's bits as bf16, or as fp16 for every other type.
pub fn encode(data_type: DataType, value: f32) -> u16 {
    match data_type {
        DataType::Bf16 => bf16::from_f32(value).to_bits(),
        _ => f16::from_f32(value).to_bits(),
    }
}

/// The value of bf16 bits, or of fp16 bits for every other type.
pub fn decode(data_type: DataType, bits: u16) -> f32 {
    match data_type {
        DataType::Bf16 => bf16::from_bits(bits).to_f32(),
        _ => f16::from_bits(bits).to_f32(),
    }
}

/// `|got - expected| / |expected|` in the Euclidean norm over all pairs; NaN and infinity give infinity.
pub fn relative_error(pairs: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let (mut difference, mut size) = (0f64, 0f64);
    for (got, expected) in pairs {
        difference += (got - expected).powi(2);
        size += expected.powi(2);
    }
    let error = (difference / size.max(f64::MIN_POSITIVE)).sqrt();
    if error.is_finite() { error } else { f64::INFINITY }
}
