//! How states start: values that are a function of seed, name and element, the same on every device and rank.
//!
//! Knows programs, not where states lie.

use graph::{Initial, Program, Segment, State, random};

use crate::RuntimeError;

/// This rank's elements of a state, in order.
///
/// # Errors
/// Where the declaration contradicts itself.
pub fn values(
    program: &Program,
    state: &State,
    seed: u64,
    rank: usize,
) -> Result<Vec<f64>, RuntimeError> {
    let whole = whole(program, state, seed, 0)?;
    let own = state.ty.shape.elements();
    if state.shards == 1 {
        return Ok(whole);
    }
    Ok(whole[rank * own..(rank + 1) * own].to_vec())
}

fn whole(
    program: &Program,
    state: &State,
    seed: u64,
    depth: usize,
) -> Result<Vec<f64>, RuntimeError> {
    let malformed =
        |what: &str| RuntimeError::Plan { path: state.name.clone(), what: what.to_owned() };
    let mut out = vec![0.0; state.whole_elements()];
    match &state.initial {
        Initial::CopyOf(name) => {
            let source = program.state(name).filter(|_| depth < 4);
            let source =
                source.ok_or_else(|| malformed("is a copy of a state that is not there"))?;
            let values = self::whole(program, source, seed, depth + 1)?;
            if values.len() != out.len() {
                return Err(malformed("is a copy of a state of another size"));
            }
            out = values;
        }
        Initial::Segments(initials) => {
            if initials.len() != state.segments.len() {
                return Err(malformed("has another number of segments than initial values"));
            }
            for (Segment { name, offset, shape }, initial) in state.segments.iter().zip(initials) {
                let end = offset + shape.elements();
                let part = out.get_mut(*offset..end);
                fill(
                    initial,
                    seed,
                    name,
                    part.ok_or_else(|| malformed("has a segment beyond its end"))?,
                )
                .ok_or_else(|| malformed("has a nested initial value"))?;
            }
        }
        initial => {
            // A flat state with one initial value keeps zeros between its segments.
            if state.segments.is_empty() {
                fill(initial, seed, &state.name, &mut out)
                    .ok_or_else(|| malformed("has a nested initial value"))?;
            }
            for Segment { name, offset, shape } in &state.segments {
                let part = out.get_mut(*offset..offset + shape.elements());
                let part = part.ok_or_else(|| malformed("has a segment beyond its end"))?;
                fill(initial, seed, name, part);
            }
        }
    }
    Ok(out)
}

/// `None` for an initial value that is not elementary.
fn fill(initial: &Initial, seed: u64, name: &str, out: &mut [f64]) -> Option<()> {
    match initial {
        Initial::Zeros => out.fill(0.0),
        Initial::Constant(value) => out.fill(*value),
        Initial::Normal { std } => {
            // Box and Muller's transform of two uniform values into two normal ones.
            for (block, pair) in out.chunks_mut(2).enumerate() {
                let (a, b) = (
                    uniform(seed, name_key(name), 2 * block),
                    uniform(seed, name_key(name), 2 * block + 1),
                );
                let (radius, angle) = ((-2.0 * a.ln()).sqrt(), std::f64::consts::TAU * b);
                for (out, value) in pair.iter_mut().zip([angle.cos(), angle.sin()]) {
                    *out = std * radius * value;
                }
            }
        }
        Initial::Uniform { bound } => {
            for (element, out) in out.iter_mut().enumerate() {
                *out = bound * (2.0 * uniform(seed, name_key(name), element) - 1.0);
            }
        }
        Initial::CopyOf(_) | Initial::Segments(_) => return None,
    }
    Some(())
}

/// A value strictly between 0 and 1.
fn uniform(seed: u64, name: u64, element: usize) -> f64 {
    // Step 0 is before every training step; the high half of the element takes the place of the sample.
    let key = random::sample_key(seed, 0, name, (element as u64) >> 32);
    (f64::from(key.bits(element as u32)) + 0.5) / 4_294_967_296.0
}

/// FNV-1a, 64 bits: names of parameters to sites.
fn name_key(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use graph::{DType, StateKind, Type};

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
