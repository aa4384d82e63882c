//! Causes of the trace rules as logs and tables show them: `data.loader_starved`, `cpu.launch_bound`, `math.tf32_off`,
//! `copy.pageable_blocking`; and `lib.cublas_regression`, which tables of timings alone show.
//!
//! Where a trace shows the same cause, the two findings become one.

use super::{
    copies, launch, loader, precision,
    support::{counted, milliseconds},
};
use crate::{
    facts::{Found, Row, all, quote, rows, texts},
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct StepLogs;

const CUBLAS: Explanation = Explanation {
    id: "lib.cublas_regression",
    layer: "operator library",
    what: "One operator is many times slower with a newer library version, for some shapes only.",
    why: "The newer library picks another algorithm for these shapes; other operators and shapes are as fast as before.",
    remedy: "use the operator that is not affected (mm in place of bmm for a batch of one), or a library version with \
             the fix",
    refuted_by: "the slower version being as fast with the same algorithm forced, or under another clock",
};

/// From this ratio on a version is a regression: timings of one operator vary by less.
const REGRESSION: f64 = 2.0;
/// Share of the step in the loader from which on it starves the device, by the log alone.
const STARVED: f64 = 0.1;

impl Rule for StepLogs {
    fn explanations(&self) -> &'static [Explanation] {
        &[CUBLAS]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [starved, launch_bound, tf32, pageable, cublas]
            .iter()
            .filter_map(|check| check(job))
            .collect()
    }
}

fn starved<'a>(job: &'a Job) -> Option<Finding> {
    let wait = |row: Row<'a>| {
        let data = row.name.number()?;
        let step = row.number("step.ns").or_else(|| {
            let rate = row.number("step.rate_per_second").filter(|rate| *rate > 0.0)?;
            Some(1e9 / rate)
        });
        // Some frameworks count the loader's time beside the step's.
        Some((data / step?.max(data).max(1.0), data, row.name))
    };
    let mut waits: Vec<(f64, f64, Found)> =
        rows(job, "step.data_ns").into_iter().filter_map(wait).collect();
    // Workers start during the first steps of a log: a quarter of its lines must show the wait.
    let usual = waits.chunk_by_mut(|a, b| a.2.input == b.2.input).map(|own| {
        own.sort_by(|a, b| b.0.total_cmp(&a.0));
        own[own.len() / 4]
    });
    let worst = usual.max_by(|a, b| a.0.total_cmp(&b.0));
    let (share, data, found) = worst.filter(|(share, ..)| *share >= STARVED)?;
    let title = format!(
        "{} of every step ({:.0} %) go to waiting for the data loader, by the log",
        milliseconds(data / 1e6),
        share * 100.0
    );
    let mut finding = loader::LOADER_STARVED.finding(Severity::Slow, title);
    quote(job, &mut finding, [&found], 1);
    let others: Vec<Found> =
        all(job, "step.data_ns").into_iter().filter(|other| other.input == found.input).collect();
    quote(job, &mut finding, &others, 2);
    let estimate = data / 1e6;
    finding.cost = Some(Cost { estimate, low: 0.0, high: estimate, by: CostBy::Log });
    finding.remedy.setting = Some("num_workers".to_owned());
    Some(finding)
}

fn launch_bound(job: &Job) -> Option<Finding> {
    let slower = |row: &Row| {
        let (cpu, device) =
            (row.number("profile.part.cpu_ns")?, row.number("profile.part.device_ns")?);
        (device > 0.0 && cpu >= 2.0 * device).then_some((cpu, device))
    };
    let parts = rows(job, "profile.part");
    let (row, (cpu, device)) = parts.iter().find_map(|row| Some((row, slower(row)?)))?;
    let name = row.name.text();
    let title = format!(
        "the CPU takes {} in {name} for {} of work of the device",
        milliseconds(cpu / 1e6),
        milliseconds(device / 1e6)
    );
    let mut finding = launch::LAUNCH_BOUND.finding(Severity::Slow, title);
    quote(job, &mut finding, [&row.name], 1);
    // The same part in a trace, and what it launches.
    for (input, read) in job.inputs.iter().enumerate() {
        let timeline = &read.timeline;
        let named = timeline.spans.ids().find(|&id| timeline.name_of(id).contains(name));
        if let Some(part) = named {
            let span = timeline.spans.get(part);
            let text = format!("{name} lasts {}", milliseconds(span.duration.nanos() as f64 / 1e6));
            finding.evidence.push(Evidence::span(job, input, part, text));
            let inside = timeline.spans.ids().find(|&id| {
                let other = timeline.spans.get(id);
                other.track == span.track && other.start > span.start && other.end() <= span.end()
            });
            if let Some(inside) = inside {
                let text = "the first call inside it";
                finding.evidence.push(Evidence::span(job, input, inside, text));
            }
        }
    }
    let estimate = (cpu - device) / 1e6;
    finding.cost = Some(Cost { estimate, low: 0.0, high: estimate, by: CostBy::Log });
    Some(finding)
}

fn tf32(job: &Job) -> Option<Finding> {
    let said = texts(job, "torch.warning", |text| text.starts_with("TensorFloat32 tensor cores"));
    let total: f64 = rows(job, "profile.operator")
        .iter()
        .filter_map(|row| row.number("profile.self_device_ns"))
        .sum();
    let ordinary: Vec<Row> = rows(job, "profile.operator")
        .into_iter()
        .filter(|row| {
            let name = row.name.text().to_lowercase();
            name.contains("sgemm")
                && !["tf32", "s1688", "s16816", "tensorop", "implicit"].iter().any(|m| name.contains(m))
                // An operator and its kernel both count the time: a fifth of twice the sum is ten percent.
                && row.number("profile.self_device_ns").is_some_and(|own| own >= 0.1 * total)
        })
        .collect();
    if said.is_empty() && ordinary.is_empty() {
        return None;
    }
    let title = match ordinary.first() {
        Some(row) => {
            format!("matrix products run in fp32 without tensor cores ({})", row.name.text())
        }
        None => "tensor cores for fp32 matrix products are there and switched off".to_owned(),
    };
    let mut finding = precision::TF32_OFF.finding(Severity::Slow, title);
    quote(job, &mut finding, ordinary.iter().map(|row| &row.name), 2);
    quote(job, &mut finding, &said, 1);
    finding.confidence =
        if said.is_empty() || ordinary.is_empty() { Confidence::Medium } else { Confidence::High };
    finding.remedy.setting = Some("torch.set_float32_matmul_precision(\"high\")".to_owned());
    Some(finding)
}

fn pageable(job: &Job) -> Option<Finding> {
    let average = |row: &Row| row.number("nsys.average_ns").filter(|average| *average >= 1e5);
    let apis = rows(job, "nsys.api");
    let call = apis.iter().find(|row| row.name.text().starts_with("cudaMemcpyAsync"))?;
    let own = average(call)?;
    let copies_found = rows(job, "nsys.copy");
    // The call of an asynchronous copy returns in microseconds; as long as the copy itself means that it waited.
    let copy = copies_found.iter().find(|row| {
        row.name.input == call.name.input
            && average(row).is_some_and(|copy| own >= 0.5 * copy && own <= 2.0 * copy)
    })?;
    let title = format!(
        "cudaMemcpyAsync holds the host for {} a call, as long as the copy itself: its host memory is pageable",
        milliseconds(own / 1e6)
    );
    let mut finding = copies::PAGEABLE.finding(Severity::Slow, title);
    quote(job, &mut finding, [&call.name, &copy.name], 2);
    for (input, read) in job.inputs.iter().enumerate() {
        let timeline = &read.timeline;
        let span = timeline.spans.ids().find(|&id| {
            let name = timeline.name_of(id);
            name.starts_with("Memcpy") && name.contains("Pageable")
        });
        if let Some(span) = span {
            finding.evidence.push(Evidence::span(job, input, span, "a copy of pageable memory"));
        }
    }
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("pin_memory()".to_owned());
    Some(finding)
}

/// Operator and version of a column such as `bmm_cu12.1`.
fn operator_and_version(key: &str) -> Option<(&str, (u32, u32))> {
    let column = key.strip_prefix("table.cell.")?;
    let (operator, version) = column.rsplit_once('_')?;
    let version = version.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let (major, minor) = version.split_once('.')?;
    Some((operator, (major.parse().ok()?, minor.parse().ok()?)))
}

fn cublas(job: &Job) -> Option<Finding> {
    let mut slowed: Vec<(f64, String, Found)> = vec![];
    let mut steady: Vec<Found> = vec![];
    for row in rows(job, "table.row") {
        let cells: Vec<(&str, (u32, u32), f64)> = row
            .numbers()
            .filter_map(|(key, time)| operator_and_version(key).map(|(o, v)| (o, v, time)))
            .collect();
        let ratio = |operator: &str| {
            let own = cells.iter().filter(|(other, ..)| *other == operator);
            let old = own.clone().min_by_key(|(_, version, _)| *version)?;
            let new = own.max_by_key(|(_, version, _)| *version)?;
            (old.1 != new.1 && old.2 > 0.0).then_some(new.2 / old.2)
        };
        let mut operators: Vec<&str> = cells.iter().map(|(operator, ..)| *operator).collect();
        operators.sort_unstable();
        operators.dedup();
        let ratios: Vec<(&str, f64)> =
            operators.iter().filter_map(|&operator| Some((operator, ratio(operator)?))).collect();
        // Where every operator got slower, the device or its clock did.
        let calm = ratios.iter().any(|(_, ratio)| *ratio < 1.3);
        match ratios.iter().find(|(_, ratio)| *ratio >= REGRESSION) {
            Some((operator, ratio)) if calm => {
                slowed.push((*ratio, (*operator).to_owned(), row.name))
            }
            None if !ratios.is_empty() => steady.push(row.name),
            _ => {}
        }
    }
    slowed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (ratio, operator, found) = slowed.first()?;
    let title = format!(
        "with the newer library {operator} takes {ratio:.0} times as long for {} ({} affected)",
        found.text(),
        counted(slowed.len(), "shape", "shapes")
    );
    let mut finding = CUBLAS.finding(Severity::Slow, title);
    quote(job, &mut finding, slowed.iter().map(|(_, _, found)| found), 3);
    quote(job, &mut finding, steady.last(), 1);
    finding.confidence = Confidence::High;
    Some(finding)
}
