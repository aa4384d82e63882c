//! The families of models that a recipe may name: one file each.

mod gpt2;

use crate::Family;

pub use gpt2::Gpt2;

/// Every family.
pub const FAMILIES: &[&dyn Family] = &[&gpt2::Family];

/// The family called `name`.
pub fn family(name: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().copied().find(|family| family.name() == name)
}
