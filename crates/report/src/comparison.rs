//! Two runs side by side, or one job at several sizes, from their diagnoses as JSON.
//!
//! Knows the schema `counterpoint.diagnosis/1`; whether a change helped is read from the accounts, not from findings.

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// The JSON Schema that every comparison fulfils.
pub const SCHEMA: &str = include_str!("../schema/comparison-1.json");

/// The JSON Schema that every document about scaling fulfils.
pub const SCALING_SCHEMA: &str = include_str!("../schema/scaling-1.json");

/// Fewer steps of a run say nothing of how much its steps differ, so no change is certain.
const LEAST_STEPS: usize = 3;
/// From here on the steps' spread is trusted.
const ENOUGH_STEPS: usize = 5;

/// Why documents cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotComparable(pub String);

impl std::fmt::Display for NotComparable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotComparable {}

/// A leaf's time in the steps of a run.
#[derive(Clone, Debug, Default)]
struct LeafTimes {
    name: String,
    /// Mean over all devices.
    mean: f64,
    /// Least and greatest in one step, for each device.
    ranges: Vec<(i64, i64)>,
}

impl LeafTimes {
    /// How much the steps of one device differ at most.
    fn spread(&self) -> i64 {
        self.ranges.iter().map(|(least, greatest)| greatest - least).max().unwrap_or(0)
    }

    /// Whether no step of one run is like a step of the other, on some device. Devices correspond by their order;
    /// runs of different size are held against each other as wholes.
    fn apart(&self, other: &LeafTimes) -> bool {
        let disjoint = |a: (i64, i64), b: (i64, i64)| a.1 < b.0 || b.1 < a.0;
        let whole = |ranges: &[(i64, i64)]| {
            let least = ranges.iter().map(|range| range.0).min().unwrap_or(0);
            (least, ranges.iter().map(|range| range.1).max().unwrap_or(0))
        };
        if self.ranges.len() == other.ranges.len() {
            return self.ranges.iter().zip(&other.ranges).any(|(a, b)| disjoint(*a, *b));
        }
        disjoint(whole(&self.ranges), whole(&other.ranges))
    }
}

/// One run, reduced to what is compared.
struct Run {
    step_ns: f64,
    steps: usize,
    devices: usize,
    /// Nanoseconds per step.
    leaves: Vec<LeafTimes>,
    busy: f64,
    computing: f64,
    exposed: f64,
    memory_peak: Value,
    settings: Map<String, Value>,
}

impl Run {
    fn read(document: &Value, name: &str) -> Result<Run, NotComparable> {
        let wrong = |what: &str| NotComparable(format!("{name}: {what}"));
        let schema = document["schema"].as_str().unwrap_or("");
        if !schema.starts_with("counterpoint.diagnosis/1") {
            let found = if schema.is_empty() { "no schema" } else { schema };
            return Err(wrong(&format!("{found} found, counterpoint.diagnosis/1 expected")));
        }
        let devices = document["devices"].as_array().filter(|devices| !devices.is_empty());
        let devices = devices.ok_or_else(|| wrong("no account of a device inside"))?;
        let steps: i64 = devices.iter().filter_map(|device| device["steps"].as_i64()).sum();
        let window: i64 = devices.iter().filter_map(|device| device["window_ns"].as_i64()).sum();
        if steps <= 0 || window <= 0 {
            return Err(wrong("no counted step inside"));
        }
        let names: Vec<String> = devices[0]["account"]
            .as_object()
            .map(|account| account.keys().cloned().collect())
            .unwrap_or_default();
        let per_step = |total: i64| total as f64 / steps as f64;
        let sum = |of: &dyn Fn(&Value) -> Option<i64>| devices.iter().filter_map(of).sum::<i64>();
        let leaves = names
            .iter()
            .map(|leaf| {
                let mean = per_step(sum(&|device| device["account"][leaf].as_i64()));
                let end = |device: &Value, at: usize| device["ranges"][leaf][at].as_i64();
                let range =
                    |device: &Value| (end(device, 0).unwrap_or(0), end(device, 1).unwrap_or(0));
                let ranges = devices.iter().map(range).collect();
                LeafTimes { name: leaf.clone(), mean, ranges }
            })
            .collect();
        let share = |total: i64| total as f64 / window as f64;
        let starting = |start: &str| {
            let own: Vec<&String> = names.iter().filter(|name| name.starts_with(start)).collect();
            own.iter()
                .map(|leaf| sum(&|device| device["account"][leaf.as_str()].as_i64()))
                .sum::<i64>()
        };
        Ok(Run {
            step_ns: per_step(window),
            steps: devices.iter().filter_map(|d| d["steps"].as_u64()).min().unwrap_or(0) as usize,
            devices: devices.len(),
            leaves,
            busy: share(sum(&|device| device["beside"]["busy_ns"].as_i64())),
            computing: share(starting("compute.")),
            exposed: share(starting("comm.")),
            memory_peak: document["memory_peak_bytes"].clone(),
            settings: document["settings"].as_object().cloned().unwrap_or_default(),
        })
    }

    fn leaf(&self, name: &str) -> LeafTimes {
        self.leaves.iter().find(|leaf| leaf.name == name).cloned().unwrap_or_default()
    }
}

/// Compares two runs; the document has the schema `counterpoint.comparison/1`.
///
/// Each run comes with its name; `changed` lists what a person says has changed in code.
///
/// # Errors
/// Where a document is of another schema or holds no counted step.
pub fn compare(
    before: &(String, Value),
    after: &(String, Value),
    changed: &[String],
) -> Result<Value, NotComparable> {
    let (old, new) = (Run::read(&before.1, &before.0)?, Run::read(&after.1, &after.0)?);
    let mut changes: Vec<Value> = changed
        .iter()
        .map(|text| json!({"setting": "code", "before": null, "after": text}))
        .collect();
    let mut names: Vec<&String> = old.settings.keys().chain(new.settings.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let value = |run: &Run| run.settings.get(name).cloned().unwrap_or(Value::Null);
        if value(&old) != value(&new) {
            changes.push(json!({"setting": name, "before": value(&old), "after": value(&new)}));
        }
    }
    let steps = old.steps.min(new.steps);
    let mut leaves: Vec<Value> = vec![];
    for own in &old.leaves {
        let other = new.leaf(&own.name);
        if own.mean == 0.0 && other.mean == 0.0 {
            continue;
        }
        let noise = own.spread().max(other.spread());
        // The means must differ by more than the steps do; below enough steps their ranges must not touch either.
        let apart = own.apart(&other);
        let clear = (other.mean - own.mean).abs() > noise as f64 / 2.0;
        leaves.push(json!({
            "leaf": own.name,
            "before_ns": own.mean.round() as i64,
            "after_ns": other.mean.round() as i64,
            "noise_ns": noise,
            "significant": steps >= LEAST_STEPS && clear && (apart || steps >= ENOUGH_STEPS),
        }));
    }
    leaves.sort_by_key(|leaf| {
        let of = |key: &str| leaf[key].as_i64().unwrap_or(0);
        -(of("after_ns") - of("before_ns")).abs()
    });
    let pair = |of: fn(&Run) -> f64| {
        let rounded = |value: f64| (value * 1e6).round() / 1e6;
        json!({"before": rounded(of(&old)), "after": rounded(of(&new))})
    };
    let credited = if changes.len() == 1 { changes[0]["setting"].clone() } else { Value::Null };
    Ok(json!({
        "schema": "counterpoint.comparison/1",
        "version": env!("CARGO_PKG_VERSION"),
        "before": {"step_ns": old.step_ns.round() as i64, "steps": old.steps, "devices": old.devices},
        "after": {"step_ns": new.step_ns.round() as i64, "steps": new.steps, "devices": new.devices},
        "changed": changes,
        "indicators": {
            "throughput": {"before": 1.0, "after": (old.step_ns / new.step_ns * 1e6).round() / 1e6},
            "busy": pair(|run| run.busy),
            "computing": pair(|run| run.computing),
            "comm_exposed": pair(|run| run.exposed),
            "memory_peak": {"before": old.memory_peak, "after": new.memory_peak},
        },
        "leaves": leaves,
        "credited": credited,
    }))
}

/// What changed, what the diagnosis before had predicted for it, and what was measured: a line of a run's experiments.
///
/// A prediction is the cost of the finding whose setting was changed; `null` where none fits.
pub fn experiment(before: &Value, comparison: &Value) -> Value {
    let changed: Vec<&str> = comparison["changed"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|change| [change["setting"].as_str(), change["after"].as_str()])
        .flatten()
        .collect();
    let predicted = before["findings"].as_array().into_iter().flatten().find(|finding| {
        let setting = finding["remedy"]["setting"].as_str().unwrap_or("");
        let name = setting.split('=').next().unwrap_or("");
        !name.is_empty() && changed.iter().any(|change| change.contains(name))
    });
    let step = |side: &str| comparison[side]["step_ns"].as_i64().unwrap_or(0);
    json!({
        "schema": "counterpoint.experiment/1",
        "changed": comparison["changed"],
        "predicted": predicted.map(|finding| json!({
            "finding": finding["id"],
            "saves_ms": finding["cost_ms_per_step"],
            "low_ms": finding["cost_low"],
            "high_ms": finding["cost_high"],
        })),
        "measured": {
            "before_ns": step("before"),
            "after_ns": step("after"),
            "saves_ms": ((step("before") - step("after")) as f64 / 1e3).round() / 1e3,
            "credited": comparison["credited"],
        },
    })
}

/// A comparison for people.
pub fn text(comparison: &Value) -> String {
    let mut out = String::new();
    let step = |side: &str| comparison[side]["step_ns"].as_f64().unwrap_or(0.0) / 1e6;
    let throughput = comparison["indicators"]["throughput"]["after"].as_f64().unwrap_or(1.0);
    let _ = writeln!(
        out,
        "{:.2} ms a step before, {:.2} ms after: {throughput:.3} times the throughput.\n",
        step("before"),
        step("after")
    );
    for (key, name) in [
        ("busy", "device busy (as nvidia-smi shows it)"),
        ("computing", "computing"),
        ("comm_exposed", "exposed communication"),
    ] {
        let value =
            |side: &str| 100.0 * comparison["indicators"][key][side].as_f64().unwrap_or(0.0);
        let _ =
            writeln!(out, "  {name:<38} {:>6.1} % -> {:>6.1} %", value("before"), value("after"));
    }
    let peak = &comparison["indicators"]["memory_peak"];
    if let (Some(before), Some(after)) = (peak["before"].as_f64(), peak["after"].as_f64()) {
        let name = "peak memory";
        let _ = writeln!(out, "  {name:<38} {:>6.2} GB -> {:>5.2} GB", before / 1e9, after / 1e9);
    }
    let of = |leaf: &Value, key: &str| leaf[key].as_f64().unwrap_or(0.0) / 1e6;
    let change = |leaf: &Value| of(leaf, "after_ns") - of(leaf, "before_ns");
    let marked = |leaf: &Value| leaf["significant"].as_bool().unwrap_or(false);
    let leaves = comparison["leaves"].as_array().map_or(&[][..], Vec::as_slice);
    let told: Vec<&Value> =
        leaves.iter().filter(|leaf| change(leaf).abs() >= 0.005 || marked(leaf)).collect();
    if !told.is_empty() {
        let _ = writeln!(
            out,
            "\n  {:<20} {:>11} {:>11} {:>11} {:>11}",
            "leaf, ms per step", "before", "after", "change", "noise"
        );
    }
    for leaf in &told {
        let mark = if marked(leaf) { "*" } else { " " };
        let _ = writeln!(
            out,
            "{mark} {:<20} {:>11.2} {:>11.2} {:>+11.2} {:>11.2}",
            leaf["leaf"].as_str().unwrap_or(""),
            of(leaf, "before_ns"),
            of(leaf, "after_ns"),
            change(leaf),
            of(leaf, "noise_ns")
        );
    }
    let changed = comparison["changed"].as_array().map_or(&[][..], Vec::as_slice);
    let described: Vec<String> = changed
        .iter()
        .map(|change| {
            let value = |side: &str| match &change[side] {
                Value::String(text) => text.clone(),
                Value::Null => "unset".to_owned(),
                other => other.to_string(),
            };
            match change["setting"].as_str() {
                Some("code") => value("after"),
                setting => {
                    format!("{} {} -> {}", setting.unwrap_or(""), value("before"), value("after"))
                }
            }
        })
        .collect();
    let steps = |side: &str| comparison[side]["steps"].as_u64().unwrap_or(0);
    let few = steps("before").min(steps("after")) < LEAST_STEPS as u64;
    let noise = match (told.is_empty(), told.iter().any(|leaf| marked(leaf))) {
        (true, _) => "No leaf changed.".to_owned(),
        (false, true) => "* outside the noise.".to_owned(),
        (false, false) if few => {
            format!("Fewer than {LEAST_STEPS} steps in a run: no change is certain.")
        }
        (false, false) => "No change is outside the noise.".to_owned(),
    };
    let _ = match described.len() {
        0 => writeln!(
            out,
            "\n{noise} No visible setting differs; say what changed in code with --changed TEXT."
        ),
        1 => writeln!(out, "\n{noise} Changed: {}.", described[0]),
        count => writeln!(
            out,
            "\n{noise} {count} things changed ({}): no one of them is credited.",
            described.join("; ")
        ),
    };
    out
}

/// One job at several sizes, the first being the measure: how much of each device's speed is left, and the leaf that
/// took most of the rest.
///
/// # Errors
/// As [`compare`].
pub fn scaling(runs: &[(String, Value)]) -> Result<Value, NotComparable> {
    let read: Vec<Run> =
        runs.iter().map(|(name, document)| Run::read(document, name)).collect::<Result<_, _>>()?;
    let Some(first) = read.first() else {
        return Err(NotComparable("no run to compare".to_owned()));
    };
    let rows: Vec<Value> = read
        .iter()
        .zip(runs)
        .map(|(run, (name, document))| {
            let grown = run
                .leaves
                .iter()
                .map(|leaf| (&leaf.name, leaf.mean - first.leaf(&leaf.name).mean))
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .filter(|(_, growth)| *growth > 0.0);
            json!({
                "run": name,
                "ranks": document["job"]["world_size"].as_u64().unwrap_or(0).max(run.devices as u64),
                "step_ns": run.step_ns.round() as i64,
                "efficiency": (first.step_ns / run.step_ns * 1e4).round() / 1e4,
                "leaf": grown.map(|(leaf, _)| leaf.clone()),
                "leaf_growth_ns": grown.map(|(_, growth)| growth.round() as i64),
            })
        })
        .collect();
    Ok(json!({
        "schema": "counterpoint.scaling/1",
        "version": env!("CARGO_PKG_VERSION"),
        "runs": rows,
    }))
}

/// Scaling for people.
pub fn scaling_text(scaling: &Value) -> String {
    let mut out =
        format!("{:>6} {:>12} {:>11}  what grew most\n", "ranks", "ms a step", "efficiency");
    for run in scaling["runs"].as_array().into_iter().flatten() {
        let grown = match (run["leaf"].as_str(), run["leaf_growth_ns"].as_f64()) {
            (Some(leaf), Some(growth)) => format!("{leaf} by {:.1} ms", growth / 1e6),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "{:>6} {:>12.2} {:>9.0} %  {grown}",
            run["ranks"].as_u64().unwrap_or(0),
            run["step_ns"].as_f64().unwrap_or(0.0) / 1e6,
            100.0 * run["efficiency"].as_f64().unwrap_or(0.0)
        );
    }
    out
}
