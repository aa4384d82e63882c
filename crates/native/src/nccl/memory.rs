//! Memory that NCCL reaches without copying: its own allocations, registrations, symmetric windows.
//!
//! Knows addresses and sizes, not what lies there.

use std::ffi::{c_int, c_void};

use super::{
    Communicator,
    calls::{Nccl, RawWindow},
    void,
};
use crate::{Error, Result, driver::Context, library::call, memory::DevicePointer};

/// Device memory from NCCL's allocator, which peers can map. Contents are undefined at first.
pub struct CommunicationBuffer {
    context: Context,
    nccl: &'static Nccl,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: an address; NCCL frees it from any thread.
unsafe impl Send for CommunicationBuffer {}

impl CommunicationBuffer {
    /// `bytes` on the context's device.
    pub fn new(context: &Context, bytes: usize) -> Result<CommunicationBuffer> {
        let nccl = Nccl::get()?;
        context.bind()?;
        let mut address: *mut c_void = std::ptr::null_mut();
        call!(nccl, ncclMemAlloc(&raw mut address, bytes))?;
        Ok(CommunicationBuffer { context: context.clone(), nccl, address, bytes })
    }

    /// Its address.
    pub fn pointer(&self) -> DevicePointer {
        DevicePointer(self.address as u64)
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for CommunicationBuffer {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.nccl, ncclMemFree(self.address));
    }
}

/// A registration of memory for direct access by peers; ends when dropped.
pub struct Registration<'a> {
    communicator: &'a Communicator,
    handle: *mut c_void,
}

/// A window: memory that every rank registered together, at the same offset, so that ranks address each other's.
pub struct Window<'a> {
    communicator: &'a Communicator,
    raw: RawWindow,
}

impl Communicator {
    /// Registers memory of this rank. It must outlive the registration.
    pub fn register(&self, at: DevicePointer, bytes: usize) -> Result<Registration<'_>> {
        self.context.bind()?;
        let mut handle: *mut c_void = std::ptr::null_mut();
        call!(self.nccl, ncclCommRegister(self.raw(), void(at), bytes, &raw mut handle))?;
        Ok(Registration { communicator: self, handle })
    }

    /// Registers memory of a [`CommunicationBuffer`] as a symmetric window; all ranks must call it with the same size.
    pub fn symmetric_window(&self, at: DevicePointer, bytes: usize) -> Result<Window<'_>> {
        const SYMMETRIC: c_int = 1;
        let Some(register) = self.nccl.ncclCommWindowRegister else {
            return Err(Error::Argument("this NCCL has no windows".into()));
        };
        self.context.bind()?;
        let mut raw: RawWindow = std::ptr::null_mut();
        // SAFETY: the communicator is alive and `raw` is written by the call; NCCL checks the range.
        let code = unsafe { register(self.raw(), void(at), bytes, &raw mut raw, SYMMETRIC) };
        self.nccl.check(code, "ncclCommWindowRegister")?;
        if raw.is_null() {
            return Err(Error::Argument(
                "NCCL gave no window: these devices cannot map each other's memory".into(),
            ));
        }
        Ok(Window { communicator: self, raw })
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let communicator = self.communicator;
        let _ = communicator.context.bind();
        let _ = call!(communicator.nccl, ncclCommDeregister(communicator.raw(), self.handle));
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let communicator = self.communicator;
        let _ = communicator.context.bind();
        if let Some(deregister) = communicator.nccl.ncclCommWindowDeregister {
            // SAFETY: the window belongs to this communicator, which is alive.
            unsafe { deregister(communicator.raw(), self.raw) };
        }
    }
}
