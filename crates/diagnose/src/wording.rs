//! Words around figures and names: nouns in their number, spans of times, sentences. Knows no cause.

use std::fmt::Display;

/// `1 rank` or `3 ranks`; the words may take their verb along, as in `process is` and `processes are`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

/// `rank 3` or `ranks 1, 2`.
pub fn ranks_text(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list.join(", "))
}

/// `12.3 ms` with the digits that matter.
pub fn milliseconds(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0} ms"),
        v if v >= 10.0 => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

/// `low to high`, or one of them where both read alike.
pub fn between(low: String, high: String) -> String {
    if low == high { high } else { format!("{low} to {high}") }
}

/// A whole sentence: with a capital letter, unless it begins with the name of something, and a full stop.
///
/// A name shows itself by a letter that no ordinary word holds; one in plain letters must not come first.
pub fn sentence(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or("");
    let word = first.trim_end_matches([',', ':']);
    let mut letters = text.chars();
    let text = match letters.next() {
        Some(first) if word.chars().all(char::is_lowercase) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    };
    if text.ends_with('.') { text } else { text + "." }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_begin_with_a_capital_unless_with_a_name() {
        for (text, expected) in [
            ("ranks wait", "Ranks wait."),
            ("kernels: load them lazily", "Kernels: load them lazily."),
            ("gc.disable() before the loop.", "gc.disable() before the loop."),
            ("`df` showing room", "`df` showing room."),
            ("nvidia-smi listing one process", "nvidia-smi listing one process."),
            ("", "."),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }

    #[test]
    fn nouns_agree_with_their_number_and_equal_ends_are_said_once() {
        assert_eq!(counted(1, "process is", "processes are"), "1 process is");
        assert_eq!(counted(2, "process is", "processes are"), "2 processes are");
        assert_eq!(between(milliseconds(1.271), milliseconds(1.274)), "1.27 ms");
        assert_eq!(between(milliseconds(1.0), milliseconds(12.0)), "1.00 ms to 12.0 ms");
    }
}
