//! cuBLASLt's C functions and status codes. Knows no lifetimes: the types around them do.

use std::ffi::{CStr, c_char, c_int, c_void};

use cudarc::{
    cublaslt::sys::{
        cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulPreference_t,
        cublasLtMatrixLayout_t,
    },
    driver::sys::CUstream,
};

use crate::{
    Error, Result,
    library::{Kind, symbols},
};

/// `cublasLtMatmulHeuristicResult_t` with its status as a raw number.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HeuristicResult {
    pub(crate) algorithm: [u64; 8],
    pub(crate) workspace: usize,
    pub(crate) state: i32,
    pub(crate) waves: f32,
    pub(crate) reserved: [c_int; 4],
}

symbols! {
    /// Functions of `libcublasLt`.
    struct CublasLt from Kind::CublasLt;
    {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusName(c_int) -> *const c_char;
        fn cublasLtGetStatusString(c_int) -> *const c_char;
        fn cublasLtCreate(*mut cublasLtHandle_t) -> i32;
        fn cublasLtDestroy(cublasLtHandle_t) -> i32;
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, c_int, c_int) -> i32;
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) -> i32;
        fn cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, c_int, *const c_void, usize) -> i32;
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, c_int, u64, u64, i64) -> i32;
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) -> i32;
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t) -> i32;
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) -> i32;
        fn cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t, c_int, *const c_void, usize
        ) -> i32;
        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut HeuristicResult, *mut c_int
        ) -> i32;
        fn cublasLtMatmulAlgoConfigGetAttribute(
            *const cublasLtMatmulAlgo_t, c_int, *mut c_void, usize, *mut usize
        ) -> i32;
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t, *mut c_void, usize, CUstream
        ) -> i32;
    }
}

impl CublasLt {
    pub(super) fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = |read: unsafe extern "C" fn(c_int) -> *const c_char| {
            // SAFETY: returns a static string for any status.
            unsafe { CStr::from_ptr(read(code)) }.to_string_lossy().into_owned()
        };
        let (name, detail) = (text(self.cublasLtGetStatusName), text(self.cublasLtGetStatusString));
        Err(Error::Call { call, code, name, detail })
    }
}
