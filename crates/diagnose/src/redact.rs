//! Hosts, addresses, users and paths replaced by stable placeholders, in everything that a report may show.
//!
//! Runs after the rules, so that no conclusion depends on it. Knows how such names look; not where they come from.

use std::{cmp::Reverse, collections::BTreeMap};

use timeline::{FactValue, Timeline};

use crate::{diagnosis::Diagnosis, job::Job};

/// Folders that every machine has: naming them tells nothing.
const COMMON_FOLDERS: &[&str] = &["/dev/", "/proc/", "/sys/"];
/// Users that every machine has.
const COMMON_USERS: &[&str] = &["root", "user", "nobody", "ubuntu"];

/// Replaces names in the job's inputs and in the diagnosis, the same name by the same placeholder everywhere.
pub fn redact(job: &mut Job, diagnosis: &mut Diagnosis) {
    let mut redactor = Redactor::default();
    for input in &job.inputs {
        redactor.learn(&input.timeline);
    }
    let names = job.inputs.iter().map(|input| &input.name);
    redactor.know_inputs(names.chain(job.unusable.iter().map(|unusable| &unusable.name)));
    for input in &mut job.inputs {
        input.name = redactor.input(&input.name);
        redactor.timeline(&mut input.timeline);
    }
    for unusable in &mut job.unusable {
        unusable.name = redactor.input(&unusable.name);
        unusable.reason = redactor.text(&unusable.reason);
    }
    diagnosis.sentence = redactor.text(&diagnosis.sentence);
    for finding in &mut diagnosis.findings {
        finding.title = redactor.text(&finding.title);
        finding.remedy.text = redactor.text(&finding.remedy.text);
        finding.remedy.setting = finding.remedy.setting.as_deref().map(|text| redactor.text(text));
        for evidence in &mut finding.evidence {
            evidence.file = redactor.input(&evidence.file);
            evidence.text = redactor.text(&evidence.text);
            if let Some(span) = &mut evidence.span {
                span.name = redactor.text(&span.name);
            }
        }
    }
}

/// What is private, and what was replaced so far.
#[derive(Debug, Default)]
struct Redactor {
    /// Hosts and users with their kind.
    names: BTreeMap<String, &'static str>,
    /// Bytes of the longest of them.
    longest: usize,
    inputs: BTreeMap<String, String>,
    /// Those inputs whose names could be nothing else in a text, the longest first: a path before its folder.
    paths: Vec<(String, String)>,
    /// What all `paths` begin with.
    folder: String,
    /// Numbers of placeholders by kind.
    numbers: BTreeMap<&'static str, BTreeMap<String, usize>>,
}

impl Redactor {
    /// Collects hosts and users that are named as such somewhere.
    fn learn(&mut self, timeline: &Timeline) {
        for host in timeline.processes.iter().filter_map(|process| process.host.as_ref()) {
            self.know_host(host);
        }
        for fact in &timeline.facts {
            let key = fact.key.to_lowercase();
            if let FactValue::Text(value) = &fact.value {
                if key.ends_with("host") || key.ends_with("hostname") {
                    self.know_host(value);
                }
                self.learn_from(value);
            }
            if let Some(line) = &fact.source {
                self.learn_from(&line.text);
            }
        }
    }

    fn know_host(&mut self, name: &str) {
        if name.len() > 1 && name != "localhost" {
            self.longest = self.longest.max(name.len());
            self.names.insert(name.to_owned(), "host");
        }
    }

    fn know_user(&mut self, name: &str) {
        if name.len() > 1 && !COMMON_USERS.contains(&name) {
            self.longest = self.longest.max(name.len());
            self.names.entry(name.to_owned()).or_insert("user");
        }
    }

    fn know_inputs<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            let number = self.inputs.len() + 1;
            self.inputs.entry(name.clone()).or_insert_with(|| format!("input-{number}"));
        }
        let paths = self.inputs.iter().filter(|(name, _)| name.contains(['/', '.', '\\']));
        self.paths = paths.map(|(name, own)| (name.clone(), own.clone())).collect();
        // In order of names what the first and the last begin with is what all begin with.
        if let (Some((first, _)), Some((last, _))) = (self.paths.first(), self.paths.last()) {
            let alike = first.chars().zip(last.chars()).take_while(|(a, b)| a == b);
            self.folder = alike.map(|(letter, _)| letter).collect();
        }
        self.paths.sort_by_key(|(name, _)| Reverse(name.len()));
    }

    fn learn_from(&mut self, text: &str) {
        for token in tokens(text) {
            // A log's prefix `host:pid:thread`.
            let parts: Vec<&str> = token.split(':').collect();
            let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if parts.len() == 3 && parts[1..].iter().all(number) && is_name(parts[0]) {
                self.know_host(parts[0]);
            }
            // A prompt or address `user@host`.
            if let Some((user, host)) = token.split_once('@') {
                let host = host.split([':', '/']).next().unwrap_or("");
                if is_name(user) && is_name(host) {
                    self.know_user(user);
                    self.know_host(host);
                }
            }
            for home in ["/home/", "/Users/"] {
                if let Some((_, rest)) = token.split_once(home) {
                    let user = rest.split('/').next().unwrap_or("");
                    if is_name(user) {
                        self.know_user(user);
                    }
                }
            }
            if let Some((name, value)) = token.split_once('=')
                && ["USER", "LOGNAME", "SLURM_JOB_USER"].contains(&name)
            {
                self.know_user(value);
            }
        }
    }

    fn timeline(&mut self, timeline: &mut Timeline) {
        for process in &mut timeline.processes {
            process.host = process.host.as_ref().map(|host| self.placeholder("host", host));
            process.name = self.text(&process.name);
        }
        for fact in &mut timeline.facts {
            fact.key = self.text(&fact.key);
            if let FactValue::Text(value) = &mut fact.value {
                *value = self.text(value);
            }
            if let Some(line) = &mut fact.source {
                line.text = self.text(&line.text);
            }
        }
        for skipped in &mut timeline.skipped {
            skipped.reason = self.text(&skipped.reason);
        }
        for track in &mut timeline.tracks {
            track.name = self.text(&track.name);
        }
        timeline.names.replace(|name| {
            let replaced = self.text(name);
            (replaced != name).then_some(replaced)
        });
    }

    fn input(&self, name: &str) -> String {
        self.inputs.get(name).cloned().unwrap_or_else(|| "input".to_owned())
    }

    /// The same placeholder for the same name, numbered in order of appearance.
    fn placeholder(&mut self, kind: &'static str, name: &str) -> String {
        let own = self.numbers.entry(kind).or_default();
        let next = own.len() + 1;
        let number = own.get(name).copied().unwrap_or(next);
        if number == next {
            own.insert(name.to_owned(), number);
        }
        format!("{kind}-{number}")
    }

    /// A text with everything private replaced.
    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        if text.contains(&self.folder) {
            for (name, own) in &self.paths {
                if text.contains(name) {
                    text = text.replace(name, own);
                }
            }
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find(|c| !separates(c)) {
            out.push_str(&rest[..start]);
            let token = &rest[start..];
            let end = token.find(separates).unwrap_or(token.len());
            out.push_str(&self.token(&token[..end]));
            rest = &token[end..];
        }
        out.push_str(rest);
        out
    }

    fn token(&mut self, token: &str) -> String {
        if let Some((name, value)) = token.split_once('=') {
            return format!("{name}={}", self.token(value));
        }
        let (body, tail) = token.split_at(token.trim_end_matches(['.', ':', '!', '?']).len());
        if body.contains("://") {
            return self.placeholder("address", body) + tail;
        }
        if is_address(body) {
            return self.placeholder("address", body) + tail;
        }
        // An interface and its address.
        if let Some((name, address)) = body.split_once(':')
            && is_address(address)
        {
            return format!(
                "{}:{}{tail}",
                self.names_in(name),
                self.placeholder("address", address)
            );
        }
        if let Some((user, place)) = body.split_once('@')
            && self.names.get(user) == Some(&"user")
        {
            let rest = place
                .split_once(':')
                .map_or(String::new(), |(_, path)| format!(":{}", self.token(path)));
            let host = place.split(':').next().unwrap_or("");
            let user = self.placeholder("user", user);
            return format!("{user}@{}{rest}{tail}", self.placeholder("host", host));
        }
        if is_path(body) {
            // A line number behind a path stays.
            let (path, line) = match body.rsplit_once(':') {
                Some((path, line)) if line.bytes().all(|b| b.is_ascii_digit()) => {
                    (path, Some(line))
                }
                _ => (body, None),
            };
            let line = line.map_or(String::new(), |line| format!(":{line}"));
            return self.placeholder("path", path) + &line + tail;
        }
        self.names_in(body) + tail
    }

    /// Known hosts and users as whole words inside a token such as `host:pid:thread`.
    fn names_in(&mut self, token: &str) -> String {
        let mut out = String::with_capacity(token.len());
        let mut rest = token;
        let mut inside_word = false;
        while let Some(first) = rest.chars().next() {
            let found = if inside_word { None } else { self.longest_name(rest) };
            let length = match found {
                Some((kind, length)) => {
                    out.push_str(&self.placeholder(kind, &rest[..length]));
                    length
                }
                None => {
                    out.push(first);
                    first.len_utf8()
                }
            };
            inside_word = rest[..length].ends_with(of_word);
            rest = &rest[length..];
        }
        out
    }

    /// Kind and bytes of the longest known name that a text begins with, as a whole word.
    fn longest_name(&self, text: &str) -> Option<(&'static str, usize)> {
        let ends = text.char_indices().map(|(start, letter)| start + letter.len_utf8());
        ends.take_while(|end| *end <= self.longest)
            .filter(|&end| !text[end..].starts_with(of_word))
            .filter_map(|end| Some((*self.names.get(&text[..end])?, end)))
            .last()
    }
}

fn of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn separates(c: char) -> bool {
    c.is_whitespace() || "\"'`,;()[]{}<>|".contains(c)
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(separates).filter(|token| !token.is_empty())
}

/// Whether a text could be a host's or user's name.
fn is_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

fn is_path(token: &str) -> bool {
    let absolute = token.starts_with('/')
        && token.len() > 2
        && token.as_bytes().get(1).is_some_and(|b| b.is_ascii_alphanumeric() || b"._-".contains(b));
    let home = token.starts_with("~/");
    let drive = token.len() > 3
        && token.as_bytes()[0].is_ascii_alphabetic()
        && token[1..].starts_with(":\\");
    let common = COMMON_FOLDERS.iter().any(|folder| token.starts_with(folder));
    (absolute || home || drive) && !common
}

/// IPv4 with or without a port or prefix, IPv6, hardware addresses, InfiniBand identifiers.
fn is_address(token: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    let bare = token.split(['/', '%']).next().unwrap_or(token);
    let before_port = bare.split(':').next().unwrap_or(bare);
    let quarters: Vec<&str> = before_port.split('.').collect();
    let colons = bare.matches(':').count();
    if quarters.len() == 4 && quarters.iter().all(|part| part.parse::<u8>().is_ok()) && colons <= 1
    {
        return true;
    }
    let groups: Vec<&str> = bare.split(':').collect();
    let of_length = |length: usize| groups.iter().all(|part| hex(part) && part.len() == length);
    match groups.len() {
        6 | 20 => of_length(2),
        4 => of_length(4),
        8 => groups.iter().all(|part| hex(part) && part.len() <= 4),
        count if count > 2 && bare.contains("::") => {
            bare.bytes().any(|b| b.is_ascii_digit())
                && groups.iter().all(|part| part.is_empty() || (hex(part) && part.len() <= 4))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_names_become_placeholders_and_others_stay() {
        let mut timeline = Timeline::new();
        let line = |text: &str| timeline::Line { number: 1, text: text.to_owned() };
        for text in [
            "gpu-a7:1714:1820 [0] NCCL INFO comm 0x5 rank 0",
            "ada@login3:/scratch/ada/run$ nvidia-smi",
        ] {
            timeline.fact_at(None, "any", 1_i64, line(text));
        }
        let mut redactor = Redactor::default();
        redactor.learn(&timeline);
        let cases = [
            (
                "gpu-a7:1714:1820 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>",
                "host-1:1714:1820 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>",
            ),
            ("peer 10.1.2.3<4711> gone", "peer address-1<4711> gone"),
            ("gpu-a7, gpu-a70, gpu-a7-ib0", "host-1, gpu-a70, host-1-ib0"),
            ("ada@login3:/scratch/ada/run$ ls", "user-1@host-2:path-1 ls"),
            ("NCCL_SHM_DISABLE=1 in /etc/nccl.conf:3", "NCCL_SHM_DISABLE=1 in path-2:3"),
            ("/dev/shm 64M, /proc/cmdline", "/dev/shm 64M, /proc/cmdline"),
            ("void at::native::add<float>(int)", "void at::native::add<float>(int)"),
            ("gid fe80:0000:0000:0000:0011:22ff:fe33:4455", "gid address-2"),
            ("tcp://10.0.0.1:29500 by ada", "address-3 by user-1"),
            (
                "torch 2.11.0 at 12:34:56 on 0000:1b:00.0",
                "torch 2.11.0 at 12:34:56 on 0000:1b:00.0",
            ),
            ("busbw 12.5 GB/s", "busbw 12.5 GB/s"),
        ];
        for (text, expected) in cases {
            let expected = expected.replace("eth0:10.1.2.3", "eth0:address-1");
            assert_eq!(redactor.text(text), expected, "{text}");
        }
    }
}
