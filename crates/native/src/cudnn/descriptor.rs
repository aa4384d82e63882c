//! Owned descriptors of cuDNN's graph interface. Knows how to set and read attributes, not what they mean.

use std::ffi::c_int;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t,
    cudnnBackendDescriptorType_t,
};

use super::calls::Cudnn;
use crate::{DataType, Result, library::call};

pub(super) use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Attribute, cudnnBackendDescriptorType_t as Class,
};

/// A descriptor: made, set, finalised, then only read.
pub(super) struct Descriptor {
    cudnn: &'static Cudnn,
    raw: cudnnBackendDescriptor_t,
}

// SAFETY: a descriptor is plain data of the library; it is changed through `&mut self` only.
unsafe impl Send for Descriptor {}
// SAFETY: reading a finalised descriptor changes nothing.
unsafe impl Sync for Descriptor {}

/// A value that an attribute can hold.
pub(super) trait Value: Copy {
    const TYPE: Type;
}
impl Value for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}
impl Value for i32 {
    const TYPE: Type = Type::CUDNN_TYPE_INT32;
}
impl Value for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}
impl Value for f64 {
    const TYPE: Type = Type::CUDNN_TYPE_DOUBLE;
}
impl Value for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}
impl Value for u8 {
    const TYPE: Type = Type::CUDNN_TYPE_CHAR;
}
impl Value for *mut std::ffi::c_void {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}

impl Descriptor {
    pub(super) fn new(class: cudnnBackendDescriptorType_t) -> Result<Descriptor> {
        let cudnn = Cudnn::get()?;
        let mut raw: cudnnBackendDescriptor_t = std::ptr::null_mut();
        call!(cudnn, cudnnBackendCreateDescriptor(class as c_int, &raw mut raw))?;
        Ok(Descriptor { cudnn, raw })
    }

    pub(super) fn raw(&self) -> cudnnBackendDescriptor_t {
        self.raw
    }

    /// Sets an attribute to plain values.
    pub(super) fn set<T: Value>(
        &mut self,
        name: cudnnBackendAttributeName_t,
        values: &[T],
    ) -> Result<()> {
        self.set_as(name, T::TYPE, values)
    }

    /// Sets an attribute whose values are one of the library's enumerations or handles.
    pub(super) fn set_as<T: Copy>(
        &mut self,
        name: cudnnBackendAttributeName_t,
        kind: Type,
        values: &[T],
    ) -> Result<()> {
        call!(
            self.cudnn,
            cudnnBackendSetAttribute(
                self.raw,
                name as c_int,
                kind as c_int,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        )
    }

    /// Sets an attribute to other descriptors, which must outlive this one.
    pub(super) fn set_descriptors(
        &mut self,
        name: cudnnBackendAttributeName_t,
        others: &[cudnnBackendDescriptor_t],
    ) -> Result<()> {
        self.set_as(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, others)
    }

    pub(super) fn set_data_type(
        &mut self,
        name: cudnnBackendAttributeName_t,
        data_type: DataType,
    ) -> Result<()> {
        self.set_as(name, Type::CUDNN_TYPE_DATA_TYPE, &[number(data_type)])
    }

    pub(super) fn finalize(&mut self) -> Result<()> {
        call!(self.cudnn, cudnnBackendFinalize(self.raw))
    }

    /// How many values an attribute holds.
    pub(super) fn count(&self, name: cudnnBackendAttributeName_t, kind: Type) -> Result<usize> {
        let mut count = 0i64;
        let nowhere = std::ptr::null_mut();
        call!(
            self.cudnn,
            cudnnBackendGetAttribute(
                self.raw,
                name as c_int,
                kind as c_int,
                0,
                &raw mut count,
                nowhere,
            )
        )?;
        Ok(count.max(0) as usize)
    }

    /// Reads up to `values.len()` values in place and returns how many there were.
    pub(super) fn read_as<T: Copy>(
        &self,
        name: cudnnBackendAttributeName_t,
        kind: Type,
        values: &mut [T],
    ) -> Result<usize> {
        let mut count = 0i64;
        call!(
            self.cudnn,
            cudnnBackendGetAttribute(
                self.raw,
                name as c_int,
                kind as c_int,
                values.len() as i64,
                &raw mut count,
                values.as_mut_ptr().cast(),
            )
        )?;
        Ok((count.max(0) as usize).min(values.len()))
    }

    pub(super) fn integer(&self, name: cudnnBackendAttributeName_t) -> Result<i64> {
        let mut value = [0i64];
        self.read_as(name, Type::CUDNN_TYPE_INT64, &mut value)?;
        Ok(value[0])
    }

    /// Enumerations as raw numbers: a newer library may return values that the bindings lack.
    pub(super) fn numbers(
        &self,
        name: cudnnBackendAttributeName_t,
        kind: Type,
    ) -> Result<Vec<i32>> {
        let mut values = [0i32; 64];
        let count = self.read_as(name, kind, &mut values)?;
        Ok(values[..count].to_vec())
    }

    pub(super) fn text(&self, name: cudnnBackendAttributeName_t) -> Result<String> {
        let mut bytes = vec![0u8; self.count(name, Type::CUDNN_TYPE_CHAR)?];
        let count = self.read_as(name, Type::CUDNN_TYPE_CHAR, &mut bytes)?;
        bytes.truncate(count);
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// Reads the descriptors that the attribute holds into new ones of `class`.
    pub(super) fn descriptors(
        &self,
        name: cudnnBackendAttributeName_t,
        class: cudnnBackendDescriptorType_t,
    ) -> Result<Vec<Descriptor>> {
        let count = self.count(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR)?;
        self.descriptors_up_to(name, class, count)
    }

    /// As [`Descriptor::descriptors`] for attributes whose count the library does not tell beforehand.
    pub(super) fn descriptors_up_to(
        &self,
        name: cudnnBackendAttributeName_t,
        class: cudnnBackendDescriptorType_t,
        most: usize,
    ) -> Result<Vec<Descriptor>> {
        let mut found =
            (0..most).map(|_| Descriptor::new(class)).collect::<Result<Vec<Descriptor>>>()?;
        if most > 0 {
            let mut raw: Vec<_> = found.iter().map(Descriptor::raw).collect();
            let filled = self.read_as(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)?;
            found.truncate(filled);
        }
        Ok(found)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = call!(self.cudnn, cudnnBackendDestroyDescriptor(self.raw));
    }
}

/// The number in `cudnnDataType_t`.
fn number(data_type: DataType) -> i32 {
    match data_type {
        DataType::F32 => 0,
        DataType::F16 => 2,
        DataType::I32 => 4,
        DataType::Bf16 => 9,
        DataType::Boolean => 11,
    }
}
