//! Owned descriptors of cuBLASLt. Knows how to set them, not what they are set to.

use std::ffi::c_int;

use cudarc::cublaslt::sys::{
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulPreference_t,
    cublasLtMatrixLayout_t,
};

use super::{calls::CublasLt, description::Epilogue};
use crate::{DataType, Result, library::call, memory::DevicePointer};

pub(super) struct Descriptor {
    pub(super) lt: &'static CublasLt,
    pub(super) raw: cublasLtMatmulDesc_t,
}

// SAFETY: plain data of the library; guarded by a mutex.
unsafe impl Send for Descriptor {}

impl Descriptor {
    pub(super) fn set<T: Copy>(&self, which: Attribute, value: T) -> Result<()> {
        call!(
            self.lt,
            cublasLtMatmulDescSetAttribute(
                self.raw,
                which as c_int,
                (&raw const value).cast(),
                size_of::<T>(),
            )
        )
    }

    pub(super) fn point(
        &self,
        epilogue: Epilogue,
        bias: DevicePointer,
        aux: DevicePointer,
    ) -> Result<()> {
        if epilogue.uses_bias() {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.0)?;
        }
        if epilogue.uses_auxiliary() {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.0)?;
        }
        Ok(())
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = call!(self.lt, cublasLtMatmulDescDestroy(self.raw));
    }
}

pub(super) struct Layout {
    pub(super) lt: &'static CublasLt,
    pub(super) raw: cublasLtMatrixLayout_t,
}

// SAFETY: written once when made, then only read.
unsafe impl Send for Layout {}
// SAFETY: as above.
unsafe impl Sync for Layout {}

impl Layout {
    pub(super) fn new(
        lt: &'static CublasLt,
        data_type: DataType,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Layout> {
        let mut raw: cublasLtMatrixLayout_t = std::ptr::null_mut();
        call!(
            lt,
            cublasLtMatrixLayoutCreate(
                &raw mut raw,
                data_type.cuda(),
                rows as u64,
                columns as u64,
                stride as i64,
            )
        )?;
        Ok(Layout { lt, raw })
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        let _ = call!(self.lt, cublasLtMatrixLayoutDestroy(self.raw));
    }
}

pub(super) struct Preference {
    pub(super) lt: &'static CublasLt,
    pub(super) raw: cublasLtMatmulPreference_t,
}

impl Drop for Preference {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let _ = call!(self.lt, cublasLtMatmulPreferenceDestroy(self.raw));
        }
    }
}
