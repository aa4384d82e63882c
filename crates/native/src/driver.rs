//! Devices, contexts, streams and events. Knows no plan: it orders what it is told to order.
//!
//! Every object keeps its context alive. Calls bind the context to the calling thread first, so that objects may
//! be used from any thread.

use std::{
    ffi::{CStr, c_char, c_int},
    sync::Arc,
};

pub use cudarc::driver::sys::CUdevice_attribute as DeviceAttribute;
use cudarc::driver::sys::{CUcontext, CUdevice, CUevent, CUstream};

use crate::{Error, Result, driver_calls::Driver, library::call};

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Number among the devices that this process sees.
    pub ordinal: usize,
    /// The card's name, for example `NVIDIA H200`.
    pub name: String,
    /// PCI address.
    pub pci: String,
    /// Bytes of device memory.
    pub memory: usize,
    /// Compute capability, for example `(9, 0)`.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of second-level cache.
    pub cache: usize,
}

impl Device {
    /// The architecture for NVRTC, for example `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

/// The driver's CUDA version as `(major, minor)`.
pub fn version() -> Result<(u32, u32)> {
    let driver = initialised()?;
    let mut number: c_int = 0;
    call!(driver, cuDriverGetVersion(&raw mut number))?;
    Ok((number as u32 / 1000, number as u32 % 1000 / 10))
}

/// The devices that this process sees.
pub fn devices() -> Result<Vec<Device>> {
    let driver = initialised()?;
    let mut count: c_int = 0;
    call!(driver, cuDeviceGetCount(&raw mut count))?;
    (0..count).map(|ordinal| describe(driver, ordinal)).collect()
}

fn initialised() -> Result<&'static Driver> {
    let driver = Driver::get()?;
    call!(driver, cuInit(0))?;
    Ok(driver)
}

fn describe(driver: &Driver, ordinal: c_int) -> Result<Device> {
    use DeviceAttribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE as CACHE,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
    };
    let mut device: CUdevice = 0;
    call!(driver, cuDeviceGet(&raw mut device, ordinal))?;
    let mut memory = 0usize;
    call!(driver, cuDeviceTotalMem_v2(&raw mut memory, device))?;
    let text = |read: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> i32, call| {
        let mut bytes = [0 as c_char; 256];
        // SAFETY: the driver writes at most 255 bytes and a terminator.
        driver.check(unsafe { read(bytes.as_mut_ptr(), 255, device) }, call)?;
        // SAFETY: the array ends with a zero that nothing overwrote.
        Ok(unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned())
    };
    let attribute = |which| attribute(driver, device, which);
    Ok(Device {
        ordinal: ordinal as usize,
        name: text(driver.cuDeviceGetName, "cuDeviceGetName")?,
        pci: text(driver.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId")?,
        memory,
        capability: (attribute(MAJOR)? as u32, attribute(MINOR)? as u32),
        multiprocessors: attribute(MULTIPROCESSORS)? as u32,
        cache: attribute(CACHE)? as usize,
    })
}

fn attribute(driver: &Driver, device: CUdevice, which: DeviceAttribute) -> Result<i32> {
    let mut value: c_int = 0;
    call!(driver, cuDeviceGetAttribute(&raw mut value, which as c_int, device))?;
    Ok(value)
}

/// A device's primary context; clones share it. Released when the last object on the device is gone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    driver: &'static Driver,
    raw: CUcontext,
    id: CUdevice,
    device: Device,
}

// SAFETY: the driver's context calls may be made from any thread; the pointer is only handed to the driver.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing is mutated through a shared reference on this side.
unsafe impl Sync for Inner {}

impl Context {
    /// Opens the device `ordinal` and binds it to the calling thread.
    pub fn new(ordinal: usize) -> Result<Context> {
        let driver = initialised()?;
        let mut count: c_int = 0;
        call!(driver, cuDeviceGetCount(&raw mut count))?;
        if ordinal >= count as usize {
            return Err(Error::Argument(format!("there is no device {ordinal}: found {count}")));
        }
        let device = describe(driver, ordinal as c_int)?;
        let mut id: CUdevice = 0;
        call!(driver, cuDeviceGet(&raw mut id, ordinal as c_int))?;
        let mut raw: CUcontext = std::ptr::null_mut();
        call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, id))?;
        let context = Context(Arc::new(Inner { driver, raw, id, device }));
        context.bind()?;
        Ok(context)
    }

    /// What the device is.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// One of the driver's numbers about the device.
    pub fn attribute(&self, which: DeviceAttribute) -> Result<i32> {
        attribute(self.0.driver, self.0.id, which)
    }

    /// Makes this the calling thread's context. Every call of this crate does so itself; only foreign libraries
    /// called directly need it.
    pub fn bind(&self) -> Result<()> {
        call!(self.0.driver, cuCtxSetCurrent(self.0.raw))
    }

    /// Waits for all work on the device.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        call!(self.0.driver, cuCtxSynchronize())
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0usize, 0usize);
        call!(self.0.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free, total))
    }

    /// Lets this device read and write the memory of `other`; harmless where that is already so.
    pub fn enable_peer(&self, other: &Context) -> Result<()> {
        const ALREADY_ENABLED: i32 = 704;
        self.bind()?;
        match call!(self.0.driver, cuCtxEnablePeerAccess(other.0.raw, 0)) {
            Err(Error::Call { code: ALREADY_ENABLED, .. }) => Ok(()),
            other => other,
        }
    }

    /// Whether this device can read and write the memory of `other` directly.
    pub fn can_reach(&self, other: &Context) -> Result<bool> {
        let mut can: c_int = 0;
        call!(self.0.driver, cuDeviceCanAccessPeer(&raw mut can, self.0.id, other.0.id))?;
        Ok(can != 0)
    }

    /// The driver's functions, with this context bound.
    pub(crate) fn driver(&self) -> Result<&'static Driver> {
        self.bind()?;
        Ok(self.0.driver)
    }

    /// The driver's functions without binding, for destructors.
    pub(crate) fn driver_unbound(&self) -> &'static Driver {
        self.0.driver
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The primary context is shared by the process: a failed release leaves it to the process's end.
        let _ = call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.id));
    }
}

/// Which streams' waiting blocks a device starts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The default.
    #[default]
    Normal,
    /// The greatest that the device has.
    High,
}

/// A queue of work on a device; does not wait for the legacy default stream. Clones share the queue.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

struct StreamInner {
    context: Context,
    raw: CUstream,
}

// SAFETY: the driver's stream calls may be made from any thread.
unsafe impl Send for StreamInner {}
// SAFETY: as above; the driver orders concurrent calls itself.
unsafe impl Sync for StreamInner {}

impl Stream {
    /// A new queue.
    pub fn new(context: &Context, priority: Priority) -> Result<Stream> {
        const NON_BLOCKING: u32 = 1;
        let driver = context.driver()?;
        let (mut least, mut greatest) = (0, 0);
        call!(driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
        let number = if priority == Priority::High { greatest } else { least };
        let mut raw: CUstream = std::ptr::null_mut();
        call!(driver, cuStreamCreateWithPriority(&raw mut raw, NON_BLOCKING, number))?;
        Ok(Stream(Arc::new(StreamInner { context: context.clone(), raw })))
    }

    /// The context of the stream.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The driver's priority number; lower runs first.
    pub fn priority(&self) -> Result<i32> {
        let mut number: c_int = 0;
        call!(self.0.context.driver()?, cuStreamGetPriority(self.0.raw, &raw mut number))?;
        Ok(number)
    }

    /// Waits until everything submitted so far is done.
    pub fn synchronize(&self) -> Result<()> {
        call!(self.0.context.driver()?, cuStreamSynchronize(self.0.raw))
    }

    /// Whether everything submitted so far is done.
    pub fn is_idle(&self) -> Result<bool> {
        let driver = self.0.context.driver()?;
        // SAFETY: the stream is alive.
        driver.finished(unsafe { (driver.cuStreamQuery)(self.0.raw) }, "cuStreamQuery")
    }

    /// Work submitted from now on waits for `event`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        call!(self.0.context.driver()?, cuStreamWaitEvent(self.0.raw, event.raw, 0))
    }

    /// The driver's handle, for other NVIDIA libraries of this crate.
    pub(crate) fn raw(&self) -> CUstream {
        self.0.raw
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        // Destruction waits for nothing: the driver keeps the queue until its work is done.
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuStreamDestroy_v2(self.raw));
    }
}

/// A point in a stream.
pub struct Event {
    context: Context,
    raw: CUevent,
}

// SAFETY: the driver's event calls may be made from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that keeps the time at which it passed.
    pub fn timing(context: &Context) -> Result<Event> {
        Event::with_flags(context, 0)
    }

    /// An event for ordering alone; cheaper.
    pub fn ordering(context: &Context) -> Result<Event> {
        const DISABLE_TIMING: u32 = 2;
        Event::with_flags(context, DISABLE_TIMING)
    }

    fn with_flags(context: &Context, flags: u32) -> Result<Event> {
        let mut raw: CUevent = std::ptr::null_mut();
        call!(context.driver()?, cuEventCreate(&raw mut raw, flags))?;
        Ok(Event { context: context.clone(), raw })
    }

    /// Marks the point after everything submitted to `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        call!(self.context.driver()?, cuEventRecord(self.raw, stream.raw()))
    }

    /// Waits on the host until the point has passed.
    pub fn synchronize(&self) -> Result<()> {
        call!(self.context.driver()?, cuEventSynchronize(self.raw))
    }

    /// Whether the point has passed.
    pub fn has_passed(&self) -> Result<bool> {
        let driver = self.context.driver()?;
        // SAFETY: the event is alive.
        driver.finished(unsafe { (driver.cuEventQuery)(self.raw) }, "cuEventQuery")
    }

    /// Milliseconds from `earlier` to this event; both must be timing events that have passed.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f64> {
        let mut elapsed = 0f32;
        call!(self.context.driver()?, cuEventElapsedTime(&raw mut elapsed, earlier.raw, self.raw))?;
        Ok(f64::from(elapsed))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuEventDestroy_v2(self.raw));
    }
}
