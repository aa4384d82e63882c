//! `counterpoint record`: runs an unchanged job so that the next diagnosis has everything it needs. Knows processes and
//! environment variables; what is recorded inside Python is `record/sitecustomize.py`'s matter.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result};
use train::weights;

use crate::{failure::Mistake, output};

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
log unless NCCL_DEBUG is set, affinity, limits and versions of each rank, and nvidia-smi once a second.
A job that profiles itself is left alone. Python with -I or -E ignores PYTHONPATH and is not recorded.")]
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

/// What is imported before the job in every Python process.
const HOOK: &str = include_str!("../record/sitecustomize.py");

/// Folder of [`HOOK`] inside the recording; hidden, so that a diagnosis passes it by.
const HOOK_FOLDER: &str = ".hook";

/// Commands whose output is kept once per host: `(file, program, arguments)`.
const ONCE: &[(&str, &str, &[&str])] = &[
    ("limits", "cat", &["/proc/self/limits"]),
    ("kernel", "cat", &["/proc/cmdline"]),
    ("mounts", "df", &["-k", "/dev/shm", "/tmp"]),
    ("topology", "nvidia-smi", &["topo", "-m"]),
    ("devices", "nvidia-smi", &["-q"]),
    ("infiniband", "ibv_devinfo", &["-v"]),
];

/// What nvidia-smi is asked once a second.
const ASKED: &str = "timestamp,index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,\
                     clocks.sm,clocks.max.sm,clocks_throttle_reasons.active";

/// Becomes the job; returns only where that fails.
///
/// # Errors
/// A folder that cannot be written, a command that cannot be started.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let place =
        variable(&["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"]);
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(place.is_some()));
    let hook = folder.join(HOOK_FOLDER);
    let created = fs::create_dir_all(&hook);
    created.map_err(|error| Mistake(format!("{}: cannot create: {error}", folder.display())))?;
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let hook = folder.join(HOOK_FOLDER);
    // Ranks that begin together write the same bytes, each under a name of its own.
    let own = hook.join(format!("{}.py", std::process::id()));
    weights::write_text(&own, HOOK)?;
    let shared = hook.join("sitecustomize.py");
    if let Err(error) = fs::rename(&own, &shared)
        && !shared.exists()
    {
        return Err(error).with_context(|| shared.display().to_string());
    }

    let local =
        variable(&["SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK"]);
    if local.as_deref().is_none_or(|local| local == "0") {
        watch_host(&folder);
    }
    if place.as_deref().is_none_or(|rank| rank == "0") {
        output::say(&format!("counterpoint record: counterpoint diagnose {}", folder.display()));
    }
    let (program, rest) = arguments.command.split_first().context("clap asks for a command")?;
    let mut job = Command::new(program);
    job.args(rest);
    for (name, value) in environment(&folder, &hook, arguments) {
        job.env(name, value);
    }
    // The job takes this process over: its signals, output and exit status are untouched.
    let error = job.exec();
    Err(Mistake(format!("{}: cannot start: {error}", program.to_string_lossy())).into())
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok())
}

fn default_folder(is_rank: bool) -> PathBuf {
    let base = "counterpoint-record";
    if is_rank {
        // Ranks that begin apart must find the same folder.
        let job = variable(&["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"]);
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
fn environment(folder: &Path, hook: &Path, arguments: &Arguments) -> Vec<(&'static str, OsString)> {
    let mut path = hook.as_os_str().to_owned();
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

/// Starts what describes the host, beside the job. A program that is not there is left out.
fn watch_host(folder: &Path) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or("").to_owned();
    let file = |what: &str, ending: &str| {
        folder.join(format!("{what}.{host}.{}.{ending}", std::process::id()))
    };
    for (what, program, arguments) in ONCE {
        if is_there(program) {
            let line = format!("{program} {}", arguments.join(" "));
            // A driver that hangs must not hold the file for ever.
            background(&file(what, "txt"), &format!("timeout 20 sh -c '{line}'"));
        }
    }
    if is_there("nvidia-smi") {
        // The process id stays the same when the job takes this process over; the watcher ends with it.
        let job = std::process::id();
        let script = format!(
            "nvidia-smi --query-gpu={ASKED} --format=csv -l 1 & w=$!; \
             while kill -0 {job} && kill -0 $w; do sleep 1; done; kill $w"
        );
        background(&file("use", "csv"), &script);
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a script whose parent is not the job, so that the job never sees it as a child of its own.
fn background(file: &Path, script: &str) {
    let Ok(out) = File::create(file) else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("({script}) 2>/dev/null &")]);
    let ended = shell.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).status();
    if ended.is_err() {
        // A host without a shell is described by its ranks alone.
        let _ = fs::remove_file(file);
    }
}
