//! Lines of a terminal: what may be printed, where a line breaks, and figures that add up as printed.
//!
//! Knows nothing of a diagnosis.

use textwrap::{Options, WordSplitter};

/// Text of a file without what would move the cursor, colour the screen or break the line.
pub fn printable(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.trim().chars().map(plain).collect()
}

/// A text of `width` columns: the first line after `first`, further ones after as many spaces as `further`.
///
/// With `most` lines at most; what is left out is marked by dots.
pub fn wrapped(first: &str, further: usize, text: &str, width: usize, most: usize) -> String {
    let indent = " ".repeat(further);
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation);
    let text = printable(text);
    let mut lines = textwrap::wrap(&text, &options);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            let kept: String = last.chars().take(width.saturating_sub(4)).collect();
            *last = format!("{} ...", kept.trim_end()).into();
        }
    }
    lines.join("\n") + "\n"
}

/// Whole units whose sum is the rounded sum of `values / unit`: the largest remainders are rounded up.
pub fn adding_up(values: &[f64], unit: f64) -> Vec<i64> {
    let exact: Vec<f64> = values.iter().map(|value| value / unit).collect();
    let mut units: Vec<i64> = exact.iter().map(|value| value.floor() as i64).collect();
    let sum = exact.iter().sum::<f64>().round() as i64;
    let mut order: Vec<usize> = (0..units.len()).collect();
    let remainder = |index: usize| exact[index] - exact[index].floor();
    order.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)));
    let missing = usize::try_from(sum - units.iter().sum::<i64>()).unwrap_or(0);
    for index in order.into_iter().take(missing) {
        units[index] += 1;
    }
    units
}
