//! Any file as a sequence of bytes: token = byte, vocabulary 256. Knows no encodings.

use std::path::Path;

use super::{
    Format, Tokens,
    support::{FlatTokens, Width, open},
};
use crate::Error;

/// `text-bytes`.
pub struct TextBytes;

impl Format for TextBytes {
    fn name(&self) -> &'static str {
        "text-bytes"
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Tokens>, Error> {
        let (file, count) = open(path)?;
        Ok(Box::new(FlatTokens {
            path: path.to_owned(),
            file,
            offset: 0,
            count,
            width: Width::One,
        }))
    }
}
