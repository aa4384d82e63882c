//! Samples of devices over time: `nvidia-smi dmon`, `dcgmi dmon`, `nvidia-smi --query-gpu=... --format=csv`.
//!
//! Facts of the run, one per sample and column, N being the device's number: `gpu.N.power_w`, `gpu.N.temperature_c`,
//! `gpu.N.utilisation_percent`, `gpu.N.clock_sm_mhz`, `gpu.N.clock_memory_mhz`, `gpu.N.tensor_active` (0 to 1),
//! `gpu.N.pcie_generation`, `gpu.N.pcie_generation_max`, `gpu.N.pcie_width`, `gpu.N.pcie_width_max`,
//! `gpu.N.throttle` (an active reason), `gpu.N.name`, `driver.version`.

use timeline::Line;

use super::{Context, Grammar, support::leading_number};

/// The grammar.
#[derive(Debug, Default)]
pub struct DeviceMonitor {
    /// Key of each column after the first; empty where it is of no use.
    columns: Vec<&'static str>,
    comma: bool,
}

/// Column names and keys.
const COLUMNS: &[(&str, &str)] = &[
    ("pwr", "power_w"),
    ("gtemp", "temperature_c"),
    ("sm", "utilisation_percent"),
    ("pclk", "clock_sm_mhz"),
    ("mclk", "clock_memory_mhz"),
    ("powr", "power_w"),
    ("gputl", "utilisation_percent"),
    ("tmptr", "temperature_c"),
    ("smclk", "clock_sm_mhz"),
    ("tenso", "tensor_active"),
    ("smact", "sm_active"),
    ("index", "index"),
    ("name", "name"),
    ("gpu_name", "name"),
    ("driver_version", "driver"),
    ("power.draw", "power_w"),
    ("power.draw.instant", "power_w"),
    ("power.limit", "power_limit_w"),
    ("temperature.gpu", "temperature_c"),
    ("utilization.gpu", "utilisation_percent"),
    ("clocks.sm", "clock_sm_mhz"),
    ("clocks.current.sm", "clock_sm_mhz"),
    ("clocks.max.sm", "clock_sm_max_mhz"),
    ("pcie.link.gen.current", "pcie_generation"),
    ("pcie.link.gen.gpucurrent", "pcie_generation"),
    ("pcie.link.gen.max", "pcie_generation_max"),
    ("pcie.link.width.current", "pcie_width"),
    ("pcie.link.width.max", "pcie_width_max"),
    ("clocks_throttle_reasons.active", "reasons"),
    ("clocks_event_reasons.active", "reasons"),
    ("clocks_throttle_reasons.hw_thermal_slowdown", "throttle HW Thermal Slowdown"),
    ("clocks_event_reasons.hw_thermal_slowdown", "throttle HW Thermal Slowdown"),
    ("clocks_throttle_reasons.hw_slowdown", "throttle HW Slowdown"),
    ("clocks_event_reasons.hw_slowdown", "throttle HW Slowdown"),
    ("clocks_throttle_reasons.sw_thermal_slowdown", "throttle SW Thermal Slowdown"),
    ("clocks_event_reasons.sw_thermal_slowdown", "throttle SW Thermal Slowdown"),
    ("clocks_throttle_reasons.sw_power_cap", "throttle SW Power Cap"),
    ("clocks_event_reasons.sw_power_cap", "throttle SW Power Cap"),
];

/// Bits of `clocks_event_reasons.active`.
const REASONS: &[(u64, &str)] = &[
    (0x4, "SW Power Cap"),
    (0x8, "HW Slowdown"),
    (0x20, "SW Thermal Slowdown"),
    (0x40, "HW Thermal Slowdown"),
    (0x80, "HW Power Brake Slowdown"),
];

/// The reasons that a mask of `clocks_event_reasons.active` names.
pub fn active_reasons(mask: u64) -> impl Iterator<Item = &'static str> {
    REASONS.iter().filter(move |(bit, _)| mask & bit != 0).map(|(_, reason)| *reason)
}

fn key(name: &str) -> &'static str {
    let name = name.trim().split(' ').next().unwrap_or("").to_lowercase();
    COLUMNS.iter().find(|(column, _)| *column == name).map_or("", |(_, key)| key)
}

impl Grammar for DeviceMonitor {
    fn name(&self) -> &'static str {
        "device-monitor"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if let Some(header) = trimmed.strip_prefix('#') {
            let mut words = header.split_whitespace();
            return match words.next() {
                Some("gpu" | "Entity") => {
                    // dmon may be asked for date and time columns, which stand first.
                    self.columns = words.take(64).map(key).collect();
                    self.comma = false;
                    true
                }
                Some("Idx") => true,
                Some("ID") => true,
                _ => false,
            };
        }
        // The second line of dcgmi's header.
        if trimmed == "ID" && !self.columns.is_empty() {
            return true;
        }
        let csv: Vec<&str> = trimmed.split(',').take(64).collect();
        let known = csv.iter().filter(|cell| !key(cell).is_empty()).count();
        if csv.len() > 1 && known >= 2 && known * 2 >= csv.len() {
            self.columns = csv.iter().map(|cell| key(cell)).collect();
            self.comma = true;
            return true;
        }
        if self.columns.is_empty() {
            return false;
        }
        if self.comma {
            return csv.len() == self.columns.len() && self.sample(&csv, None, line, context);
        }
        let mut words = trimmed.split_whitespace();
        let mut first = words.next();
        // `GPU 0   123.4 ...` by dcgmi.
        if first == Some("GPU") {
            first = words.next();
        }
        let Some(Ok(device)) = first.map(str::parse::<u32>) else {
            self.columns.clear();
            return false;
        };
        let cells: Vec<&str> = words.take(64).collect();
        cells.len() == self.columns.len() && self.sample(&cells, Some(device), line, context)
    }
}

impl DeviceMonitor {
    fn sample(
        &self,
        cells: &[&str],
        device: Option<u32>,
        line: &Line,
        context: &mut Context<'_>,
    ) -> bool {
        let named = |wanted: &str| {
            let at = self.columns.iter().position(|column| *column == wanted)?;
            cells.get(at).map(|cell| cell.trim())
        };
        let device = match device.or_else(|| named("index").and_then(|cell| cell.parse().ok())) {
            Some(device) => device.to_string(),
            None => "0".to_owned(),
        };
        for (&column, cell) in self.columns.iter().zip(cells) {
            let cell = cell.trim();
            let fact = |name: &str| format!("gpu.{device}.{name}");
            match column {
                "" | "index" => {}
                "name" => context.fact_once(None, &fact("name"), cell, line),
                "driver" => context.fact_once(None, "driver.version", cell, line),
                "reasons" => {
                    let mask = u64::from_str_radix(cell.trim_start_matches("0x"), 16).unwrap_or(0);
                    for reason in active_reasons(mask) {
                        context.fact(None, &fact("throttle"), reason, line);
                    }
                }
                column => {
                    if let Some(reason) = column.strip_prefix("throttle ") {
                        if cell == "Active" {
                            context.fact(None, &fact("throttle"), reason, line);
                        }
                    } else if let Some(value) = leading_number(cell) {
                        context.fact(None, &fact(column), value, line);
                    }
                }
            }
        }
        true
    }
}
