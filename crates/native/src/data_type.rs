//! Number formats as NVIDIA's libraries name them. Knows no conversion.

/// The format of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// 32-bit integers: indices inside a cuDNN graph.
    I32,
    /// Truth values inside a cuDNN graph.
    Boolean,
}

impl DataType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            DataType::F32 | DataType::I32 => 4,
            DataType::F16 | DataType::Bf16 => 2,
            DataType::Boolean => 1,
        }
    }

    /// Short name: `fp32`, `fp16`, `bf16`, `i32`, `bool`.
    pub fn name(self) -> &'static str {
        match self {
            DataType::F32 => "fp32",
            DataType::F16 => "fp16",
            DataType::Bf16 => "bf16",
            DataType::I32 => "i32",
            DataType::Boolean => "bool",
        }
    }

    /// The number in `cudaDataType_t`, where the format has one for matrix products.
    pub(crate) fn cuda(self) -> i32 {
        match self {
            DataType::F32 => 0,
            DataType::F16 => 2,
            DataType::Bf16 => 14,
            DataType::I32 => 10,
            DataType::Boolean => 8,
        }
    }
}
