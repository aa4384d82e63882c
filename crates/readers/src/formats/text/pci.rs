//! `lspci -vvv` and what is grepped from it.
//!
//! Facts of the run: `pcie.acs` ("enabled" or "disabled", a bridge's control line); `pcie.acs.enabled_count` (by
//! `grep -c`); `pcie.link` ("ADDRESS speed S of T GT/s width W of X") with `pcie.link.speed_gts`,
//! `pcie.link.capable_speed_gts`, `pcie.link.width`, `pcie.link.capable_width` for GPUs and network cards.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct Pci {
    device: Option<String>,
    capable: Option<(f64, i64)>,
}

impl Grammar for Pci {
    fn name(&self) -> &'static str {
        "lspci"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if let Some(control) = after(trimmed, "ACSCtl:") {
            let state = if control.contains("SrcValid+") || control.contains("ReqRedir+") {
                "enabled"
            } else {
                "disabled"
            };
            context.fact(None, "pcie.acs", state, line);
            return true;
        }
        let command = context.command();
        let counted = command.contains("grep -c")
            && (command.contains("SrcValid+") || command.contains("ACS"));
        if let (true, Ok(count)) = (counted, trimmed.parse::<i64>()) {
            context.fact(None, "pcie.acs.enabled_count", count, line);
            return true;
        }
        if let Some(address) = address(trimmed) {
            let lower = trimmed.to_lowercase();
            let matters = ["nvidia", "mellanox", "connectx", "infiniband"]
                .iter()
                .any(|name| lower.contains(name))
                && !lower.contains("bridge")
                && !lower.contains("audio");
            self.device = matters.then(|| address.to_owned());
            self.capable = None;
            return true;
        }
        let link = |rest: &str| {
            let speed = after(rest, "Speed ").and_then(leading_number)?;
            let width = after(rest, "Width x").and_then(leading_number)?;
            Some((speed, width as i64))
        };
        if let Some(rest) = trimmed.strip_prefix("LnkCap:") {
            self.capable = link(rest);
            return true;
        }
        if let Some(rest) = trimmed.strip_prefix("LnkSta:") {
            let (Some((speed, width)), Some((can, wide))) = (link(rest), self.capable) else {
                return true;
            };
            let Some(device) = &self.device else { return true };
            let text = format!("{device} speed {speed} of {can} GT/s width {width} of {wide}");
            context.fact(None, "pcie.link", text, line);
            context.fact(None, "pcie.link.speed_gts", speed, line);
            context.fact(None, "pcie.link.capable_speed_gts", can, line);
            context.fact(None, "pcie.link.width", width, line);
            context.fact(None, "pcie.link.capable_width", wide, line);
            return true;
        }
        trimmed.starts_with("LnkCtl") || trimmed.starts_with("ACSCap:")
    }
}

/// `03:00.0` or `0000:03:00.0` at the beginning of a line.
fn address(text: &str) -> Option<&str> {
    let word = text.split(' ').next()?;
    let (bus, function) = word.rsplit_once('.')?;
    let hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<&str> = bus.split(':').collect();
    let shaped = (2..=3).contains(&parts.len()) && parts.iter().all(|part| hex(part));
    (shaped && function.len() == 1 && hex(function) && text.len() > word.len()).then_some(word)
}
