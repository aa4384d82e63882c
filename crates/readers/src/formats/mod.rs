//! The input formats, one file or folder each, and the list of them.

mod kineto;
mod nccl_ras_json;
mod nccl_tests_json;
mod nsys;
mod record;
mod snapshot;
mod text;

use std::io::Read;

use serde_json::Value;

use crate::{Input, ReadError, Reader};

/// All formats; the first that recognises an input reads it.
pub const ALL: &[&dyn Reader] = &[
    &record::Record,
    &kineto::Kineto,
    &nccl_tests_json::NcclTestsJson,
    &nccl_ras_json::NcclRasJson,
    &nsys::Nsys,
    &snapshot::Snapshot,
    &text::Text,
];

/// Names of all formats, as [`crate::Reading::format`] states them: one for each reader, several for those that cover
/// several.
pub fn names() -> Vec<&'static str> {
    ALL.iter().flat_map(|reader| reader.formats()).collect()
}

/// The whole of an input that is one small JSON document; what lies beyond `most` bytes is cut off, and no JSON.
fn json_document(input: Input, format: &'static str, most: u64) -> Result<Value, ReadError> {
    let mut bytes = vec![];
    input.into_reader().take(most).read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::Nothing { format, message: error.to_string() })
}
