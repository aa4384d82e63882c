//! What a run says while it goes: a bar on a terminal, lines elsewhere, `metrics.jsonl`, and the sums of what was recorded.
//! Knows no training.

use std::{
    collections::BTreeMap,
    io::IsTerminal,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::account::{Account, account};
use serde_json::json;
use timeline::Timeline;
use train::{
    Error,
    metrics::Metrics,
    recipe::Recipe,
    run::{Observer, StepReport},
};

use crate::{folder, output};

/// Seconds between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(5);

/// What all ranks recorded.
#[derive(Default)]
pub struct Recording {
    /// Per rank: steps and the sum of their accounts.
    pub accounts: BTreeMap<usize, (u64, Account)>,
    /// The last piece of every rank.
    pub timeline: Timeline,
}

/// Watches a run.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    steps: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    metrics: Option<Metrics>,
    accounts: BTreeMap<usize, (u64, Account)>,
    last: BTreeMap<usize, Timeline>,
    line_at: Option<Instant>,
    validation: Option<f64>,
    rate: Option<f64>,
}

impl Progress {
    /// Opens the run's metrics; `resumed` is the step that the run goes on from.
    ///
    /// # Errors
    /// Where the metrics file cannot be opened.
    pub fn new(run: &Path, recipe: &Recipe, resumed: Option<u64>) -> Result<Self> {
        let terminal = std::io::stderr().is_terminal();
        let bar =
            if terminal { ProgressBar::new(recipe.train.steps) } else { ProgressBar::hidden() };
        if terminal {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        let template = "{bar:30} {pos}/{len} {msg} ETA {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let metrics = Metrics::open(&run.join(folder::METRICS), resumed)?;
        Ok(Self {
            bar,
            terminal,
            steps: recipe.train.steps,
            inner: Mutex::new(Inner {
                metrics: Some(metrics),
                accounts: BTreeMap::new(),
                last: BTreeMap::new(),
                line_at: None,
                validation: None,
                rate: None,
            }),
        })
    }

    /// Ends the bar and yields what was recorded.
    pub fn finish(&self) -> Recording {
        self.bar.finish_and_clear();
        let mut inner = self.lock();
        let mut timeline = Timeline::new();
        for (_, piece) in std::mem::take(&mut inner.last) {
            timeline.append(piece);
        }
        Recording { accounts: std::mem::take(&mut inner.accounts), timeline }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| output::say(line));
    }

    fn event(&self, event: &serde_json::Value) {
        let mut inner = self.lock();
        let written = inner.metrics.as_mut().map(|metrics| metrics.write(event));
        if let Some(Err(error)) = written {
            // Said once; the run goes on without this file.
            inner.metrics = None;
            drop(inner);
            self.say(&format!("warning: {error}; no further metrics are written"));
        }
    }
}

impl Observer for Progress {
    fn started(&self, done: u64) {
        self.bar.set_position(done);
        self.bar.reset_eta();
    }

    fn step(&self, report: &StepReport) {
        #[expect(clippy::cast_precision_loss, reason = "tokens of a step")]
        let rate = report.tokens as f64 / report.seconds.max(1e-9);
        self.event(&json!({
            "event": "step",
            "step": report.step,
            "loss": report.loss,
            "learning_rate": report.learning_rate,
            "gradient_norm": report.gradient_norm,
            "skipped": report.skipped,
            "loss_scale": report.loss_scale,
            "tokens": report.tokens,
            "seconds": report.seconds,
            "tokens_per_second": rate,
        }));
        let mut inner = self.lock();
        // The rate of single steps jumps; a mean over about 20 is readable.
        let smooth = inner.rate.map_or(rate, |old| old + (rate - old) * 0.05);
        inner.rate = Some(smooth);
        let validation =
            inner.validation.map_or_else(String::new, |loss| format!(" validation {loss:.3}"));
        let message = format!("loss {:.3}{validation} {} tokens/s", report.loss, thousands(smooth));
        let due = inner.line_at.is_none_or(|at| at.elapsed() >= QUIET) || report.step == self.steps;
        if due && !self.terminal {
            inner.line_at = Some(Instant::now());
        }
        drop(inner);
        self.bar.set_position(report.step);
        self.bar.set_message(message.clone());
        if due && !self.terminal {
            #[expect(clippy::cast_precision_loss, reason = "steps left")]
            let left = (self.steps - report.step) as f64 * report.tokens as f64 / smooth.max(1e-9);
            self.say(&format!("step {}/{} {message} ETA {left:.0}s", report.step, self.steps));
        }
    }

    fn validated(&self, step: u64, loss: f64) {
        self.event(&json!({ "event": "validation", "step": step, "loss": loss }));
        self.lock().validation = Some(loss);
        self.say(&format!("step {step}: validation loss {loss:.4}"));
    }

    fn saved(&self, step: u64, path: &Path) {
        self.event(&json!({ "event": "checkpoint", "step": step, "path": path }));
        self.say(&format!("step {step}: checkpoint {}", path.display()));
    }

    fn not_saved(&self, step: u64, error: &Error) {
        self.event(
            &json!({ "event": "checkpoint failed", "step": step, "error": error.to_string() }),
        );
        self.say(&format!(
            "warning: step {step}: {error}; earlier checkpoints are intact, the run goes on"
        ));
    }

    fn timeline(&self, rank: usize, timeline: Timeline) {
        let accounts = account(&timeline);
        let mut inner = self.lock();
        let (steps, sum) = inner.accounts.entry(rank).or_default();
        for (_, parts) in &accounts {
            *steps += 1;
            sum.add(parts);
        }
        if !accounts.is_empty() {
            inner.last.insert(rank, timeline);
        }
    }
}

/// A number with separators: 12,345.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
