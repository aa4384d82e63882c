//! Running products: algorithms and launches. Knows addresses, not who owns them.

use std::{
    ffi::{c_int, c_void},
    sync::Mutex,
};

use cudarc::cublaslt::sys::{
    cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Attribute,
};

use super::{
    Lt,
    calls::{CublasLt, HeuristicResult},
    description::{MatmulBuffers, MatmulDescription, Operand, check},
    descriptors::{Descriptor, Layout, Preference},
};
use crate::{DataType, Error, Result, driver::Stream, library::call, memory::DevicePointer};

/// An algorithm with its settings. Valid for the description it was asked for, on the same device and version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Algorithm {
    /// The library's own encoding, fit for a tuning cache.
    pub encoded: [u64; 8],
    /// Bytes of workspace needed.
    pub workspace: usize,
    /// Rounds of blocks over the device that the library expects.
    pub waves: f32,
}

impl Algorithm {
    /// Settings in words: kernel, tile, stages, split of the inner dimension, cluster.
    pub fn describe(&self) -> Result<String> {
        let lt = CublasLt::get()?;
        let raw = cublasLtMatmulAlgo_t { data: self.encoded };
        let number = |which: c_int| -> i64 {
            // Attributes are 4 or 2 bytes wide, little end first.
            let (mut value, mut written) = (0u32, 0usize);
            for size in [4, 2] {
                let out: *mut c_void = (&raw mut value).cast();
                // SAFETY: the library writes at most `size` bytes into `value`.
                let code = unsafe {
                    (lt.cublasLtMatmulAlgoConfigGetAttribute)(
                        &raw const raw,
                        which,
                        out,
                        size,
                        &raw mut written,
                    )
                };
                if code == 0 {
                    return i64::from(value);
                }
            }
            -1
        };
        Ok(format!(
            "kernel {} tile {} stages {} split {} cluster {}",
            number(0),
            number(1),
            number(6),
            number(2),
            number(8)
        ))
    }
}

/// A described product, ready to be asked for algorithms and to be run.
pub struct Matmul {
    lt: Lt,
    description: MatmulDescription,
    /// Addresses of bias and auxiliary live in the descriptor, so a run holds it.
    descriptor: Mutex<Descriptor>,
    left: Layout,
    right: Layout,
    addend: Layout,
    output: Layout,
}

impl Matmul {
    /// Checks the description and makes the library's descriptors.
    pub fn new(lt: &Lt, description: MatmulDescription) -> Result<Matmul> {
        const COMPUTE_F32: c_int = 68;
        let d = &description;
        check(d)?;
        let library = lt.0.lt;
        let mut raw: cublasLtMatmulDesc_t = std::ptr::null_mut();
        call!(library, cublasLtMatmulDescCreate(&raw mut raw, COMPUTE_F32, DataType::F32.cuda()))?;
        let descriptor = Descriptor { lt: library, raw };
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(d.right.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(d.left.transposed))?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, d.epilogue.number())?;
        if let Some(count) = d.multiprocessors {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, count as i32)?;
        }
        if d.epilogue.uses_bias() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d.bias.cuda())?;
        }
        if d.epilogue.uses_auxiliary() {
            let stride = d.auxiliary_stride as i64;
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, stride)?;
        }
        // The heuristics look at the alignment of these two addresses.
        descriptor.point(d.epilogue, DevicePointer(4096), DevicePointer(4096))?;
        // Row-major rows x columns with a stride is column-major columns x rows with the same stride.
        let operand = |operand: &Operand, rows: usize, columns: usize| {
            let (stored_rows, stored_columns) =
                if operand.transposed { (columns, rows) } else { (rows, columns) };
            Layout::new(library, operand.data_type, stored_columns, stored_rows, operand.stride)
        };
        let output = |stride| Layout::new(library, d.output, d.columns, d.rows, stride);
        Ok(Matmul {
            left: operand(&d.left, d.rows, d.inner)?,
            right: operand(&d.right, d.inner, d.columns)?,
            addend: output(d.addend_stride)?,
            output: output(d.output_stride)?,
            lt: lt.clone(),
            descriptor: Mutex::new(descriptor),
            description,
        })
    }

    /// What it computes.
    pub fn description(&self) -> &MatmulDescription {
        &self.description
    }

    /// Up to `count` algorithms, the library's favourite first. An empty list is an error.
    pub fn algorithms(&self, count: usize) -> Result<Vec<Algorithm>> {
        const MAX_WORKSPACE_BYTES: c_int = 1;
        let (lt, handle) = (self.lt.0.lt, self.lt.0.raw);
        self.lt.0.context.bind()?;
        let mut preference = Preference { lt, raw: std::ptr::null_mut() };
        call!(lt, cublasLtMatmulPreferenceCreate(&raw mut preference.raw))?;
        let limit = self.description.workspace as u64;
        call!(
            lt,
            cublasLtMatmulPreferenceSetAttribute(
                preference.raw,
                MAX_WORKSPACE_BYTES,
                (&raw const limit).cast(),
                8,
            )
        )?;
        let empty = HeuristicResult {
            algorithm: [0; 8],
            workspace: 0,
            state: 0,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut results = vec![empty; count.max(1)];
        let mut found: c_int = 0;
        let descriptor = self.descriptor.lock().unwrap_or_else(|p| p.into_inner());
        call!(
            lt,
            cublasLtMatmulAlgoGetHeuristic(
                handle,
                descriptor.raw,
                self.right.raw,
                self.left.raw,
                self.addend.raw,
                self.output.raw,
                preference.raw,
                results.len() as c_int,
                results.as_mut_ptr(),
                &raw mut found,
            )
        )?;
        results.truncate(found.max(0) as usize);
        Ok(results
            .iter()
            .filter(|result| result.state == 0)
            .map(|result| Algorithm {
                encoded: result.algorithm,
                workspace: result.workspace,
                waves: result.waves,
            })
            .collect())
    }

    /// Runs it in the order of `stream`. With `beta` 0 the addend is not read.
    pub fn run(
        &self,
        stream: &Stream,
        algorithm: &Algorithm,
        (alpha, beta): (f32, f32),
        buffers: &MatmulBuffers,
    ) -> Result<()> {
        let inner = &self.lt.0;
        inner.context.bind()?;
        if algorithm.workspace > buffers.workspace_bytes {
            return Err(Error::Argument(format!(
                "the algorithm needs {} bytes of workspace, got {}",
                algorithm.workspace, buffers.workspace_bytes
            )));
        }
        let addend = match buffers.addend {
            DevicePointer::NULL => buffers.output,
            other => other,
        };
        let epilogue = self.description.epilogue;
        let missing = (epilogue.uses_bias() && buffers.bias == DevicePointer::NULL)
            || (epilogue.uses_auxiliary() && buffers.auxiliary == DevicePointer::NULL);
        if missing {
            let text = format!("epilogue {epilogue:?} lacks its bias or auxiliary address");
            return Err(Error::Argument(text));
        }
        let encoded = cublasLtMatmulAlgo_t { data: algorithm.encoded };
        let descriptor = self.descriptor.lock().unwrap_or_else(|p| p.into_inner());
        descriptor.point(epilogue, buffers.bias, buffers.auxiliary)?;
        call!(
            inner.lt,
            cublasLtMatmul(
                inner.raw,
                descriptor.raw,
                (&raw const alpha).cast(),
                buffers.right.raw(),
                self.right.raw,
                buffers.left.raw(),
                self.left.raw,
                (&raw const beta).cast(),
                addend.raw(),
                self.addend.raw,
                buffers.output.raw(),
                self.output.raw,
                &raw const encoded,
                buffers.workspace.raw(),
                buffers.workspace_bytes,
                stream.raw(),
            )
        )
    }
}
