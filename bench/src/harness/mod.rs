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

pub use self::{
    numbers::{Random, decode, encode, relative_error},
    ranks::{Figures, PLAIN, Rank, RankCandidate, RankOptions, Variant},
    report::{Report, Row},
    session::{Common, Session},
    statistics::Samples,
    timing::{Candidate, Outcome, Timing, interleave, interleave_each},
};

/// One line for the person who started the program.
#[expect(clippy::print_stdout, reason = "the program talks to the person who ran it")]
pub fn say(text: &str) {
    println!("{text}");
}

/// One line about what went wrong.
#[expect(clippy::print_stderr, reason = "the program talks to the person who ran it")]
pub fn complain(text: &str) {
    eprintln!("{text}");
}
