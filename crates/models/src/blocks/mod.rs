//! Parts that several models share. Knows no whole model.

mod transformer;

pub use transformer::{Block, BlockShape};
