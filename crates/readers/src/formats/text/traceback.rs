//! Exceptions: the last line of a Python traceback, and what follows it.
//!
//! Facts of the process that a launcher's tag names, or of the run: `traceback.exception` (type and message);
//! `nccl.error.last` (the lines after `Last error:`); `traceback.frame` (function of a frame inside a debugger).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct Traceback {
    last_error: u32,
}

impl Grammar for Traceback {
    fn name(&self) -> &'static str {
        "traceback"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed == "Last error:" {
            self.last_error = 6;
            return true;
        }
        if trimmed.starts_with("Traceback (most recent call last)") {
            return true;
        }
        if trimmed.starts_with("File \"") && trimmed.contains(", line ") {
            if ["pydevd", "debugpy", "/pdb.py", "/bdb.py"].iter().any(|name| trimmed.contains(name))
            {
                context.fact(None, "traceback.debugger", trimmed, line);
            }
            return true;
        }
        if let Some(name) = exception(trimmed) {
            let process = context.tagged();
            context.fact(process, "traceback.exception", trimmed, line);
            if name.ends_with("DistBackendError") || trimmed.contains("NCCL error in:") {
                let version = after(trimmed, "NCCL version ");
                if let Some(version) = version.and_then(|v| v.split_whitespace().next()) {
                    context.fact_once(process, "nccl.error.version", version, line);
                }
            }
            self.last_error = 0;
            return true;
        }
        if trimmed.starts_with("nccl")
            && trimmed.split_once(": ").is_some_and(|(name, _)| name.ends_with("Error"))
        {
            context.fact(None, "nccl.error.code", trimmed, line);
            return true;
        }
        if self.last_error > 0 {
            self.last_error -= 1;
            let process = context.tagged();
            context.fact(process, "nccl.error.last", trimmed, line);
            return true;
        }
        false
    }
}

/// The name of `package.NameError: message` and its like.
fn exception(text: &str) -> Option<&str> {
    let text = text.strip_prefix("E   ").unwrap_or(text).trim_start();
    let (name, _) = text.split_once(": ")?;
    let kinds = ["Error", "Exception", "Interrupt", "Timeout"];
    let shaped = name.len() < 128
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
        && !name.starts_with("nccl")
        && leading_number(name).is_none();
    (shaped && kinds.iter().any(|kind| name.ends_with(kind))).then_some(name)
}
