//! Compiled kernels: loading, argument packing, launching. Knows no kernel's meaning.

use std::{
    ffi::{CString, c_int, c_void},
    sync::Arc,
};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute, CUmodule};

use crate::{
    Error, Result,
    driver::{Context, Stream},
    driver_calls::Driver,
    library::call,
    memory::{DeviceBuffer, DevicePointer, Pod},
};

/// A loaded cubin; its functions keep it loaded.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    context: Context,
    raw: CUmodule,
}

// SAFETY: the driver's module calls may be made from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads a cubin.
    pub fn load(context: &Context, cubin: &[u8]) -> Result<Module> {
        if !cubin.starts_with(b"\x7fELF") {
            return Err(Error::Argument("a module must be a cubin (an ELF file)".into()));
        }
        let mut raw: CUmodule = std::ptr::null_mut();
        call!(context.driver()?, cuModuleLoadData(&raw mut raw, cubin.as_ptr().cast()))?;
        Ok(Module(Arc::new(Inner { context: context.clone(), raw })))
    }

    /// A kernel by its `extern "C"` name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let driver = self.0.context.driver()?;
        let c_name = CString::new(name)
            .map_err(|_| Error::Argument(format!("{name:?} is not a kernel's name")))?;
        let mut raw: CUfunction = std::ptr::null_mut();
        call!(driver, cuModuleGetFunction(&raw mut raw, self.0.raw, c_name.as_ptr())).map_err(
            |error| match error {
                Error::Call { code: 500, .. } => {
                    Error::Argument(format!("the module has no kernel {name}"))
                }
                other => other,
            },
        )?;
        let parameters = parameter_sizes(driver, raw);
        Ok(Function { module: self.clone(), raw, name: name.to_owned(), parameters })
    }
}

/// Sizes of a kernel's parameters in bytes, where the driver can tell (12.4 and later).
fn parameter_sizes(driver: &Driver, function: CUfunction) -> Option<Vec<usize>> {
    let query = driver.cuFuncGetParamInfo?;
    let mut sizes = vec![];
    loop {
        let (mut offset, mut size) = (0usize, 0usize);
        // SAFETY: the function is alive; the driver refuses an index past the last parameter.
        if unsafe { query(function, sizes.len(), &raw mut offset, &raw mut size) } != 0 {
            return Some(sizes);
        }
        sizes.push(size);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.context.bind();
        let _ = call!(self.context.driver_unbound(), cuModuleUnload(self.raw));
    }
}

/// A kernel.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: CUfunction,
    name: String,
    parameters: Option<Vec<usize>>,
}

// SAFETY: the handle belongs to the module that is kept alive; the driver takes it from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Blocks, threads per block and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
}

impl Launch {
    /// `blocks` blocks of `threads` threads along x.
    pub fn linear(blocks: u32, threads: u32) -> Launch {
        Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0 }
    }

    /// With `bytes` of dynamic shared memory.
    #[must_use]
    pub fn shared(self, bytes: u32) -> Launch {
        Launch { shared: bytes, ..self }
    }
}

/// A kernel's arguments in order; each is copied when it is added.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    words: Vec<u64>,
    /// First word and size in bytes of each argument.
    places: Vec<(usize, usize)>,
}

impl Arguments {
    /// No argument yet.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// An address.
    #[must_use]
    pub fn pointer(self, pointer: DevicePointer) -> Arguments {
        self.value(pointer.0)
    }

    /// The address of a buffer's first element.
    #[must_use]
    pub fn buffer<T: Pod>(self, buffer: &DeviceBuffer<T>) -> Arguments {
        self.pointer(buffer.pointer())
    }

    /// A plain value: `i32`, `f32`, `u64`, or a `#[repr(C)]` structure. The type must be the kernel's.
    #[must_use]
    pub fn value<T: Pod>(mut self, value: T) -> Arguments {
        let bytes = bytemuck::bytes_of(&value);
        let first = self.words.len();
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_ne_bytes(word));
        }
        self.places.push((first, bytes.len()));
        self
    }
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers of a thread.
    pub fn registers(&self) -> Result<i32> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Bytes of local memory (spills) of a thread.
    pub fn local_bytes(&self) -> Result<i32> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    fn attribute(&self, which: Attribute) -> Result<i32> {
        let mut value: c_int = 0;
        let driver = self.module.0.context.driver()?;
        call!(driver, cuFuncGetAttribute(&raw mut value, which as c_int, self.raw))?;
        Ok(value)
    }

    /// Allows launches with up to `bytes` of dynamic shared memory; needed above 48 KiB.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_int;
        let driver = self.module.0.context.driver()?;
        call!(driver, cuFuncSetAttribute(self.raw, which, bytes as c_int))
    }

    /// Blocks of `threads` threads and `shared` bytes that one multiprocessor holds at a time.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32> {
        let mut blocks: c_int = 0;
        let driver = self.module.0.context.driver()?;
        call!(
            driver,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.raw,
                threads as c_int,
                shared as usize,
            )
        )?;
        Ok(blocks as u32)
    }

    /// Runs the kernel in the order of `stream`.
    ///
    /// Number and sizes of the arguments are held against the kernel's parameters. What the kernel does with
    /// its addresses is the kernel's: a wrong access is a device fault that a later call reports; host memory is
    /// out of its reach but for page-locked buffers.
    pub fn launch(&self, stream: &Stream, launch: Launch, arguments: &Arguments) -> Result<()> {
        if let Some(parameters) = &self.parameters {
            let given: Vec<usize> = arguments.places.iter().map(|(_, size)| *size).collect();
            if *parameters != given {
                return Err(Error::Argument(format!(
                    "kernel {} takes arguments of {parameters:?} bytes, got {given:?}",
                    self.name
                )));
            }
        }
        let base = arguments.words.as_ptr();
        let mut pointers: Vec<*mut c_void> = arguments
            .places
            .iter()
            // SAFETY: every place lies within `words`; the driver reads and does not write.
            .map(|(first, _)| unsafe { base.add(*first) }.cast_mut().cast())
            .collect();
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        call!(
            self.module.0.context.driver()?,
            cuLaunchKernel(
                self.raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared,
                stream.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        )
    }
}
