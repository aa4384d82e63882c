//! Elementwise operators and regions: the body runs block by block on registers that stay in the first-level cache.
//!
//! Every operand is read once and every result written once, whatever the number of operators between. Knows one shape,
//! strides and dtypes; not where operands lie.

mod compile;
mod functions;
mod registers;

use graph::DType;

use self::{
    compile::{Instruction, Program},
    registers::{Bank, Registers},
};
use super::{
    call::{Call, Elements, ElementsMut, Fault, Input, Kernel, Output},
    kernels::strided::Walk,
};

pub use compile::{compile_node, compile_region};

/// Elements that go through all operators before the next: a register of f32 has 4 KiB.
pub(crate) const BLOCK: usize = 1024;

/// Elements of one piece of work of a thread.
const PIECE: usize = 16 * BLOCK;

/// A compiled elementwise operator or region.
#[derive(Debug)]
pub struct Elementwise {
    program: Program,
}

impl Kernel for Elementwise {
    fn takes_strides(&self, _: usize) -> bool {
        true
    }

    fn writes_strides(&self, _: usize) -> bool {
        true
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let elements = call.outputs.first().map_or(0, Output::len);
        let shape: Vec<usize> = call.outputs.first().map_or(vec![], |out| out.shape.to_vec());
        let inputs: Vec<Source<'_>> =
            call.inputs.iter().map(|input| Source::new(input, &shape)).collect();
        let walks: Vec<Walk> =
            call.outputs.iter().map(|out| Walk::new(out.shape, out.strides)).collect();
        let rank = call.rank;
        if walks.iter().all(Walk::is_dense) {
            let pieces = split(call.outputs, elements);
            call.workers.each(pieces, elements, |(start, mut outputs)| {
                let mut registers = Registers::new(&self.program);
                prepare(&self.program, &inputs, &mut registers);
                let length = PIECE.min(elements - start);
                for from in (0..length).step_by(BLOCK) {
                    let count = BLOCK.min(length - from);
                    let block = Block { start: start + from, count, rank };
                    let out = |output: usize| Place { output, from };
                    self.block(&block, &inputs, &mut registers, &mut outputs, None, out);
                }
            });
            return Ok(());
        }
        let mut outputs: Vec<ElementsMut<'_>> =
            call.outputs.iter_mut().map(|out| reborrow(&mut out.elements)).collect();
        let mut registers = Registers::new(&self.program);
        prepare(&self.program, &inputs, &mut registers);
        for start in (0..elements).step_by(BLOCK) {
            let block = Block { start, count: BLOCK.min(elements - start), rank };
            let out = |output: usize| Place { output, from: start };
            self.block(&block, &inputs, &mut registers, &mut outputs, Some(&walks), out);
        }
        Ok(())
    }
}

/// Which elements are under way.
struct Block {
    start: usize,
    count: usize,
    rank: usize,
}

/// Where a block of an output begins within its slice.
struct Place {
    output: usize,
    from: usize,
}

impl Elementwise {
    fn block(
        &self,
        block: &Block,
        inputs: &[Source<'_>],
        registers: &mut Registers,
        outputs: &mut [ElementsMut<'_>],
        walks: Option<&[Walk]>,
        place: impl Fn(usize) -> Place,
    ) {
        for (register, input) in self.program.inputs.iter().zip(inputs) {
            match input.same_as {
                Some(output) => {
                    let from = place(output).from;
                    let walk = walks.map(|walks| &walks[output]);
                    let source = shared(&outputs[output]);
                    load(registers, *register, &source, walk, from, block.count);
                }
                None if input.walk.is_constant() || input.direct(block).is_some() => {}
                None => {
                    let walk = Some(&input.walk);
                    load(registers, *register, &input.elements, walk, block.start, block.count);
                }
            }
        }
        for Instruction { function, inputs: operands, output, dtype } in &self.program.instructions
        {
            let mut target = registers.take(*output);
            let read = |register: usize| -> Elements<'_> {
                let direct = self.program.inputs.iter().position(|&r| r == register);
                direct
                    .and_then(|index| inputs[index].direct(block))
                    .unwrap_or_else(|| registers.read(register, block.count))
            };
            functions::apply(
                function,
                operands,
                &read,
                block.start,
                block.count,
                block.rank,
                &mut target,
            );
            functions::round(*dtype, &mut target, block.count);
            registers.put(*output, target);
        }
        for (output, &register) in self.program.outputs.iter().enumerate() {
            let Place { output, from } = place(output);
            let direct = self.program.inputs.iter().position(|&r| r == register);
            let value = direct
                .and_then(|index| inputs[index].direct(block))
                .unwrap_or_else(|| registers.read(register, block.count));
            let walk = walks.map(|walks| &walks[output]);
            store(&value, &mut outputs[output], walk, from);
        }
    }
}

/// An input under the region's shape.
struct Source<'a> {
    elements: Elements<'a>,
    walk: Walk,
    dense: bool,
    same_as: Option<usize>,
    dtype: DType,
}

impl<'a> Source<'a> {
    fn new(input: &Input<'a>, shape: &[usize]) -> Source<'a> {
        // NumPy's broadcasting: missing and widened axes have stride 0.
        let shift = shape.len() - input.shape.len().min(shape.len());
        let strides: Vec<usize> = (0..shape.len())
            .map(|axis| match axis.checked_sub(shift) {
                Some(own) if input.shape[own] == shape[axis] => input.strides[own],
                _ => 0,
            })
            .collect();
        let walk = Walk::new(shape, &strides);
        let dense = walk.is_dense();
        Source { elements: input.elements, walk, dense, same_as: input.same_as, dtype: input.dtype }
    }

    /// The block where it lies, if it can be read there.
    fn direct(&self, block: &Block) -> Option<Elements<'a>> {
        let narrow_integer = matches!(self.dtype, DType::I32 | DType::U8);
        if !self.dense || self.same_as.is_some() || narrow_integer || self.walk.is_constant() {
            return None;
        }
        let range = block.start..block.start + block.count;
        Some(match self.elements {
            Elements::F32(values) => Elements::F32(&values[range]),
            Elements::F64(values) => Elements::F64(&values[range]),
            Elements::I64(values) => Elements::I64(&values[range]),
            Elements::I32(values) => Elements::I32(&values[range]),
            Elements::U8(values) => Elements::U8(&values[range]),
        })
    }
}

/// Fills the registers that hold the same values in every block.
fn prepare(program: &Program, inputs: &[Source<'_>], registers: &mut Registers) {
    for &(register, value) in &program.constants {
        registers.fill(register, value);
    }
    for (&register, input) in program.inputs.iter().zip(inputs) {
        if input.same_as.is_none() && input.walk.is_constant() {
            load(
                registers,
                register,
                &input.elements,
                Some(&input.walk),
                0,
                BLOCK.min(input.walk.len()),
            );
        }
    }
}

fn split<'o>(outputs: &'o mut [Output<'_>], elements: usize) -> Vec<(usize, Vec<ElementsMut<'o>>)> {
    let mut pieces: Vec<(usize, Vec<ElementsMut<'o>>)> =
        (0..elements.div_ceil(PIECE)).map(|i| (i * PIECE, vec![])).collect();
    for output in outputs {
        macro_rules! chunks {
            ($values:expr, $variant:ident) => {
                for (piece, chunk) in pieces.iter_mut().zip($values[..elements].chunks_mut(PIECE)) {
                    piece.1.push(ElementsMut::$variant(chunk));
                }
            };
        }
        match &mut output.elements {
            ElementsMut::F32(values) => chunks!(values, F32),
            ElementsMut::F64(values) => chunks!(values, F64),
            ElementsMut::I64(values) => chunks!(values, I64),
            ElementsMut::I32(values) => chunks!(values, I32),
            ElementsMut::U8(values) => chunks!(values, U8),
        }
    }
    pieces
}

fn reborrow<'b>(elements: &'b mut ElementsMut<'_>) -> ElementsMut<'b> {
    match elements {
        ElementsMut::F32(values) => ElementsMut::F32(values),
        ElementsMut::F64(values) => ElementsMut::F64(values),
        ElementsMut::I64(values) => ElementsMut::I64(values),
        ElementsMut::I32(values) => ElementsMut::I32(values),
        ElementsMut::U8(values) => ElementsMut::U8(values),
    }
}

fn shared<'b>(elements: &'b ElementsMut<'_>) -> Elements<'b> {
    match elements {
        ElementsMut::F32(values) => Elements::F32(values),
        ElementsMut::F64(values) => Elements::F64(values),
        ElementsMut::I64(values) => Elements::I64(values),
        ElementsMut::I32(values) => Elements::I32(values),
        ElementsMut::U8(values) => Elements::U8(values),
    }
}

/// Copies `count` elements from row-major element `start` on into a register.
fn load(
    registers: &mut Registers,
    register: usize,
    source: &Elements<'_>,
    walk: Option<&Walk>,
    start: usize,
    count: usize,
) {
    let mut target = registers.take(register);
    match (&mut target, source) {
        (Bank::F32(out), Elements::F32(values)) => copy(values, walk, start, &mut out[..count]),
        (Bank::F64(out), Elements::F64(values)) => copy(values, walk, start, &mut out[..count]),
        (Bank::I64(out), Elements::I64(values)) => copy(values, walk, start, &mut out[..count]),
        (Bank::U8(out), Elements::U8(values)) => copy(values, walk, start, &mut out[..count]),
        (Bank::I64(out), Elements::I32(values)) => {
            let mut narrow = [0i32; BLOCK];
            copy(values, walk, start, &mut narrow[..count]);
            out.iter_mut().zip(&narrow[..count]).for_each(|(out, &v)| *out = i64::from(v));
        }
        (Bank::I64(out), Elements::U8(values)) => {
            let mut narrow = [0u8; BLOCK];
            copy(values, walk, start, &mut narrow[..count]);
            out.iter_mut().zip(&narrow[..count]).for_each(|(out, &v)| *out = i64::from(v));
        }
        // Registers are made for their inputs' dtypes; no other pair occurs.
        _ => {}
    }
    registers.put(register, target);
}

fn copy<T: Copy>(values: &[T], walk: Option<&Walk>, start: usize, out: &mut [T]) {
    match walk {
        Some(walk) => walk.gather(values, start, out),
        None => out.copy_from_slice(&values[start..start + out.len()]),
    }
}

/// Copies a block into an output from row-major element `start` on.
fn store(value: &Elements<'_>, output: &mut ElementsMut<'_>, walk: Option<&Walk>, start: usize) {
    match (value, output) {
        (Elements::F32(values), ElementsMut::F32(out)) => put(values, walk, start, out),
        (Elements::F64(values), ElementsMut::F64(out)) => put(values, walk, start, out),
        (Elements::I64(values), ElementsMut::I64(out)) => put(values, walk, start, out),
        (Elements::U8(values), ElementsMut::U8(out)) => put(values, walk, start, out),
        (Elements::I64(values), ElementsMut::I32(out)) => {
            let narrow: Vec<i32> = values.iter().map(|&v| v as i32).collect();
            put(&narrow, walk, start, out);
        }
        (Elements::I64(values), ElementsMut::U8(out)) => {
            let narrow: Vec<u8> = values.iter().map(|&v| v as u8).collect();
            put(&narrow, walk, start, out);
        }
        _ => {}
    }
}

fn put<T: Copy>(values: &[T], walk: Option<&Walk>, start: usize, out: &mut [T]) {
    match walk {
        Some(walk) => walk.scatter_from(start, values, out),
        None => out[start..start + values.len()].copy_from_slice(values),
    }
}
