//! What is printed and kept at the end of a run: losses, the sample, and where every rank's time went.
//! Knows accounts as five parts that sum to the whole.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};
use diagnose::wording::counted;
use report::chrome_trace;
use serde_json::{Value, json};
use timeline::Timeline;
use train::{Error, run::Outcome, weights};

use crate::{folder, progress::Recording};

/// The end of a run.
pub struct Summary {
    json: Value,
    text: String,
}

impl Summary {
    /// Puts the summary together.
    pub fn new(run: &Path, outcome: &Outcome, recording: &Recording, prompt: Option<&str>) -> Self {
        let sample = prompt.map(|prompt| {
            let bytes: Vec<u8> =
                outcome.sample.iter().map(|&token| u8::try_from(token).unwrap_or(b'?')).collect();
            format!("{prompt}{}", String::from_utf8_lossy(&bytes))
        });
        let ranks: Vec<Value> = recording
            .accounts
            .iter()
            .map(|(rank, (steps, account))| {
                let mut parts: serde_json::Map<String, Value> = account
                    .parts()
                    .iter()
                    .map(|(name, length)| {
                        (format!("{}_ns", name.replace(' ', "_")), json!(length.nanos()))
                    })
                    .collect();
                parts.insert("total_ns".to_owned(), json!(account.total().nanos()));
                json!({ "rank": rank, "steps": steps, "parts": parts })
            })
            .collect();
        let json = json!({
            "folder": run,
            "steps": outcome.steps,
            "stopped": outcome.stopped,
            "loss": outcome.loss,
            "validation_loss": outcome.validation,
            "checkpoint": outcome.checkpoint,
            "sample": sample,
            "ranks": ranks,
        });
        let mut text = String::new();
        if let Some(sample) = &sample {
            let _ = writeln!(text, "sample\n------\n{}\n------\n", sample.trim_end());
        }
        text.push_str(&table(recording));
        let _ = write!(text, "\n{}", counted(outcome.steps, "step", "steps"));
        for (name, loss) in [("loss", outcome.loss), ("validation loss", outcome.validation)] {
            if let Some(loss) = loss {
                let _ = write!(text, ", {name} {loss:.4}");
            }
        }
        let _ = writeln!(text, "\nrun's folder: {}", run.display());
        Self { json, text }
    }

    /// For people.
    pub fn text(&self) -> String {
        self.text.clone()
    }

    /// For programs.
    pub fn json(&self) -> String {
        format!("{:#}", self.json)
    }

    /// Writes summary and timeline into the run's folder.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn save(&self, run: &Path, timeline: Timeline) -> Result<()> {
        weights::write_text(&run.join(folder::SUMMARY), &(self.json() + "\n"))?;
        let mut bytes = vec![];
        chrome_trace::write(&timeline, chrome_trace::TIMELINE, &mut bytes)
            .context("cannot write the timeline")?;
        let path = run.join(folder::TIMELINE);
        weights::whole_or_not_at_all(&path, |temporary| std::fs::write(temporary, &bytes))
            .map_err(|error: Error| error.into())
    }
}

/// Milliseconds of each part over all recorded steps, to the nanosecond, so that a row sums to its total exactly.
fn table(recording: &Recording) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec!["rank".to_owned(), "steps".to_owned()]];
    for (rank, (steps, account)) in &recording.accounts {
        let mut row = vec![rank.to_string(), steps.to_string()];
        let mut share = vec![String::new(), "%".to_owned()];
        let total = account.total().nanos();
        for (name, length) in account.parts() {
            if rows.len() == 1 {
                rows[0].push(name.to_owned());
            }
            row.push(milliseconds(length.nanos()));
            #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
            share.push(format!("{:.1}", 100.0 * length.nanos() as f64 / (total as f64).max(1.0)));
        }
        row.push(milliseconds(total));
        rows.push(row);
        rows.push(share);
    }
    rows[0].push("sum of steps".to_owned());
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
        })
        .collect();
    let mut text = "where the time of the steps went, in ms\n".to_owned();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn milliseconds(nanoseconds: i64) -> String {
    format!("{}.{:06}", nanoseconds / 1_000_000, nanoseconds % 1_000_000)
}
