//! Tokens that lie one after the other in a file, one or two bytes each. Knows no headers.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::Tokens;
use crate::Error;

/// Bytes of one token, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `u8`.
    One,
    /// `u16`.
    Two,
}

/// `count` tokens from byte `offset` of a file.
#[derive(Debug)]
pub struct FlatTokens {
    /// The file's path, for messages.
    pub path: PathBuf,
    /// The file.
    pub file: File,
    /// Where the first token is.
    pub offset: u64,
    /// Number of tokens.
    pub count: u64,
    /// Bytes of a token.
    pub width: Width,
}

/// Opens a file and says how many bytes it has.
pub fn open(path: &Path) -> Result<(File, u64), Error> {
    let file = File::open(path).map_err(|source| Error::file(path, "open", source))?;
    let size = file.metadata().map_err(|source| Error::file(path, "read the size", source))?.len();
    Ok((file, size))
}

impl Tokens for FlatTokens {
    fn count(&self) -> u64 {
        self.count
    }

    fn read(&self, start: u64, into: &mut [i32]) -> Result<(), Error> {
        let width = match self.width {
            Width::One => 1,
            Width::Two => 2,
        };
        let mut bytes = vec![0_u8; into.len() * width];
        self.file
            .read_exact_at(&mut bytes, self.offset + start * width as u64)
            .map_err(|source| Error::file(&self.path, "read", source))?;
        match self.width {
            Width::One => {
                into.iter_mut().zip(&bytes).for_each(|(token, &byte)| *token = i32::from(byte))
            }
            Width::Two => into.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(token, pair)| {
                *token = i32::from(u16::from_le_bytes([pair[0], pair[1]]))
            }),
        }
        Ok(())
    }
}
