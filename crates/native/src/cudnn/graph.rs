//! A graph under construction: tensors by strides, and the operations that `operations.rs` adds.
//! Knows no engine.

use std::sync::Arc;

use cudarc::cudnn::sys::{cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t};

use super::{
    descriptor::{Attribute, Class, Descriptor},
    place::Place,
    plan::OperationGraph,
};
use crate::{DataType, Error, Result};

/// A tensor of one graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor(pub(super) usize);

/// Elements, dimensions and strides of a tensor. Dimensions of an image are N, C, H, W in this order whatever
/// the layout is; filters are K, C, R, S; attention uses B, H, S, D.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDescription {
    /// Its elements.
    pub data_type: DataType,
    /// Its sizes.
    pub dimensions: Vec<i64>,
    /// Elements from one index to the next, for each dimension.
    pub strides: Vec<i64>,
}

impl TensorDescription {
    /// Any layout.
    pub fn strided(data_type: DataType, dimensions: &[i64], strides: &[i64]) -> Self {
        let (dimensions, strides) = (dimensions.to_vec(), strides.to_vec());
        TensorDescription { data_type, dimensions, strides }
    }

    /// Channels innermost: activations as NHWC, filters as KRSC.
    pub fn channels_last(data_type: DataType, [n, c, h, w]: [i64; 4]) -> Self {
        Self::strided(data_type, &[n, c, h, w], &[c * h * w, 1, c * w, c])
    }

    /// One value for each of `channels` channels.
    pub fn per_channel(data_type: DataType, channels: i64) -> Self {
        Self::channels_last(data_type, [1, channels, 1, 1])
    }

    /// The last dimension innermost.
    pub fn row_major(data_type: DataType, dimensions: &[i64]) -> Self {
        let mut strides = vec![1; dimensions.len()];
        for axis in (1..dimensions.len()).rev() {
            strides[axis - 1] = strides[axis] * dimensions[axis];
        }
        Self::strided(data_type, dimensions, &strides)
    }

    /// With other elements.
    #[must_use]
    pub fn of(&self, data_type: DataType) -> Self {
        TensorDescription { data_type, ..self.clone() }
    }
}

/// What memory stands behind a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Storage {
    /// An address given when the plan is bound.
    Device,
    /// None: the value lives inside a fused kernel.
    Virtual,
    /// A number read on the host at execution.
    Scalar(f32),
}

/// A graph under construction.
#[derive(Default)]
pub struct Graph {
    /// Everything that the operations point at, kept until the last plan is gone.
    pub(super) parts: Vec<Descriptor>,
    tensors: Vec<(cudnnBackendDescriptor_t, Storage)>,
    operations: Vec<cudnnBackendDescriptor_t>,
}

// SAFETY: the raw pointers are those of `parts`, which the graph owns.
unsafe impl Send for Graph {}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// A tensor in device memory, aligned to 16 bytes.
    pub fn tensor(&mut self, description: &TensorDescription) -> Result<Tensor> {
        self.add_tensor(description, Storage::Device)
    }

    /// A tensor that exists only between operations of this graph.
    pub fn virtual_tensor(&mut self, description: &TensorDescription) -> Result<Tensor> {
        self.add_tensor(description, Storage::Virtual)
    }

    /// A number that multiplies or is added to every element.
    pub fn scalar(&mut self, value: f32) -> Result<Tensor> {
        let description = TensorDescription::row_major(DataType::F32, &[1; 4]);
        self.add_tensor(&description, Storage::Scalar(value))
    }

    fn add_tensor(&mut self, wanted: &TensorDescription, storage: Storage) -> Result<Tensor> {
        let (dimensions, strides) = (&wanted.dimensions, &wanted.strides);
        if dimensions.len() != strides.len() || dimensions.iter().any(|d| *d < 1) {
            return Err(Error::Argument(format!("tensor {dimensions:?} with strides {strides:?}")));
        }
        let tensor = Tensor(self.tensors.len());
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        descriptor.set_data_type(Attribute::CUDNN_ATTR_TENSOR_DATA_TYPE, wanted.data_type)?;
        descriptor.set(Attribute::CUDNN_ATTR_TENSOR_DIMENSIONS, dimensions)?;
        descriptor.set(Attribute::CUDNN_ATTR_TENSOR_STRIDES, strides)?;
        descriptor.set(Attribute::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[tensor.identifier()])?;
        descriptor.set(Attribute::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16i64])?;
        match storage {
            Storage::Device => {}
            Storage::Virtual => {
                descriptor.set(Attribute::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?;
            }
            Storage::Scalar(_) => {
                descriptor.set(Attribute::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true])?;
            }
        }
        descriptor.finalize()?;
        self.tensors.push((descriptor.raw(), storage));
        self.parts.push(descriptor);
        Ok(tensor)
    }

    /// The library's descriptor of a tensor of this graph.
    pub(super) fn raw(&self, tensor: Tensor) -> Result<cudnnBackendDescriptor_t> {
        let found = self.tensors.get(tensor.0).map(|(raw, _)| *raw);
        found.ok_or_else(|| Error::Argument(format!("{tensor:?} is of another graph")))
    }

    /// Keeps a finalised descriptor that operations point at.
    pub(super) fn keep(&mut self, mut descriptor: Descriptor) -> Result<cudnnBackendDescriptor_t> {
        descriptor.finalize()?;
        let raw = descriptor.raw();
        self.parts.push(descriptor);
        Ok(raw)
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, operation: Descriptor) -> Result<()> {
        let raw = self.keep(operation)?;
        self.operations.push(raw);
        Ok(())
    }

    /// Ends the construction. Fails where the operations do not fit together.
    pub fn finish(self, place: Place<'_>) -> Result<OperationGraph> {
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        if let Place::Device(handle) = place {
            handle.bind()?;
            let name = Attribute::CUDNN_ATTR_OPERATIONGRAPH_HANDLE;
            descriptor.set_as(name, Type::CUDNN_TYPE_HANDLE, &[handle.raw()])?;
        }
        descriptor.set_descriptors(Attribute::CUDNN_ATTR_OPERATIONGRAPH_OPS, &self.operations)?;
        descriptor.finalize()?;
        let storage = self.tensors.iter().map(|(_, storage)| *storage).collect();
        Ok(OperationGraph::new(descriptor, Arc::new(self.parts), storage))
    }
}

impl Tensor {
    /// The number under which the library knows the tensor; 0 is not allowed.
    pub(super) fn identifier(self) -> i64 {
        self.0 as i64 + 1
    }
}
