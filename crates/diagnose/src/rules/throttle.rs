//! `gpu.thermal_throttle`: a device lowers its clocks to protect itself.

use std::collections::BTreeMap;

use crate::{
    facts::{Found, between, quote},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Throttle;

const THERMAL: Explanation = Explanation {
    id: "gpu.thermal_throttle",
    layer: "hardware/network",
    what: "A GPU runs at lowered clocks because of heat or its power supply.",
    why: "Utilisation stays at 100 % while it computes slowly; in a synchronous job every other rank waits for it, which \
          looks like slow communication there.",
    remedy: "drain the host; check airflow, fans, dust, thermal paste and the power feed; run a load test before it takes \
             work again",
    refuted_by: "clocks equal to the other devices' under the same load (nvidia-smi dmon -s pc)",
};

/// A clock below this share of the other devices' under load is lowered.
const LOWERED: f64 = 0.8;

impl Rule for Throttle {
    fn explanations(&self) -> &'static [Explanation] {
        &[THERMAL]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        thermal(job).into_iter().collect()
    }
}

fn thermal(job: &Job) -> Option<Finding> {
    // A power cap is how a device normally runs at full load.
    let active: Vec<(&str, Found)> = between(job, "gpu.", ".throttle")
        .into_iter()
        .filter(|(_, found)| found.text() != "SW Power Cap" && found.text() != "Sync Boost")
        .collect();
    let slow = lowered(job);
    if active.is_empty() && slow.is_empty() {
        return None;
    }
    let reason =
        active.iter().map(|(_, found)| found.text()).find(|reason| reason.contains("Thermal"));
    let reason = reason.or_else(|| active.first().map(|(_, found)| found.text()));
    let device = active.first().or(slow.first()).map_or("?", |(device, _)| *device);
    let title = match (reason, slow.first()) {
        (Some(reason), Some((_, clock))) => format!(
            "GPU {device} runs at lowered clocks ({reason}, {:.0} MHz)",
            clock.number().unwrap_or(0.0)
        ),
        (Some(reason), None) => format!("GPU {device} runs at lowered clocks ({reason})"),
        (None, _) => {
            format!("GPU {device} runs at lower clocks and higher temperature than the others")
        }
    };
    let mut finding = THERMAL.finding(Severity::Slow, title);
    let headers: Vec<Found> = between(job, "gpu.", ".header")
        .into_iter()
        .filter(|(own, found)| {
            active.iter().any(|(device, other)| device == own && other.input == found.input)
        })
        .map(|(_, found)| found)
        .collect();
    quote(job, &mut finding, &headers, 2);
    quote(job, &mut finding, active.iter().map(|(_, found)| found), 3);
    quote(job, &mut finding, slow.iter().map(|(_, found)| found), 2);
    finding.confidence = if active.is_empty() { Confidence::Medium } else { Confidence::High };
    Some(finding)
}

/// Devices whose clock under load is far below the middle one of their host, and whose temperature is above it.
fn lowered(job: &Job) -> Vec<(&str, Found<'_>)> {
    let by_line = |name: &str| -> BTreeMap<(usize, u32), f64> {
        let found = between(job, "gpu.", name).into_iter();
        found
            .filter_map(|(_, found)| Some(((found.input, found.line()), found.number()?)))
            .collect()
    };
    let (load, heat) = (by_line(".utilisation_percent"), by_line(".temperature_c"));
    let clocks: Vec<(&str, Found)> = between(job, "gpu.", ".clock_sm_mhz")
        .into_iter()
        .filter(|(_, found)| {
            load.get(&(found.input, found.line())).is_none_or(|load| *load >= 50.0)
        })
        .collect();
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let mut all_clocks: Vec<f64> = clocks.iter().filter_map(|(_, found)| found.number()).collect();
    let mut all_heat: Vec<f64> = heat.values().copied().collect();
    let (usual, warm) = (middle(&mut all_clocks), middle(&mut all_heat));
    clocks
        .into_iter()
        .filter(|(_, found)| {
            found.number().is_some_and(|clock| clock > 0.0 && clock < LOWERED * usual)
                && heat.get(&(found.input, found.line())).is_some_and(|own| *own > warm)
        })
        .collect()
}
