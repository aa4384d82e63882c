//! Logical shapes and types of values, in PyTorch's order. Knows no physical layout: windows belong to plans.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::DType;

/// Extents, outermost first. The empty shape is a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// The shape with these extents.
    pub fn new(extents: &[usize]) -> Shape {
        Shape(extents.to_vec())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape(vec![])
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; 1 for a scalar. Saturates, as all arithmetic on shapes.
    pub fn elements(&self) -> usize {
        product(&self.0)
    }

    /// Extents, outermost first.
    pub fn extents(&self) -> &[usize] {
        &self.0
    }

    /// The extent of the last axis; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Product of all extents but the last: the rows of a row-wise operator.
    pub fn rows(&self) -> usize {
        self.0.split_last().map_or(1, |(_, outer)| product(outer))
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1usize; self.0.len()];
        for axis in (0..self.0.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1].saturating_mul(self.0[axis + 1]);
        }
        strides
    }

    /// The common shape under NumPy's broadcasting rule, or `None` where two extents disagree.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let at = |shape: &Shape, axis: usize| {
            (axis + shape.rank()).checked_sub(rank).map_or(1, |axis| shape.0[axis])
        };
        (0..rank)
            .map(|axis| match (at(self, axis), at(other, axis)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Shape)
    }
}

fn product(extents: &[usize]) -> usize {
    // A zero anywhere counts, also after saturation.
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(1, |product, &extent| product.saturating_mul(extent))
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (index, extent) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, ", ")?;
            }
            write!(f, "{extent}")?;
        }
        write!(f, "]")
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Shape {
        Shape(extents.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Shape {
        Shape(extents.to_vec())
    }
}

/// Element type and logical shape of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Type {
    /// Type of one element.
    pub dtype: DType,
    /// Logical extents.
    pub shape: Shape,
}

impl Type {
    /// The type with this element type and shape.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Type {
        Type { dtype, shape: shape.into() }
    }

    /// A scalar of this element type.
    pub fn scalar(dtype: DType) -> Type {
        Type { dtype, shape: Shape::scalar() }
    }

    /// Bytes of all elements without padding.
    pub fn bytes(&self) -> usize {
        self.dtype.bytes().saturating_mul(self.shape.elements())
    }

    /// The same shape with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        Type { dtype, shape: self.shape.clone() }
    }

    /// The same element type with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Type {
        Type { dtype: self.dtype, shape: shape.into() }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
