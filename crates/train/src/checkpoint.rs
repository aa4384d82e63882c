//! Checkpoints: one folder per step that appears whole or not at all, is verified when read, and never replaces a good one
//! before the next is on disk.
//!
//! `model.safetensors` holds the parameters under their public names, `state.safetensors` what else the program remembers,
//! `manifest.json` what it was made from and the hash of both. Knows no program and no device.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    Error,
    weights::{self, StoredTensors},
};

const MODEL: &str = "model.safetensors";
const STATE: &str = "state.safetensors";
const MANIFEST: &str = "manifest.json";
const FOLDER: &str = "checkpoints";
const ASIDE: &str = "not-finite";
const FORMAT: u32 = 1;

/// What a checkpoint was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Steps done.
    pub step: u64,
    /// Samples read over all ranks: where the data goes on.
    pub position: u64,
    /// Seed of the run.
    pub seed: u64,
    /// The `[model]` section: key without `model.` and value.
    pub model: BTreeMap<String, serde_json::Value>,
    /// Size and hash of the other files.
    #[serde(default)]
    pub files: BTreeMap<String, FileRecord>,
}

/// Size and hash of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// All that a run needs to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// What it was made from.
    pub manifest: Manifest,
    /// Parameters by public name.
    pub parameters: StoredTensors,
    /// Moments, counters, loss scale: everything else the program remembers.
    pub state: StoredTensors,
}

impl Manifest {
    /// A manifest of the present format without files.
    pub fn new(
        step: u64,
        position: u64,
        seed: u64,
        model: BTreeMap<String, serde_json::Value>,
    ) -> Self {
        Self { format: FORMAT, step, position, seed, model, files: BTreeMap::new() }
    }

    /// The first difference between the model it was made for and `model`, as a line.
    pub fn difference(&self, model: &BTreeMap<String, serde_json::Value>) -> Option<String> {
        let keys = self.model.keys().chain(model.keys());
        keys.filter_map(|key| {
            let (own, other) = (self.model.get(key), model.get(key));
            let show = |value: Option<&serde_json::Value>| {
                value.map_or("nothing".to_owned(), ToString::to_string)
            };
            (own != other).then(|| {
                format!("made with model.{key} = {}, the recipe says {}", show(own), show(other))
            })
        })
        .next()
    }
}

/// Writes a checkpoint below the run's folder and removes all but the newest `keep`. Returns its folder.
///
/// # Errors
/// [`Error::File`]; all earlier checkpoints are then still there.
pub fn save(run: &Path, snapshot: &Snapshot, keep: usize) -> Result<PathBuf, Error> {
    let path = write_into(&run.join(FOLDER), snapshot)?;
    let mut steps = list(run);
    let surplus = steps.len().saturating_sub(keep.max(1));
    for (_, old) in steps.drain(..surplus) {
        fs::remove_dir_all(&old).map_err(|source| Error::file(old, "remove", source))?;
    }
    Ok(path)
}

/// Writes the state of a run that broke off beside its checkpoints, where it can be looked at but no run goes on from it unless
/// it is named. Returns its folder.
///
/// # Errors
/// [`Error::File`].
pub fn set_aside(run: &Path, snapshot: &Snapshot) -> Result<PathBuf, Error> {
    write_into(&run.join(ASIDE), snapshot)
}

/// The snapshot as a folder of its own in `folder`, which appears whole or not at all.
fn write_into(folder: &Path, snapshot: &Snapshot) -> Result<PathBuf, Error> {
    let name = format!("step-{:08}", snapshot.manifest.step);
    let (path, temporary) = (folder.join(&name), folder.join(format!(".{name}.partial")));
    let written = write_folder(&temporary, snapshot).and_then(|()| {
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::rename(&temporary, &path)?;
        File::open(folder)?.sync_all()
    });
    if let Err(source) = written {
        // What is left of a failed write is of no use; the error that matters is the first.
        let _ = fs::remove_dir_all(&temporary);
        return Err(Error::file(path, "write the checkpoint", source));
    }
    Ok(path)
}

/// Reads and verifies a checkpoint: its folder, or a run's folder, whose newest is taken.
///
/// # Errors
/// [`Error::File`]; [`Error::Checkpoint`] where there is none or a file is not the one that was written.
pub fn load(path: &Path) -> Result<Snapshot, Error> {
    let folder = find(path)?;
    let file = folder.join(MANIFEST);
    let text = fs::read(&file).map_err(|source| Error::file(&file, "read", source))?;
    let manifest = parse_manifest(&text).map_err(|message| Error::checkpoint(&file, message))?;
    for (name, record) in &manifest.files {
        verify(&folder.join(name), record)?;
    }
    let parameters = weights::read(&folder.join(MODEL))?;
    let state = weights::read(&folder.join(STATE))?;
    Ok(Snapshot { manifest, parameters, state })
}

/// Reads a manifest; the error is one line without the file's name.
///
/// # Errors
/// What is wrong with the bytes.
pub fn parse_manifest(bytes: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest =
        serde_json::from_slice(bytes).map_err(|error| format!("not a manifest: {error}"))?;
    if manifest.format != FORMAT {
        return Err(format!("found format {}, expected {FORMAT}", manifest.format));
    }
    match [MODEL, STATE].iter().find(|&&name| !manifest.files.contains_key(name)) {
        Some(name) => Err(format!("lists no {name}")),
        // Names are joined to the folder: nothing outside it may be named.
        None if manifest.files.keys().any(|name| name.contains(['/', '\\'])) => {
            Err("lists a file outside its folder".to_owned())
        }
        None => Ok(manifest),
    }
}

/// The folder of the checkpoint that `path` means.
///
/// # Errors
/// [`Error::Checkpoint`] where there is none.
pub fn find(path: &Path) -> Result<PathBuf, Error> {
    if path.join(MANIFEST).exists() {
        return Ok(path.to_owned());
    }
    // The folder of all checkpoints is as good a name as that of the run.
    let run = match path.parent() {
        Some(run) if path.ends_with(FOLDER) => run,
        _ => path,
    };
    match list(run).pop() {
        Some((_, newest)) => Ok(newest),
        None if path.exists() => Err(Error::checkpoint(
            path,
            format!("no checkpoint: neither {MANIFEST} nor {FOLDER}/step-* in it"),
        )),
        None => Err(Error::checkpoint(path, "no such folder")),
    }
}

/// Finished checkpoints of a run, oldest first.
pub fn list(run: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(run.join(FOLDER)) else { return vec![] };
    let step = |path: PathBuf| {
        let step = path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()?;
        path.join(MANIFEST).exists().then_some((step, path))
    };
    let mut found: Vec<(u64, PathBuf)> =
        entries.filter_map(Result::ok).filter_map(|entry| step(entry.path())).collect();
    found.sort();
    found
}

fn write_folder(folder: &Path, snapshot: &Snapshot) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut manifest = snapshot.manifest.clone();
    for (name, tensors) in [(MODEL, &snapshot.parameters), (STATE, &snapshot.state)] {
        let path = folder.join(name);
        weights::write_in_place(&path, tensors, &metadata)?;
        manifest.files.insert(name.to_owned(), digest(&path)?);
    }
    let path = folder.join(MANIFEST);
    fs::write(&path, serde_json::to_string_pretty(&manifest).map_err(io::Error::other)? + "\n")?;
    File::open(&path)?.sync_all()?;
    File::open(folder)?.sync_all()
}

fn digest(path: &Path) -> io::Result<FileRecord> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(FileRecord { bytes, sha256 })
}

fn verify(path: &Path, record: &FileRecord) -> Result<(), Error> {
    let found = digest(path).map_err(|source| Error::file(path, "read", source))?;
    if found.bytes != record.bytes {
        let message = format!("found {} bytes, expected {}: cut off", found.bytes, record.bytes);
        return Err(Error::checkpoint(path, message));
    }
    if found.sha256 != record.sha256 {
        return Err(Error::checkpoint(
            path,
            "its SHA-256 is not the manifest's: changed after it was written",
        ));
    }
    Ok(())
}
