//! Prometheus' text exposition, as dcgm-exporter and node-exporter write it.
//!
//! Facts of the run, N being `HOST:GPU` by the labels `Hostname` and `gpu`, or the GPU alone: `gpu.N.clock_sm_mhz`,
//! `gpu.N.clock_memory_mhz`, `gpu.N.temperature_c`, `gpu.N.power_w`, `gpu.N.utilisation_percent`, `gpu.N.tensor_active`,
//! `gpu.N.sm_active`, `gpu.N.pcie_generation`, `gpu.N.pcie_generation_max`, `gpu.N.pcie_width`, `gpu.N.pcie_width_max`,
//! `gpu.N.throttle` (an active reason), `gpu.N.nvlink_errors` ("all KIND COUNT"), `gpu.N.ecc_uncorrected`,
//! `gpu.N.remapped_pending`, `gpu.N.name`, `gpu.xid`; `exporter.host`; `mount.PATH.bytes`; `host.memory_bytes`,
//! `host.memory_available_bytes`; `ib.NAME.rate_gbits`, `ib.NAME.state`. Other metrics are known and left out.

use timeline::Line;

use super::{Context, Grammar, device_monitor::active_reasons};

/// The grammar.
#[derive(Debug, Default)]
pub struct Prometheus {
    /// A `# HELP` or `# TYPE` was seen, so that other names are metrics too.
    inside: bool,
}

/// Metrics of dcgm-exporter whose value is the fact.
const GAUGES: &[(&str, &str)] = &[
    ("SM_CLOCK", "clock_sm_mhz"),
    ("MEM_CLOCK", "clock_memory_mhz"),
    ("GPU_TEMP", "temperature_c"),
    ("POWER_USAGE", "power_w"),
    ("GPU_UTIL", "utilisation_percent"),
    ("PIPE_TENSOR_ACTIVE", "tensor_active"),
    ("SM_ACTIVE", "sm_active"),
    ("PCIE_LINK_GEN", "pcie_generation"),
    ("PCIE_MAX_LINK_GEN", "pcie_generation_max"),
    ("PCIE_LINK_WIDTH", "pcie_width"),
    ("PCIE_MAX_LINK_WIDTH", "pcie_width_max"),
];

/// Counters of an NVLink's errors, and the kind in our words.
const LINK_ERRORS: &[(&str, &str)] = &[
    ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "CRC FLIT Error"),
    ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "CRC Data Error"),
    ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Replay Error"),
    ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Recovery Error"),
];

impl Grammar for Prometheus {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("# HELP ") || trimmed.starts_with("# TYPE ") {
            self.inside = true;
            return true;
        }
        let Some(sample) = Sample::parse(trimmed) else { return false };
        let field = ["DCGM_FI_DEV_", "DCGM_FI_PROF_"]
            .iter()
            .find_map(|start| sample.name.strip_prefix(start));
        match field {
            Some(field) => device(field, &sample, line, context),
            None if sample.name.starts_with("node_") => node(&sample, line, context),
            None => return self.inside,
        }
        true
    }
}

/// `NAME{LABEL="VALUE",...} VALUE [TIMESTAMP]`.
struct Sample<'t> {
    name: &'t str,
    labels: &'t str,
    value: f64,
}

impl<'t> Sample<'t> {
    fn parse(text: &'t str) -> Option<Sample<'t>> {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
        let (name, rest) = text.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => inside.rsplit_once('}')?,
            None => ("", rest),
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(Sample {
            name,
            labels,
            value,
        })
    }

    /// The value of a label, its escapes as they stand.
    fn label(&self, name: &str) -> Option<&'t str> {
        let labels = self.labels;
        labels.match_indices(name).find_map(|(at, _)| {
            let first = at == 0 || labels[..at].ends_with([',', ' ']);
            let value = labels[at + name.len()..].strip_prefix("=\"")?;
            first.then(|| value.split('"').next()).flatten()
        })
    }
}

fn device(field: &str, sample: &Sample<'_>, line: &Line, context: &mut Context<'_>) {
    let host = sample.label("Hostname").filter(|host| !host.is_empty() && host.len() < 128);
    let number = sample.label("gpu").filter(|number| number.parse::<u32>().is_ok()).unwrap_or("0");
    let device = match host {
        Some(host) => format!("{host}:{number}"),
        None => number.to_owned(),
    };
    let key = |name: &str| format!("gpu.{device}.{name}");
    if let Some(host) = host {
        context.fact_once(None, "exporter.host", host, line);
    }
    if let Some(model) = sample.label("modelName") {
        context.fact_once(None, &key("name"), model, line);
    }
    let count = sample.value as i64;
    if let Some((_, name)) = GAUGES.iter().find(|(gauge, _)| *gauge == field) {
        context.fact(None, &key(name), sample.value, line);
    } else if let Some((_, kind)) = LINK_ERRORS.iter().find(|(counter, _)| *counter == field) {
        if count > 0 {
            context.fact(None, &key("nvlink_errors"), format!("all {kind} {count}"), line);
        }
    } else {
        match field {
            "CLOCK_THROTTLE_REASONS" | "CLOCKS_EVENT_REASONS" if count > 0 => {
                for reason in active_reasons(count as u64) {
                    context.fact(None, &key("throttle"), reason, line);
                }
            }
            "XID_ERRORS" if count > 0 => context.fact(None, "gpu.xid", count, line),
            "ECC_DBE_VOL_TOTAL" if count > 0 => {
                context.fact(None, &key("ecc_uncorrected"), count, line);
            }
            "ROW_REMAP_PENDING" if count > 0 => {
                context.fact(None, &key("remapped_pending"), "Yes", line);
            }
            _ => {}
        }
    }
}

fn node(sample: &Sample<'_>, line: &Line, context: &mut Context<'_>) {
    let port = sample.label("device").filter(|name| name.len() < 64).unwrap_or("");
    match sample.name {
        "node_filesystem_size_bytes" => {
            if let Some(path) = sample.label("mountpoint") {
                context.fact(None, &format!("mount.{path}.bytes"), sample.value as i64, line);
            }
        }
        "node_memory_MemTotal_bytes" => {
            context.fact(None, "host.memory_bytes", sample.value as i64, line);
        }
        "node_memory_MemAvailable_bytes" => {
            context.fact(None, "host.memory_available_bytes", sample.value as i64, line);
        }
        "node_infiniband_rate_bytes_per_second" if !port.is_empty() => {
            let rate = sample.value * 8.0 / 1e9;
            context.fact(None, &format!("ib.{port}.rate_gbits"), rate, line);
        }
        "node_infiniband_state_id" if !port.is_empty() => {
            let state = if sample.value == 4.0 { "active" } else { "down" };
            context.fact(None, &format!("ib.{port}.state"), state, line);
        }
        _ => {}
    }
}
