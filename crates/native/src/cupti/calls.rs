//! CUPTI's C functions, the leading fields of its records, and status codes. Knows no lifetimes.

use std::ffi::{CStr, c_char, c_void};

use cudarc::driver::sys::{CUcontext, CUgraphNode};

use crate::{
    Error, Result,
    library::{Kind, symbols},
};

/// Gives CUPTI an empty buffer: address, size, greatest number of records (0: as many as fit).
pub(super) type RequestBuffer = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Takes a full buffer: context, stream, address, size, valid bytes.
pub(super) type TakeBuffer = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);
/// A callback: user data, domain, callback id, data.
pub(super) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// Activity kinds.
pub(super) mod kind {
    pub(in crate::cupti) const COPY: u32 = 1;
    pub(in crate::cupti) const FILL: u32 = 2;
    pub(in crate::cupti) const KERNEL: u32 = 3;
    pub(in crate::cupti) const CONCURRENT_KERNEL: u32 = 10;
    pub(in crate::cupti) const PEER_COPY: u32 = 22;
}

/// Status when a buffer holds no further record.
pub(super) const NO_MORE_RECORDS: i32 = 12;

/// The leading fields of `CUpti_ActivityKernel9` and every later kernel record.
#[repr(C, packed(8))]
#[derive(Clone, Copy)]
pub(super) struct KernelFields {
    pub(super) kind: u32,
    pub(super) cache: u8,
    pub(super) shared_memory: u8,
    pub(super) registers: u16,
    pub(super) partitioned: [u32; 2],
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) completed: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) grid: [i32; 3],
    pub(super) block: [i32; 3],
    pub(super) memory: [u32; 4],
    pub(super) correlation: u32,
    pub(super) grid_id: i64,
    pub(super) name: *const c_char,
    pub(super) reserved: *mut c_void,
    pub(super) queued: u64,
    pub(super) submitted: u64,
    pub(super) launch: [u8; 4],
    pub(super) shared_executed: u32,
    pub(super) graph_node: u64,
    pub(super) shared_limit: u32,
    pub(super) graph: u32,
}

/// The leading fields of `CUpti_ActivityMemcpy5` and later.
#[repr(C, packed(8))]
#[derive(Clone, Copy)]
pub(super) struct CopyFields {
    pub(super) kind: u32,
    pub(super) kinds: [u8; 4],
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    pub(super) runtime_correlation: u32,
    pub(super) padding: u32,
    pub(super) reserved: *mut c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// The leading fields of `CUpti_ActivityMemcpyPtoP4`.
#[repr(C, packed(8))]
#[derive(Clone, Copy)]
pub(super) struct PeerCopyFields {
    pub(super) kind: u32,
    pub(super) kinds: [u8; 4],
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) ends: [u32; 4],
    pub(super) correlation: u32,
    pub(super) reserved: *mut c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// The leading fields of `CUpti_ActivityMemset4`.
#[repr(C, packed(8))]
#[derive(Clone, Copy)]
pub(super) struct FillFields {
    pub(super) kind: u32,
    pub(super) value: u32,
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    pub(super) flags: u16,
    pub(super) memory: u16,
    pub(super) padding: u32,
    pub(super) reserved: *mut c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// `CUpti_ResourceData`.
#[repr(C)]
pub(super) struct ResourceData {
    pub(super) context: CUcontext,
    pub(super) handle: *mut c_void,
    pub(super) descriptor: *const c_void,
}

/// The leading fields of `CUpti_GraphData`. (Its node type is 0 for every node when CUPTI 13.0 tells of it.)
#[repr(C)]
pub(super) struct GraphData {
    pub(super) graph: *mut c_void,
    pub(super) original_graph: *mut c_void,
    pub(super) node: CUgraphNode,
    pub(super) original_node: CUgraphNode,
}

symbols! {
    /// Functions of `libcupti`.
    struct Cupti from Kind::Cupti;
    {
        fn cuptiGetVersion(*mut u32) -> i32;
        fn cuptiGetResultString(i32, *mut *const c_char) -> i32;
        fn cuptiGetTimestamp(*mut u64) -> i32;
        fn cuptiActivityRegisterCallbacks(RequestBuffer, TakeBuffer) -> i32;
        fn cuptiActivityEnable(u32) -> i32;
        fn cuptiActivityDisable(u32) -> i32;
        fn cuptiActivityFlushAll(u32) -> i32;
        fn cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut c_void) -> i32;
        fn cuptiActivityGetNumDroppedRecords(CUcontext, u32, *mut usize) -> i32;
        fn cuptiSubscribe(*mut *mut c_void, Callback, *mut c_void) -> i32;
        fn cuptiUnsubscribe(*mut c_void) -> i32;
        fn cuptiEnableCallback(u32, *mut c_void, u32, u32) -> i32;
        fn cuptiGetGraphNodeId(CUgraphNode, *mut u64) -> i32;
    }
}

impl Cupti {
    /// An error for every status but success.
    pub(super) fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut found: *const c_char = std::ptr::null();
        // SAFETY: CUPTI writes a pointer to a static string, or leaves it null for an unknown code.
        let name = unsafe {
            (self.cuptiGetResultString)(code, &raw mut found);
            if found.is_null() {
                String::new()
            } else {
                CStr::from_ptr(found).to_string_lossy().into_owned()
            }
        };
        Err(Error::Call { call, code, name, detail: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::*;

    #[test]
    fn the_fields_lie_where_the_headers_say() {
        for (ours, theirs) in [
            (offset_of!(KernelFields, start), offset_of!(sys::CUpti_ActivityKernel10, start)),
            (offset_of!(KernelFields, grid), offset_of!(sys::CUpti_ActivityKernel10, gridX)),
            (offset_of!(KernelFields, name), offset_of!(sys::CUpti_ActivityKernel10, name)),
            (
                offset_of!(KernelFields, graph_node),
                offset_of!(sys::CUpti_ActivityKernel10, graphNodeId),
            ),
            (offset_of!(KernelFields, graph), offset_of!(sys::CUpti_ActivityKernel10, graphId)),
            (offset_of!(KernelFields, graph), offset_of!(sys::CUpti_ActivityKernel9, graphId)),
            (offset_of!(CopyFields, graph), offset_of!(sys::CUpti_ActivityMemcpy6, graphId)),
            (
                offset_of!(PeerCopyFields, graph),
                offset_of!(sys::CUpti_ActivityMemcpyPtoP4, graphId),
            ),
            (offset_of!(FillFields, graph), offset_of!(sys::CUpti_ActivityMemset4, graphId)),
            (
                offset_of!(ResourceData, descriptor),
                offset_of!(sys::CUpti_ResourceData, resourceDescriptor),
            ),
            (offset_of!(GraphData, original_node), offset_of!(sys::CUpti_GraphData, originalNode)),
        ] {
            assert_eq!(ours, theirs);
        }
        assert_eq!(sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY as u32, kind::COPY);
        assert_eq!(sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET as u32, kind::FILL);
        assert_eq!(sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2 as u32, kind::PEER_COPY);
        assert_eq!(sys::CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED as i32, NO_MORE_RECORDS);
    }
}
