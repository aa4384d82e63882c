//! Initial values of states: a function of seed, name and element, the same on every device and any number of ranks.
//!
//! Knows states and their segments; not where they lie.

use crate::{GraphError, Initial, Program, State, Tensor, random};

/// The initial value of a state on a rank.
///
/// # Errors
/// As [`initial_values`].
pub fn initial_tensor(
    program: &Program,
    state: &State,
    seed: u64,
    rank: usize,
) -> Result<Tensor, GraphError> {
    Ok(Tensor::from_f64(state.ty.clone(), initial_values(program, state, seed, rank)?))
}

/// The elements of a state's initial value on a rank, before rounding to its dtype. The value of element i of the tensor
/// (state or segment) `name` is drawn from the key (seed, 0, hash of name, 0): it does not depend on bucket, shard or
/// rank.
///
/// # Errors
/// Where an initial value copies a state that does not exist or has another number of elements, or a flat state has
/// another number of initial values than segments.
pub fn initial_values(
    program: &Program,
    state: &State,
    seed: u64,
    rank: usize,
) -> Result<Vec<f64>, GraphError> {
    let mut whole = whole(program, state, seed, 0)?;
    if state.shards > 1 {
        let part = state.ty.shape.elements();
        whole = whole.split_off((rank % state.shards) * part);
        whole.truncate(part);
    }
    Ok(whole)
}

/// The whole over all ranks. `depth` counts copies of copies.
fn whole(
    program: &Program,
    state: &State,
    seed: u64,
    depth: usize,
) -> Result<Vec<f64>, GraphError> {
    let malformed =
        |what: String| GraphError::Malformed(format!("initial value of {}: {what}", state.name));
    let elements = state.whole_elements();
    match &state.initial {
        Initial::CopyOf(name) => {
            let source = program
                .state(name)
                .filter(|source| source.whole_elements() == elements && depth < 8)
                .ok_or_else(|| malformed(format!("there is no state {name} to copy")))?;
            whole(program, source, seed, depth + 1)
        }
        Initial::Segments(initials) => {
            if initials.len() != state.segments.len() {
                let (found, expected) = (initials.len(), state.segments.len());
                return Err(malformed(format!("{found} values for {expected} segments")));
            }
            let mut values = vec![0.0; elements];
            for (segment, initial) in state.segments.iter().zip(initials) {
                let range = segment.offset..segment.offset + segment.shape.elements();
                let part = values
                    .get_mut(range)
                    .ok_or_else(|| malformed(format!("{} is out of bounds", segment.name)))?;
                fill(initial, seed, &segment.name, part);
            }
            Ok(values)
        }
        initial => {
            let mut values = vec![0.0; elements];
            if state.segments.is_empty() {
                fill(initial, seed, &state.name, &mut values);
            }
            // A flat state with one initial value keeps zeros between its segments.
            for segment in &state.segments {
                let range = segment.offset..segment.offset + segment.shape.elements();
                let part = values.get_mut(range);
                let out = || malformed(format!("{} is out of bounds", segment.name));
                fill(initial, seed, &segment.name, part.ok_or_else(out)?);
            }
            Ok(values)
        }
    }
}

/// Fills the tensor `name`. Normal values come in pairs, by the Box-Muller transform of two uniform values; `libm` gives
/// the same bits on every platform. Copies and segments of segments stay zero.
fn fill(initial: &Initial, seed: u64, name: &str, values: &mut [f64]) {
    let site = random::site(name);
    // Step 0 is before every training step; the high half of the element takes the place of the sample.
    let uniform = |element: usize| {
        random::sample_key(seed, 0, site, (element as u64) >> 32).uniform(element as u32)
    };
    match initial {
        Initial::Constant(value) => values.fill(*value),
        Initial::Normal { std } => {
            for (block, pair) in values.chunks_mut(2).enumerate() {
                let radius = libm::sqrt(-2.0 * libm::log(uniform(2 * block)));
                let angle = std::f64::consts::TAU * uniform(2 * block + 1);
                for (value, part) in pair.iter_mut().zip([libm::cos(angle), libm::sin(angle)]) {
                    *value = std * radius * part;
                }
            }
        }
        Initial::Uniform { bound } => {
            for (element, value) in values.iter_mut().enumerate() {
                *value = bound * (2.0 * uniform(element) - 1.0);
            }
        }
        _ => values.fill(0.0),
    }
}
