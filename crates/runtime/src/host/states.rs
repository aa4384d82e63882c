//! States by the names that files use: where each lies, how it starts, how it is read and written.
//!
//! A sharded state is read with the help of all ranks. Knows the plan and the memory.

use std::collections::BTreeMap;

use graph::{Collective, DType, Reduction, Shape, State, StateKind, Tensor, Type};
use plan::Plan;

use super::{memory::Memory, operand::Operand};
use crate::{Channel, HostTensor, RuntimeError, initial};

/// One name: a range of a state.
#[derive(Clone, Debug)]
struct Entry {
    state: usize,
    /// First element within the whole state.
    offset: usize,
    shape: Shape,
}

/// All states of a loaded plan.
pub struct States {
    states: Vec<(State, Operand)>,
    entries: BTreeMap<String, Entry>,
    names: Vec<String>,
    /// Working copies of each state.
    copies: BTreeMap<usize, Vec<usize>>,
    rank: usize,
}

impl States {
    /// Finds all states of a plan in memory.
    ///
    /// # Errors
    /// Where a state has no memory.
    pub fn new(plan: &Plan, memory: &Memory, rank: usize) -> Result<States, RuntimeError> {
        let mut states = vec![];
        for placed in &plan.states {
            let missing = |what: &str| RuntimeError::Plan {
                path: placed.state.clone(),
                what: what.to_owned(),
            };
            let state = plan
                .program
                .state(&placed.state)
                .ok_or_else(|| missing("is placed but not in the program"))?;
            let operand = Operand::new(memory, &placed.window, &state.ty, rank)
                .ok_or_else(|| missing("lies outside of its buffer"))?;
            states.push((state.clone(), operand));
        }
        let mut all = States {
            states,
            entries: BTreeMap::new(),
            names: vec![],
            copies: BTreeMap::new(),
            rank,
        };
        all.index();
        Ok(all)
    }

    fn index(&mut self) {
        for (number, (state, _)) in self.states.iter().enumerate() {
            if let StateKind::WorkingCopy { of } = &state.kind
                && let Some(master) = self.states.iter().position(|(s, _)| s.name == *of)
            {
                self.copies.entry(master).or_default().push(number);
            }
            let mut shape = state.ty.shape.clone();
            if let Some(first) = shape.0.first_mut() {
                *first *= state.shards;
            }
            let whole = Entry { state: number, offset: 0, shape };
            let derived =
                matches!(state.kind, StateKind::WorkingCopy { .. } | StateKind::Gradient { .. });
            if state.segments.is_empty() && !derived {
                self.names.push(state.name.clone());
            }
            self.entries.entry(state.name.clone()).or_insert(whole);
            for segment in &state.segments {
                // Moments and gradients of a flat state may carry their parameter's names.
                let suffix = match &state.kind {
                    StateKind::Moment { slot, .. } => format!("#{slot}"),
                    StateKind::Gradient { .. } => "#gradient".to_owned(),
                    StateKind::WorkingCopy { .. } => "#working".to_owned(),
                    _ => String::new(),
                };
                let name = if segment.name.contains('#') || suffix.is_empty() {
                    segment.name.clone()
                } else {
                    format!("{}{suffix}", segment.name)
                };
                if !derived {
                    self.names.push(name.clone());
                }
                let entry =
                    Entry { state: number, offset: segment.offset, shape: segment.shape.clone() };
                self.entries.entry(name).or_insert(entry);
            }
        }
    }

    /// Names of everything that a checkpoint holds.
    pub fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Writes initial values into all states.
    ///
    /// # Errors
    /// Where a declaration contradicts itself.
    pub fn initialise(&self, plan: &Plan, memory: &Memory, seed: u64) -> Result<(), RuntimeError> {
        for (state, operand) in &self.states {
            let values = initial::values(&plan.program, state, seed, self.rank)?;
            let tensor = HostTensor::from_tensor(&Tensor::from_f64(state.ty.clone(), values));
            operand.write_bytes(memory.write(operand.block).bytes_mut(), &tensor.bytes);
        }
        Ok(())
    }

    fn entry(&self, name: &str) -> Result<&Entry, RuntimeError> {
        self.entries.get(name).ok_or_else(|| {
            let distance = |other: &str| {
                let shared = other.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
                (name.len().max(other.len()) - shared, other.len())
            };
            let nearest = self.entries.keys().min_by_key(|other| distance(other)).cloned();
            RuntimeError::UnknownState { name: name.to_owned(), nearest }
        })
    }

    /// The value of a name. For a sharded state all ranks must call it.
    ///
    /// # Errors
    /// Where the name is unknown or a rank fails.
    pub fn read(
        &self,
        name: &str,
        memory: &Memory,
        control: Option<&mut dyn Channel>,
    ) -> Result<HostTensor, RuntimeError> {
        let entry = self.entry(name)?;
        let (state, operand) = &self.states[entry.state];
        let size = state.ty.dtype.bytes();
        let ty = Type { dtype: state.ty.dtype, shape: entry.shape.clone() };
        let own = operand.dense_bytes(memory.read(operand.block).bytes());
        let mut bytes = vec![0; ty.bytes()];
        if let Some((from, to, count)) = self.overlap(entry, state) {
            bytes[to * size..(to + count) * size]
                .copy_from_slice(&own[from * size..(from + count) * size]);
        }
        if state.shards > 1
            && let Some(control) = control
        {
            // Each rank has filled in its own part and left zeros elsewhere.
            let flat = Type::new(DType::U8, [bytes.len()]);
            let collective = Collective::AllReduce { reduction: Reduction::Sum };
            let exchange = control.exchange(collective, &flat, &bytes)?;
            exchange.write(&mut bytes);
            exchange.settle();
        }
        Ok(HostTensor { ty, bytes })
    }

    /// Overwrites this rank's part of a name, and of the working copies of it.
    ///
    /// # Errors
    /// Where the name is unknown or the type differs.
    pub fn write(
        &self,
        name: &str,
        value: &HostTensor,
        memory: &Memory,
    ) -> Result<(), RuntimeError> {
        let entry = self.entry(name)?;
        let expected =
            Type { dtype: self.states[entry.state].0.ty.dtype, shape: entry.shape.clone() };
        if value.ty != expected {
            return Err(RuntimeError::WrongType {
                name: name.to_owned(),
                found: value.ty.to_string(),
                expected: expected.to_string(),
            });
        }
        self.put(entry.state, entry, value, memory);
        for &copy in self.copies.get(&entry.state).into_iter().flatten() {
            let dtype = self.states[copy].0.ty.dtype;
            let converted = HostTensor::from_tensor(&value.to_tensor().cast(dtype));
            self.put(copy, entry, &converted, memory);
        }
        Ok(())
    }

    fn put(&self, number: usize, entry: &Entry, value: &HostTensor, memory: &Memory) {
        let (state, operand) = &self.states[number];
        let size = state.ty.dtype.bytes();
        let mut guard = memory.write(operand.block);
        let mut own = operand.dense_bytes(guard.bytes());
        if let Some((to, from, count)) = self.overlap(entry, state) {
            own[to * size..(to + count) * size]
                .copy_from_slice(&value.bytes[from * size..(from + count) * size]);
        }
        operand.write_bytes(guard.bytes_mut(), &own);
    }

    /// Elements of this rank's part that a name covers: first in the part, first in the name, count.
    fn overlap(&self, entry: &Entry, state: &State) -> Option<(usize, usize, usize)> {
        let part = state.ty.shape.elements();
        let first = if state.shards > 1 { self.rank * part } else { 0 };
        let start = entry.offset.max(first);
        let end = (entry.offset + entry.shape.elements()).min(first + part);
        (start < end).then(|| (start - first, start - entry.offset, end - start))
    }
}
