//! `python -m torch.utils.collect_env`.
//!
//! Facts of the run: `torch.version`, `torch.cuda_version`, `torch.debug_build`, `cuda.runtime_version`,
//! `driver.version`, `gpu.N.name`, `cudnn.library`, `cpu.count`, `os.name`, `python.version`. Package lines belong to
//! the package lists.

use timeline::Line;

use super::{Context, Grammar};

/// The grammar.
#[derive(Debug, Default)]
pub struct CollectEnv {
    inside: bool,
    listing: &'static str,
}

const KEYS: &[(&str, &str)] = &[
    ("PyTorch version", "torch.version"),
    ("CUDA used to build PyTorch", "torch.cuda_version"),
    ("Is debug build", "torch.debug_build"),
    ("CUDA runtime version", "cuda.runtime_version"),
    ("Nvidia driver version", "driver.version"),
    ("OS", "os.name"),
    ("Python version", "python.version"),
    ("CPU(s)", "cpu.count"),
    ("cuDNN version", "cudnn.library"),
    ("GPU models and configuration", "gpu"),
];

impl Grammar for CollectEnv {
    fn name(&self) -> &'static str {
        "collect_env"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("Collecting environment information")
            || trimmed.starts_with("PyTorch version:")
        {
            self.inside = true;
        }
        if !self.inside {
            return false;
        }
        if trimmed.starts_with("Versions of relevant libraries") {
            self.inside = false;
            return true;
        }
        if self.listing == "cudnn.library" && trimmed.starts_with('/') {
            context.fact(None, "cudnn.library", trimmed, line);
            return true;
        }
        let Some((name, value)) = trimmed.split_once(':') else {
            self.inside = trimmed.starts_with("Collecting environment");
            return self.inside;
        };
        let value = value.trim();
        if self.listing == "gpu"
            && let Some(number) = name.strip_prefix("GPU ").filter(|n| n.parse::<u32>().is_ok())
        {
            context.fact(None, &format!("gpu.{number}.name"), value, line);
            return true;
        }
        let known = KEYS.iter().find(|(own, _)| *own == name);
        self.listing = known.map_or("", |(_, key)| key);
        let useless = ["", "N/A", "Could not collect", "No CUDA"].contains(&value);
        match known {
            Some((_, "gpu")) if !useless => context.fact(None, "gpu.0.name", value, line),
            Some((_, key)) if !useless && !value.starts_with("Probably one") && *key != "gpu" => {
                context.fact(None, key, value, line);
            }
            _ => {}
        }
        true
    }
}
