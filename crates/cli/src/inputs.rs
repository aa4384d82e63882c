//! What a person hands over: files, folders and standard input, read in parallel with progress. Knows no format.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{IsTerminal, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use diagnose::job::{Input, Unusable};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use readers::ReadError;

use crate::output;

/// Files taken from folders at most.
const FILES: usize = 100_000;
/// Nobody wants to read about progress before this.
const SILENCE: Duration = Duration::from_secs(1);
/// Between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(5);

/// Name of the file in a run's folder that `compare` adds to.
pub const EXPERIMENTS: &str = "experiments.jsonl";

/// Everything that was read, in the order of the files' names.
#[derive(Default)]
pub struct Inputs {
    /// What could be used.
    pub inputs: Vec<Input>,
    /// What could not, with reasons.
    pub unusable: Vec<Unusable>,
}

/// Reads files, everything in folders, and standard input where a path is `-`.
pub fn read(paths: &[PathBuf]) -> Inputs {
    let (files, mut unusable) = gather(paths);
    let mut slots: Vec<Option<Result<Input, Unusable>>> = files.iter().map(|_| None).collect();
    {
        let results = Mutex::new(&mut slots);
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let progress = Progress::new(&files);
        let workers = std::thread::available_parallelism().map_or(2, usize::from).min(files.len());
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| progress.watch(&ended));
            let workers: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            let Some(path) = files.get(index) else { break };
                            let outcome = one(path, &progress.bytes);
                            progress.files.fetch_add(1, Ordering::Relaxed);
                            results.lock().unwrap_or_else(PoisonError::into_inner)[index] =
                                Some(outcome);
                        }
                    })
                })
                .collect();
            for worker in workers {
                // Damage of a reader is caught inside; nothing else can fail here.
                let _ = worker.join();
            }
            ended.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
        });
    }
    let mut inputs = vec![];
    for outcome in slots.into_iter().flatten() {
        match outcome {
            Ok(input) => inputs.push(input),
            Err(reason) => unusable.push(reason),
        }
    }
    Inputs { inputs, unusable }
}

fn one(path: &Path, bytes: &Arc<AtomicU64>) -> Result<Input, Unusable> {
    let name = path.display().to_string();
    let unusable = |reason: String| Unusable { name: name.clone(), reason };
    let reading = catch_unwind(AssertUnwindSafe(|| {
        let input = open(path, &name, bytes)?;
        if is_document(input.head()) {
            return Err(ReadError::NotRecognised("a report of counterpoint, not a recording"));
        }
        readers::read(input)
    }));
    match reading {
        Ok(Ok(reading)) => {
            Ok(Input { name: reading.input, format: reading.format, timeline: reading.timeline })
        }
        Ok(Err(error)) => Err(unusable(error.to_string())),
        Err(_) => Err(unusable("the reader failed: a fault of counterpoint".to_owned())),
    }
}

/// Whether bytes begin a report of ours.
pub fn is_document(head: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&head[..head.len().min(200)]);
    let schemas = ["diagnosis", "comparison", "scaling", "experiment", "page", "joined"];
    start.trim_start().starts_with(['{', '<'])
        && schemas.iter().any(|schema| start.contains(&format!("\"counterpoint.{schema}/")))
}

fn open(path: &Path, name: &str, bytes: &Arc<AtomicU64>) -> Result<readers::Input, ReadError> {
    if path == Path::new("-") {
        return readers::Input::from_reader(name, Box::new(std::io::stdin()));
    }
    let counted = Counted { file: File::open(path)?, bytes: bytes.clone() };
    let mut input = readers::Input::from_reader(name, Box::new(counted))?;
    input.plain_file = input.plain_file.map(|_| path.to_owned());
    Ok(input)
}

/// A file whose bytes are counted as they are read.
struct Counted {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The files that paths mean, each once, and what is none.
fn gather(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<Unusable>) {
    let (mut files, mut unusable) = (vec![], vec![]);
    let mut seen = BTreeSet::new();
    for path in paths {
        if path != Path::new("-") && path.is_dir() {
            folder(path, &mut files, &mut seen, &mut unusable);
        } else if seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            files.push(path.clone());
        }
    }
    (files, unusable)
}

fn folder(
    root: &Path,
    files: &mut Vec<PathBuf>,
    seen: &mut BTreeSet<PathBuf>,
    unusable: &mut Vec<Unusable>,
) {
    let mut leave_out = |path: &Path, reason: String| {
        unusable.push(Unusable { name: path.display().to_string(), reason });
    };
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                leave_out(&folder, format!("cannot read: {error}"));
                continue;
            }
        };
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        let mut inner = vec![];
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') || name == EXPERIMENTS {
                continue;
            }
            let link = path.is_symlink();
            if path.is_dir() {
                // A link may lead back up.
                if !link {
                    inner.push(path);
                }
            } else if !path.is_file() {
                leave_out(&path, "neither a file nor a folder".to_owned());
            } else if files.len() >= FILES {
                leave_out(&path, format!("more than {FILES} files"));
                return;
            } else if seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                files.push(path);
            }
        }
        folders.extend(inner.into_iter().rev());
    }
}

/// Says how far reading is, once it takes more than a moment.
struct Progress {
    total_files: usize,
    total_bytes: u64,
    files: AtomicUsize,
    bytes: Arc<AtomicU64>,
    start: Instant,
}

impl Progress {
    fn new(files: &[PathBuf]) -> Progress {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        Progress {
            total_files: files.len(),
            total_bytes: files.iter().map(size).sum(),
            files: AtomicUsize::new(0),
            bytes: Arc::default(),
            start: Instant::now(),
        }
    }

    fn watch(&self, ended: &AtomicBool) {
        let terminal = std::io::stderr().is_terminal();
        let mut bar: Option<ProgressBar> = None;
        let mut said = self.start;
        while !ended.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(100));
            if self.start.elapsed() < SILENCE || ended.load(Ordering::Relaxed) {
                continue;
            }
            let bytes = self.bytes.load(Ordering::Relaxed);
            if terminal {
                let bar = bar.get_or_insert_with(|| self.bar());
                bar.set_position(bytes);
                bar.set_message(self.message());
            } else if said.elapsed() >= QUIET {
                said = Instant::now();
                output::say(&format!("reading {}{}", self.message(), self.remaining(bytes)));
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new(self.total_bytes).with_elapsed(self.start.elapsed());
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("reading {bar:30} {msg} ETA {eta}") {
            bar.set_style(style);
        }
        bar
    }

    fn message(&self) -> String {
        let size = HumanBytes(self.total_bytes);
        format!("{}/{} files of {size}", self.files.load(Ordering::Relaxed), self.total_files)
    }

    fn remaining(&self, bytes: u64) -> String {
        if bytes == 0 || bytes > self.total_bytes {
            return String::new();
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate of seconds")]
        let left =
            self.start.elapsed().as_secs_f64() * (self.total_bytes - bytes) as f64 / bytes as f64;
        format!(", ETA {left:.0} s")
    }
}
