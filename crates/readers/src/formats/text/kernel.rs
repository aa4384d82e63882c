//! The kernel's command line and messages: `/proc/cmdline`, `dmesg`.
//!
//! Facts of the run: `kernel.cmdline`; `kernel.iommu` (a message about it); `gpu.xid` (the number of a driver error);
//! `kernel.out_of_memory` (a process killed); `pcie.error` (corrected or fatal errors); `gpu.fell_off`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{integer_after, leading_number},
};

/// The grammar.
#[derive(Debug)]
pub struct Kernel;

impl Grammar for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        let asked = context.command().contains("/proc/cmdline");
        if trimmed.starts_with("BOOT_IMAGE=") || (asked && trimmed.contains("root=")) {
            context.fact(None, "kernel.cmdline", trimmed, line);
            return true;
        }
        if let Some(at) = trimmed.find("NVRM: Xid") {
            let rest = &trimmed[at..];
            let number = rest.split_once("): ").and_then(|(_, rest)| leading_number(rest));
            if let Some(number) = number.or_else(|| integer_after(rest, "Xid ").map(|n| n as f64)) {
                context.fact(None, "gpu.xid", number as i64, line);
            }
            if rest.contains("fallen off the bus") {
                context.fact(None, "gpu.fell_off", rest, line);
            }
            return true;
        }
        let message = match message(trimmed) {
            Some(message) => message,
            None if context.command().contains("dmesg") => trimmed,
            None => return false,
        };
        if message.contains("IOMMU") || message.contains("AMD-Vi") || message.contains("DMAR") {
            context.fact_once(None, "kernel.iommu", message, line);
        } else if message.contains("Out of memory: Kill") || message.contains("oom-kill") {
            context.fact(None, "kernel.out_of_memory", message, line);
        } else if message.contains("AER:") || message.contains("PCIe Bus Error") {
            context.fact_once(None, "pcie.error", message, line);
        } else {
            return message.contains("NVRM:") || message.contains("nvidia");
        }
        true
    }
}

/// What follows `[   12.345678] `.
fn message(text: &str) -> Option<&str> {
    let (time, rest) = text.strip_prefix('[')?.split_once("] ")?;
    let time = time.trim();
    let dated = time.contains(':') && time.len() < 32;
    (time.parse::<f64>().is_ok() || dated).then_some(rest)
}
