//! Operands of a step, resolved for one rank, and how a kernel gets at them: in place, split out of a shared block, or
//! through scratch memory.
//!
//! Decides before the first call what needs a copy. Knows windows and blocks; not lanes or calls.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use graph::{DType, Type};
use plan::Window;

use super::{
    call::{Call, Fault, Input, Kernel, Output},
    kernels::{strided::Walk, workers::Workers},
    memory::{Memory, Storage},
    typed::{Owned, Spare, is_native, view, view_mut},
};

/// A window of one rank in bytes of its block.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The block.
    pub block: usize,
    /// Element type.
    pub dtype: DType,
    /// First byte within the block.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Extents.
    pub shape: Vec<usize>,
    /// Elements between neighbours along each axis.
    pub strides: Vec<usize>,
    /// The walk over its elements.
    pub walk: Walk,
}

impl Operand {
    /// Resolves a window; `None` where it leaves its block.
    pub fn new(memory: &Memory, window: &Window, ty: &Type, rank: usize) -> Option<Operand> {
        let (block, base) = memory.place(window.buffer);
        let size = ty.dtype.bytes();
        let elements = &window.elements;
        let first = elements.offset + rank * elements.per_rank;
        let start = base + first * size;
        let end = base + (rank * elements.per_rank + elements.end()) * size;
        let fits = end.max(start) <= memory.block_bytes(block) && start.is_multiple_of(size);
        fits.then(|| Operand {
            block,
            dtype: ty.dtype,
            start,
            end: end.max(start),
            shape: elements.shape.0.clone(),
            strides: elements.strides.clone(),
            walk: Walk::new(&elements.shape.0, &elements.strides),
        })
    }

    fn overlaps(&self, other: &Operand) -> bool {
        self.block == other.block && self.start < other.end && other.start < self.end
    }

    fn same_window(&self, other: &Operand) -> bool {
        self.block == other.block
            && self.start == other.start
            && self.dtype == other.dtype
            && self.shape == other.shape
            && self.strides == other.strides
    }

    /// All bytes of the window in row-major order, out of the block's bytes.
    pub fn dense_bytes(&self, block: &[u8]) -> Vec<u8> {
        let bytes = &block[self.start..self.end];
        if self.walk.is_dense() {
            return bytes.to_vec();
        }
        let size = self.dtype.bytes();
        let mut out = vec![0; self.walk.len() * size];
        self.runs(|position, offset, length| {
            out[offset..offset + length].copy_from_slice(&bytes[position..position + length]);
        });
        out
    }

    /// Writes row-major bytes into the window.
    pub fn write_bytes(&self, block: &mut [u8], values: &[u8]) {
        let bytes = &mut block[self.start..self.end];
        self.runs(|position, offset, length| {
            bytes[position..position + length].copy_from_slice(&values[offset..offset + length]);
        });
    }

    /// Calls `visit(position, offset, length)` in bytes for each stretch without gaps.
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let size = self.dtype.bytes();
        let step = self
            .strides
            .iter()
            .zip(&self.shape)
            .rev()
            .find(|(_, e)| **e != 1)
            .map_or(1, |(s, _)| *s);
        self.walk.runs(0, self.walk.len(), |position, length, offset| {
            if step == 1 {
                visit(position * size, offset * size, length * size);
            } else {
                for i in 0..length {
                    visit((position + i * step) * size, (offset + i) * size, size);
                }
            }
        });
    }
}

/// How a kernel reads an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Where it lies.
    Direct,
    /// It lies in output `usize`, which the kernel reads before writing.
    Same(usize),
    /// Copied dense (and widened) first.
    Scratch,
}

/// A kernel with its operands.
pub struct Bound {
    kernel: Box<dyn Kernel>,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    input_access: Vec<Access>,
    /// Whether each output is computed in scratch memory and written back afterwards.
    output_scratch: Vec<bool>,
    accumulate: Vec<bool>,
    dense_strides: Vec<Vec<usize>>,
    dense_output_strides: Vec<Vec<usize>>,
    /// Blocks in ascending order, and whether they are written.
    locks: Vec<(usize, bool)>,
}

impl Bound {
    /// Decides how each operand is reached.
    pub fn new(
        kernel: Box<dyn Kernel>,
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
        accumulate: Vec<bool>,
    ) -> Bound {
        let dense = |operand: &Operand| operand.walk.is_dense();
        let output_scratch: Vec<bool> = outputs
            .iter()
            .enumerate()
            .map(|(i, output)| {
                let others = outputs.iter().enumerate();
                let shared = others.clone().any(|(j, other)| j != i && other.overlaps(output));
                shared
                    || !is_native(output.dtype)
                    || (!dense(output) && !kernel.writes_strides(i))
                    || (accumulate[i] && !kernel.accumulates(i))
            })
            .collect();
        let input_access = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| {
                let direct_output = |j: usize| !output_scratch[j];
                let clash =
                    (0..outputs.len()).find(|&j| direct_output(j) && outputs[j].overlaps(input));
                let copy = !is_native(input.dtype) || (!dense(input) && !kernel.takes_strides(i));
                match clash {
                    Some(j)
                        if !copy
                            && outputs[j].same_window(input)
                            && kernel.works_in_place()
                            && !accumulate[j] =>
                    {
                        Access::Same(j)
                    }
                    Some(_) => Access::Scratch,
                    None if copy => Access::Scratch,
                    None => Access::Direct,
                }
            })
            .collect();
        let mut locks: Vec<(usize, bool)> = outputs.iter().map(|o| (o.block, true)).collect();
        locks.extend(inputs.iter().map(|i| (i.block, false)));
        // Written before read, so that the first of equal blocks is kept.
        locks.sort_by_key(|&(block, write)| (block, !write));
        locks.dedup_by_key(|lock| lock.0);
        let strides = |shape: &[usize]| graph::Shape::new(shape).strides();
        Bound {
            dense_strides: inputs.iter().map(|input| strides(&input.shape)).collect(),
            dense_output_strides: outputs.iter().map(|output| strides(&output.shape)).collect(),
            kernel,
            inputs,
            outputs,
            input_access,
            output_scratch,
            accumulate,
            locks,
        }
    }

    /// Runs the kernel on the memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(
        &self,
        memory: &Memory,
        workers: &Workers,
        rank: usize,
        spare: &mut Spare,
    ) -> Result<(), Fault> {
        let mut guards: Vec<(usize, Guard<'_>)> = self
            .locks
            .iter()
            .map(|&(block, write)| {
                let guard = if write {
                    Guard::Write(memory.write(block))
                } else {
                    Guard::Read(memory.read(block))
                };
                (block, guard)
            })
            .collect();
        let copies = self.copy_inputs(&guards, spare);
        let mut scratch: Vec<Option<Owned>> = self
            .outputs
            .iter()
            .zip(&self.output_scratch)
            .map(|(o, &scratch)| scratch.then(|| Owned::zeros(o.dtype, o.walk.len(), spare)))
            .collect();
        let mut pieces = Pieces::new(self, &mut guards);
        let inputs: Vec<Input<'_>> = (0..self.inputs.len())
            .map(|i| {
                let operand = &self.inputs[i];
                let (elements, strides, same_as) = match (self.input_access[i], &copies[i]) {
                    (Access::Same(output), _) => {
                        (view(operand.dtype, &[]), &operand.strides, Some(output))
                    }
                    (_, Some(copy)) => (copy.elements(), &self.dense_strides[i], None),
                    _ => (view(operand.dtype, pieces.inputs[i]), &operand.strides, None),
                };
                Input { elements, shape: &operand.shape, strides, dtype: operand.dtype, same_as }
            })
            .collect();
        let mut outputs: Vec<Output<'_>> = scratch
            .iter_mut()
            .zip(pieces.outputs.iter_mut())
            .enumerate()
            .map(|(i, (scratch, piece))| {
                let operand = &self.outputs[i];
                let (elements, strides, accumulate) = match scratch {
                    Some(scratch) => (scratch.elements_mut(), &self.dense_output_strides[i], false),
                    None => {
                        let bytes = std::mem::take(piece);
                        (view_mut(operand.dtype, bytes), &operand.strides, self.accumulate[i])
                    }
                };
                Output {
                    elements,
                    shape: &operand.shape,
                    strides,
                    dtype: operand.dtype,
                    accumulate,
                }
            })
            .collect();
        self.kernel.run(&mut Call { workers, rank, inputs: &inputs, outputs: &mut outputs })?;
        drop((inputs, outputs, pieces));
        for (i, owned) in scratch.into_iter().enumerate() {
            let Some(owned) = owned else { continue };
            let operand = &self.outputs[i];
            if let Some(bytes) = writable(&mut guards, operand.block) {
                let bytes = &mut bytes[operand.start..operand.end];
                owned.scatter(operand.dtype, bytes, &operand.walk, self.accumulate[i]);
            }
            spare.give(owned);
        }
        copies.into_iter().flatten().for_each(|copy| spare.give(copy));
        Ok(())
    }

    fn copy_inputs(&self, guards: &[(usize, Guard<'_>)], spare: &mut Spare) -> Vec<Option<Owned>> {
        let bytes = |block: usize| {
            guards
                .iter()
                .find(|(b, _)| *b == block)
                .map_or(&[] as &[u8], |(_, guard)| guard.bytes())
        };
        self.inputs
            .iter()
            .zip(&self.input_access)
            .map(|(operand, access)| {
                (*access == Access::Scratch).then(|| {
                    let bytes = &bytes(operand.block)[operand.start..operand.end];
                    Owned::gather(operand.dtype, bytes, &operand.walk, spare)
                })
            })
            .collect()
    }
}

enum Guard<'m> {
    Read(RwLockReadGuard<'m, Storage>),
    Write(RwLockWriteGuard<'m, Storage>),
}

impl Guard<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Guard::Read(guard) => guard.bytes(),
            Guard::Write(guard) => guard.bytes(),
        }
    }
}

fn writable<'g>(guards: &'g mut [(usize, Guard<'_>)], block: usize) -> Option<&'g mut [u8]> {
    match guards.iter_mut().find(|(b, _)| *b == block) {
        Some((_, Guard::Write(guard))) => Some(guard.bytes_mut()),
        _ => None,
    }
}

/// The bytes of direct operands: written blocks are split between them.
struct Pieces<'g> {
    inputs: Vec<&'g [u8]>,
    outputs: Vec<&'g mut [u8]>,
}

impl<'g> Pieces<'g> {
    fn new(bound: &Bound, guards: &'g mut [(usize, Guard<'_>)]) -> Pieces<'g> {
        let mut pieces = Pieces {
            inputs: vec![&[]; bound.inputs.len()],
            outputs: bound.outputs.iter().map(|_| &mut [] as &mut [u8]).collect(),
        };
        for (block, guard) in guards {
            let direct = (0..bound.inputs.len()).filter(|&i| {
                bound.inputs[i].block == *block && bound.input_access[i] == Access::Direct
            });
            match guard {
                Guard::Read(guard) => {
                    let bytes = guard.bytes();
                    for i in direct {
                        pieces.inputs[i] = &bytes[bound.inputs[i].start..bound.inputs[i].end];
                    }
                }
                Guard::Write(guard) => {
                    pieces.split(bound, *block, direct.collect(), guard.bytes_mut());
                }
            }
        }
        pieces
    }

    /// Cuts a written block into stretches: each one output, or the union of inputs that overlap each other.
    fn split(&mut self, bound: &Bound, block: usize, mut inputs: Vec<usize>, bytes: &'g mut [u8]) {
        let mut outputs: Vec<usize> = (0..bound.outputs.len())
            .filter(|&i| bound.outputs[i].block == block && !bound.output_scratch[i])
            .collect();
        outputs.sort_by_key(|&i| (bound.outputs[i].start, bound.outputs[i].end));
        inputs.sort_by_key(|&i| (bound.inputs[i].start, bound.inputs[i].end));
        let (mut rest, mut at) = (bytes, 0);
        let (mut outputs, mut inputs) =
            (outputs.into_iter().peekable(), inputs.into_iter().peekable());
        loop {
            let next_output = outputs.peek().map(|&i| bound.outputs[i].start);
            let next_input = inputs.peek().map(|&i| bound.inputs[i].start);
            match (next_output, next_input) {
                (None, None) => return,
                (Some(output), input) if input.is_none_or(|input| output <= input) => {
                    let Some(i) = outputs.next() else { return };
                    let operand = &bound.outputs[i];
                    let (piece, after) = cut(rest, at, operand.start, operand.end);
                    self.outputs[i] = piece;
                    (rest, at) = (after, operand.end.max(at));
                }
                _ => {
                    let Some(first) = inputs.next() else { return };
                    let start = bound.inputs[first].start;
                    let mut end = bound.inputs[first].end;
                    let mut group = vec![first];
                    while let Some(i) = inputs.next_if(|&i| bound.inputs[i].start < end) {
                        end = end.max(bound.inputs[i].end);
                        group.push(i);
                    }
                    let (piece, after) = cut(rest, at, start, end);
                    let piece: &'g [u8] = piece;
                    for i in group {
                        let operand = &bound.inputs[i];
                        self.inputs[i] = &piece[operand.start - start..operand.end - start];
                    }
                    (rest, at) = (after, end.max(at));
                }
            }
        }
    }
}

/// Bytes `start..end` of a block of which `rest` begins at byte `at`, and what lies behind.
fn cut(rest: &mut [u8], at: usize, start: usize, end: usize) -> (&mut [u8], &mut [u8]) {
    let (_, rest) = rest.split_at_mut(start.saturating_sub(at));
    rest.split_at_mut(end - start)
}
