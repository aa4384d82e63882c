//! `counterpoint record`: runs an unchanged job so that the next diagnosis has everything it needs. Knows processes and
//! environment variables; what is recorded inside Python is `record/sitecustomize.py`'s matter.

use std::{
    ffi::OsString,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    failure::Mistake,
    launchers::{self, Place},
    output,
};

/// Arguments of `counterpoint record`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  counterpoint record -- python train.py
  counterpoint record --out run1 -- torchrun --nproc-per-node 8 train.py
  srun counterpoint record --out /shared/run1 -- python train.py
  mpirun -np 8 counterpoint record --out /shared/run1 -- python train.py
  counterpoint diagnose run1

The job's output and exit status are its own. With several machines, the folder must be one that all of them see.
Recorded: the steps as PyTorch's profiler sees them (shapes, garbage collection, loader and torch.save marked), NCCL's
log unless NCCL_DEBUG is set, launcher, binding, limits and versions of each rank, each host, and nvidia-smi once a
second. A step ends where an optimizer comes round again. A job that profiles itself is left alone. A job that ends early
or by Ctrl-C leaves the steps it made; one that is killed within the recorded steps leaves no trace.
Python with -I, -E or -S, srun --export=NONE, docker and ssh keep the recording out of the job.")]
pub struct Arguments {
    /// Training steps to record.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// Training steps before recording begins.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    warmup: u32,
    /// Folder for what is recorded; without it counterpoint-record, or the next free counterpoint-record-2, -3.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The job.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Folder of [`FILES`] inside the recording; hidden, so that a diagnosis passes it by.
const HOOK_FOLDER: &str = ".hook";

/// What Python imports before the job in every process, and what describes a host beside the job.
const FILES: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("../record/sitecustomize.py")),
    ("host.sh", include_str!("../record/host.sh")),
];

/// Becomes the job; returns only where that fails.
///
/// # Errors
/// A folder that cannot be written, a command that cannot be started.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place = launchers::place();
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(place.as_ref()));
    let folder = prepare(&folder)
        .map_err(|error| Mistake(format!("{}: cannot be written: {error}", folder.display())))?;
    if place.as_ref().is_none_or(|place| place.local_rank.unwrap_or(0) == 0) {
        describe_host(&folder);
    }
    if place.is_none_or(|place| place.rank == 0) {
        output::say(&format!("counterpoint record: counterpoint diagnose {}", folder.display()));
        if let Some(why) = launchers::obstacle(&arguments.command) {
            output::say(&format!("counterpoint record: {why}"));
        }
    }
    let (program, rest) = arguments.command.split_first().context("clap asks for a command")?;
    let environment = environment(&folder, arguments);
    let names: Vec<&str> = environment.iter().map(|(name, _)| *name).collect();
    let addition = launchers::handing_on(&arguments.command, &names);
    let mut job = Command::new(program);
    job.args(addition.words).args(rest);
    job.envs(environment).envs(addition.variable);
    // The job takes this process over: its signals, output and exit status are untouched.
    let error = job.exec();
    Err(Mistake(format!("{}: cannot start: {error}", program.to_string_lossy())).into())
}

fn default_folder(place: Option<&Place>) -> PathBuf {
    let base = "counterpoint-record";
    if let Some(place) = place {
        // Ranks that begin apart must find the same folder.
        let job = place.job.as_ref();
        return PathBuf::from(job.map_or(base.to_owned(), |job| format!("{base}-{job}")));
    }
    let mut folder = PathBuf::from(base);
    let mut number = 1;
    while folder.exists() {
        number += 1;
        folder = PathBuf::from(format!("{base}-{number}"));
    }
    folder
}

/// What the job's environment gains; what is set already stays.
fn environment(folder: &Path, arguments: &Arguments) -> Vec<(&'static str, OsString)> {
    let mut path = folder.join(HOOK_FOLDER).into_os_string();
    if let Some(old) = std::env::var_os("PYTHONPATH").filter(|old| !old.is_empty()) {
        path.push(":");
        path.push(old);
    }
    let mut all = vec![
        ("PYTHONPATH", path),
        ("COUNTERPOINT_RECORD", folder.as_os_str().to_owned()),
        ("COUNTERPOINT_RECORD_STEPS", arguments.steps.to_string().into()),
        ("COUNTERPOINT_RECORD_WARMUP", arguments.warmup.to_string().into()),
    ];
    let unset = |name: &str| std::env::var_os(name).is_none();
    if unset("NCCL_DEBUG") && unset("NCCL_DEBUG_FILE") {
        all.push(("NCCL_DEBUG", "INFO".into()));
        all.push(("NCCL_DEBUG_FILE", folder.join("nccl.%h.%p.log").into_os_string()));
    }
    if unset("KINETO_LOG_LEVEL") {
        // The profiler's own chatter is not the job's output.
        all.push(("KINETO_LOG_LEVEL", "99".into()));
    }
    all
}

/// Creates the folder with [`FILES`] inside; yields its full path. Ranks that begin together write the same bytes, each
/// under a name of its own.
fn prepare(folder: &Path) -> std::io::Result<PathBuf> {
    let hook = folder.join(HOOK_FOLDER);
    fs::create_dir_all(&hook)?;
    for (name, text) in FILES {
        let own = hook.join(format!(".{name}.{}", std::process::id()));
        let written = fs::write(&own, text).and_then(|()| fs::rename(&own, hook.join(name)));
        if let Err(error) = written {
            let _ = fs::remove_file(&own);
            // A rank of the same process id on another host was faster.
            if !hook.join(name).exists() {
                return Err(error);
            }
        }
    }
    folder.canonicalize()
}

/// Starts `host.sh` with a parent that ends at once, so that the job never sees it as a child of its own. Its process id
/// stays the same when the job takes this process over.
fn describe_host(folder: &Path) {
    let script = folder.join(HOOK_FOLDER).join("host.sh");
    let mut shell = Command::new("sh");
    shell.args(["-c", "sh \"$0\" \"$1\" \"$2\" &"]).arg(script).arg(folder);
    shell.arg(std::process::id().to_string());
    // A host without a shell is described by its ranks alone.
    let _ = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
