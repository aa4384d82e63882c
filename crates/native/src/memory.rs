//! Device memory and page-locked host memory. Knows no tensors: elements, lengths and addresses.

use std::{ffi::c_void, marker::PhantomData};

pub use bytemuck::Pod;

use crate::{
    Error, Result,
    driver::{Context, Stream},
    library::call,
};

/// An address on a device; 0 is none. Says nothing about who owns the memory or how long it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePointer(pub u64);

impl DevicePointer {
    /// No address.
    pub const NULL: DevicePointer = DevicePointer(0);

    /// The address `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: usize) -> DevicePointer {
        DevicePointer(self.0 + bytes as u64)
    }

    pub(crate) fn raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// Owned device memory of `len` elements, aligned to 256 bytes. Freed when dropped, which waits for work that
/// uses it.
pub struct DeviceBuffer<T: Pod> {
    context: Context,
    address: DevicePointer,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with undefined contents.
    pub fn new(context: &Context, len: usize) -> Result<DeviceBuffer<T>> {
        const OUT_OF_MEMORY: i32 = 2;
        let bytes = byte_count::<T>(len)?.max(1);
        let driver = context.driver()?;
        let mut address = 0;
        match call!(driver, cuMemAlloc_v2(&raw mut address, bytes)) {
            Err(Error::Call { code: OUT_OF_MEMORY, .. }) => {
                let (free, total) = context.memory()?;
                return Err(Error::OutOfMemory { requested: bytes, free, total });
            }
            other => other?,
        }
        let (context, address) = (context.clone(), DevicePointer(address));
        Ok(DeviceBuffer { context, address, len, element: PhantomData })
    }

    /// Memory set to zero.
    pub fn zeroed(context: &Context, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = DeviceBuffer::new(context, len)?;
        buffer.fill_byte(0)?;
        Ok(buffer)
    }

    /// Memory holding a copy of `values`.
    pub fn from_slice(context: &Context, values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = DeviceBuffer::new(context, values.len())?;
        buffer.copy_from_slice(values)?;
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The context of the memory.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The address of the first element.
    pub fn pointer(&self) -> DevicePointer {
        self.address
    }

    /// The address of element `index`, which may be one past the end.
    pub fn pointer_at(&self, index: usize) -> Result<DevicePointer> {
        self.within(index, 0)?;
        Ok(self.address.offset(index * size_of::<T>()))
    }

    /// Copies `values` to the front and waits.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        self.within(0, values.len())?;
        let bytes = size_of_val(values);
        call!(
            self.context.driver()?,
            cuMemcpyHtoD_v2(self.address.0, values.as_ptr().cast(), bytes)
        )
    }

    /// Fills the whole buffer by repeating `pattern`, and waits.
    pub fn fill_repeating(&mut self, pattern: &[T]) -> Result<()> {
        if pattern.is_empty() || self.len == 0 {
            return Err(Error::Argument("a pattern and a buffer need at least one element".into()));
        }
        let first = pattern.len().min(self.len);
        self.copy_from_slice(&pattern[..first])?;
        let (driver, bytes) = (self.context.driver()?, self.bytes());
        let mut have = first * size_of::<T>();
        while have < bytes {
            let next = have.min(bytes - have);
            let to = self.address.offset(have);
            call!(driver, cuMemcpyDtoD_v2(to.0, self.address.0, next))?;
            have += next;
        }
        self.context.synchronize()
    }

    /// Sets every byte, and waits.
    pub fn fill_byte(&mut self, byte: u8) -> Result<()> {
        call!(self.context.driver()?, cuMemsetD8_v2(self.address.0, byte, self.bytes()))?;
        self.context.synchronize()
    }

    /// Sets every byte, in the order of `stream`.
    pub fn fill_byte_on(&mut self, byte: u8, stream: &Stream) -> Result<()> {
        let bytes = self.bytes();
        call!(self.context.driver()?, cuMemsetD8Async(self.address.0, byte, bytes, stream.raw()))
    }

    /// A copy on the host. Waits for the copy, not for other streams: synchronise the writer first.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.range_to_vec(0, self.len)
    }

    /// A copy of `len` elements from `start` on the host; waits as [`DeviceBuffer::to_vec`] does.
    pub fn range_to_vec(&self, start: usize, len: usize) -> Result<Vec<T>> {
        self.within(start, len)?;
        let mut values = vec![T::zeroed(); len];
        let (from, bytes) = (self.address.offset(start * size_of::<T>()), len * size_of::<T>());
        if bytes > 0 {
            call!(
                self.context.driver()?,
                cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), from.0, bytes)
            )?;
        }
        Ok(values)
    }

    /// Copies all of a page-locked buffer to element `start`, in the order of `stream`.
    pub fn copy_from_pinned_on(
        &mut self,
        start: usize,
        from: &PinnedBuffer<T>,
        stream: &Stream,
    ) -> Result<()> {
        self.within(start, from.len)?;
        let to = self.address.offset(start * size_of::<T>());
        call!(
            self.context.driver()?,
            cuMemcpyHtoDAsync_v2(to.0, from.raw.cast(), from.bytes(), stream.raw())
        )
    }

    /// Copies `to.len()` elements from `start` into a page-locked buffer, in the order of `stream`.
    pub fn copy_to_pinned_on(
        &self,
        start: usize,
        to: &PinnedBuffer<T>,
        stream: &Stream,
    ) -> Result<()> {
        self.within(start, to.len)?;
        let from = self.address.offset(start * size_of::<T>());
        call!(
            self.context.driver()?,
            cuMemcpyDtoHAsync_v2(to.raw.cast(), from.0, to.bytes(), stream.raw())
        )
    }

    fn within(&self, start: usize, len: usize) -> Result<()> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Argument(format!(
                "elements {start}..{} of a device buffer of {}",
                start.saturating_add(len),
                self.len
            )));
        }
        Ok(())
    }
}

impl<T: Pod> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuMemFree_v2(self.address.0));
    }
}

/// Copies bytes between device addresses, in the order of `stream`.
///
/// The addresses are the caller's: a wrong one is a device fault that the stream reports.
pub fn copy_on(
    to: DevicePointer,
    from: DevicePointer,
    bytes: usize,
    stream: &Stream,
) -> Result<()> {
    call!(stream.context().driver()?, cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, stream.raw()))
}

/// Sets bytes at a device address, in the order of `stream`.
pub fn fill_on(to: DevicePointer, byte: u8, bytes: usize, stream: &Stream) -> Result<()> {
    call!(stream.context().driver()?, cuMemsetD8Async(to.0, byte, bytes, stream.raw()))
}

/// Page-locked host memory that the device reaches directly, also from kernels.
///
/// The host reads and writes it by copying, because a device may change it at any time.
pub struct PinnedBuffer<T: Pod> {
    context: Context,
    raw: *mut T,
    len: usize,
}

// SAFETY: plain memory; every access copies plain values.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}
// SAFETY: as above. Concurrent copies may mix old and new values, all of which are valid for `Pod`.
unsafe impl<T: Pod + Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// Zeroed memory, mapped for the device and visible to every context.
    pub fn new(context: &Context, len: usize) -> Result<PinnedBuffer<T>> {
        const PORTABLE_AND_MAPPED: u32 = 1 | 2;
        let bytes = byte_count::<T>(len)?.max(1);
        let mut raw: *mut c_void = std::ptr::null_mut();
        call!(context.driver()?, cuMemHostAlloc(&raw mut raw, bytes, PORTABLE_AND_MAPPED))?;
        // SAFETY: the driver gave `bytes` writable bytes.
        unsafe { std::ptr::write_bytes(raw.cast::<u8>(), 0, bytes) };
        Ok(PinnedBuffer { context: context.clone(), raw: raw.cast(), len })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The address under which the device sees the memory.
    pub fn pointer(&self) -> Result<DevicePointer> {
        let mut address = 0;
        call!(
            self.context.driver()?,
            cuMemHostGetDevicePointer_v2(&raw mut address, self.raw.cast(), 0)
        )?;
        Ok(DevicePointer(address))
    }

    /// Copies `values` to element `start`. What a running device copy sees of it is undefined.
    pub fn write(&self, start: usize, values: &[T]) -> Result<()> {
        self.within(start, values.len())?;
        // SAFETY: the range was checked; the memory outlives the buffer; source and target cannot overlap,
        // since no reference to this memory is ever handed out.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.raw.add(start), values.len());
        }
        Ok(())
    }

    /// A copy of `len` elements from `start`.
    pub fn read(&self, start: usize, len: usize) -> Result<Vec<T>> {
        self.within(start, len)?;
        let mut values = vec![T::zeroed(); len];
        // SAFETY: as in `write`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.raw.add(start), values.as_mut_ptr(), len);
        }
        Ok(values)
    }

    fn within(&self, start: usize, len: usize) -> Result<()> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Argument(format!(
                "elements {start}..{} of a page-locked buffer of {}",
                start.saturating_add(len),
                self.len
            )));
        }
        Ok(())
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // A copy in flight must not outlive the memory.
        let _ = self.context.synchronize();
        let _ = call!(self.context.driver_unbound(), cuMemFreeHost(self.raw.cast()));
    }
}

fn byte_count<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>())
        .ok_or_else(|| Error::Argument(format!("{len} elements do not fit into memory")))
}
