//! One file per input format, recognised by content, streaming into timelines.
//!
//! Knows formats; what a fact means for a job is the diagnosis' matter. Every byte string is a valid input: what
//! cannot be used is counted with its reason.

mod error;
pub mod formats;
pub mod input;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use timeline::Timeline;

pub use error::ReadError;
pub use input::Input;

/// One input format.
pub trait Reader: Sync {
    /// Short name of the format, as reports show it.
    fn name(&self) -> &'static str;

    /// Names of the formats it tells apart.
    fn formats(&self) -> Vec<&'static str> {
        vec![self.name()]
    }

    /// Whether bytes that begin with `head` (up to 64 KiB, decompressed) are of this format.
    fn recognise(&self, head: &[u8]) -> bool;

    /// Reads everything.
    ///
    /// # Errors
    /// Only where nothing is usable; damage inside is counted in the timeline's `skipped`.
    fn read(&self, input: Input) -> Result<Timeline, ReadError>;

    /// As [`Reader::read`], with the name of the very format where the reader covers several.
    ///
    /// # Errors
    /// As [`Reader::read`].
    fn read_named(&self, input: Input) -> Result<(Timeline, &'static str), ReadError> {
        Ok((self.read(input)?, self.name()))
    }
}

/// What one input held.
#[derive(Debug)]
pub struct Reading {
    /// Name of the input.
    pub input: String,
    /// Name of the format.
    pub format: &'static str,
    /// Everything found.
    pub timeline: Timeline,
}

/// Reads a file of any known format.
///
/// # Errors
/// Where the file cannot be opened, is not recognised, or holds nothing usable.
pub fn read_file(path: &Path) -> Result<Reading, ReadError> {
    read(Input::open(path)?)
}

/// Reads many files, as many at once as there are cores; the results are in the order of the paths.
pub fn read_files(paths: &[PathBuf]) -> Vec<Result<Reading, ReadError>> {
    paths.par_iter().map(|path| read_file(path)).collect()
}

/// Reads an opened input of any known format.
///
/// # Errors
/// As [`read_file`].
pub fn read(input: Input) -> Result<Reading, ReadError> {
    let Some(reader) = formats::ALL.iter().find(|reader| reader.recognise(input.head())) else {
        return Err(ReadError::NotRecognised("no known format"));
    };
    let name = input.name.clone();
    let (timeline, format) = reader.read_named(input)?;
    Ok(Reading { input: name, format, timeline })
}
