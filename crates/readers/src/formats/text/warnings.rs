//! Warnings of frameworks and launchers that say what is wrong.
//!
//! Facts of the process that a launcher's tag names, or of the run: `torch.warning` (the text from its first known
//! words); `ddp.grad_strides` ("sizes; strides; bucket's sizes; bucket's strides", numbers joined by commas);
//! `omp.threads_default` (torchrun set OMP_NUM_THREADS to 1); `env` ("NAME=VALUE" of the listed names, from `env` or
//! `export`); `horovod.missing_ranks`; `launch.binding_failed`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, between},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct Warnings {
    gradient: Option<(Line, String)>,
}

/// First words of the warnings that rules know.
const WARNINGS: &[&str] = &[
    "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
    "Grad strides do not match bucket view strides",
    "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
    "torch._dynamo hit config.",
    "does not have many workers which may be a bottleneck",
    "This DataLoader will create",
    "Please call `iterator.enable_debugging`",
    "Detected call of `lr_scheduler.step()` before",
    "not compatible with the current PyTorch installation",
    "no kernel image is available for execution on the device",
    "Tensor Cores are not used",
    "Debugger warning: It seems that frozen modules",
    "unable to open shared memory object",
    "DataLoader worker is killed by signal: Bus error",
    "One of the differentiated Tensors does not require grad",
    "Expected to have finished reduction in the prior iteration",
    "using the NCCL backend with a blocking",
    "pin_memory",
];

/// Environment variables whose values may be told. Names that hold users, paths, addresses or keys are not here.
const NAMES: &[&str] = &[
    "NCCL_",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_NCCL_",
    "TORCH_DISTRIBUTED_DEBUG",
    "CUDA_MODULE_LOADING",
    "KMP_AFFINITY",
    "FI_PROVIDER",
    "FI_EFA_",
    "WORLD_SIZE",
    "TORCH_CUDNN_",
    "PYTHONMALLOC",
    "PYDEVD_",
    "NVIDIA_TF32_OVERRIDE",
];

impl Grammar for Warnings {
    fn name(&self) -> &'static str {
        "framework-warnings"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if let Some(sizes) = after(text, "grad.sizes() = [") {
            let strides = between(sizes, "strides() = [", "]");
            let sizes = sizes.split(']').next();
            if let (Some(sizes), Some(strides)) = (sizes, strides) {
                self.gradient = Some((line.clone(), format!("{}; {}", list(sizes), list(strides))));
            }
            // Where both are on one line the rest follows below.
            if !text.contains("bucket_view.sizes()") {
                return true;
            }
        }
        if let Some(sizes) = after(text, "bucket_view.sizes() = [") {
            let strides = between(sizes, "strides() = [", "]");
            let sizes = sizes.split(']').next();
            if let (Some((own, gradient)), Some(sizes), Some(strides)) =
                (self.gradient.take(), sizes, strides)
            {
                let process = context.tagged();
                let value = format!("{gradient}; {}; {}", list(sizes), list(strides));
                context.fact(process, "ddp.grad_strides", value, &own);
            }
            return true;
        }
        if text.contains("Setting OMP_NUM_THREADS environment variable for each process to be 1") {
            context.fact(None, "omp.threads_default", 1, line);
            return true;
        }
        if let Some(at) = WARNINGS.iter().find_map(|warning| text.find(warning)) {
            let process = context.tagged();
            context.fact(process, "torch.warning", &text[at..], line);
            return true;
        }
        if text.contains("last reason: ") || text.trim_start().starts_with("function: '") {
            context.fact(None, "compile.reason", text.trim(), line);
            return true;
        }
        if text.contains("tried to bind memory") && text.contains("failed") {
            context.fact(None, "launch.binding_failed", text.trim(), line);
            return true;
        }
        if let Some(missing) = between(text, "[missing ranks: ", "]") {
            context.fact(None, "horovod.missing_ranks", missing, line);
            return true;
        }
        if context.command().contains("LD_LIBRARY_PATH") && text.trim().starts_with('/') {
            context.fact(None, "env.library_path", text.trim(), line);
            return true;
        }
        environment(text, line, context)
    }
}

/// Numbers of `64, 3, 7` joined by commas.
fn list(text: &str) -> String {
    let numbers: Vec<&str> =
        text.split(',').map(str::trim).filter(|n| n.parse::<i64>().is_ok()).take(32).collect();
    numbers.join(",")
}

/// `NAME=VALUE` or `export NAME=VALUE` of a listed name.
fn environment(text: &str, line: &Line, context: &mut Context<'_>) -> bool {
    let trimmed = text.trim();
    let trimmed = trimmed.strip_prefix("export ").unwrap_or(trimmed);
    let Some((name, value)) = trimmed.split_once('=') else { return false };
    let shaped = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    if !shaped || name.is_empty() || !NAMES.iter().any(|known| name.starts_with(known)) {
        return false;
    }
    let process = context.tagged();
    let value = value.trim().trim_matches('"');
    let key = if name.starts_with("NCCL_") { "nccl.env" } else { "env" };
    context.fact_once(process, key, &format!("{name}={value}"), line);
    true
}
