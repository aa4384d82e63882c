//! Logs of a training loop: one line per step or epoch, in any framework's words.
//!
//! Facts of the process that a launcher's tag names, or of the run, one set per line: `step.number`; `step.ns` (time of
//! a step); `step.data_ns` (of which in the loader); `step.rate_per_second` (steps or batches); `step.tokens_per_second`;
//! `step.samples_per_second`; `step.workers` (num_workers, where told).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{integer_after, scaled},
};

/// The grammar.
#[derive(Debug)]
pub struct Steps;

/// Names before a number of seconds.
const SECONDS: &[&str] = &[
    "step_time",
    "step time",
    "time per step",
    "time/step",
    "iter_time",
    "iteration_time",
    "batch_time",
    "step took",
    "seconds per step",
    "elapsed time per iteration",
    "batch time",
    "iter time",
];
const DATA: &[&str] = &[
    "data_time",
    "data time",
    "dataload_time",
    "data_loading",
    "data load",
    "dataloader_time",
    "data:",
];
const TOKENS: &[&str] =
    &["tokens/sec", "tokens_per_sec", "tok/sec", "tok/s", "tokens/s", "tokens per second"];
const SAMPLES: &[&str] = &[
    "samples/sec",
    "samples/s",
    "imgs/sec",
    "images/sec",
    "img/s",
    "samples_per_second",
    "samples per second",
];
const RATES: &[&str] = &["it/s", "batches/s", "steps/s", "steps_per_second", "iter/s", "batch/s"];

impl Grammar for Steps {
    fn name(&self) -> &'static str {
        "step-log"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if text.len() > 2000 || !text.contains(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let lower = text.to_ascii_lowercase();
        let step = SECONDS.iter().find_map(|name| time_after(&lower, name));
        let data = DATA.iter().find_map(|name| time_after(&lower, name));
        let near = |names: &[&str]| names.iter().find_map(|name| number_near(&lower, name));
        let (rate, tokens, samples) = (near(RATES), near(TOKENS), near(SAMPLES));
        // tqdm turns to seconds per iteration where a step takes longer than one.
        let step = step.or_else(|| number_before(&lower, "s/it").and_then(|n| scaled(n, 9)));
        if step.is_none()
            && data.is_none()
            && rate.is_none()
            && tokens.is_none()
            && samples.is_none()
        {
            return false;
        }
        let process = context.tagged();
        let number =
            ["step ", "step: ", "step=", "iter ", "iter: ", "iteration ", "iter=", "step:"]
                .iter()
                .find_map(|name| integer_after(&lower, name));
        if let Some(number) = number {
            context.fact(process, "step.number", number, line);
        }
        if let Some(workers) = integer_after(&lower, "num_workers=") {
            context.fact(process, "step.workers", workers, line);
        }
        for (key, time) in [("step.ns", step), ("step.data_ns", data)] {
            if let Some(time) = time {
                context.fact(process, key, time, line);
            }
        }
        for (key, value) in [
            ("step.rate_per_second", rate),
            ("step.tokens_per_second", tokens),
            ("step.samples_per_second", samples),
        ] {
            if let Some(value) = value {
                context.fact(process, key, value, line);
            }
        }
        true
    }
}

/// Nanoseconds of the first number after a name; seconds unless a unit follows the number or stands in brackets.
fn time_after(text: &str, name: &str) -> Option<i64> {
    let at = text.find(name)?;
    // `metadata_time` is not `data_time`.
    if text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let rest = &text[at + name.len()..];
    let start = rest.find(|c: char| c.is_ascii_digit())?;
    let before = &rest[..start];
    if before.len() > 24 || before.contains(['|', ',', ';']) {
        return None;
    }
    let digits = &rest[start..];
    let end = digits.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(digits.len());
    let (number, unit) = (&digits[..end], digits[end..].trim_start());
    let milliseconds = unit.starts_with("ms") || before.contains("(ms)") || before.contains("_ms");
    let exponent = match () {
        () if milliseconds => 6,
        () if unit.starts_with("us") => 3,
        () => 9,
    };
    scaled(number.trim_end_matches('.'), exponent)
}

/// The number before a unit.
fn number_before<'t>(text: &'t str, unit: &str) -> Option<&'t str> {
    let at = text.find(unit)?;
    let head = text[..at].trim_end();
    let start = head
        .rfind(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))
        .map_or(0, |p| p + head[p..].chars().next().map_or(1, char::len_utf8));
    let number = head[start..].trim_matches([',', '.']);
    (!number.is_empty()).then_some(number)
}

/// The number before a unit, or after it and a `:` or `=`.
fn number_near(text: &str, unit: &str) -> Option<f64> {
    let parse = |text: &str| {
        let digits: String = text.chars().filter(|c| *c != ',').collect();
        digits.parse::<f64>().ok()
    };
    let rest = text.split_once(unit)?.1.trim_start();
    if !rest.starts_with([':', '='])
        && let Some(number) = number_before(text, unit).and_then(parse)
    {
        return Some(number);
    }
    let rest = rest.trim_start_matches([':', '=', '|']).trim_start();
    let end =
        rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(rest.len());
    parse(rest[..end].trim_end_matches([',', '.']))
}
