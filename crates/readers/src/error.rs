//! Why an input yields nothing. Knows no wording of any command.

/// Why nothing of an input could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes could not be had.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// A compressed input of which nothing can be unpacked.
    #[error("cut off before anything could be unpacked")]
    CutOff,
    /// No reader knows these bytes.
    #[error("not recognised: {0}")]
    NotRecognised(&'static str),
    /// The format is known, but nothing usable is inside.
    #[error("{format}: {message}")]
    Nothing {
        /// Name of the format.
        format: &'static str,
        /// What was found.
        message: String,
    },
}
