//! Medians and spread. Knows only numbers.

/// Times of one candidate in milliseconds a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Half of the samples are below.
    pub median: f64,
    /// A tenth of the samples are below.
    pub p10: f64,
    /// A tenth of the samples are above.
    pub p90: f64,
    /// Number of samples.
    pub count: usize,
}

impl Samples {
    /// From samples in any order; at least one is needed.
    pub fn new(mut samples: Vec<f64>) -> Option<Samples> {
        samples.sort_by(f64::total_cmp);
        let at = |part: f64| samples.get(((samples.len() as f64 - 1.0) * part).round() as usize);
        Some(Samples { median: *at(0.5)?, p10: *at(0.1)?, p90: *at(0.9)?, count: samples.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn samples_in_any_order() {
        let samples = Samples::new((0..=10).rev().map(f64::from).collect()).unwrap();
        assert_eq!(samples, Samples { median: 5.0, p10: 1.0, p90: 9.0, count: 11 });
        assert_eq!(Samples::new(vec![]), None);
    }
}
