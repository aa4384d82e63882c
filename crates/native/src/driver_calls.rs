//! The driver's C functions and their status codes. Knows no lifetimes: the types around them do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUmodule, CUstream,
};

use crate::{
    Error, Result,
    library::{Kind, symbols},
};

symbols! {
    /// Functions of `libcuda`; statuses are raw numbers, since a newer driver may return unknown ones.
    struct Driver from Kind::Driver;
    {
        fn cuInit(c_uint) -> i32;
        fn cuDriverGetVersion(*mut c_int) -> i32;
        fn cuGetErrorName(c_int, *mut *const c_char) -> i32;
        fn cuGetErrorString(c_int, *mut *const c_char) -> i32;
        fn cuDeviceGetCount(*mut c_int) -> i32;
        fn cuDeviceGet(*mut CUdevice, c_int) -> i32;
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice) -> i32;
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice) -> i32;
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice) -> i32;
        fn cuDeviceGetAttribute(*mut c_int, c_int, CUdevice) -> i32;
        fn cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice) -> i32;
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice) -> i32;
        fn cuDevicePrimaryCtxRelease_v2(CUdevice) -> i32;
        fn cuCtxSetCurrent(CUcontext) -> i32;
        fn cuCtxSynchronize() -> i32;
        fn cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int) -> i32;
        fn cuCtxEnablePeerAccess(CUcontext, c_uint) -> i32;
        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> i32;
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize) -> i32;
        fn cuMemFree_v2(CUdeviceptr) -> i32;
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> i32;
        fn cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint) -> i32;
        fn cuMemFreeHost(*mut c_void) -> i32;
        fn cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize) -> i32;
        fn cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize) -> i32;
        fn cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, usize) -> i32;
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> i32;
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream) -> i32;
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream) -> i32;
        fn cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream) -> i32;
        fn cuMemsetD8_v2(CUdeviceptr, u8, usize) -> i32;
        fn cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int) -> i32;
        fn cuStreamDestroy_v2(CUstream) -> i32;
        fn cuStreamSynchronize(CUstream) -> i32;
        fn cuStreamQuery(CUstream) -> i32;
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint) -> i32;
        fn cuStreamGetPriority(CUstream, *mut c_int) -> i32;
        fn cuStreamBeginCapture_v2(CUstream, c_int) -> i32;
        fn cuStreamEndCapture(CUstream, *mut CUgraph) -> i32;
        fn cuStreamIsCapturing(CUstream, *mut c_int) -> i32;
        fn cuEventCreate(*mut CUevent, c_uint) -> i32;
        fn cuEventDestroy_v2(CUevent) -> i32;
        fn cuEventRecord(CUevent, CUstream) -> i32;
        fn cuEventSynchronize(CUevent) -> i32;
        fn cuEventQuery(CUevent) -> i32;
        fn cuEventElapsedTime(*mut f32, CUevent, CUevent) -> i32;
        fn cuModuleLoadData(*mut CUmodule, *const c_void) -> i32;
        fn cuModuleUnload(CUmodule) -> i32;
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char) -> i32;
        fn cuFuncGetAttribute(*mut c_int, c_int, CUfunction) -> i32;
        fn cuFuncSetAttribute(CUfunction, c_int, c_int) -> i32;
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize) -> i32;
        fn cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void
        ) -> i32;
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong) -> i32;
        fn cuGraphUpload(CUgraphExec, CUstream) -> i32;
        fn cuGraphLaunch(CUgraphExec, CUstream) -> i32;
        fn cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize) -> i32;
        fn cuGraphNodeGetType(CUgraphNode, *mut c_int) -> i32;
        fn cuGraphDestroy(CUgraph) -> i32;
        fn cuGraphExecDestroy(CUgraphExec) -> i32;
    }
    optional {
        fn cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize) -> i32;
    }
}

const NOT_READY: i32 = 600;

impl Driver {
    /// An error for every status but success.
    pub(crate) fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = |read: unsafe extern "C" fn(c_int, *mut *const c_char) -> i32| {
            let mut found: *const c_char = std::ptr::null();
            // SAFETY: the driver writes a pointer to a static string, or null for an unknown code.
            unsafe {
                read(code, &raw mut found);
                if found.is_null() {
                    return String::new();
                }
                CStr::from_ptr(found).to_string_lossy().into_owned()
            }
        };
        let (name, detail) = (text(self.cuGetErrorName), text(self.cuGetErrorString));
        Err(Error::Call { call, code, name, detail })
    }

    /// Whether work is finished, from a query's status.
    pub(crate) fn finished(&self, code: i32, call: &'static str) -> Result<bool> {
        if code == NOT_READY {
            return Ok(false);
        }
        self.check(code, call).map(|()| true)
    }
}
