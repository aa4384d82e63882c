//! Token data on disk: one file per format in [`FORMATS`], and data sets of fixed-length samples over any of them.
//!
//! Reads only what a sample needs; knows no order of samples, no ranks and no model.

mod llm_c;
mod support;
mod text_bytes;
mod tokens_bin;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, recipe::nearest};

/// A way of holding tokens in a file.
pub trait Format: Sync {
    /// The word in `data.format`.
    fn name(&self) -> &'static str;

    /// Opens one file and checks its header and size.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Data`].
    fn open(&self, path: &Path) -> Result<Box<dyn Tokens>, Error>;
}

/// The tokens of one file.
pub trait Tokens: Send + Sync {
    /// Number of tokens.
    fn count(&self) -> u64;

    /// Reads tokens from `start` into all of `into`.
    ///
    /// # Errors
    /// [`Error::File`] when the file has changed or cannot be read.
    fn read(&self, start: u64, into: &mut [i32]) -> Result<(), Error>;
}

/// Every format that `data.format` may name.
pub const FORMATS: &[&dyn Format] = &[&text_bytes::TextBytes, &tokens_bin::TokensBin, &llm_c::LlmC];

/// The format called `name`.
pub fn format(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// Which part of each file a data set holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    /// All of it.
    Whole,
    /// Without the last part of this size.
    Without(f64),
    /// Only the last part of this size.
    Last(f64),
}

/// Samples of `length` tokens with their next tokens as labels, cut from files without overlap and never across files.
pub struct Dataset {
    sections: Vec<Section>,
    length: usize,
    vocabulary: i32,
}

struct Section {
    path: PathBuf,
    tokens: Arc<dyn Tokens>,
    start: u64,
    samples: u64,
    /// Samples of all sections before this one.
    before: u64,
}

impl Dataset {
    /// Opens `patterns` (paths; `*`, `?` and `[..]` match) in sorted order.
    ///
    /// # Errors
    /// A missing or unreadable file, a broken one, a token that is not below `vocabulary` among the first 2^20 of a
    /// file (later ones are found by [`Dataset::sample`]), or too few tokens for one sample.
    pub fn open(
        format: &dyn Format,
        patterns: &[PathBuf],
        part: Part,
        length: usize,
        vocabulary: u32,
    ) -> Result<Self, Error> {
        let vocabulary = i32::try_from(vocabulary).unwrap_or(i32::MAX);
        let mut set = Self { sections: vec![], length, vocabulary };
        let (mut before, mut largest) = (0, 0);
        for path in expand(patterns)? {
            let tokens: Arc<dyn Tokens> = format.open(&path)?.into();
            let (start, end) = bounds(tokens.count(), part);
            largest = largest.max(end - start);
            let samples = (end - start).saturating_sub(1) / (length as u64).max(1);
            let section = Section { path, tokens, start, samples, before };
            set.check_beginning(&section)?;
            before += samples;
            set.sections.push(section);
        }
        if before == 0 {
            let path =
                set.sections.first().map_or_else(PathBuf::new, |section| section.path.clone());
            let which = match part {
                Part::Whole => String::new(),
                Part::Without(_) => " in its part for training".to_owned(),
                Part::Last(split) => format!(" in its last {split} for validation"),
            };
            return Err(Error::data(
                path,
                format!(
                    "found {largest} tokens{which}, expected at least {} for one sample",
                    length + 1
                ),
            ));
        }
        Ok(set)
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.sections.last().map_or(0, |section| section.before + section.samples)
    }

    /// Tokens per sample.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes sample `index` (taken modulo the number of samples): tokens and, one further, labels.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Data`] for a token outside the vocabulary.
    pub fn sample(&self, index: u64, inputs: &mut [i32], labels: &mut [i32]) -> Result<(), Error> {
        let index = index % self.samples().max(1);
        let at = self.sections.partition_point(|section| section.before + section.samples <= index);
        let section = &self.sections[at];
        let start = section.start + (index - section.before) * self.length as u64;
        let mut window = vec![0; self.length + 1];
        section.tokens.read(start, &mut window)?;
        self.check(section, start, &window)?;
        inputs.copy_from_slice(&window[..self.length]);
        labels.copy_from_slice(&window[1..]);
        Ok(())
    }

    fn check_beginning(&self, section: &Section) -> Result<(), Error> {
        let count = usize::try_from(section.tokens.count().min(1 << 20)).unwrap_or(1 << 20);
        let mut window = vec![0; count];
        section.tokens.read(0, &mut window)?;
        self.check(section, 0, &window)
    }

    fn check(&self, section: &Section, start: u64, window: &[i32]) -> Result<(), Error> {
        match window.iter().position(|token| !(0..self.vocabulary).contains(token)) {
            None => Ok(()),
            Some(at) => Err(Error::data(
                &section.path,
                format!(
                    "token {} is {}, beyond the vocabulary of {} (model.vocabulary)",
                    start + at as u64,
                    window[at],
                    self.vocabulary
                ),
            )),
        }
    }
}

/// Token range of a part of `count` tokens.
fn bounds(count: u64, part: Part) -> (u64, u64) {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count: between 0 and the count"
    )]
    let cut = |split: f64| count - ((count as f64 * split) as u64).min(count);
    match part {
        Part::Whole => (0, count),
        Part::Without(split) => (0, cut(split)),
        Part::Last(split) => (cut(split), count),
    }
}

/// The files that the patterns name, sorted within each pattern.
fn expand(patterns: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = vec![];
    for pattern in patterns {
        let text = pattern.to_string_lossy();
        if pattern.exists() || !text.contains(['*', '?', '[']) {
            files.push(pattern.clone());
            continue;
        }
        let matches = glob::glob(&text)
            .map_err(|error| Error::data(pattern, format!("not a pattern: {}", error.msg)))?;
        let before = files.len();
        files.extend(matches.filter_map(Result::ok));
        if files.len() == before {
            return Err(Error::data(pattern, "no file matches this pattern"));
        }
    }
    for file in &files {
        if !file.exists() {
            return Err(missing(file));
        }
        if file.is_dir() {
            return Err(Error::data(
                file,
                "is a folder, expected a file or a pattern such as folder/*.bin",
            ));
        }
    }
    Ok(files)
}

fn missing(file: &Path) -> Error {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Error::data(file, format!("no such file, and no folder {}", folder.display()));
    };
    let names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let wrong = file.file_name().unwrap_or_default().to_string_lossy();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(&wrong, &names) {
        Some(name) => {
            Error::data(file, format!("no such file; nearest: {}", folder.join(name).display()))
        }
        None => Error::data(file, "no such file"),
    }
}
