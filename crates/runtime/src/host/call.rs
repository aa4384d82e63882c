//! What a kernel sees of one step: typed slices with strides, in the number formats the host computes in.
//!
//! f16 and bf16 arrive as f32 and are rounded on the way out. Knows no buffers, locks or plans.

use std::borrow::Cow;

use graph::DType;

use super::kernels::{microkernel::Product, rows::Rows, strided::Walk, workers::Workers};

/// Elements to read.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// f32, and f16 and bf16 widened.
    F32(&'a [f32]),
    /// f64.
    F64(&'a [f64]),
    /// i64.
    I64(&'a [i64]),
    /// i32.
    I32(&'a [i32]),
    /// u8 and bool.
    U8(&'a [u8]),
}

/// Elements to write.
#[derive(Debug)]
pub enum ElementsMut<'a> {
    /// f32, and f16 and bf16 before rounding.
    F32(&'a mut [f32]),
    /// f64.
    F64(&'a mut [f64]),
    /// i64.
    I64(&'a mut [i64]),
    /// i32.
    I32(&'a mut [i32]),
    /// u8 and bool.
    U8(&'a mut [u8]),
}

/// An operand to read. Row-major without gaps unless the kernel takes strides.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The elements, from the operand's first on. Empty where `same_as` is given.
    pub elements: Elements<'a>,
    /// Extents.
    pub shape: &'a [usize],
    /// Elements between neighbours along each axis.
    pub strides: &'a [usize],
    /// The dtype in the graph.
    pub dtype: DType,
    /// The output that lies in the very same window.
    pub same_as: Option<usize>,
}

/// An operand to write.
#[derive(Debug)]
pub struct Output<'a> {
    /// The elements, from the operand's first on.
    pub elements: ElementsMut<'a>,
    /// Extents.
    pub shape: &'a [usize],
    /// Elements between neighbours along each axis.
    pub strides: &'a [usize],
    /// The dtype in the graph.
    pub dtype: DType,
    /// Whether to add to what is there. Only where the kernel says it can.
    pub accumulate: bool,
}

/// One run of a kernel.
#[derive(Debug)]
pub struct Call<'c, 'a> {
    /// The rank's threads.
    pub workers: &'c Workers,
    /// The rank.
    pub rank: usize,
    /// Operands to read, in the operator's order.
    pub inputs: &'c [Input<'a>],
    /// Operands to write, in the operator's order.
    pub outputs: &'c mut [Output<'a>],
}

/// Why a step cannot be carried out: a lower-case fragment.
pub type Fault = String;

/// A node prepared to be run any number of times.
pub trait Kernel: Send + Sync {
    /// Whether input `index` may have any strides.
    fn takes_strides(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Whether output `index` may have any strides.
    fn writes_strides(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Whether inputs may lie in an output's window.
    fn works_in_place(&self) -> bool {
        false
    }

    /// Whether output `index` can be added to what is there.
    fn accumulates(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Runs it.
    ///
    /// # Errors
    /// Where values are impossible, such as an index beyond its table.
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault>;
}

/// The number formats of [`Elements`] that kernels compute in.
pub trait Number: Product {
    /// The slice, where it holds this format.
    fn slice<'a>(elements: &Elements<'a>) -> Option<&'a [Self]>;
    /// The slice to write, where it holds this format.
    fn slice_mut<'b>(elements: &'b mut ElementsMut<'_>) -> Option<&'b mut [Self]>;
}

impl Number for f32 {
    fn slice<'a>(elements: &Elements<'a>) -> Option<&'a [f32]> {
        if let Elements::F32(values) = elements { Some(values) } else { None }
    }

    fn slice_mut<'b>(elements: &'b mut ElementsMut<'_>) -> Option<&'b mut [f32]> {
        if let ElementsMut::F32(values) = elements { Some(values) } else { None }
    }
}

impl Number for f64 {
    fn slice<'a>(elements: &Elements<'a>) -> Option<&'a [f64]> {
        if let Elements::F64(values) = elements { Some(values) } else { None }
    }

    fn slice_mut<'b>(elements: &'b mut ElementsMut<'_>) -> Option<&'b mut [f64]> {
        if let ElementsMut::F64(values) = elements { Some(values) } else { None }
    }
}

impl<'a> Input<'a> {
    /// Number of elements of the operand.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements from the operand's first on in format `T`, converted where they are in another.
    pub fn real<T: Number>(&self) -> Cow<'a, [T]> {
        if let Some(values) = T::slice(&self.elements) {
            return Cow::Borrowed(values);
        }
        Cow::Owned(match self.elements {
            Elements::F32(values) => values.iter().map(|&v| T::from_f64(f64::from(v))).collect(),
            Elements::F64(values) => values.iter().map(|&v| T::from_f64(v)).collect(),
            Elements::I64(values) => values.iter().map(|&v| T::from_f64(v as f64)).collect(),
            Elements::I32(values) => values.iter().map(|&v| T::from_f64(f64::from(v))).collect(),
            Elements::U8(values) => values.iter().map(|&v| T::from_f64(f64::from(v))).collect(),
        })
    }

    /// The elements as i64, floats truncated.
    pub fn integers(&self) -> Cow<'a, [i64]> {
        match self.elements {
            Elements::I64(values) => Cow::Borrowed(values),
            Elements::I32(values) => Cow::Owned(values.iter().map(|&v| i64::from(v)).collect()),
            Elements::U8(values) => Cow::Owned(values.iter().map(|&v| i64::from(v)).collect()),
            Elements::F32(values) => Cow::Owned(values.iter().map(|&v| v as i64).collect()),
            Elements::F64(values) => Cow::Owned(values.iter().map(|&v| v as i64).collect()),
        }
    }

    /// The first element as i64.
    pub fn integer(&self) -> i64 {
        self.integers().first().copied().unwrap_or(0)
    }

    /// The first element as f64.
    pub fn scalar(&self) -> f64 {
        self.real::<f64>().first().copied().unwrap_or(f64::NAN)
    }

    /// Extent of the last axis, 1 for a scalar.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all extents but the last.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// A dense operand as rows; `values` is what [`Input::real`] gave.
    pub fn as_rows<'v, T>(&self, values: &'v [T]) -> Rows<'v, T> {
        Rows::dense(values, self.rows(), self.width())
    }

    /// Whether to compute in f64.
    pub fn is_f64(&self) -> bool {
        matches!(self.elements, Elements::F64(_))
    }

    /// The walk over the operand.
    pub fn walk(&self) -> Walk {
        Walk::new(self.shape, self.strides)
    }
}

impl Output<'_> {
    /// Number of elements of the operand.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Extent of the last axis, 1 for a scalar.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all extents but the last.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Hands a dense slice of format `T` to `body`; converts where the operand has another.
    pub fn write<T: Number, R>(&mut self, body: impl FnOnce(&mut [T]) -> R) -> R {
        if let Some(values) = T::slice_mut(&mut self.elements) {
            return body(values);
        }
        let mut values = vec![T::ZERO; self.len()];
        let result = body(&mut values);
        match &mut self.elements {
            ElementsMut::F32(out) => convert(&values, out, |v| v.to_f64() as f32),
            ElementsMut::F64(out) => convert(&values, out, |v| v.to_f64()),
            ElementsMut::I64(out) => convert(&values, out, |v| v.to_f64() as i64),
            ElementsMut::I32(out) => convert(&values, out, |v| v.to_f64() as i32),
            ElementsMut::U8(out) => convert(&values, out, |v| v.to_f64() as u8),
        }
        result
    }

    /// Writes a scalar of any format.
    pub fn set_scalar(&mut self, value: f64) {
        self.write::<f64, _>(|out| out.iter_mut().for_each(|out| *out = value));
    }
}

fn convert<T: Copy, U>(values: &[T], out: &mut [U], to: impl Fn(T) -> U) {
    out.iter_mut().zip(values).for_each(|(out, &value)| *out = to(value));
}
