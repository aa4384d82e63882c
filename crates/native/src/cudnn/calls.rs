//! cuDNN's C functions and status codes. Knows no lifetimes: the types around them do.

use std::ffi::{CStr, c_char, c_int, c_void};

use cudarc::{
    cudnn::sys::{cudnnBackendDescriptor_t, cudnnHandle_t},
    driver::sys::CUstream,
};

use crate::{
    Error, Result,
    library::{Kind, symbols},
};

symbols! {
    /// Functions of `libcudnn`.
    struct Cudnn from Kind::Cudnn;
    {
        fn cudnnGetVersion() -> usize;
        fn cudnnGetErrorString(c_int) -> *const c_char;
        fn cudnnGetLastErrorString(*mut c_char, usize) -> ();
        fn cudnnCreate(*mut cudnnHandle_t) -> i32;
        fn cudnnDestroy(cudnnHandle_t) -> i32;
        fn cudnnSetStream(cudnnHandle_t, CUstream) -> i32;
        fn cudnnBackendCreateDescriptor(c_int, *mut cudnnBackendDescriptor_t) -> i32;
        fn cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) -> i32;
        fn cudnnBackendFinalize(cudnnBackendDescriptor_t) -> i32;
        fn cudnnBackendSetAttribute(
            cudnnBackendDescriptor_t, c_int, c_int, i64, *const c_void
        ) -> i32;
        fn cudnnBackendGetAttribute(
            cudnnBackendDescriptor_t, c_int, c_int, i64, *mut i64, *mut c_void
        ) -> i32;
        fn cudnnBackendExecute(
            cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t
        ) -> i32;
    }
}

impl Cudnn {
    /// An error for every status but success, with the library's explanation.
    pub(super) fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut bytes = [0 as c_char; 1024];
        // SAFETY: the library writes at most the given number of bytes with a terminator; names are static.
        let (name, detail) = unsafe {
            (self.cudnnGetLastErrorString)(bytes.as_mut_ptr(), bytes.len());
            bytes[bytes.len() - 1] = 0;
            (CStr::from_ptr((self.cudnnGetErrorString)(code)), CStr::from_ptr(bytes.as_ptr()))
        };
        let text = |value: &CStr| value.to_string_lossy().trim().to_owned();
        Err(Error::Call { call, code, name: text(name), detail: text(detail) })
    }
}
