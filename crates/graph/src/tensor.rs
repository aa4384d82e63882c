//! Tensors of the reference evaluation: slow, exact, on the host. Knows no windows and no devices.

use serde::{Deserialize, Serialize};

use crate::{DType, Shape, Type};

/// A dense row-major tensor. Elements are held as `f64` (floats) or `i64` (integers, truth values) and are always
/// representable in `ty.dtype`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    ty: Type,
    data: Data,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Data {
    Floats(Vec<f64>),
    Ints(Vec<i64>),
}

impl Tensor {
    /// A float tensor; every value is rounded to `ty.dtype`.
    ///
    /// # Panics
    /// If the number of values is not that of the shape, or the dtype is not a float.
    pub fn floats(ty: Type, values: impl IntoIterator<Item = f64>) -> Tensor {
        assert!(ty.dtype.is_float(), "{ty} does not hold floats");
        let values: Vec<f64> = values.into_iter().map(|value| ty.dtype.round(value)).collect();
        assert_eq!(values.len(), ty.shape.elements(), "values of {ty}");
        Tensor { ty, data: Data::Floats(values) }
    }

    /// An integer or truth-value tensor.
    ///
    /// # Panics
    /// If the number of values is not that of the shape, or the dtype is a float.
    pub fn ints(ty: Type, values: impl IntoIterator<Item = i64>) -> Tensor {
        assert!(!ty.dtype.is_float(), "{ty} does not hold integers");
        let values: Vec<i64> = values
            .into_iter()
            .map(|value| match ty.dtype {
                DType::I32 => i64::from(value as i32),
                DType::U8 => i64::from(value as u8),
                DType::Bool => i64::from(value != 0),
                _ => value,
            })
            .collect();
        assert_eq!(values.len(), ty.shape.elements(), "values of {ty}");
        Tensor { ty, data: Data::Ints(values) }
    }

    /// All elements equal to `value`, in any dtype.
    pub fn full(ty: Type, value: f64) -> Tensor {
        let elements = ty.shape.elements();
        Tensor::from_f64(ty, std::iter::repeat_n(value, elements))
    }

    /// Values converted to `ty.dtype` whatever it is: rounded for floats, truncated for integers.
    pub fn from_f64(ty: Type, values: impl IntoIterator<Item = f64>) -> Tensor {
        if ty.dtype.is_float() {
            Tensor::floats(ty, values)
        } else if ty.dtype == DType::Bool {
            Tensor::ints(ty, values.into_iter().map(|value| i64::from(value != 0.0)))
        } else {
            Tensor::ints(ty, values.into_iter().map(|value| value as i64))
        }
    }

    /// A scalar of any dtype.
    pub fn scalar(dtype: DType, value: f64) -> Tensor {
        Tensor::full(Type::scalar(dtype), value)
    }

    /// Element type and shape.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// Element `index` in row-major order as a float.
    pub fn at(&self, index: usize) -> f64 {
        match &self.data {
            Data::Floats(values) => values[index],
            Data::Ints(values) => values[index] as f64,
        }
    }

    /// Element `index` in row-major order as an integer; floats are truncated.
    pub fn int_at(&self, index: usize) -> i64 {
        match &self.data {
            Data::Floats(values) => values[index] as i64,
            Data::Ints(values) => values[index],
        }
    }

    /// All elements as floats.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::Floats(values) => values.clone(),
            Data::Ints(values) => values.iter().map(|&value| value as f64).collect(),
        }
    }

    /// All elements as integers; floats are truncated.
    pub fn to_i64(&self) -> Vec<i64> {
        match &self.data {
            Data::Floats(values) => values.iter().map(|&value| value as i64).collect(),
            Data::Ints(values) => values.clone(),
        }
    }

    /// The same elements under another shape of as many elements.
    ///
    /// # Panics
    /// If the number of elements differs.
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Tensor {
        let ty = self.ty.with_shape(shape);
        assert_eq!(ty.shape.elements(), self.ty.shape.elements(), "{} as {ty}", self.ty);
        Tensor { ty, data: self.data.clone() }
    }

    /// The same elements converted to another dtype.
    pub fn cast(&self, dtype: DType) -> Tensor {
        let ty = self.ty.with_dtype(dtype);
        match (&self.data, dtype.is_float()) {
            (Data::Ints(values), false) => Tensor::ints(ty, values.iter().copied()),
            _ => Tensor::from_f64(ty, self.to_f64()),
        }
    }

    /// The elements chosen by a function from output index to input index (row-major on both sides).
    pub fn select(&self, ty: Type, source: impl Fn(usize) -> usize) -> Tensor {
        let elements = ty.shape.elements();
        match &self.data {
            Data::Floats(values) => Tensor::floats(ty, (0..elements).map(|i| values[source(i)])),
            Data::Ints(values) => Tensor::ints(ty, (0..elements).map(|i| values[source(i)])),
        }
    }
}
