//! Where plans are made: on a device through a handle, or from a device's properties without one.
//! Knows no graph.

use std::cell::RefCell;

use cudarc::cudnn::sys::cudnnHandle_t;

use super::{
    calls::Cudnn,
    descriptor::{Attribute, Class, Descriptor},
};
use crate::{Error, Result, driver::Stream, library::call};

/// cuDNN on a device, submitting to one stream at a time. Not for use by two threads at once.
pub struct Handle {
    cudnn: &'static Cudnn,
    raw: cudnnHandle_t,
    stream: RefCell<Stream>,
}

// SAFETY: a handle may move between threads; it is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    /// Opens cuDNN on the device of `stream`.
    pub fn new(stream: &Stream) -> Result<Handle> {
        stream.context().bind()?;
        let cudnn = Cudnn::get()?;
        let mut raw: cudnnHandle_t = std::ptr::null_mut();
        call!(cudnn, cudnnCreate(&raw mut raw))?;
        let handle = Handle { cudnn, raw, stream: RefCell::new(stream.clone()) };
        call!(cudnn, cudnnSetStream(raw, stream.raw()))?;
        Ok(handle)
    }

    /// Later executions go to `stream`, which must be on the same device.
    pub fn set_stream(&self, stream: &Stream) -> Result<()> {
        let (ours, theirs) = (self.stream.borrow().context().device().ordinal, stream.context());
        if ours != theirs.device().ordinal {
            return Err(Error::Argument("the stream is on another device".into()));
        }
        theirs.bind()?;
        call!(self.cudnn, cudnnSetStream(self.raw, stream.raw()))?;
        *self.stream.borrow_mut() = stream.clone();
        Ok(())
    }

    /// The stream that executions go to.
    pub fn stream(&self) -> Stream {
        self.stream.borrow().clone()
    }

    pub(super) fn bind(&self) -> Result<()> {
        self.stream.borrow().context().bind()
    }

    pub(super) fn raw(&self) -> cudnnHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.bind();
        let _ = call!(self.cudnn, cudnnDestroy(self.raw));
    }
}

/// A device's properties, enough to choose engines and to build plans for it.
pub struct DeviceProperties(Descriptor);

impl DeviceProperties {
    /// From the text that [`DeviceProperties::json`] gave on the device.
    pub fn from_json(text: &str) -> Result<DeviceProperties> {
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        descriptor.set(Attribute::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text.as_bytes())?;
        descriptor.finalize()?;
        Ok(DeviceProperties(descriptor))
    }

    /// Of a device of this machine.
    pub fn of_device(ordinal: usize) -> Result<DeviceProperties> {
        let mut descriptor = Descriptor::new(Class::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        descriptor.set(Attribute::CUDNN_ATTR_DEVICEPROP_DEVICE_ID, &[ordinal as i32])?;
        descriptor.finalize()?;
        Ok(DeviceProperties(descriptor))
    }

    /// Of an NVIDIA H200, as cuDNN describes it.
    pub fn h200() -> Result<DeviceProperties> {
        DeviceProperties::from_json(include_str!("../../data/h200.json").trim_end())
    }

    /// As text.
    pub fn json(&self) -> Result<String> {
        self.0.text(Attribute::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.0
    }
}

/// Where plans are made.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// On a device; such plans run.
    Device(&'a Handle),
    /// With no device; such plans show support, workspace and their text.
    Properties(&'a DeviceProperties),
}
