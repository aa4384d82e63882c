//! Options that all measurements share, and the device that they run on. Knows no particular measurement.

use std::{fs, path::PathBuf, process::Command, time::Duration, time::SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;
use native::{
    DataType, cublaslt,
    cublaslt::{Lt, Matmul, MatmulBuffers, MatmulDescription},
    cudnn, cupti,
    driver::{self, Context, Priority, Stream},
    library::{Kind, Library},
    memory::DeviceBuffer,
    nccl, nvrtc,
};
use serde_json::{Map, Value, json};

use super::{Random, say, timing::warm_up};

/// Options of every measurement.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Folder for the tables
    #[arg(long, default_value = "runs/bench")]
    pub out: PathBuf,
    /// Check everything that needs no GPU, measure nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Which device
    #[arg(long, default_value_t = 0)]
    pub device: usize,
    /// Seconds of full load before the first measurement, so that clocks and power settle
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
}

impl Common {
    /// Opens the device and warms it up; `None` on a dry run.
    pub fn open(&self) -> Result<Option<Session>> {
        if self.dry_run {
            say("dry run: nothing is measured");
            return Ok(None);
        }
        let context = Context::new(self.device)?;
        let stream = Stream::new(&context, Priority::Normal)?;
        let session = Session { context, stream };
        session.warm_up(Duration::from_secs_f64(self.warm_up.clamp(0.0, 60.0)))?;
        Ok(Some(session))
    }
}

/// A device and the stream that everything is timed on.
pub struct Session {
    /// The device.
    pub context: Context,
    /// The stream.
    pub stream: Stream,
}

impl Session {
    /// How many buffer sets of `bytes` each keep the second-level cache cold: together at least three times the
    /// cache, two at least.
    pub fn rotating_sets(&self, bytes: usize) -> usize {
        (3 * self.context.device().cache).div_ceil(bytes.max(1)).clamp(2, 64)
    }

    /// Runs large products for `length`.
    pub fn warm_up(&self, length: Duration) -> Result<()> {
        if length.is_zero() {
            return Ok(());
        }
        let size = 8192;
        let lt = Lt::new(&self.context)?;
        let matmul = Matmul::new(&lt, MatmulDescription::linear(DataType::Bf16, size, size, size))?;
        let algorithms = matmul.algorithms(1)?;
        let algorithm = algorithms.first().context("cuBLASLt has no algorithm")?;
        let mut matrices = vec![];
        for seed in 0..3 {
            let mut matrix = DeviceBuffer::<u16>::new(&self.context, size * size)?;
            matrix.fill_repeating(&Random::new(seed).normals(DataType::Bf16, 1 << 20, 1.0))?;
            matrices.push(matrix);
        }
        let workspace = DeviceBuffer::<u8>::new(&self.context, algorithm.workspace)?;
        let buffers = MatmulBuffers {
            left: matrices[0].pointer(),
            right: matrices[1].pointer(),
            output: matrices[2].pointer(),
            workspace: workspace.pointer(),
            workspace_bytes: workspace.bytes(),
            ..MatmulBuffers::default()
        };
        warm_up(&self.stream, length, || {
            Ok(matmul.run(&self.stream, algorithm, (1.0, 0.0), &buffers)?)
        })
    }

    /// Date, card, driver, libraries and command of this run.
    pub fn header(&self) -> Result<Map<String, Value>> {
        let device = self.context.device();
        let (major, minor) = driver::version()?;
        let mut header = date_and_command();
        header.insert("card".into(), json!(device.name));
        header.insert("driver".into(), json!(driver_release()));
        header.insert("CUDA of the driver".into(), json!(format!("{major}.{minor}")));
        for kind in [Kind::CublasLt, Kind::Cudnn, Kind::Nvrtc, Kind::Nccl, Kind::Cupti] {
            // A library that this measurement does not use may be absent.
            if let Ok(library) = Library::open(kind) {
                let text = format!("{} ({})", version_of(kind), library.path().display());
                header.insert(kind.name().into(), json!(text));
            }
        }
        header.insert("state".into(), json!(card_state(device.ordinal)));
        Ok(header)
    }
}

fn date_and_command() -> Map<String, Value> {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(first) = words.first_mut() {
        *first = "counterpoint-bench".into();
    }
    let mut header = Map::new();
    header.insert("date".into(), json!(date));
    header.insert("command".into(), json!(words.join(" ")));
    header
}

fn version_of(kind: Kind) -> String {
    let version = match kind {
        Kind::CublasLt => cublaslt::version().map(|v| v.to_string()),
        Kind::Nccl => nccl::version().map(|v| v.to_string()),
        Kind::Cupti => cupti::version().map(|v| v.to_string()),
        Kind::Nvrtc => nvrtc::version().map(|(major, minor)| format!("{major}.{minor}")),
        Kind::Cudnn => cudnn::version().map(|v| v.to_string()),
        _ => Ok("version not read".into()),
    };
    version.unwrap_or_else(|error| error.to_string())
}

/// The driver's release, for example `580.159.04`.
fn driver_release() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let release = text
        .split_whitespace()
        .find(|word| word.chars().all(|c| c.is_ascii_digit() || c == '.') && word.contains('.'));
    release.unwrap_or("unknown").to_owned()
}

/// Clock, power and temperature as `nvidia-smi` reports them; empty where it is missing.
pub(super) fn card_state(ordinal: usize) -> String {
    let query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu";
    let index = format!("--id={ordinal}");
    Command::new("nvidia-smi")
        .args([query, "--format=csv,noheader", &index])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
