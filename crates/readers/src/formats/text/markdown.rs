//! Markdown around a pasted log: which lines are the log, and which are words about it.
//!
//! A log stands in a fenced block, or bare between paragraphs, or as a line of code alone. List items and sentences that
//! begin with code quote logs of any job to make a point: they state nothing of this one. Knows no format of a log.

/// Reads line by line; a text that shows no Markdown passes unchanged.
#[derive(Debug)]
pub struct Markdown {
    is_document: bool,
    /// The marks that opened the present block.
    fence: Option<String>,
}

impl Markdown {
    /// Of a text that begins with `head`.
    pub fn of(head: &[u8]) -> Markdown {
        let is_document = String::from_utf8_lossy(head).lines().any(|line| {
            is_heading(line)
                || fence(line).is_some()
                || item(line).is_some_and(|text| text.starts_with('`'))
        });
        Markdown { is_document, fence: None }
    }

    /// The line of a log that this line holds, without Markdown's marks.
    pub fn log_line<'t>(&mut self, line: &'t str) -> Option<&'t str> {
        if !self.is_document {
            return Some(line);
        }
        match (&self.fence, fence(line)) {
            (None, Some(marks)) => {
                self.fence = Some(marks.to_owned());
                return None;
            }
            (Some(open), Some(marks)) if marks.starts_with(open) && line.trim() == marks => {
                self.fence = None;
                return None;
            }
            (Some(_), _) => return Some(line),
            (None, None) => {}
        }
        let text = line.trim();
        if item(text).is_some() {
            return None;
        }
        match text.strip_prefix('`') {
            Some(rest) => rest.strip_suffix('`').filter(|code| !code.contains('`')),
            None => Some(line),
        }
    }
}

/// A heading below the first level: a single mark begins a comment or a prompt just as well.
fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches('#');
    (2..=6).contains(&(line.len() - text.len())) && text.starts_with(' ')
}

/// The marks of a line that opens or closes a block.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ['`', '~'].into_iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(mark).len();
        (length >= 3).then(|| &line[..length])
    })
}

/// The text of a list item.
fn item(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.strip_prefix(['-', '*', '+']) {
        Some(rest) => rest,
        None => {
            let rest = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let digits = line.len() - rest.len();
            rest.strip_prefix(['.', ')']).filter(|_| (1..=3).contains(&digits))?
        }
    };
    rest.strip_prefix(' ')
}
