//! Package lists: `dpkg -l`, `rpm -qa`, `pip list`, `pip freeze`, `conda list`, collect_env's `[pip3]` lines.
//!
//! Facts of the run: `package.NAME.version`.

use timeline::Line;

use super::{Context, Grammar};

/// The grammar.
#[derive(Debug, Default)]
pub struct Packages {
    listing: bool,
}

/// Only these are of use; a list holds hundreds.
const KNOWN: &[&str] = &[
    "nccl",
    "cuda",
    "cudnn",
    "cublas",
    "torch",
    "triton",
    "nvidia",
    "libfabric",
    "aws-ofi",
    "efa",
    "openmpi",
    "deepspeed",
    "megatron",
    "lightning",
    "accelerate",
    "transformers",
    "apex",
    "flash",
    "xformers",
    "horovod",
    "ucx",
    "mlnx",
    "rdma",
    "ibverbs",
    "numpy",
    "jax",
    "tensorflow",
];

impl Grammar for Packages {
    fn name(&self) -> &'static str {
        "packages"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let mut trimmed = text.trim();
        let mut words = trimmed.split_whitespace();
        if let (Some("ii" | "hi"), Some(name), Some(version)) =
            (words.next(), words.next(), words.next())
        {
            state(name, version, line, context);
            return true;
        }
        for start in ["[pip3] ", "[pip] ", "[conda] "] {
            if let Some(rest) = trimmed.strip_prefix(start) {
                trimmed = rest;
                let mut words = rest.split_whitespace();
                if let (true, Some(name), Some(version)) =
                    (start == "[conda] ", words.next(), words.next())
                {
                    state(name, version, line, context);
                }
                if !trimmed.contains("==") {
                    return true;
                }
            }
        }
        if let Some((name, version)) = trimmed.split_once("==") {
            let plain = |text: &str| !text.is_empty() && !text.contains([' ', '(', '"', '\'']);
            if plain(name) && plain(version) && name.len() < 64 {
                state(name, version, line, context);
                return true;
            }
            return false;
        }
        let command = context.command();
        if trimmed.starts_with("Package ") && trimmed.contains("Version") {
            self.listing = true;
            return true;
        }
        let asked = self.listing || command.contains("pip list") || command.contains("conda list");
        let words: Vec<&str> = trimmed.split_whitespace().take(4).collect();
        match words[..] {
            [name, version, ..] if asked && version.starts_with(|c: char| c.is_ascii_digit()) => {
                state(name, version, line, context);
                true
            }
            [rule, ..] if asked && rule.starts_with("---") => true,
            _ => {
                self.listing = false;
                false
            }
        }
    }
}

fn state(name: &str, version: &str, line: &Line, context: &mut Context<'_>) {
    let name = name.split(':').next().unwrap_or(name).to_lowercase();
    if name.len() < 96 && KNOWN.iter().any(|known| name.contains(known)) {
        context.fact(None, &format!("package.{name}.version"), version, line);
    }
}
