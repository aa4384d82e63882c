//! One format through its reader: the one that `COUNTERPOINT_FORMAT` names.
//!
//! What another reader takes is not kept, so that the corpus stays with the format.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use readers::Input;

static FORMAT: LazyLock<String> = LazyLock::new(|| {
    let format = std::env::var("COUNTERPOINT_FORMAT").expect("COUNTERPOINT_FORMAT names a format");
    let known = readers::formats::names();
    assert!(known.contains(&format.as_str()), "{format} is none of {known:?}");
    format
});

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let read = Input::from_bytes("input", bytes.to_vec()).and_then(readers::read);
    match read {
        Ok(reading) if reading.format != *FORMAT => Corpus::Reject,
        _ => Corpus::Keep,
    }
});
