//! llm.c's token shards: 256 little-endian `i32` of header (magic 20240520, version 1, number of tokens, zeros), then
//! `u16` tokens. Knows no vocabulary.

use std::{io::Read, path::Path};

use super::{
    Format, Tokens,
    support::{FlatTokens, Width, open},
};
use crate::Error;

const HEADER: u64 = 1024;
const MAGIC: i32 = 20_240_520;
const VERSION: i32 = 1;

/// `llm-c`.
pub struct LlmC;

impl Format for LlmC {
    fn name(&self) -> &'static str {
        "llm-c"
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Tokens>, Error> {
        let (mut file, size) = open(path)?;
        if size < HEADER {
            return Err(Error::data(
                path,
                format!("found {size} bytes, expected a header of {HEADER} bytes: cut off"),
            ));
        }
        let mut words = [0_u8; 12];
        file.read_exact(&mut words).map_err(|source| Error::file(path, "read", source))?;
        let word = |at: usize| {
            i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let (magic, version, promised) = (word(0), word(4), word(8));
        if magic != MAGIC {
            return Err(Error::data(
                path,
                format!(
                    "header starts with {magic}, expected {MAGIC}: not an llm.c GPT-2 token shard (nanoGPT's files are format \"tokens-bin\")"
                ),
            ));
        }
        if version != VERSION {
            return Err(Error::data(
                path,
                format!("header has version {version}, expected {VERSION}"),
            ));
        }
        let held = (size - HEADER) / 2;
        let Some(count) = u64::try_from(promised).ok().filter(|&count| count <= held) else {
            let reason = if promised < 0 { "damaged" } else { "cut off" };
            return Err(Error::data(
                path,
                format!("header promises {promised} tokens, found {held}: {reason}"),
            ));
        };
        Ok(Box::new(FlatTokens {
            path: path.to_owned(),
            file,
            offset: HEADER,
            count,
            width: Width::Two,
        }))
    }
}
