//! Interned texts: a name that occurs a million times is stored once. Knows no meaning of any name.

use std::collections::HashMap;

/// Index of a name in its [`Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(u32);

impl NameId {
    /// As an index in order of first use.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All names of a timeline, in order of first use.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Bytes that all texts take.
    bytes: usize,
    texts: Vec<Box<str>>,
    index: HashMap<Box<str>, u32>,
}

impl Names {
    /// A recording with more names than this many bytes hold is damaged: all further ones become one.
    pub const MOST_BYTES: usize = 128 << 20;

    /// The id of a text: added on first use.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&index) = self.index.get(text) {
            return NameId(index);
        }
        const LEFT_OUT: &str = "(one of more names than are kept)";
        if self.bytes > Names::MOST_BYTES && text != LEFT_OUT {
            return self.intern(LEFT_OUT);
        }
        // The text, and its places in the list and the index.
        self.bytes += text.len() + 64;
        let index = self.texts.len() as u32;
        self.texts.push(text.into());
        self.index.insert(text.into(), index);
        NameId(index)
    }

    /// The id of a text that is known.
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.index.get(text).map(|&index| NameId(index))
    }

    /// The text of an id.
    pub fn text(&self, id: NameId) -> &str {
        &self.texts[id.index()]
    }

    /// All texts in order of first use.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(AsRef::as_ref)
    }

    /// Replaces texts for which `by` yields another; ids stay what they are.
    pub fn replace(&mut self, mut by: impl FnMut(&str) -> Option<String>) {
        for text in &mut self.texts {
            if let Some(new) = by(text) {
                *text = new.into();
            }
        }
        let texts = self.texts.iter().zip(0..);
        self.index = texts.map(|(text, index)| (text.clone(), index)).collect();
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        self.texts == other.texts
    }
}
