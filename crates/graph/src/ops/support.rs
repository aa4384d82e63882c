//! What several operators share: broadcasting, axes, sums in a stated order, sample values, gradient expressions.
//!
//! Knows no particular operator's meaning.

use crate::{
    Attributes, DType, GradientBuilder, GraphError, OpError, Shape, Strided, Tensor, Type, Value,
    random,
};

/// What every operator's file uses.
pub(super) mod prelude {
    pub(in crate::ops) use crate::{
        Attributes, Call, Class, Cost, DType, EvaluationContext, GradientBuilder, GraphError,
        OpDefinition, OpError, Sample, Shape, Strided, Tensor, Type, Value, ViewKind, expect_float,
        expect_inputs, trace::Sym,
    };
}

/// The common shape of two operands.
pub(super) fn broadcast_shape(a: &Type, b: &Type) -> Result<Shape, OpError> {
    a.shape
        .broadcast(&b.shape)
        .ok_or_else(|| OpError::new(format!("{a} and {b} do not broadcast to a common shape")))
}

/// Checks that two operands have one dtype.
pub(super) fn expect_same_dtype(a: &Type, b: &Type) -> Result<DType, OpError> {
    if a.dtype == b.dtype {
        return Ok(a.dtype);
    }
    Err(OpError::new(format!(
        "operands are {a} and {b}, equal dtypes were expected (no promotion)"
    )))
}

/// Checks the exact type of a named operand.
pub(super) fn expect_type(name: &str, found: &Type, expected: &Type) -> Result<(), OpError> {
    if found == expected {
        return Ok(());
    }
    Err(OpError::new(format!("{name} is {found}, {expected} was expected")))
}

/// Checks the dtype of a named operand that holds indices.
pub(super) fn expect_index(name: &str, ty: &Type) -> Result<(), OpError> {
    if matches!(ty.dtype, DType::I32 | DType::I64) {
        return Ok(());
    }
    Err(OpError::new(format!("{name} is {ty}, i32 or i64 was expected")))
}

/// Checks that there is at least one input.
pub(super) fn expect_some(inputs: &[Type]) -> Result<&Type, OpError> {
    inputs.first().ok_or_else(|| OpError::new("0 inputs found, at least 1 expected"))
}

/// Checks that an axis exists.
pub(super) fn expect_axis(axis: usize, ty: &Type) -> Result<usize, OpError> {
    if axis < ty.shape.rank() {
        return Ok(axis);
    }
    Err(OpError::new(format!("axis {axis} does not exist in {ty}")))
}

/// The attributes of a contraction or reduction: dtype of accumulation and of the result.
pub(super) fn output_dtype(attributes: &Attributes, input: DType) -> Result<DType, OpError> {
    let accumulate = attributes.dtype_or("accumulate", input.accumulator())?;
    let output = attributes.dtype_or("output", input)?;
    for (name, dtype) in [("accumulate", accumulate), ("output", output)] {
        if !dtype.is_float() {
            return Err(OpError::new(format!(
                "attribute {name:?} is {dtype}, a float dtype was expected"
            )));
        }
    }
    Ok(output)
}

/// The elements of `tensor` seen under a larger shape.
pub(super) fn broadcast_values(tensor: &Tensor, shape: &Shape) -> Vec<f64> {
    if tensor.shape() == shape {
        return tensor.to_f64();
    }
    let window = Strided::contiguous(tensor.shape()).broadcast_to(shape);
    (0..shape.elements()).map(|index| tensor.at(window.position(index))).collect()
}

/// As [`broadcast_values`], for integers and truth values.
pub(super) fn broadcast_ints(tensor: &Tensor, shape: &Shape) -> Vec<i64> {
    let window = Strided::contiguous(tensor.shape()).broadcast_to(shape);
    (0..shape.elements()).map(|index| tensor.int_at(window.position(index))).collect()
}

/// Extents before, at and after an axis: a row-major tensor seen as `[outer, extent, inner]`.
pub(super) fn around(shape: &Shape, axis: usize) -> (usize, usize, usize) {
    let extents = shape.extents();
    let product = |extents: &[usize]| Shape::from(extents).elements();
    (product(&extents[..axis]), extents[axis], product(&extents[axis + 1..]))
}

/// Attributes of an operator with one dtype of accumulation.
pub(super) fn accumulating(dtype: DType) -> Attributes {
    Attributes::new().dtype("accumulate", dtype.accumulator())
}

/// Sample inputs: normal values, a function of `salt`, rounded to `f32`.
pub(super) fn normal<const N: usize>(shape: [usize; N], salt: u64) -> Tensor {
    let key = random::sample_key(0, 0, random::site("sample"), salt);
    let ty = Type::new(DType::F32, shape);
    let elements = ty.shape.elements() as u32;
    Tensor::floats(ty, (0..elements).map(|element| key.normal(element)))
}

/// Sample inputs: uniform values between two bounds.
pub(super) fn uniform<const N: usize>(shape: [usize; N], low: f64, high: f64, salt: u64) -> Tensor {
    let key = random::sample_key(0, 0, random::site("sample"), salt);
    let ty = Type::new(DType::F32, shape);
    let elements = ty.shape.elements() as u32;
    Tensor::floats(ty, (0..elements).map(|element| low + (high - low) * key.uniform(element)))
}

/// Sample inputs: integers of this dtype.
pub(super) fn ints<const N: usize>(dtype: DType, shape: [usize; N], values: &[i64]) -> Tensor {
    Tensor::ints(Type::new(dtype, shape), values.iter().copied())
}

impl GradientBuilder<'_> {
    /// Adds an operator of one input without attributes.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn unary(&mut self, name: &str, x: Value) -> Result<Value, GraphError> {
        self.op(name, Attributes::new(), &[x])
    }

    /// Adds an operator of two inputs without attributes.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn binary(&mut self, name: &str, a: Value, b: Value) -> Result<Value, GraphError> {
        self.op(name, Attributes::new(), &[a, b])
    }

    /// Adds a scalar constant.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn scalar(&mut self, value: f64, dtype: DType) -> Result<Value, GraphError> {
        let attributes = Attributes::new().float("value", value).sizes("shape", &[]);
        self.op("constant", attributes.dtype("dtype", dtype), &[])
    }

    /// Adds `x` times a constant.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn scale(&mut self, x: Value, factor: f64) -> Result<Value, GraphError> {
        let factor = self.scalar(factor, self.ty(x).dtype)?;
        self.binary("mul", x, factor)
    }

    /// `x` under another shape of as many elements; `x` itself where it has that shape.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn reshape(&mut self, x: Value, shape: &[usize]) -> Result<Value, GraphError> {
        if self.ty(x).shape.extents() == shape {
            return Ok(x);
        }
        self.op("reshape", Attributes::new().sizes("shape", shape), &[x])
    }

    /// The adjoint of broadcasting: sums `x` over the axes that `shape` was widened along.
    ///
    /// # Errors
    /// As [`crate::Graph::op1`].
    pub fn sum_to(&mut self, x: Value, shape: &Shape) -> Result<Value, GraphError> {
        let ty = self.ty(x);
        if ty.shape == *shape {
            return Ok(x);
        }
        let shift = ty.shape.rank() - shape.rank();
        let axes: Vec<usize> = (0..ty.shape.rank())
            .filter(|&axis| axis < shift || shape.0[axis - shift] != ty.shape.0[axis])
            .collect();
        let attributes = Attributes::new().sizes("axes", &axes).bool("keep", false);
        let attributes = attributes.dtype("accumulate", ty.dtype.accumulator());
        let summed = if axes.is_empty() { x } else { self.op("reduce_sum", attributes, &[x])? };
        self.reshape(summed, shape.extents())
    }

    /// The error of an operator without a gradient rule.
    pub fn not_differentiable(&self, operator: &str) -> GraphError {
        GraphError::NotDifferentiable { path: self.site().path.clone(), what: operator.to_owned() }
    }
}
