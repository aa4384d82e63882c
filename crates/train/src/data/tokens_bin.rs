//! nanoGPT's token files: little-endian `u16` from the first byte to the last, no header. Knows no vocabulary.

use std::path::Path;

use super::{
    Format, Tokens,
    support::{FlatTokens, Width, open},
};
use crate::Error;

/// `tokens-bin`.
pub struct TokensBin;

impl Format for TokensBin {
    fn name(&self) -> &'static str {
        "tokens-bin"
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Tokens>, Error> {
        let (file, size) = open(path)?;
        if size % 2 != 0 {
            return Err(Error::data(
                path,
                format!(
                    "found {size} bytes, expected an even number (two bytes per token): cut off or another format"
                ),
            ));
        }
        Ok(Box::new(FlatTokens {
            path: path.to_owned(),
            file,
            offset: 0,
            count: size / 2,
            width: Width::Two,
        }))
    }
}
