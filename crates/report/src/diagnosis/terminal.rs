//! A diagnosis on one screen: the sentence, the account as bars, the first findings.
//!
//! Knows columns and colours; decides nothing.

use std::{collections::BTreeMap, fmt::Write};

use diagnose::{
    diagnosis::Diagnosis,
    finding::{Evidence, Finding, Severity},
    job::Job,
    leaf::Leaf,
    wording::{between, counted},
};

use super::{
    abstained,
    classes::{Class, classes, rank_list, telling},
    left_out::{self, Group},
    lines::{adding_up, printable, wrapped},
    placement,
};

/// How the report is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour may be used.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, width: 100 }
    }
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Findings shown in full, and with one line each.
const IN_FULL: usize = 3;
const IN_SHORT: usize = 5;
/// Classes of ranks whose account is shown.
const CLASSES: usize = 3;
/// Pieces of evidence of one finding, and lines of one piece.
const EVIDENCE: usize = 3;
const EVIDENCE_LINES: usize = 2;
/// Reasons for leaving inputs out, or using them in part, that are told.
const REASONS: usize = 6;
/// A leaf below this share of the step has no row of its own.
const ROW: f64 = 0.002;
/// Columns beside the bars: names, figures; and what the leaves mean, where there is room.
const FIGURES: usize = 40;
const MEANING: usize = 36;
const LEAST_BAR: usize = 12;
const ALL_LINES: usize = usize::MAX;

/// The report.
pub fn render(job: &Job, diagnosis: &Diagnosis, style: Style) -> String {
    let screen = Screen { job, style, folder: common_folder(job) };
    let mut out = String::new();
    for line in wrapped("", 0, &diagnosis.sentence, style.width, ALL_LINES).lines() {
        let _ = writeln!(out, "{}", style.paint("1", line));
    }
    screen.account(&mut out, diagnosis);
    screen.findings(&mut out, diagnosis);
    screen.open(&mut out);
    screen.read(&mut out, diagnosis);
    out
}

struct Screen<'a> {
    job: &'a Job,
    style: Style,
    /// What all names of inputs begin with.
    folder: String,
}

impl Screen<'_> {
    fn account(&self, out: &mut String, diagnosis: &Diagnosis) {
        if self.job.participants.is_empty() {
            return;
        }
        out.push('\n');
        out.push_str(&wrapped("", 2, &heading(self.job), self.style.width, ALL_LINES));
        let all = classes(self.job);
        let (count, ranks) = (all.len(), all.iter().map(|class| class.ranks.len()).sum::<usize>());
        let at_fault = diagnosis.findings.first().map_or(&[][..], |first| &first.ranks);
        let shown = telling(all, at_fault, CLASSES);
        let rows = if shown.len() > 2 { 5 } else { 8 };
        let mut explained = vec![];
        for class in &shown {
            self.bars(out, class, rows, &mut explained);
        }
        if shown.len() < count {
            let others = ranks - shown.iter().map(|class| class.ranks.len()).sum::<usize>();
            let others = counted(others, "rank", "ranks");
            let _ = writeln!(out, "  and {others} of other kinds (--html, --json)");
        }
    }

    fn bars(&self, out: &mut String, class: &Class, most: usize, explained: &mut Vec<String>) {
        let width = self.style.width;
        out.push_str(&wrapped("  ", 4, &rank_list(&class.ranks), width, 2));
        let total = class.account.total().max(1) as f64;
        let mut leaves: Vec<(Leaf, i64)> =
            class.account.iter().filter(|(leaf, time)| !leaf.is_compute() && *time > 0).collect();
        leaves.sort_by_key(|(_, time)| -time);
        let (own, rest): (Vec<_>, Vec<_>) = leaves
            .into_iter()
            .enumerate()
            .partition(|(index, (_, time))| *index + 1 < most && *time as f64 / total >= ROW);
        let computing =
            if self.job.is_host_only() { "operators run" } else { "computing kernels run" };
        let mut rows = vec![Row::new("computing", class.account.compute(), "32", computing)];
        rows.extend(own.iter().map(|(_, (leaf, time))| {
            let moves = matches!(leaf, Leaf::Transfer | Leaf::Unsplit | Leaf::CopyDevice);
            Row::new(leaf.name(), *time, if moves { "36" } else { "33" }, leaf.meaning())
        }));
        if !rest.is_empty() {
            let time = rest.iter().map(|(_, (_, time))| time).sum();
            rows.push(Row::new("other leaves", time, "33", "the smallest together"));
        }
        let with_meaning = width >= FIGURES + LEAST_BAR + MEANING;
        let taken = if with_meaning { FIGURES + MEANING } else { FIGURES };
        let room = width.saturating_sub(taken).min(60);
        let decimals = decimals(class.per_step(class.account.total()) / 1e6);
        let unit = 10_f64.powi(-decimals);
        let times: Vec<f64> = rows.iter().map(|row| class.per_step(row.time) / 1e6).collect();
        let shares: Vec<f64> = rows.iter().map(|row| 100.0 * row.time as f64 / total).collect();
        let (times, shares) = (adding_up(&times, unit), adding_up(&shares, 0.1));
        let figures = |time: i64, share: i64| {
            let places = usize::try_from(decimals).unwrap_or(0);
            format!("{:>9.places$} ms {:>5.1} %", time as f64 * unit, share as f64 / 10.0)
        };
        for ((row, time), share) in rows.iter().zip(&times).zip(&shares) {
            let filled = ((row.time as f64 / total * room as f64).round() as usize).min(room);
            let bar = self.style.paint(row.colour, &"#".repeat(filled));
            let (padding, figures) = (" ".repeat(room - filled), figures(*time, *share));
            // Said once is enough.
            let new = with_meaning && !explained.contains(&row.name);
            let meaning = if new { format!("  {}", row.meaning) } else { String::new() };
            let _ = writeln!(out, "    {:<14} {bar}{padding} {figures}{meaning}", row.name);
            explained.push(row.name.clone());
        }
        let sum = figures(times.iter().sum(), shares.iter().sum());
        let _ = writeln!(out, "    {:<14} {} {sum}", "= a step", " ".repeat(room));
    }

    fn findings(&self, out: &mut String, diagnosis: &Diagnosis) {
        let findings = &diagnosis.findings;
        if !findings.is_empty() {
            out.push('\n');
        }
        for (index, finding) in findings.iter().take(IN_FULL + IN_SHORT).enumerate() {
            self.finding(out, index, finding, diagnosis);
        }
        if findings.len() > IN_FULL + IN_SHORT {
            let further = findings.len() - IN_FULL - IN_SHORT;
            let _ = writeln!(out, "    and {further} more (--html, --json)");
        }
    }

    fn finding(&self, out: &mut String, index: usize, finding: &Finding, diagnosis: &Diagnosis) {
        let width = self.style.width;
        let colour = match finding.severity {
            Severity::Failure => "31;1",
            Severity::Slow => "33;1",
            Severity::Info => "1",
        };
        let line = format!("{}  {}", finding.id, self.stakes(finding));
        let line = wrapped(&format!("{:>2}. ", index + 1), 4, &line, width, ALL_LINES);
        out.push_str(&line.replacen(finding.id, &self.style.paint(colour, finding.id), 1));
        // The sentence of the whole is the title of its first finding.
        let said = diagnosis.sentence.to_lowercase().starts_with(&finding.title.to_lowercase());
        if !said {
            out.push_str(&wrapped("    ", 4, &finding.title, width, ALL_LINES));
        }
        if index >= IN_FULL {
            return;
        }
        for evidence in finding.evidence.iter().take(EVIDENCE) {
            let first = format!("      {}: ", self.place(evidence));
            let name = evidence
                .span
                .as_ref()
                .map_or(String::new(), |span| format!(" [{}]", shortened(&span.name)));
            let text = format!("{}{name}", evidence.text);
            // A long name of a file has a line of its own.
            if first.len() * 2 > width {
                out.push_str(&wrapped("      ", 8, &first, width, EVIDENCE_LINES));
                out.push_str(&wrapped("        ", 8, &text, width, EVIDENCE_LINES));
            } else {
                out.push_str(&wrapped(&first, 8, &text, width, EVIDENCE_LINES));
            }
        }
        if finding.evidence.len() > EVIDENCE {
            let _ = writeln!(out, "      and {} more", finding.evidence.len() - EVIDENCE);
        }
        out.push_str(&wrapped("      do: ", 10, &finding.remedy.text, width, ALL_LINES));
    }

    /// What a finding costs, and how sure that is.
    fn stakes(&self, finding: &Finding) -> String {
        let sure = match finding.confidence {
            diagnose::finding::Confidence::High => "high",
            diagnose::finding::Confidence::Medium => "medium",
            diagnose::finding::Confidence::Low => "low",
        };
        let Some(cost) = finding.cost else { return format!("confidence {sure}") };
        let step = self.job.mean_step() / 1e6;
        let share = |value: f64| format!("{:.0}", 100.0 * value / step);
        let time = between(number(cost.low), number(cost.high));
        let share = if step > cost.high {
            format!(" ({} %)", between(share(cost.low), share(cost.high)))
        } else {
            String::new()
        };
        format!("{time} ms per step{share}, confidence {sure}")
    }

    fn place(&self, evidence: &Evidence) -> String {
        let file = self.short(&evidence.file);
        evidence.line.map_or(file.clone(), |line| format!("{file}:{line}"))
    }

    fn short(&self, name: &str) -> String {
        printable(name.strip_prefix(&self.folder).unwrap_or(name))
    }

    fn open(&self, out: &mut String) {
        let open = abstained(self.job);
        if !open.is_empty() {
            out.push_str("\nNot decided:\n");
        }
        for question in open {
            let line = format!("{}: {}", question.question, question.why);
            out.push_str(&wrapped("  ", 4, &line, self.style.width, ALL_LINES));
            let line = format!("capture: {}", question.capture);
            out.push_str(&wrapped("    ", 6, &line, self.style.width, ALL_LINES));
        }
    }

    /// What was read, what was not, and where to go on.
    fn read(&self, out: &mut String, diagnosis: &Diagnosis) {
        out.push('\n');
        let mut formats: BTreeMap<&str, usize> = BTreeMap::new();
        for input in &self.job.inputs {
            *formats.entry(input.format).or_default() += 1;
        }
        let formats: Vec<String> =
            formats.iter().map(|(format, count)| format!("{count} {format}")).collect();
        let read = format!("Read: {}", formats.join(", "));
        out.push_str(&wrapped("", 2, &read, self.style.width, ALL_LINES));
        if let Some(missing) = left_out::missing(self.job) {
            out.push_str(&wrapped("Missing: ", 2, &missing, self.style.width, 2));
        }
        self.groups(out, "Used in part", &left_out::in_part(self.job));
        self.groups(out, "Left out", &left_out::left_out(self.job));
        if let Some(first) = diagnosis.findings.first() {
            let mut line = format!("More: counterpoint explain {}", first.id);
            // Logs alone have no leaves, and nothing to compare.
            if !self.job.participants.is_empty() {
                line += " (or a leaf such as comm.wait); after a change: counterpoint compare BEFORE AFTER";
            }
            out.push_str(&wrapped("", 2, &line, self.style.width, ALL_LINES));
        }
    }

    fn groups(&self, out: &mut String, what: &str, groups: &[Group]) {
        for group in groups.iter().take(REASONS) {
            let who = group.who(|name| self.short(name));
            let line = format!("{what}: {who} ({})", group.reason);
            out.push_str(&wrapped("", 2, &line, self.style.width, 2));
        }
        if groups.len() > REASONS {
            let files: usize = groups[REASONS..].iter().map(|group| group.names.len()).sum();
            let _ = writeln!(out, "{what}: {files} more for other reasons (--json)");
        }
    }
}

struct Row {
    name: String,
    time: i64,
    colour: &'static str,
    meaning: &'static str,
}

impl Row {
    fn new(name: &str, time: i64, colour: &'static str, meaning: &'static str) -> Row {
        Row { name: name.to_owned(), time, colour, meaning }
    }
}

fn heading(job: &Job) -> String {
    let (first, accounted) = (&job.participants[0], &job.accounted[0]);
    let (steps, left_out) = (accounted.steps.counted.len(), accounted.steps.left_out.len());
    let count = job.participants.len();
    let what = match (count, job.is_host_only()) {
        (1, true) => "host process",
        (1, false) => "device",
        (_, true) => "host processes",
        (_, false) => "devices",
    };
    let name = job
        .text(&format!("device.{}.name", first.device.number))
        .map_or(String::new(), |name| format!(" ({name})"));
    let steps = match (accounted.steps.weak, left_out) {
        (true, ..) => counted(steps, "step and its edges", "steps and their edges"),
        (false, 0) => counted(steps, "step", "steps"),
        (false, _) => format!("{steps} of {} steps", steps + left_out),
    };
    let each = if count == 1 { "" } else { " each" };
    let source = match first.device.step_source {
        "none" => "no step marks",
        source => source,
    };
    let step = job.mean_step() / 1e6;
    let places = usize::try_from(decimals(step)).unwrap_or(0);
    let launcher =
        placement::launcher(job).map_or(String::new(), |launcher| format!(" under {launcher}"));
    let binding = placement::cores(job);
    let cores = match binding.keys().next() {
        Some(1) if binding.len() == 1 => ", 1 core each".to_owned(),
        Some(cores) if binding.len() == 1 => format!(", {cores} cores each"),
        _ => String::new(),
    };
    format!(
        "{count} {what}{name}{launcher}{cores}, {steps}{each} ({source}), {step:.places$} ms a step"
    )
}

/// Places after the point so that short steps are not all zeros.
fn decimals(milliseconds: f64) -> i32 {
    if milliseconds >= 10.0 { 2 } else { 4 }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn shortened(name: &str) -> String {
    const MOST: usize = 60;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    let kept: String = name.chars().take(MOST - 3).collect();
    format!("{kept}...")
}

/// The folders that the names of all inputs begin with, to the last slash.
fn common_folder(job: &Job) -> String {
    let names = job.inputs.iter().map(|input| &input.name);
    let mut names = names.chain(job.unusable.iter().map(|unusable| &unusable.name));
    let Some(first) = names.next() else { return String::new() };
    let mut common = first.rfind('/').map_or(0, |slash| slash + 1);
    for name in names {
        while !name.starts_with(&first[..common]) {
            common = first[..common - 1].rfind('/').map_or(0, |slash| slash + 1);
        }
    }
    first[..common].to_owned()
}
