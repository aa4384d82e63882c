//! Bytes of an input, whatever wraps them: plain, gzip or zstd, from a file or from standard input.
//!
//! Knows compression, no trace format.

use std::{
    fs::File,
    io::{BufRead, BufReader, Cursor, ErrorKind, Read},
    path::{Path, PathBuf},
};

use timeline::Timeline;

use crate::ReadError;

/// Bytes that `recognise` may look at.
pub const HEAD_BYTES: usize = 64 << 10;

/// An opened input: its decompressed bytes, and the first of them to look at.
pub struct Input {
    /// What to call it in messages.
    pub name: String,
    /// The file, where it is one and is not compressed: for formats that need to seek.
    pub plain_file: Option<PathBuf>,
    head: Vec<u8>,
    rest: Box<dyn Read + Send>,
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// Where it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path) -> Result<Input, ReadError> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(ReadError::NotRecognised("a folder"));
        }
        let mut input = Input::from_reader(&path.display().to_string(), Box::new(file))?;
        input.plain_file = input.plain_file.map(|_| path.to_owned());
        Ok(input)
    }

    /// Takes bytes from a reader such as standard input.
    ///
    /// # Errors
    /// Where the first bytes cannot be read.
    pub fn from_reader(name: &str, reader: Box<dyn Read + Send>) -> Result<Input, ReadError> {
        let mut reader = BufReader::with_capacity(1 << 20, reader);
        let start = reader.fill_buf()?;
        let compressed: Option<Box<dyn Read + Send>> = match start {
            [0x1f, 0x8b, ..] => Some(Box::new(flate2::bufread::MultiGzDecoder::new(reader))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(reader)
                    .map_err(|error| std::io::Error::other(error.to_string()))?;
                Some(Box::new(decoder))
            }
            _ => {
                let mut input = Input::with_head(name, Box::new(reader))?;
                input.plain_file = Some(PathBuf::new());
                return Ok(input);
            }
        };
        match compressed {
            Some(decoder) => Input::with_head(name, decoder),
            None => Err(ReadError::NotRecognised("empty")),
        }
    }

    /// Takes bytes in memory.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Input, ReadError> {
        Input::from_reader(name, Box::new(Cursor::new(bytes)))
    }

    fn with_head(name: &str, mut reader: Box<dyn Read + Send>) -> Result<Input, ReadError> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let mut limited = reader.as_mut().take(HEAD_BYTES as u64);
        let outcome = limited.read_to_end(&mut head);
        let rest = match outcome {
            Err(error) if head.is_empty() && error.kind() == ErrorKind::UnexpectedEof => {
                return Err(ReadError::CutOff);
            }
            // A damaged stream may still have a sound beginning: keep what came, and say so at its end.
            Err(error) if !head.is_empty() => Box::new(Damaged(Some(error))),
            outcome => {
                outcome?;
                reader
            }
        };
        if head.is_empty() {
            return Err(ReadError::NotRecognised("empty"));
        }
        Ok(Input { name: name.to_owned(), plain_file: None, head, rest })
    }

    /// The first bytes, decompressed: at most [`HEAD_BYTES`].
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// All bytes from the first.
    pub fn into_reader(self) -> impl Read + Send {
        Cursor::new(self.head).chain(self.rest)
    }
}

/// States that an input ended early: `place` says where, in words that follow its name. Fact of the run:
/// `input.cut_off`.
pub fn cut_off(timeline: &mut Timeline, place: &str) {
    timeline.skip(place);
    timeline.fact(None, "input.cut_off", place);
}

/// The end of a damaged stream: its error, once.
struct Damaged(Option<std::io::Error>);

impl Read for Damaged {
    fn read(&mut self, _buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
