//! One clock against another: how far it is ahead, and how much faster it runs.
//!
//! Knows pairs of times at which two clocks saw one moment; not what happened then.

use super::median;

/// Shorter captures do not tell drift from noise: 20 ppm of one second are 20 us.
const LEAST_SPAN: i64 = 1_000_000_000;
/// Fewer moments do not tell drift from noise.
const LEAST_MOMENTS: usize = 16;
/// Clocks that differ by more are not clocks: crystals keep within 100 ppm, and time daemons slew by at most 500.
const MOST_DRIFT: f64 = 600e-6;
/// What drift adds up to must exceed the scatter around the line this many times.
const CLEAR: f64 = 4.0;

/// How a clock relates to a reference. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Relation {
    /// Reference time at which `offset` holds.
    pub origin: i64,
    /// How far the clock is ahead then.
    pub offset: i64,
    /// What it gains per nanosecond; 0 where no drift was found.
    pub drift: f64,
}

/// One moment: the reference's time, and how far the other clock was ahead.
pub type Moment = (i64, i64);

impl Relation {
    /// A constant offset: the median over the moments.
    pub fn constant(moments: &[Moment]) -> Relation {
        let offset = median(&mut moments.iter().map(|moment| moment.1).collect::<Vec<_>>());
        let origin = moments.first().map_or(0, |moment| moment.0);
        Relation { origin, offset: offset.unwrap_or(0), drift: 0.0 }
    }

    /// This relation with drift, where the moments cover more than a second and lie clearly closer to a line than to a
    /// constant; else unchanged.
    ///
    /// The slope is the median over pairs of moments at least a third of the capture apart, which a few late ends do
    /// not move.
    pub fn with_drift(self, moments: &[Moment]) -> Relation {
        self.line(moments).unwrap_or(self)
    }

    fn line(self, moments: &[Moment]) -> Option<Relation> {
        let span = moments.last()?.0.saturating_sub(moments.first()?.0);
        if span < LEAST_SPAN || moments.len() < LEAST_MOMENTS {
            return None;
        }
        let half = moments.len() / 2;
        let mut slopes: Vec<f64> = moments
            .iter()
            .zip(&moments[half..])
            .filter(|(early, late)| late.0.saturating_sub(early.0) >= span / 3)
            .map(|(early, late)| (late.1 - early.1) as f64 / (late.0 - early.0) as f64)
            .collect();
        slopes.sort_by(f64::total_cmp);
        let drift = *slopes.get(slopes.len() / 2)?;
        let level = Relation { offset: 0, drift, ..self };
        let mut rest: Vec<i64> = moments.iter().map(|m| m.1 - level.ahead(m.0)).collect();
        let line = Relation { offset: median(&mut rest)?, ..level };
        let gained = (drift * span as f64).abs();
        let scatter = line.scatter(moments);
        let clear = gained > CLEAR * scatter as f64 && scatter < self.scatter(moments);
        (drift.abs() <= MOST_DRIFT && clear).then_some(line)
    }

    /// Median distance of the moments from this relation.
    fn scatter(&self, moments: &[Moment]) -> i64 {
        let mut distances: Vec<i64> =
            moments.iter().map(|moment| (moment.1 - self.ahead(moment.0)).abs()).collect();
        median(&mut distances).unwrap_or(0)
    }

    /// How far the clock is ahead at a time of the reference.
    pub fn ahead(&self, reference: i64) -> i64 {
        self.offset + self.gained(reference.saturating_sub(self.origin), self.drift)
    }

    /// The clock's time at a time of the reference.
    pub fn local(&self, reference: i64) -> i64 {
        reference + self.ahead(reference)
    }

    /// The reference's time at a time of the clock.
    pub fn reference(&self, local: i64) -> i64 {
        let level = local.saturating_sub(self.offset);
        let share = self.drift / (1.0 + self.drift);
        level - self.gained(level.saturating_sub(self.origin), share)
    }

    /// The reference against the clock.
    pub fn inverse(&self) -> Relation {
        Relation {
            origin: self.origin.saturating_add(self.offset),
            offset: -self.offset,
            drift: -self.drift / (1.0 + self.drift),
        }
    }

    /// A third clock against this one's reference, by its relation to this clock.
    pub fn then(&self, next: &Relation) -> Relation {
        let origin = self.reference(next.origin);
        let offset = next.local(next.origin).saturating_sub(origin);
        Relation { origin, offset, drift: self.drift + next.drift + self.drift * next.drift }
    }

    fn gained(&self, elapsed: i64, drift: f64) -> i64 {
        (drift * elapsed as f64).round() as i64
    }
}

/// A link between two participants: the second's clock against the first's.
pub type Link = (usize, usize, Relation);

/// Spreads known relations over the links between participants.
pub fn spread(known: &mut [Option<Relation>], links: &[Link]) {
    loop {
        let mut changed = false;
        for (from, to, link) in links {
            match (known[*from], known[*to]) {
                (Some(own), None) => known[*to] = Some(own.then(link)),
                (None, Some(other)) => known[*from] = Some(other.then(&link.inverse())),
                _ => continue,
            }
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// Parts of the job that share no group with the first: their own first member is their clock.
pub fn restart(known: &mut [Option<Relation>], links: &[Link]) {
    while let Some((from, ..)) = links.iter().find(|(from, ..)| known[*from].is_none()) {
        known[*from] = Some(Relation::default());
        spread(known, links);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_can_be_turned_round_and_chained() {
        let (one, two) = (
            Relation { origin: 7_000, offset: 5_000_000, drift: 20e-6 },
            Relation { origin: 90_000, offset: -300_000, drift: -35e-6 },
        );
        for time in [0, 1_000_000_000, 60_000_000_000] {
            let near = |a: i64, b: i64| assert!((a - b).abs() <= 2, "{a} {b}");
            near(one.reference(one.local(time)), time);
            near(one.inverse().local(one.local(time)), time);
            near(one.then(&two).local(time), two.local(one.local(time)));
        }
        assert_eq!(one.local(7_000), 5_007_000);
    }
}
