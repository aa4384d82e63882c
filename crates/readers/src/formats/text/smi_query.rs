//! `nvidia-smi -q`, whole or by `-d`, and `nvidia-smi nvlink`.
//!
//! Facts of the run, N being the device's bus id (or number): `gpu.N.header`; `gpu.N.throttle` (an active reason that
//! slows the clocks); `gpu.N.temperature_c`; `gpu.N.clock_sm_mhz`, `gpu.N.clock_sm_max_mhz`; `gpu.N.pcie_generation`,
//! `gpu.N.pcie_generation_max`, `gpu.N.pcie_width`, `gpu.N.pcie_width_max`; `gpu.N.ecc_uncorrected`;
//! `gpu.N.remapped_pending`; `gpu.N.performance_state`; `gpu.N.fabric_state`; `gpu.N.nvlink_errors` ("LINK KIND
//! COUNT"), `gpu.N.nvlink_inactive`, `gpu.N.nvlink_gbs`; `driver.version`, `driver.cuda_version`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{integer_after, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct SmiQuery {
    device: Option<String>,
    /// Headings above the line, each with its depth.
    path: Vec<(usize, String)>,
}

/// Reasons for lower clocks that are not the device's idleness or a user's setting.
const SLOWING: &[&str] = &[
    "HW Slowdown",
    "HW Thermal Slowdown",
    "HW Power Brake Slowdown",
    "SW Thermal Slowdown",
    "SW Power Cap",
    "Sync Boost",
];

impl Grammar for SmiQuery {
    fn name(&self) -> &'static str {
        "nvidia-smi-query"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("GPU ")
            && !text.starts_with(' ')
            && (trimmed.matches(':').count() >= 2)
        {
            let mut words = trimmed[4..].split([' ']);
            let id = words.next().unwrap_or("");
            let number = id.trim_end_matches(':');
            if number.len() > 24 || number.is_empty() {
                return false;
            }
            self.device = Some(number.to_owned());
            self.path.clear();
            context.fact(None, &format!("gpu.{number}.header"), trimmed, line);
            return true;
        }
        let indent = text.len() - text.trim_start().len();
        let Some((name, value)) = trimmed.split_once(" : ") else {
            return self.link(trimmed, line, context) || self.heading(indent, trimmed);
        };
        let (name, value) = (name.trim(), value.trim());
        if self.device.is_none() {
            match name {
                "Driver Version" => context.fact(None, "driver.version", value, line),
                "CUDA Version" => context.fact(None, "driver.cuda_version", value, line),
                "Timestamp" | "Attached GPUs" => {}
                _ => return false,
            }
            return true;
        }
        if indent == 0 {
            self.device = None;
            return false;
        }
        self.path.retain(|(depth, _)| *depth < indent);
        self.property(name, value, line, context);
        // A leaf with leaves below it, such as `HW Slowdown : Active`, is no heading.
        true
    }
}

impl SmiQuery {
    fn heading(&mut self, indent: usize, text: &str) -> bool {
        if self.device.is_none() || indent == 0 || text.contains(':') || text.len() > 64 {
            return text.starts_with("==") && text.contains("NVSMI LOG");
        }
        self.path.retain(|(depth, _)| *depth < indent);
        if self.path.len() < 16 {
            self.path.push((indent, text.to_owned()));
        }
        true
    }

    fn under(&self, heading: &str) -> bool {
        self.path.iter().any(|(_, name)| name.contains(heading))
    }

    fn property(&self, name: &str, value: &str, line: &Line, context: &mut Context<'_>) {
        let Some(device) = &self.device else { return };
        let key = |name: &str| format!("gpu.{device}.{name}");
        let reasons = self.under("Clocks Event Reasons") || self.under("Clocks Throttle Reasons");
        if reasons && value == "Active" && SLOWING.contains(&name) {
            context.fact(None, &key("throttle"), name, line);
            return;
        }
        let number = leading_number(value);
        let whole = number.map(|number| number as i64);
        let place = match name {
            "GPU Current Temp" => "temperature_c",
            "SM" if self.under("Max Clocks") => "clock_sm_max_mhz",
            "SM" if self.under("Clocks") && !self.under("Application") => "clock_sm_mhz",
            "Current" if self.under("PCIe Generation") => "pcie_generation",
            "Max" if self.under("PCIe Generation") => "pcie_generation_max",
            "Current" if self.under("Link Width") => "pcie_width",
            "Max" if self.under("Link Width") => "pcie_width_max",
            "Performance State" => {
                context.fact(None, &key("performance_state"), value, line);
                return;
            }
            "State" if self.under("Fabric") => {
                context.fact(None, &key("fabric_state"), value, line);
                return;
            }
            "Pending" if self.under("Remapped Rows") && value != "No" => {
                context.fact(None, &key("remapped_pending"), value, line);
                return;
            }
            name if name.contains("Uncorrectable") && self.under("Volatile") && whole > Some(0) => {
                "ecc_uncorrected"
            }
            "Product Name" => {
                context.fact(None, &key("name"), value, line);
                return;
            }
            _ => return,
        };
        if let Some(whole) = whole {
            context.fact(None, &key(place), whole, line);
        }
    }

    /// Lines of `nvidia-smi nvlink -s` and `-e`.
    fn link(&self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let (Some(device), Some(rest)) = (&self.device, text.strip_prefix("Link ")) else {
            return false;
        };
        let Some((number, state)) = rest.split_once(": ") else { return false };
        let Ok(link) = number.trim().parse::<u32>() else { return false };
        let state = state.trim();
        if let Some((kind, _)) = state.split_once(':') {
            let count = integer_after(state, ":").unwrap_or(0);
            if count > 0 {
                let text = format!("{link} {kind} {count}");
                context.fact(None, &format!("gpu.{device}.nvlink_errors"), text, line);
            }
        } else if state.contains("inactive") {
            context.fact(None, &format!("gpu.{device}.nvlink_inactive"), i64::from(link), line);
        } else if let Some(rate) = leading_number(state) {
            context.fact(None, &format!("gpu.{device}.nvlink_gbs"), rate, line);
        } else {
            return false;
        }
        true
    }
}
