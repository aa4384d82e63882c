//! How a failed command ends: its text and exit status. Knows which errors are mistakes of the person.

use std::process::ExitCode;

use anyhow::Error;

/// A mistake of the person, as one line.
#[derive(Debug)]
pub struct Mistake(pub String);

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// The lines for standard error: the error and those of its causes that it does not state itself.
pub fn text(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text.lines().map(|line| format!("error: {line}")).collect::<Vec<_>>().join("\n")
}

/// 2 for a mistake in arguments, recipe, data or checkpoint; 1 for everything else.
pub fn status(error: &Error) -> ExitCode {
    let mistake = error.chain().any(|cause| {
        cause.is::<Mistake>()
            || matches!(
                cause.downcast_ref::<train::Error>(),
                Some(
                    train::Error::Recipe(_)
                        | train::Error::Data { .. }
                        | train::Error::Checkpoint { .. }
                        | train::Error::Mismatch(_)
                        | train::Error::File { action: "read" | "open" | "create", .. }
                )
            )
    });
    ExitCode::from(if mistake { 2 } else { 1 })
}
