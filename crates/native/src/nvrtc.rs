//! Compiling CUDA C++ at run time. Needs no device and no driver. Knows no kernel's meaning.

use std::ffi::{CStr, CString, c_char, c_int};

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::{
    Error, Result,
    library::{self, Kind, call, symbols},
};

symbols! {
    /// Functions of `libnvrtc`.
    struct Nvrtc from Kind::Nvrtc;
    {
        fn nvrtcVersion(*mut c_int, *mut c_int) -> i32;
        fn nvrtcGetNumSupportedArchs(*mut c_int) -> i32;
        fn nvrtcGetSupportedArchs(*mut c_int) -> i32;
        fn nvrtcGetErrorString(c_int) -> *const c_char;
        fn nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int,
            *const *const c_char, *const *const c_char
        ) -> i32;
        fn nvrtcDestroyProgram(*mut nvrtcProgram) -> i32;
        fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char) -> i32;
        fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize) -> i32;
        fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char) -> i32;
        fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize) -> i32;
        fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char) -> i32;
    }
}

impl Nvrtc {
    fn check(&self, code: i32, call: &'static str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: returns a static string for any code.
        let name = unsafe { CStr::from_ptr((self.nvrtcGetErrorString)(code)) };
        let name = name.to_string_lossy().into_owned();
        Err(Error::Call { call, code, name, detail: String::new() })
    }
}

/// A compiled source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The machine code, an ELF file.
    pub cubin: Vec<u8>,
    /// Warnings and remarks; empty where there are none.
    pub log: String,
}

/// NVRTC's version as `(major, minor)`.
pub fn version() -> Result<(u32, u32)> {
    let (mut major, mut minor) = (0, 0);
    call!(Nvrtc::get()?, nvrtcVersion(&raw mut major, &raw mut minor))?;
    Ok((major as u32, minor as u32))
}

/// Architectures that this NVRTC compiles for, as numbers (90 for `sm_90`).
pub fn architectures() -> Result<Vec<u32>> {
    let nvrtc = Nvrtc::get()?;
    let mut count = 0;
    call!(nvrtc, nvrtcGetNumSupportedArchs(&raw mut count))?;
    let mut numbers: Vec<c_int> = vec![0; count as usize];
    call!(nvrtc, nvrtcGetSupportedArchs(numbers.as_mut_ptr()))?;
    Ok(numbers.into_iter().map(|n| n as u32).collect())
}

/// Compiles `source` to machine code for `architecture` (`sm_90`; `sm_90a` for Hopper's own instructions).
///
/// `source_name` appears in messages. `options` are NVRTC's; C++17 and the CUDA headers that were found are
/// set. Fails with [`Error::Compile`] and the log where the source is wrong.
pub fn compile(
    source_name: &str,
    source: &str,
    architecture: &str,
    options: &[&str],
) -> Result<Compiled> {
    let nvrtc = Nvrtc::get()?;
    let text = |value: &str| {
        CString::new(value)
            .map_err(|_| Error::Argument(format!("{source_name}: a zero byte in {value:.40?}")))
    };
    let (c_source, c_name) = (text(source)?, text(source_name)?);
    let mut all = vec![
        text(&format!("--gpu-architecture={architecture}"))?,
        text("--std=c++17")?,
        text("-default-device")?,
    ];
    for folder in library::include_folders() {
        all.push(text(&format!("--include-path={}", folder.display()))?);
    }
    for option in options {
        all.push(text(option)?);
    }
    let pointers: Vec<*const c_char> = all.iter().map(|option| option.as_ptr()).collect();

    let mut program = Program { nvrtc, raw: std::ptr::null_mut() };
    // NVRTC copies the strings.
    call!(
        nvrtc,
        nvrtcCreateProgram(
            &raw mut program.raw,
            c_source.as_ptr(),
            c_name.as_ptr(),
            0,
            std::ptr::null(),
            std::ptr::null(),
        )
    )?;
    let compiled =
        call!(nvrtc, nvrtcCompileProgram(program.raw, pointers.len() as c_int, pointers.as_ptr()));
    let log = program.log()?;
    if let Err(refusal) = compiled {
        let log = if log.is_empty() { refusal.to_string() } else { log };
        let (source_name, architecture) = (source_name.to_owned(), architecture.to_owned());
        return Err(Error::Compile { source_name, architecture, log });
    }
    Ok(Compiled { cubin: program.cubin()?, log })
}

struct Program {
    nvrtc: &'static Nvrtc,
    raw: nvrtcProgram,
}

impl Program {
    fn log(&self) -> Result<String> {
        let mut size = 0usize;
        call!(self.nvrtc, nvrtcGetProgramLogSize(self.raw, &raw mut size))?;
        let mut bytes = vec![0u8; size.max(1)];
        call!(self.nvrtc, nvrtcGetProgramLog(self.raw, bytes.as_mut_ptr().cast()))?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0usize;
        call!(self.nvrtc, nvrtcGetCUBINSize(self.raw, &raw mut size))?;
        let mut bytes = vec![0u8; size];
        call!(self.nvrtc, nvrtcGetCUBIN(self.raw, bytes.as_mut_ptr().cast()))?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the program is alive and not used afterwards.
            unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.raw) };
        }
    }
}
