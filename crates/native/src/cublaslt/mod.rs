//! Matrix products with epilogues. Knows row-major matrices and device addresses; no tensors, no plan.
//!
//! cuBLASLt is column-major. A row-major `D = A B` is handed to it as `D^T = B^T A^T`: its first operand is our
//! right one, its rows are our columns. A bias therefore runs along our columns.

mod calls;
mod description;
mod descriptors;
mod matmul;

use std::sync::Arc;

use cudarc::cublaslt::sys::cublasLtHandle_t;

use self::calls::CublasLt;
pub use self::{
    description::{Epilogue, MatmulBuffers, MatmulDescription, Operand},
    matmul::{Algorithm, Matmul},
};
use crate::{Result, driver::Context, library::call};

/// cuBLASLt's version number, for example 130100. Needs no device.
pub fn version() -> Result<usize> {
    let lt = CublasLt::get()?;
    // SAFETY: takes nothing.
    Ok(unsafe { (lt.cublasLtGetVersion)() })
}

/// A handle of the library on one device; clones share it.
#[derive(Clone)]
pub struct Lt(Arc<Inner>);

struct Inner {
    context: Context,
    lt: &'static CublasLt,
    raw: cublasLtHandle_t,
}

// SAFETY: a handle may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: the library's calls with one handle may run concurrently.
unsafe impl Sync for Inner {}

impl Lt {
    /// Opens the library on a device.
    pub fn new(context: &Context) -> Result<Lt> {
        context.bind()?;
        let lt = CublasLt::get()?;
        let mut raw: cublasLtHandle_t = std::ptr::null_mut();
        call!(lt, cublasLtCreate(&raw mut raw))?;
        Ok(Lt(Arc::new(Inner { context: context.clone(), lt, raw })))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.lt, cublasLtDestroy(self.raw));
    }
}
