//! What every measurement shares: options, the session with a device, interleaved timing, reports, numbers.
//!
//! Knows no particular measurement.

pub mod loads;
mod numbers;
mod ranks;
mod report;
mod session;
mod statistics;
mod timing;

use std::io::{self, Write as _};

pub use self::{
    numbers::{Random, decode, encode, relative_error},
    ranks::{Figures, PLAIN, Rank, RankCandidate, RankOptions, Variant},
    report::{Report, Row},
    session::{Common, Session},
    statistics::Samples,
    timing::{Candidate, Outcome, Timing, interleave, interleave_each},
};

/// One line for the person who started the program. A reader that went away is no failure of the measurement.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// One line about what went wrong.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
