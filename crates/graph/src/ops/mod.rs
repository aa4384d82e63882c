//! The operators, one file each, and the list of them.

use crate::Registry;

/// All operators of this crate.
pub fn registry() -> Registry {
    Registry::new([])
}
