//! CUPTI: what the devices did and when, and which node of a CUDA graph did it.
//!
//! Knows no operators: a record has a kernel's name, its times and ids. One [`Trace`] at a time per process, because
//! CUPTI hands its buffers to functions and not to objects.

mod calls;
mod nodes;

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ffi::{CStr, c_void},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use calls::{CopyFields, Cupti, FillFields, KernelFields, NO_MORE_RECORDS, PeerCopyFields, kind};
use cudarc::driver::sys::CUcontext;
pub use nodes::{NodeWatch, Seen};

use crate::{Error, Result, library::call};

/// What kind of device work a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A copy within a device or to the host.
    Copy,
    /// A copy between devices.
    PeerCopy,
    /// A fill.
    Fill,
}

/// One piece of device work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub work: Work,
    /// The kernel's mangled name; empty for copies and fills.
    pub name: String,
    /// Start in nanoseconds on CUPTI's clock.
    pub start: u64,
    /// End in nanoseconds on CUPTI's clock.
    pub end: u64,
    /// Device ordinal.
    pub device: u32,
    /// CUPTI's number of the stream; in a graph, of the stream that it was instantiated for.
    pub stream: u32,
    /// Blocks of the grid; 0 for copies and fills.
    pub blocks: u32,
    /// Bytes copied or filled; 0 for kernels.
    pub bytes: u64,
    /// Number of the host call that submitted it; one launch of a graph is one call.
    pub correlation: u32,
    /// Id of the graph; 0 outside of one.
    pub graph: u32,
    /// Id of the graph's node; 0 outside of one.
    pub node: u64,
}

static IN_USE: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
static UNREADABLE: AtomicU64 = AtomicU64::new(0);

const BUFFER: usize = 4 << 20;
const KINDS: [u32; 4] = [kind::CONCURRENT_KERNEL, kind::COPY, kind::PEER_COPY, kind::FILL];

/// Recording of device work; ends when dropped.
pub struct Trace {
    cupti: &'static Cupti,
}

impl Trace {
    /// Records kernels, copies and fills of all devices from now on.
    pub fn start() -> Result<Trace> {
        let cupti = Cupti::get()?;
        if IN_USE.swap(true, Ordering::SeqCst) {
            return Err(Error::Argument("a trace is already being recorded".into()));
        }
        let trace = Trace { cupti };
        lock(&RECORDS).clear();
        call!(cupti, cuptiActivityRegisterCallbacks(give_buffer, take_buffer))?;
        for kind in KINDS {
            call!(cupti, cuptiActivityEnable(kind))?;
        }
        Ok(trace)
    }

    /// Records since the start or the last call, in order of time. Synchronise the devices first.
    pub fn take(&self) -> Result<Vec<Record>> {
        const EVEN_IF_NOT_FULL: u32 = 1;
        call!(self.cupti, cuptiActivityFlushAll(EVEN_IF_NOT_FULL))?;
        let mut records = std::mem::take(&mut *lock(&RECORDS));
        records.sort_by_key(|r| (r.start, r.end));
        Ok(records)
    }

    /// Buffers that ended with an error, and records that CUPTI dropped for want of a buffer.
    pub fn lost(&self) -> Result<u64> {
        let mut dropped = 0usize;
        call!(
            self.cupti,
            cuptiActivityGetNumDroppedRecords(std::ptr::null_mut(), 0, &raw mut dropped)
        )?;
        Ok(dropped as u64 + UNREADABLE.load(Ordering::Relaxed))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for kind in KINDS {
            let _ = call!(self.cupti, cuptiActivityDisable(kind));
        }
        let _ = call!(self.cupti, cuptiActivityFlushAll(1));
        IN_USE.store(false, Ordering::SeqCst);
    }
}

/// The library's version number. Needs no device.
pub fn version() -> Result<u32> {
    let mut number = 0u32;
    call!(Cupti::get()?, cuptiGetVersion(&raw mut number))?;
    Ok(number)
}

/// Now, in nanoseconds on the clock of the records.
pub fn now() -> Result<u64> {
    let mut time = 0u64;
    call!(Cupti::get()?, cuptiGetTimestamp(&raw mut time))?;
    Ok(time)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout() -> Layout {
    const ALIGNMENT: usize = 8;
    Layout::from_size_align(BUFFER, ALIGNMENT).unwrap_or(Layout::new::<u64>())
}

unsafe extern "C" fn give_buffer(address: *mut *mut u8, size: *mut usize, most: *mut usize) {
    // SAFETY: the layout is not empty; CUPTI hands in writable places.
    unsafe {
        *address = alloc_zeroed(layout());
        *size = if (*address).is_null() { 0 } else { layout().size() };
        *most = 0;
    }
}

unsafe extern "C" fn take_buffer(_: CUcontext, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: CUPTI returns a buffer of `give_buffer` with `valid` bytes of records.
    let found = unsafe { read_buffer(buffer, valid) };
    lock(&RECORDS).extend(found);
    // SAFETY: allocated by `give_buffer` with this layout, and CUPTI is done with it.
    unsafe { dealloc(buffer, layout()) };
}

/// # Safety
/// `buffer` holds `valid` bytes of CUPTI records.
unsafe fn read_buffer(buffer: *mut u8, valid: usize) -> Vec<Record> {
    let mut records = vec![];
    let Ok(cupti) = Cupti::get() else { return records };
    let mut at: *mut c_void = std::ptr::null_mut();
    loop {
        // SAFETY: the caller vouches for the buffer; `at` is null or the record before.
        let code = unsafe { (cupti.cuptiActivityGetNextRecord)(buffer, valid, &raw mut at) };
        if code != 0 {
            if code != NO_MORE_RECORDS {
                UNREADABLE.fetch_add(1, Ordering::Relaxed);
            }
            return records;
        }
        // SAFETY: CUPTI points at a whole record of the kind that its first word says.
        records.extend(unsafe { read_record(at) });
    }
}

/// # Safety
/// `at` points at a whole CUPTI record.
unsafe fn read_record(at: *const c_void) -> Option<Record> {
    // SAFETY: every record begins with its kind, read as a number because a newer library may have new kinds.
    match unsafe { at.cast::<u32>().read_unaligned() } {
        kind::CONCURRENT_KERNEL | kind::KERNEL => {
            // SAFETY: a kernel record begins with these fields.
            let r = unsafe { at.cast::<KernelFields>().read_unaligned() };
            let name = if r.name.is_null() {
                String::new()
            } else {
                // SAFETY: CUPTI keeps the name for the life of the process.
                unsafe { CStr::from_ptr(r.name) }.to_string_lossy().into_owned()
            };
            let (grid, work) = (r.grid, Work::Kernel);
            let blocks = grid.iter().map(|&n| n.max(0) as u32).product();
            let (start, end, device, stream) = (r.start, r.end, r.device, r.stream);
            let (correlation, graph, node) = (r.correlation, r.graph, r.graph_node);
            Some(Record {
                work,
                name,
                start,
                end,
                device,
                stream,
                blocks,
                bytes: 0,
                correlation,
                graph,
                node,
            })
        }
        kind::COPY => {
            // SAFETY: a copy record begins with these fields.
            let r = unsafe { at.cast::<CopyFields>().read_unaligned() };
            Some(plain(
                Work::Copy,
                (r.start, r.end),
                (r.device, r.stream),
                r.bytes,
                (r.correlation, r.graph, r.graph_node),
            ))
        }
        kind::PEER_COPY => {
            // SAFETY: a record of a copy between devices begins with these fields.
            let r = unsafe { at.cast::<PeerCopyFields>().read_unaligned() };
            Some(plain(
                Work::PeerCopy,
                (r.start, r.end),
                (r.device, r.stream),
                r.bytes,
                (r.correlation, r.graph, r.graph_node),
            ))
        }
        kind::FILL => {
            // SAFETY: a fill record begins with these fields.
            let r = unsafe { at.cast::<FillFields>().read_unaligned() };
            Some(plain(
                Work::Fill,
                (r.start, r.end),
                (r.device, r.stream),
                r.bytes,
                (r.correlation, r.graph, r.graph_node),
            ))
        }
        _ => None,
    }
}

fn plain(
    work: Work,
    (start, end): (u64, u64),
    (device, stream): (u32, u32),
    bytes: u64,
    (correlation, graph, node): (u32, u32, u64),
) -> Record {
    let name = String::new();
    Record { work, name, start, end, device, stream, blocks: 0, bytes, correlation, graph, node }
}
