//! Tensors that cross between the host and a device: dense row-major bytes.
//!
//! Knows no windows and no devices.

use graph::{DType, Shape, Tensor, Type};
use half::{bf16, f16};

/// A dense row-major tensor as little-endian bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    /// Element type and shape.
    pub ty: Type,
    /// `ty.bytes()` bytes.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// All bytes zero.
    pub fn zeros(ty: Type) -> HostTensor {
        let bytes = vec![0; ty.bytes()];
        HostTensor { ty, bytes }
    }

    /// An f32 tensor. The number of values must be that of the shape.
    pub fn from_f32(shape: impl Into<Shape>, values: &[f32]) -> HostTensor {
        HostTensor::from_values(DType::F32, shape.into(), bytemuck::cast_slice(values))
    }

    /// An i32 tensor.
    pub fn from_i32(shape: impl Into<Shape>, values: &[i32]) -> HostTensor {
        HostTensor::from_values(DType::I32, shape.into(), bytemuck::cast_slice(values))
    }

    /// An i64 tensor.
    pub fn from_i64(shape: impl Into<Shape>, values: &[i64]) -> HostTensor {
        HostTensor::from_values(DType::I64, shape.into(), bytemuck::cast_slice(values))
    }

    /// An f32 scalar.
    pub fn scalar_f32(value: f32) -> HostTensor {
        HostTensor::from_f32(Shape::scalar(), &[value])
    }

    /// An i64 scalar.
    pub fn scalar_i64(value: i64) -> HostTensor {
        HostTensor::from_i64(Shape::scalar(), &[value])
    }

    fn from_values(dtype: DType, shape: Shape, bytes: &[u8]) -> HostTensor {
        HostTensor { ty: Type { dtype, shape }, bytes: bytes.to_vec() }
    }

    /// The elements of a reference tensor in its dtype.
    pub fn from_tensor(tensor: &Tensor) -> HostTensor {
        let elements = 0..tensor.shape().elements();
        let bytes: Vec<u8> = match tensor.dtype() {
            DType::F64 => elements.flat_map(|i| tensor.at(i).to_le_bytes()).collect(),
            DType::F32 => elements.flat_map(|i| (tensor.at(i) as f32).to_le_bytes()).collect(),
            DType::F16 => {
                elements.flat_map(|i| f16::from_f64(tensor.at(i)).to_le_bytes()).collect()
            }
            DType::BF16 => {
                elements.flat_map(|i| bf16::from_f64(tensor.at(i)).to_le_bytes()).collect()
            }
            DType::I64 => elements.flat_map(|i| tensor.int_at(i).to_le_bytes()).collect(),
            DType::I32 => elements.flat_map(|i| (tensor.int_at(i) as i32).to_le_bytes()).collect(),
            DType::U8 | DType::Bool => elements.map(|i| tensor.int_at(i) as u8).collect(),
        };
        HostTensor { ty: tensor.ty().clone(), bytes }
    }

    /// As a reference tensor.
    pub fn to_tensor(&self) -> Tensor {
        if self.ty.dtype.is_float() {
            Tensor::floats(self.ty.clone(), self.to_f64())
        } else {
            Tensor::ints(self.ty.clone(), self.to_i64())
        }
    }

    /// All elements as f64, whatever the dtype.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.ty.dtype {
            DType::F64 => self.elements(f64::from_le_bytes),
            DType::F32 => self.elements(|b| f64::from(f32::from_le_bytes(b))),
            DType::F16 => self.elements(|b| f16::from_le_bytes(b).to_f64()),
            DType::BF16 => self.elements(|b| bf16::from_le_bytes(b).to_f64()),
            _ => self.to_i64().into_iter().map(|value| value as f64).collect(),
        }
    }

    /// All elements as f32, whatever the dtype.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.ty.dtype {
            DType::F32 => self.elements(f32::from_le_bytes),
            _ => self.to_f64().into_iter().map(|value| value as f32).collect(),
        }
    }

    /// All elements as i64; floats are truncated.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.ty.dtype {
            DType::I64 => self.elements(i64::from_le_bytes),
            DType::I32 => self.elements(|b| i64::from(i32::from_le_bytes(b))),
            DType::U8 | DType::Bool => self.elements(|b: [u8; 1]| i64::from(b[0])),
            _ => self.to_f64().into_iter().map(|value| value as i64).collect(),
        }
    }

    /// The first element as f64; NaN where there is none.
    pub fn first(&self) -> f64 {
        self.to_f64().first().copied().unwrap_or(f64::NAN)
    }

    fn elements<const N: usize, T>(&self, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.bytes.as_chunks::<N>().0.iter().map(|&bytes| read(bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_survives_the_way_to_bytes_and_back() {
        for dtype in DType::ALL {
            let ty = Type::new(dtype, [2, 3]);
            let tensor = Tensor::from_f64(ty, [0.0, 1.0, 0.5, 2.0, 7.0, 100.0]);
            assert_eq!(HostTensor::from_tensor(&tensor).to_tensor(), tensor, "{dtype}");
        }
    }
}
