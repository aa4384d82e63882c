//! The input formats, one file or folder each, and the list of them.

mod kineto;
mod nccl_ras_json;
mod nccl_tests_json;
mod nsys;
mod record;
mod snapshot;
mod text;

use crate::Reader;

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
