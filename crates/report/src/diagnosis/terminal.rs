//! A diagnosis on one screen: the sentence, the account as bars, the first findings.
//!
//! Knows columns and colours; decides nothing.

use std::fmt::Write;

use diagnose::{
    diagnosis::Diagnosis,
    finding::{Finding, Severity},
    job::Job,
    leaf::{Account, Leaf},
};

use super::{abstained, shortfalls};

/// How the report is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour may be used.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// Findings shown in full.
    pub findings: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, width: 100, findings: 3 }
    }
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Ranks whose accounts are alike, shown as one row.
struct Class {
    ranks: Vec<u32>,
    account: Account,
    steps: i64,
}

/// The report.
pub fn render(job: &Job, diagnosis: &Diagnosis, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.paint("1", &diagnosis.sentence));
    if !job.participants.is_empty() {
        let _ = writeln!(out, "\n{}", heading(job));
        for class in classes(job) {
            bars(&mut out, &class, style);
        }
    }
    if !diagnosis.findings.is_empty() {
        out.push('\n');
    }
    for (index, finding) in diagnosis.findings.iter().enumerate() {
        if index < style.findings {
            in_full(&mut out, index + 1, finding, style);
        } else {
            let _ = writeln!(
                out,
                "{:>2}. {}  {}{}",
                index + 1,
                finding.id,
                finding.title,
                cost(finding)
            );
        }
    }
    let open = abstained(job);
    if !open.is_empty() {
        let _ = writeln!(out, "\nNot decided:");
        for question in open {
            let line = format!("{}: {}", question.question, question.why);
            let _ = writeln!(out, "  {line}\n    capture: {}", question.capture);
        }
    }
    let shortfalls = shortfalls(job);
    if !shortfalls.is_empty() {
        let _ = writeln!(out, "\n{}", shortfalls.join("\n"));
    }
    out
}

fn heading(job: &Job) -> String {
    let (first, accounted) = (&job.participants[0], &job.accounted[0]);
    let steps = accounted.steps.counted.len();
    let edge = if accounted.steps.weak { ", edges included" } else { "" };
    let what = if job.is_host_only() { "host process" } else { "device" };
    let plural = match (job.participants.len(), job.is_host_only()) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!(
        "{} {what}{plural}, {steps} step{} each{edge} ({}), {:.2} ms a step",
        job.participants.len(),
        if steps == 1 { "" } else { "s" },
        match first.device.step_source {
            "none" => "no step marks",
            source => source,
        },
        job.mean_step() / 1e6
    )
}

/// Ranks are of one class when no leaf differs by more than 2 % of the step.
fn classes(job: &Job) -> Vec<Class> {
    let mut classes: Vec<Class> = vec![];
    for (participant, accounted) in job.participants.iter().zip(&job.accounted) {
        let steps = accounted.steps.counted.len() as i64;
        if steps == 0 {
            continue;
        }
        let share = |account: &Account, leaf: Leaf| {
            account.get(leaf) as f64 / account.total().max(1) as f64
        };
        let alike = |class: &&mut Class| {
            Leaf::ALL.iter().all(|&leaf| {
                (share(&class.account, leaf) - share(&accounted.account, leaf)).abs() < 0.02
            })
        };
        match classes.iter_mut().find(alike) {
            Some(class) => {
                class.ranks.push(participant.rank);
                class.account.add_all(&accounted.account);
                class.steps += steps;
            }
            None => classes.push(Class {
                ranks: vec![participant.rank],
                account: accounted.account,
                steps,
            }),
        }
    }
    classes
}

/// `rank 0`, `ranks 0-3, 5`.
pub fn rank_list(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = vec![];
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if rank == *last + 1 => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let list: Vec<String> = parts
        .iter()
        .map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        )
        .collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

fn bars(out: &mut String, class: &Class, style: Style) {
    let total = class.account.total().max(1) as f64;
    let steps = class.steps.max(1) as f64;
    let _ = writeln!(out, "  {}", rank_list(&class.ranks));
    let mut rows: Vec<(String, i64, &str)> =
        vec![("computing".to_owned(), class.account.compute(), "32")];
    rows.extend(class.account.iter().filter(|(leaf, time)| !leaf.is_compute() && *time > 0).map(
        |(leaf, time)| {
            let colour =
                if leaf == Leaf::Transfer || leaf == Leaf::CopyDevice { "36" } else { "33" };
            (leaf.name().to_owned(), time, colour)
        },
    ));
    rows[1..].sort_by_key(|(_, time, _)| -time);
    let room = style.width.saturating_sub(44).clamp(10, 50);
    let (mut shown, mut rest) = (0, 0);
    for (name, time, colour) in rows {
        let share = time as f64 / total;
        if share < 0.002 || shown == 8 {
            rest += time;
            continue;
        }
        shown += 1;
        let filled = ((share * room as f64).round() as usize).min(room);
        let bar = style.paint(colour, &"#".repeat(filled));
        let padding = " ".repeat(room - filled);
        let per_step = time as f64 / steps / 1e6;
        let _ = writeln!(
            out,
            "    {name:<15} {bar}{padding} {per_step:>9.2} ms {:>5.1} %",
            100.0 * share
        );
    }
    if rest > 0 {
        let per_step = rest as f64 / steps / 1e6;
        let share = 100.0 * rest as f64 / total;
        let _ = writeln!(
            out,
            "    {:<15} {} {per_step:>9.2} ms {share:>5.1} %",
            "other leaves",
            " ".repeat(room)
        );
    }
}

fn cost(finding: &Finding) -> String {
    match finding.cost {
        Some(cost) => {
            let (low, high) = (number(cost.low), number(cost.high));
            if low == high {
                format!("  [{high} ms per step]")
            } else {
                format!("  [{low} to {high} ms per step]")
            }
        }
        None => String::new(),
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn in_full(out: &mut String, number: usize, finding: &Finding, style: Style) {
    let colour = match finding.severity {
        Severity::Failure => "31;1",
        Severity::Slow => "33;1",
        Severity::Info => "1",
    };
    let id = style.paint(colour, finding.id);
    let _ = writeln!(out, "{number:>2}. {id}  {}{}", finding.title, cost(finding));
    for evidence in finding.evidence.iter().take(3) {
        let place = match (evidence.line, &evidence.span) {
            (Some(line), _) => format!("{}:{line}", evidence.file),
            (None, Some(span)) => format!("{} span {}", evidence.file, span.index),
            (None, None) => evidence.file.clone(),
        };
        let name = evidence
            .span
            .as_ref()
            .map_or(String::new(), |span| format!(" [{}]", shortened(&span.name)));
        let _ = writeln!(out, "      {place}: {}{name}", evidence.text);
    }
    if finding.evidence.len() > 3 {
        let _ = writeln!(out, "      and {} more", finding.evidence.len() - 3);
    }
    let _ = writeln!(out, "      do: {}", finding.remedy.text);
}

fn shortened(name: &str) -> String {
    const MOST: usize = 60;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    let kept: String = name.chars().take(MOST - 3).collect();
    format!("{kept}...")
}
