//! What grammars share: stating facts about a process found by host, pid or rank, launchers' tags, small scanners.
//!
//! Knows no format. Keeps what an input may occupy within bounds: facts of one kind are counted, quoted lines cut.

use std::collections::{HashMap, HashSet};

use timeline::{FactValue, Line, Process, Timeline};

/// Facts of one key beyond this number are counted, not kept.
const FACTS_PER_KEY: u32 = 20_000;
/// Bytes of quoted lines beyond which facts are counted, not kept.
const QUOTED_BYTES: usize = 96 << 20;
/// Longer lines are quoted up to here.
const QUOTE_BYTES: usize = 2 << 10;
/// Processes beyond this number share none.
const PROCESSES: usize = 1 << 16;
/// Hosts on which the same process id is told apart from the rest of a line that lost its end.
const HOSTS_OF_PID: usize = 64;

/// Where a grammar states what a line means.
#[derive(Debug)]
pub struct Context<'a> {
    /// The input's timeline.
    pub timeline: &'a mut Timeline,
    /// The rank a launcher's tag names.
    pub rank: Option<u32>,
    memory: &'a mut Memory,
}

/// What is remembered from line to line of one input.
#[derive(Debug, Default)]
pub struct Memory {
    /// The command whose output follows, as typed after the last prompt; empty where there was none.
    pub command: String,
    seen: HashSet<(Option<u32>, String)>,
    counts: HashMap<String, u32>,
    quoted: usize,
    by_pid: HashMap<(String, i64), u32>,
    hosts_of_pid: HashMap<i64, Vec<String>>,
    by_rank: HashMap<u32, u32>,
}

impl<'a> Context<'a> {
    /// A context over a timeline, for one line.
    pub fn new(
        timeline: &'a mut Timeline,
        memory: &'a mut Memory,
        rank: Option<u32>,
    ) -> Context<'a> {
        Context { timeline, rank, memory }
    }

    /// The command whose output this is; empty where the input shows none.
    pub fn command(&self) -> &str {
        &self.memory.command
    }

    /// A new command was typed.
    pub fn set_command(&mut self, command: &str) {
        cut(command, QUOTE_BYTES).clone_into(&mut self.memory.command);
    }

    /// The process of this host and pid: added on first use.
    pub fn process(&mut self, host: &str, pid: i64) -> Option<u32> {
        // A line that lost its end runs into the next one's host: the tail is the host.
        let known = self.memory.hosts_of_pid.get(&pid);
        let host = known
            .and_then(|hosts| hosts.iter().find(|own| host.ends_with(own.as_str())))
            .map_or(host, |own| own.as_str())
            .to_owned();
        if let Some(&index) = self.memory.by_pid.get(&(host.clone(), pid)) {
            return Some(index);
        }
        if self.timeline.processes.len() >= PROCESSES {
            return None;
        }
        let tagged = self.rank.and_then(|rank| self.memory.by_rank.get(&rank).copied());
        let index = match tagged {
            Some(index) if self.timeline.processes[index as usize].pid.is_none() => {
                let process = &mut self.timeline.processes[index as usize];
                (process.host, process.pid) = (Some(host.clone()), Some(pid));
                index
            }
            // A tag that another process has belongs to the line's first writer alone.
            _ => self.timeline.add_process(Process {
                rank: if tagged.is_none() { self.rank } else { None },
                host: Some(host.clone()),
                pid: Some(pid),
                name: format!("{host} pid {pid}"),
            }),
        };
        if let Some(rank) = self.rank {
            self.memory.by_rank.entry(rank).or_insert(index);
        }
        let hosts = self.memory.hosts_of_pid.entry(pid).or_default();
        if hosts.len() < HOSTS_OF_PID {
            hosts.push(host.clone());
        }
        self.memory.by_pid.insert((host, pid), index);
        Some(index)
    }

    /// The process of this rank: added on first use.
    pub fn process_of_rank(&mut self, rank: u32) -> Option<u32> {
        if let Some(&index) = self.memory.by_rank.get(&rank) {
            return Some(index);
        }
        if self.timeline.processes.len() >= PROCESSES {
            return None;
        }
        let process =
            Process { rank: Some(rank), name: format!("rank {rank}"), ..Process::default() };
        let index = self.timeline.add_process(process);
        self.memory.by_rank.insert(rank, index);
        Some(index)
    }

    /// A process's rank, unless it is known.
    pub fn set_rank(&mut self, process: u32, rank: u32) {
        let Some(own) = self.timeline.processes.get_mut(process as usize) else { return };
        if own.rank.is_none() {
            own.rank = Some(rank);
            self.memory.by_rank.entry(rank).or_insert(process);
        }
    }

    /// The process that the launcher's tag of this line names.
    pub fn tagged(&mut self) -> Option<u32> {
        self.rank.and_then(|rank| self.process_of_rank(rank))
    }

    /// States a fact with its line.
    pub fn fact(
        &mut self,
        process: Option<u32>,
        key: &str,
        value: impl Into<FactValue>,
        line: &Line,
    ) {
        let full = self.memory.quoted > QUOTED_BYTES;
        let count = self.memory.counts.get(key).copied().unwrap_or(0);
        if full || count >= FACTS_PER_KEY {
            self.timeline.skip("more lines of one kind than are kept");
            return;
        }
        self.memory.counts.insert(key.to_owned(), count + 1);
        let value = match value.into() {
            FactValue::Text(text) => FactValue::Text(cut(&text, QUOTE_BYTES).to_owned()),
            value => value,
        };
        let text = cut(&line.text, QUOTE_BYTES);
        // A fact's own size and its value's, besides the quoted line.
        self.memory.quoted += text.len() + key.len() + 200;
        let line = Line { number: line.number, text: text.to_owned() };
        self.timeline.fact_at(process, key, value, line);
    }

    /// States a fact unless this key already has this value for this process: for lines that repeat by the hundred.
    pub fn fact_once(&mut self, process: Option<u32>, key: &str, value: &str, line: &Line) {
        let value = cut(value, QUOTE_BYTES);
        if self.memory.seen.insert((process, format!("{key}={value}"))) {
            self.memory.quoted += value.len() + key.len();
            self.fact(process, key, value, line);
        }
        if self.memory.quoted > QUOTED_BYTES {
            self.memory.seen.clear();
        }
    }
}

/// A line without the tags that launchers put before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged<'t> {
    /// The rank named.
    pub rank: Option<u32>,
    /// The host named.
    pub host: Option<&'t str>,
    /// What follows.
    pub text: &'t str,
}

/// Splits off `[1,3]<stdout>:`, `[rank3]:`, `[default3]:`, `rank3: `, `3: ` and `node1: `.
pub fn untag(text: &str) -> Tagged<'_> {
    let mut tagged = Tagged { rank: None, host: None, text };
    for _ in 0..3 {
        let Some((rank, host, rest)) = tag(tagged.text) else { break };
        tagged.rank = rank.or(tagged.rank);
        tagged.host = host.or(tagged.host);
        tagged.text = rest;
    }
    tagged
}

type Tag<'t> = (Option<u32>, Option<&'t str>, &'t str);

fn tag(text: &str) -> Option<Tag<'_>> {
    if let Some(inside) = text.strip_prefix('[') {
        let (name, rest) = inside.split_once(']')?;
        if let Some((job, rank)) = name.split_once(',') {
            job.parse::<u32>().ok()?;
            let rest = ["<stdout>:", "<stderr>:", "<stddiag>:"]
                .iter()
                .find_map(|stream| rest.strip_prefix(stream))?;
            return Some((rank.parse().ok(), None, rest.strip_prefix(' ').unwrap_or(rest)));
        }
        let number = name.strip_prefix("rank").or_else(|| name.strip_prefix("default"))?;
        let rest = rest.strip_prefix(':')?;
        return Some((Some(number.parse().ok()?), None, rest.strip_prefix(' ').unwrap_or(rest)));
    }
    let (word, rest) = text.split_once(": ")?;
    if let Ok(rank) = word.trim_start().parse::<u32>() {
        return (rank < 1 << 20).then_some((Some(rank), None, rest));
    }
    if let Some(Ok(rank)) = word.strip_prefix("rank").map(str::parse::<u32>) {
        return Some((Some(rank), None, rest));
    }
    let host = word.len() <= 64
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
    host.then_some((None, Some(word), rest))
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

/// The first bytes of a text, at most `most`, whole characters.
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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

/// A whole number with thousands separators, or none.
pub fn grouped_integer(text: &str) -> Option<i64> {
    let digits: String = text.trim().chars().filter(|c| *c != ',').collect();
    digits.parse().ok()
}

/// The whole number after a marker.
pub fn integer_after(text: &str, before: &str) -> Option<i64> {
    let rest = after(text, before)?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Nanoseconds of a number with a unit such as `1.802s`, `11.020ms`, `3.2 us`: from its digits, never through a float.
pub fn nanoseconds(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let exponent = match text[end..].trim() {
        "s" | "sec" | "seconds" => 9,
        "ms" | "msec" => 6,
        "us" | "µs" | "μs" | "usec" => 3,
        "ns" | "nsec" => 0,
        _ => return None,
    };
    scaled(&text[..end], exponent)
}

/// A decimal number times ten to the `exponent`, cut to a whole number; thousands separators are dropped.
pub fn scaled(number: &str, exponent: usize) -> Option<i64> {
    let number: String = number.trim().chars().filter(|c| *c != ',').collect();
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.len() + exponent > 18
        || !(whole.chars().chain(fraction.chars())).all(|c| c.is_ascii_digit())
        || (whole.is_empty() && fraction.is_empty())
    {
        return None;
    }
    let mut digits = whole.to_owned();
    digits.extend(fraction.chars().chain(std::iter::repeat('0')).take(exponent));
    digits.parse().ok()
}

/// Bytes of `3174 MiB`, `7.06 GiB`, `0 bytes`, `64M`.
pub fn bytes(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim_start();
    let scale: f64 = match unit.split(|c: char| !c.is_ascii_alphabetic()).next()? {
        "B" | "bytes" | "" => 1.0,
        "KiB" | "Ki" | "KB" | "K" | "kB" | "k" => 1024.0,
        "MiB" | "Mi" | "MB" | "M" => 1_048_576.0,
        "GiB" | "Gi" | "GB" | "G" => 1_073_741_824.0,
        "TiB" | "Ti" | "TB" | "T" => 1_099_511_627_776.0,
        _ => return None,
    };
    let bytes = number * scale;
    (bytes < 9e18).then_some(bytes.round() as i64)
}

/// A text as part of a key: lower case, words joined by underscores.
pub fn key_word(text: &str) -> String {
    let mut key = String::new();
    for letter in cut(text.trim(), 64).chars() {
        if letter.is_alphanumeric() || letter == '.' {
            key.extend(letter.to_lowercase());
        } else if !key.ends_with('_') && !key.is_empty() {
            key.push('_');
        }
    }
    key.trim_end_matches('_').to_owned()
}
