//! What can go wrong between this crate and NVIDIA's libraries. Knows no operators and no plans.

use std::path::PathBuf;

/// Result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed look-up, a refused call, or arguments that do not fit.
///
/// Codes are kept as the raw numbers that a library returned, since a library may be newer than the bindings.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file of the library could be opened.
    #[error(
        "{library} was not found: looked for {} in {}{}; set COUNTERPOINT_LIBRARY_PATH to the folder that holds it",
        names.join(", "),
        list_folders(folders),
        if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) }
    )]
    LibraryNotFound {
        /// The library, as people call it.
        library: &'static str,
        /// File names tried in each folder and at last by the system's loader.
        names: Vec<String>,
        /// Folders tried, in order.
        folders: Vec<PathBuf>,
        /// What the loader said about files that exist but could not be opened.
        failures: Vec<String>,
    },
    /// The library was opened but lacks a function.
    #[error("{library} at {} has no function {symbol}: it is older than this program needs", path.display())]
    MissingSymbol {
        /// The library, as people call it.
        library: &'static str,
        /// The function.
        symbol: &'static str,
        /// File that was opened.
        path: PathBuf,
    },
    /// A library refused a call.
    #[error("{call} failed: {name} ({code}){}{detail}", if detail.is_empty() { "" } else { ": " })]
    Call {
        /// The C function.
        call: &'static str,
        /// Its status.
        code: i32,
        /// The status's name, where known.
        name: String,
        /// What the library added.
        detail: String,
    },
    /// A source text that NVRTC refused.
    #[error("{source_name} does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name handed in with the text.
        source_name: String,
        /// For example `sm_90`.
        architecture: String,
        /// The compiler's messages with line numbers.
        log: String,
    },
    /// Device memory is exhausted.
    #[error("out of device memory: asked for {requested} bytes, {free} of {total} bytes are free")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes free on the device.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
    /// Arguments of a call in this crate do not fit together.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// Whether a library is absent, as opposed to present and failing.
    pub fn is_missing_library(&self) -> bool {
        matches!(self, Error::LibraryNotFound { .. })
    }
}

fn list_folders(folders: &[PathBuf]) -> String {
    let mut names: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    names.push("the system's loader path".into());
    names.join(", ")
}
