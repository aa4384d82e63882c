//! A position in a list in four bytes, whether it is there or not: what a million operations refer to each other by.
//! Knows no list.

use std::num::NonZeroU32;

/// A position below [`Index::END`]; `Option<Index>` takes four bytes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(NonZeroU32);

impl Index {
    /// The first position that does not fit: a recording holds no more spans ([`timeline::Spans::MOST`]).
    pub const END: usize = u32::MAX as usize;

    /// The index of a position; `None` where it does not fit.
    pub fn new(position: usize) -> Option<Index> {
        let above = u32::try_from(position).ok()?.checked_add(1)?;
        NonZeroU32::new(above).map(Index)
    }

    /// The position.
    pub fn get(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_fit_or_are_none() {
        for position in [0, 1, 4_000_000_000, Index::END - 1] {
            assert_eq!(Index::new(position).map(Index::get), Some(position));
        }
        for position in [Index::END, usize::MAX] {
            assert_eq!(Index::new(position), None);
        }
        assert_eq!(size_of::<Option<Index>>(), 4);
    }
}
