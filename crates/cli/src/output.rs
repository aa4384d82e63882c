//! The two streams: results for whoever reads standard output, words for the person at the terminal.
//! Knows no content.

use std::io::{ErrorKind, Write};

use anyhow::Result;

/// Writes a result to standard output. A reader that has gone away is no error.
///
/// # Errors
/// Where standard output cannot be written.
pub fn result(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    match write!(stdout, "{text}{newline}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a line for the person to standard error.
pub fn say(text: &str) {
    // Where standard error is closed nobody reads.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
