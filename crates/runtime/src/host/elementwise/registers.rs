//! Registers of the elementwise executor: one block of elements each, by number format.
//!
//! Knows no operators.

use graph::DType;

use super::{BLOCK, compile::Program};
use crate::host::call::Elements;

/// One register.
#[derive(Debug, Default)]
pub(super) enum Bank {
    /// f32, f16 and bf16.
    F32(Vec<f32>),
    /// f64.
    F64(Vec<f64>),
    /// i64, i32 and u8.
    I64(Vec<i64>),
    /// Truth values.
    U8(Vec<u8>),
    /// Taken out.
    #[default]
    Taken,
}

impl Bank {
    fn new(dtype: DType) -> Bank {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Bank::F32(vec![0.0; BLOCK]),
            DType::F64 => Bank::F64(vec![0.0; BLOCK]),
            DType::I64 | DType::I32 | DType::U8 => Bank::I64(vec![0; BLOCK]),
            DType::Bool => Bank::U8(vec![0; BLOCK]),
        }
    }
}

/// All registers of one thread.
#[derive(Debug)]
pub(super) struct Registers(Vec<Bank>);

impl Registers {
    pub(super) fn new(program: &Program) -> Registers {
        Registers(program.registers.iter().map(|&dtype| Bank::new(dtype)).collect())
    }

    /// Takes a register out so that it can be written while others are read.
    pub(super) fn take(&mut self, register: usize) -> Bank {
        std::mem::take(&mut self.0[register])
    }

    pub(super) fn put(&mut self, register: usize, bank: Bank) {
        self.0[register] = bank;
    }

    pub(super) fn read(&self, register: usize, count: usize) -> Elements<'_> {
        match &self.0[register] {
            Bank::F32(values) => Elements::F32(&values[..count]),
            Bank::F64(values) => Elements::F64(&values[..count]),
            Bank::I64(values) => Elements::I64(&values[..count]),
            Bank::U8(values) => Elements::U8(&values[..count]),
            Bank::Taken => Elements::U8(&[]),
        }
    }

    pub(super) fn fill(&mut self, register: usize, value: f64) {
        match &mut self.0[register] {
            Bank::F32(values) => values.fill(value as f32),
            Bank::F64(values) => values.fill(value),
            Bank::I64(values) => values.fill(value as i64),
            Bank::U8(values) => values.fill(u8::from(value != 0.0)),
            Bank::Taken => {}
        }
    }
}
