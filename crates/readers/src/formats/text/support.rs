//! What grammars share: stating facts about a process found by host and pid, small scanners. Knows no format.

use std::collections::HashSet;

use timeline::{FactValue, Line, Process, Timeline};

/// Where a grammar states what a line means.
#[derive(Debug)]
pub struct Context<'a> {
    /// The input's timeline.
    pub timeline: &'a mut Timeline,
    seen: &'a mut Seen,
}

/// Facts stated so far, for those that are stated once.
pub type Seen = HashSet<(Option<u32>, String)>;

impl<'a> Context<'a> {
    /// A context over a timeline.
    pub fn new(timeline: &'a mut Timeline, seen: &'a mut Seen) -> Context<'a> {
        Context { timeline, seen }
    }

    /// The process of this host and pid: added on first use.
    pub fn process(&mut self, host: &str, pid: i64) -> u32 {
        let found = self
            .timeline
            .processes
            .iter()
            .position(|p| p.pid == Some(pid) && p.host.as_deref() == Some(host));
        match found {
            Some(index) => index as u32,
            None => self.timeline.add_process(Process {
                rank: None,
                host: Some(host.to_owned()),
                pid: Some(pid),
                name: format!("{host} pid {pid}"),
            }),
        }
    }

    /// States a fact with its line.
    pub fn fact(
        &mut self,
        process: Option<u32>,
        key: &str,
        value: impl Into<FactValue>,
        line: &Line,
    ) {
        self.timeline.fact_at(process, key, value, line.clone());
    }

    /// States a fact unless this key already has this value for this process: for lines that repeat by the hundred.
    pub fn fact_once(&mut self, process: Option<u32>, key: &str, value: &str, line: &Line) {
        if self.seen.insert((process, format!("{key}={value}"))) {
            self.timeline.fact_at(process, key, value, line.clone());
        }
    }
}

/// A line without carriage returns and terminal escape sequences.
pub fn plain(text: &str) -> String {
    let text = text.trim_end_matches('\r');
    if !text.contains('\u{1b}') {
        return text.to_owned();
    }
    let mut kept = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            kept.push(letter);
            continue;
        }
        // `ESC [ ... letter` and two-character sequences.
        if letters.next() == Some('[') {
            for letter in letters.by_ref() {
                if letter.is_ascii_alphabetic() {
                    break;
                }
            }
        }
    }
    kept
}

/// The text after `before`, if it occurs.
pub fn after<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    text.split_once(before).map(|(_, rest)| rest)
}

/// The text between two markers.
pub fn between<'t>(text: &'t str, before: &str, end: &str) -> Option<&'t str> {
    after(text, before)?.split_once(end).map(|(inside, _)| inside)
}

/// The number a text begins with, decimal point allowed.
pub fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|&(at, c)| !(c.is_ascii_digit() || c == '.' || (at == 0 && c == '-')))
        .map_or(text.len(), |(at, _)| at);
    text[..end].parse().ok()
}
