//! NCCL's C functions, its configuration and status codes. Knows no lifetimes: the types around them do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::CUstream;

use crate::{
    Error, Result,
    library::{Kind, symbols},
};

/// `ncclComm_t`.
pub(super) type RawCommunicator = *mut c_void;
/// `ncclWindow_t`.
pub(super) type RawWindow = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawId(pub(super) [u8; 128]);

/// `ncclConfig_t` of 2.28 (`ncclConfig_v22800`), 80 bytes.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    pub(super) min_ctas: c_int,
    pub(super) max_ctas: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    pub(super) name: *const c_char,
    collnet: c_int,
    pub(super) cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_network_peer: c_int,
    link_centric: c_int,
}

/// The oldest library whose configuration has the fields of [`Config`].
pub(super) const OLDEST: u32 = 22800;

impl Config {
    /// Every field at the library's default, for a library of this version code.
    pub(super) fn new(version: u32) -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        const MAGIC: c_uint = 0xcafe_beef;
        Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version,
            blocking: UNDEFINED,
            cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            network: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: std::ptr::null(),
            collnet: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
            nvls_ctas: UNDEFINED,
            channels_per_network_peer: UNDEFINED,
            link_centric: UNDEFINED,
        }
    }
}

symbols! {
    /// Functions of `libnccl`; statuses are raw numbers, since a newer library may return unknown ones.
    struct Nccl from Kind::Nccl;
    {
        fn ncclGetVersion(*mut c_int) -> i32;
        fn ncclGetErrorString(c_int) -> *const c_char;
        fn ncclGetLastError(RawCommunicator) -> *const c_char;
        fn ncclGetUniqueId(*mut RawId) -> i32;
        fn ncclCommInitRankConfig(*mut RawCommunicator, c_int, RawId, c_int, *mut Config) -> i32;
        fn ncclCommSplit(RawCommunicator, c_int, c_int, *mut RawCommunicator, *mut Config) -> i32;
        fn ncclCommFinalize(RawCommunicator) -> i32;
        fn ncclCommDestroy(RawCommunicator) -> i32;
        fn ncclCommAbort(RawCommunicator) -> i32;
        fn ncclCommGetAsyncError(RawCommunicator, *mut c_int) -> i32;
        fn ncclCommUserRank(RawCommunicator, *mut c_int) -> i32;
        fn ncclCommCount(RawCommunicator, *mut c_int) -> i32;
        fn ncclMemAlloc(*mut *mut c_void, usize) -> i32;
        fn ncclMemFree(*mut c_void) -> i32;
        fn ncclCommRegister(RawCommunicator, *mut c_void, usize, *mut *mut c_void) -> i32;
        fn ncclCommDeregister(RawCommunicator, *mut c_void) -> i32;
        fn ncclAllReduce(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream
        ) -> i32;
        fn ncclReduceScatter(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream
        ) -> i32;
        fn ncclAllGather(
            *const c_void, *mut c_void, usize, c_int, RawCommunicator, CUstream
        ) -> i32;
        fn ncclBroadcast(
            *const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, CUstream
        ) -> i32;
        fn ncclSend(*const c_void, usize, c_int, c_int, RawCommunicator, CUstream) -> i32;
        fn ncclRecv(*mut c_void, usize, c_int, c_int, RawCommunicator, CUstream) -> i32;
        fn ncclGroupStart() -> i32;
        fn ncclGroupEnd() -> i32;
    }
    optional {
        fn ncclAlltoAll(
            *const c_void, *mut c_void, usize, c_int, RawCommunicator, CUstream
        ) -> i32;
        fn ncclCommWindowRegister(
            RawCommunicator, *mut c_void, usize, *mut RawWindow, c_int
        ) -> i32;
        fn ncclCommWindowDeregister(RawCommunicator, RawWindow) -> i32;
    }
}

impl Nccl {
    /// An error for every status but success, with NCCL's last message.
    pub(super) fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = |found: *const c_char| {
            if found.is_null() {
                return String::new();
            }
            // SAFETY: NCCL returns strings that end in 0 and stay until the next error of this thread.
            unsafe { CStr::from_ptr(found) }.to_string_lossy().trim().to_owned()
        };
        // SAFETY: any status is allowed; a null communicator asks for the last error of the process.
        let (name, detail) = unsafe {
            (
                text((self.ncclGetErrorString)(code)),
                text((self.ncclGetLastError)(std::ptr::null_mut())),
            )
        };
        Err(Error::Call { call, code, name, detail })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_configuration_has_the_size_of_version_2_28() {
        assert_eq!(size_of::<super::Config>(), 80);
        assert_eq!(std::mem::offset_of!(super::Config, cta_policy), 60);
    }
}
