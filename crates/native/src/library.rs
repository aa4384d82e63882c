//! Finding and opening NVIDIA's libraries. Knows their file names and where they live, none of their functions.
//!
//! Order: `COUNTERPOINT_LIBRARY_PATH` (colon separated folders), the wheels `nvidia/*/lib` of Python's package
//! folders, `LD_LIBRARY_PATH`, the usual system folders, and at last the system's loader by bare name. Libraries
//! are opened by absolute path and never closed. Of several cuDNNs the newest is taken, unless the explicit path
//! holds one.
//!
//! A library that opens its parts by bare name (cuDNN its engines, NVRTC its builtins) gets the parts that lie
//! beside it: they are opened first, and glibc hands out a loaded object whose SONAME equals the asked name.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::{Error, Result};

/// A library that the engine can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The CUDA driver.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Convolutions and attention.
    Cudnn,
    /// Collectives.
    Nccl,
    /// Tracing.
    Cupti,
    /// Management: clocks, power, links.
    Nvml,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 7] = [
        Kind::Driver,
        Kind::Nvrtc,
        Kind::CublasLt,
        Kind::Cudnn,
        Kind::Nccl,
        Kind::Cupti,
        Kind::Nvml,
    ];

    /// As people call it.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Name, file names in order of preference, and prefixes of the parts beside it that must be opened first.
    fn facts(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Kind::Driver => ("the NVIDIA driver (libcuda)", &["libcuda.so.1"], &[]),
            Kind::Nvrtc => {
                ("NVRTC", &["libnvrtc.so.13", "libnvrtc.so.12"], &["libnvrtc-builtins.so."])
            }
            Kind::CublasLt => ("cuBLASLt", &["libcublasLt.so.13", "libcublasLt.so.12"], &[]),
            Kind::Cudnn => ("cuDNN", &["libcudnn.so.9"], &["libcudnn_"]),
            Kind::Nccl => ("NCCL", &["libnccl.so.2"], &[]),
            Kind::Cupti => ("CUPTI", &["libcupti.so.13", "libcupti.so.12"], &[]),
            Kind::Nvml => ("NVML", &["libnvidia-ml.so.1"], &[]),
        }
    }
}

/// An open library; stays open for the life of the process.
#[derive(Debug)]
pub struct Library {
    kind: Kind,
    path: PathBuf,
    handle: Handle,
}

impl Library {
    /// Opens a library, or hands out the one that is open.
    pub fn open(kind: Kind) -> Result<&'static Library> {
        static OPEN: Mutex<BTreeMap<Kind, &'static Library>> = Mutex::new(BTreeMap::new());
        if kind == Kind::Cudnn {
            // cuDNN opens these two by bare name when an engine needs them.
            let _ = (Library::open(Kind::Nvrtc), Library::open(Kind::CublasLt));
        }
        let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(library) = open.get(&kind) {
            return Ok(library);
        }
        let library: &'static Library = Box::leak(Box::new(find(kind)?));
        open.insert(kind, library);
        Ok(library)
    }

    /// The file that was opened; a bare name where the system's loader chose it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the function's C type.
    pub(crate) unsafe fn symbol<F: Copy>(&self, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller vouches for the type; the library is never closed.
        unsafe { self.handle.get::<F>(symbol.as_bytes()) }.map(|found| *found).map_err(|_| {
            Error::MissingSymbol { library: self.kind.name(), symbol, path: self.path.clone() }
        })
    }
}

/// Where a library would be opened from, without opening it; `None` leaves it to the system's loader.
pub fn locate(kind: Kind) -> Option<PathBuf> {
    candidates(kind).into_iter().next()
}

/// Folders searched, in order; only those that exist.
pub fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let mut all = explicit_folders();
        all.extend(wheel_folders());
        all.extend(path_variable("LD_LIBRARY_PATH"));
        all.extend(
            [
                "/usr/local/cuda/lib64",
                "/usr/local/cuda/extras/CUPTI/lib64",
                "/usr/local/nvidia/lib64",
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/usr/lib64",
                "/usr/lib/wsl/lib",
            ]
            .map(PathBuf::from),
        );
        let mut kept: Vec<PathBuf> = vec![];
        for folder in all {
            if folder.is_dir() && !kept.contains(&folder) {
                kept.push(folder);
            }
        }
        kept
    })
}

/// Include folders of the CUDA headers in Python's wheels and the toolkit, for NVRTC's `--include-path`.
pub fn include_folders() -> Vec<PathBuf> {
    let beside = folders().iter().filter_map(|lib| Some(lib.parent()?.join("include")));
    beside.filter(|folder| folder.join("cuda_bf16.h").exists()).collect()
}

fn find(kind: Kind) -> Result<Library> {
    let (name, files, _) = kind.facts();
    let mut failures = vec![];
    let bare = files.iter().map(PathBuf::from);
    for path in candidates(kind).into_iter().chain(bare) {
        if path.is_absolute() {
            open_parts(kind, &path);
        }
        // SAFETY: the file is one of NVIDIA's libraries; its initialisers touch nothing of ours.
        match unsafe { Handle::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(handle) => return Ok(Library { kind, path, handle }),
            Err(error) if path.is_absolute() => failures.push(error.to_string()),
            Err(_) => {}
        }
    }
    Err(Error::LibraryNotFound {
        library: name,
        names: files.iter().map(|f| (*f).to_owned()).collect(),
        folders: folders().to_vec(),
        failures,
    })
}

/// Opens the parts beside a library, so that its own look-ups by name find these. A part that cannot be opened
/// is left to the library, which says what it lacks.
fn open_parts(kind: Kind, path: &Path) {
    let (_, _, parts) = kind.facts();
    let Some(folder) = path.parent() else { return };
    if parts.is_empty() {
        return;
    }
    let wanted_end = path.extension().map(|e| format!(".so.{}", e.to_string_lossy()));
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let right_end =
                kind != Kind::Cudnn || wanted_end.as_ref().is_some_and(|end| name.ends_with(end));
            right_end && parts.iter().any(|part| name.starts_with(part))
        })
        .collect();
    files.sort();
    for file in files {
        // SAFETY: a part of the NVIDIA library that is about to be opened; kept open on purpose.
        if let Ok(part) = unsafe { Handle::open(Some(&file), RTLD_NOW | RTLD_LOCAL) } {
            std::mem::forget(part);
        }
    }
}

/// Files that exist, in the order in which they are to be tried.
fn candidates(kind: Kind) -> Vec<PathBuf> {
    let (_, files, _) = kind.facts();
    let mut found: Vec<PathBuf> = vec![];
    for file in files {
        found.extend(folders().iter().map(|folder| folder.join(file)).filter(|p| p.exists()));
    }
    if kind == Kind::Cudnn {
        newest_first(&mut found, &explicit_folders());
    }
    found
}

/// Explicit folders first, then the newest cuDNN, then the order of the search.
fn newest_first(found: &mut [PathBuf], explicit: &[PathBuf]) {
    found.sort_by_key(|path| {
        let is_explicit = path.parent().is_some_and(|f| explicit.iter().any(|e| e == f));
        std::cmp::Reverse((is_explicit, cudnn_version(path)))
    });
}

/// The version of a cuDNN file without opening it: from the real file's name, else from the wheel's metadata
/// folder. Opening two cuDNNs to ask them would leave the parts of the wrong one loaded.
fn cudnn_version(path: &Path) -> Vec<u32> {
    let numbers = |text: &str| text.split('.').map_while(|part| part.parse().ok()).collect();
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let from_name: Vec<u32> = name.strip_prefix("libcudnn.so.").map(numbers).unwrap_or_default();
    if from_name.len() > 1 {
        return from_name;
    }
    let site = real.ancestors().nth(4);
    let entries = site.and_then(|site| fs::read_dir(site).ok()).into_iter().flatten();
    let from_wheel = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix("nvidia_cudnn_cu")?.strip_suffix(".dist-info")?;
        Some(numbers(rest.split_once('-')?.1))
    });
    from_wheel.max().unwrap_or(from_name)
}

fn explicit_folders() -> Vec<PathBuf> {
    path_variable("COUNTERPOINT_LIBRARY_PATH")
}

fn path_variable(name: &str) -> Vec<PathBuf> {
    let value = env::var_os(name).unwrap_or_default();
    env::split_paths(&value).filter(|p| p.is_absolute()).collect()
}

/// `nvidia/*/lib` of every Python package folder: the active environment, `.venv` here or in a folder above,
/// the environments of each `python3` on the path, and the user's own packages.
fn wheel_folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    if let Ok(here) = env::current_dir() {
        roots.extend(here.ancestors().map(|folder| folder.join(".venv")));
    }
    let on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .filter(|folder| folder.join("python3").exists())
        .filter_map(|folder| folder.parent().map(Path::to_owned))
        .collect::<Vec<_>>();
    roots.extend(on_path);
    roots.extend(env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    roots.extend(["/opt/torch/.venv", "/usr/local", "/usr"].map(PathBuf::from));
    let mut found = vec![];
    for root in roots {
        for python in sub_folders(&root.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                for wheel in sub_folders(&python.join(packages).join("nvidia"), "") {
                    found.push(wheel.join("lib"));
                }
            }
        }
        for wheel in sub_folders(&root.join("lib/python3/dist-packages/nvidia"), "") {
            found.push(wheel.join("lib"));
        }
    }
    found
}

fn sub_folders(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)))
        .collect();
    found.sort();
    found
}

/// Declares a table of C functions that is filled once from a library; a missing function is an error.
///
/// `symbols! { struct Table from Kind::X { fn name(type, ..) -> i32; .. } optional { fn .. } }` gives `Table::get()`.
macro_rules! symbols {
    (
        $(#[$meta:meta])* struct $table:ident from $kind:expr;
        { $(fn $name:ident($($type:ty),* $(,)?) -> $result:ty;)* }
        $(optional { $(fn $maybe:ident($($maybe_type:ty),* $(,)?) -> $maybe_result:ty;)* })?
    ) => {
        $(#[$meta])*
        #[expect(non_snake_case, reason = "the fields are named as the C functions are")]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> $result,)*
            $($(pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_type),*) -> $maybe_result>,)*)?
        }
        impl $table {
            /// The table, filled on first use.
            pub(crate) fn get() -> $crate::Result<&'static Self> {
                static TABLE: std::sync::OnceLock<$crate::Result<$table>> = std::sync::OnceLock::new();
                TABLE.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }
            fn load() -> $crate::Result<Self> {
                let library = $crate::library::Library::open($kind)?;
                Ok(Self {
                    // SAFETY: the types are those of the library's header.
                    $($name: unsafe { library.symbol(stringify!($name)) }?,)*
                    // SAFETY: as above.
                    $($($maybe: unsafe { library.symbol(stringify!($maybe)) }.ok(),)*)?
                })
            }
        }
    };
}
pub(crate) use symbols;

/// Calls a function of a table and turns its status into a `Result`. The table has `check(status, name)`.
macro_rules! call {
    ($table:expr, $call:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles and addresses come from objects that are alive for the call; out-pointers are locals or
        // arrays of the size that the function writes; the types are those of the table.
        $table.check(unsafe { ($table.$call)($($argument),*) }, stringify!($call))
    };
}
pub(crate) use call;
