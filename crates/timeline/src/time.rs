//! Points in time and lengths of time in integer nanoseconds. Knows no calendar.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
};

/// A point in time: nanoseconds since the recording's zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A length of time in nanoseconds; differences may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

impl Time {
    /// From nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Time {
        Time(nanoseconds)
    }

    /// As nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);

    /// From nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Duration {
        Duration(nanoseconds)
    }

    /// As nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// As milliseconds, for people.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Sums saturate: a damaged recording may hold any number.
impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration.0))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(duration.0))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Duration {
    type Output = Duration;

    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Duration;

    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Neg for Duration {
    type Output = Duration;

    fn neg(self) -> Duration {
        Duration(self.0.saturating_neg())
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Duration) {
        *self = *self - other;
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(durations: I) -> Duration {
        durations.fold(Duration::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    /// In the unit that keeps three or four digits: `12 ns`, `3.21 us`, `87.0 ms`, `1.07 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        match value.abs() {
            v if v < 1e3 => write!(f, "{} ns", self.0),
            v if v < 1e4 => write!(f, "{:.2} us", value / 1e3),
            v if v < 1e6 => write!(f, "{:.1} us", value / 1e3),
            v if v < 1e7 => write!(f, "{:.2} ms", value / 1e6),
            v if v < 1e9 => write!(f, "{:.1} ms", value / 1e6),
            _ => write!(f, "{:.2} s", value / 1e9),
        }
    }
}
