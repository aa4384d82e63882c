//! How states start: values that are a function of seed, name and element, the same on every device and rank.
//!
//! Knows programs, not where states lie.

use graph::{Program, State};

use crate::RuntimeError;

/// This rank's elements of a state, in order: [`graph::initial_values`].
///
/// # Errors
/// Where the declaration contradicts itself.
pub fn values(
    program: &Program,
    state: &State,
    seed: u64,
    rank: usize,
) -> Result<Vec<f64>, RuntimeError> {
    graph::initial_values(program, state, seed, rank)
        .map_err(|error| RuntimeError::Plan { path: state.name.clone(), what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use graph::{DType, Initial, Segment, StateKind, Type};

    use super::*;

    fn state(elements: usize, initial: Initial) -> State {
        State::new("w", Type::new(DType::F32, [elements]), StateKind::Parameter, initial)
    }

    #[test]
    fn normal_values_have_the_moments_asked_for() {
        let values =
            values(&Program::default(), &state(100_001, Initial::Normal { std: 0.02 }), 7, 0)
                .unwrap();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!(mean.abs() < 2e-4 && (spread - 0.02).abs() < 2e-4, "{mean} {spread}");
    }

    #[test]
    fn a_flat_state_starts_as_its_segments_would_alone_and_shards_are_parts_of_it() {
        let alone =
            values(&Program::default(), &state(5, Initial::Normal { std: 1.0 }), 3, 0).unwrap();
        let mut flat = state(
            12,
            Initial::Segments(vec![Initial::Constant(2.0), Initial::Normal { std: 1.0 }]),
        );
        flat.name = "bucket".to_owned();
        flat.segments = vec![
            Segment { name: "b".to_owned(), offset: 0, shape: [2].into() },
            Segment { name: "w".to_owned(), offset: 6, shape: [5].into() },
        ];
        let whole = values(&Program::default(), &flat, 3, 0).unwrap();
        assert_eq!(whole[..6], [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(whole[6..11], alone);
        flat.ty = Type::new(DType::F32, [6]);
        flat.shards = 2;
        for rank in 0..2 {
            let part = values(&Program::default(), &flat, 3, rank).unwrap();
            assert_eq!(part, whole[rank * 6..rank * 6 + 6]);
        }
    }
}
