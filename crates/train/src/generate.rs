//! Continuing a text: one token at a time from the logits of a `generate` function, chosen by a seeded draw.
//! Knows tokens; knows no model and no text.

use graph::{Program, names};
use runtime::{Executable, HostTensor};

use crate::Error;

/// How a token is chosen from logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Logits are divided by this; 0 takes the most likely token.
    pub temperature: f64,
    /// Only the most likely tokens take part.
    pub top: Option<usize>,
    /// Seed of the draws.
    pub seed: u64,
}

/// `count` tokens that follow `prompt`; at most the last `length` tokens are looked at.
///
/// # Errors
/// [`Error::Device`].
pub fn generate(
    executable: &mut dyn Executable,
    program: &Program,
    length: usize,
    prompt: &[i32],
    count: usize,
    choice: &Choice,
) -> Result<Vec<i32>, Error> {
    let function = program.function(names::GENERATE);
    let function =
        function.ok_or_else(|| Error::Internal("the plan has no function generate".to_owned()))?;
    let mut tokens = prompt.to_vec();
    if tokens.is_empty() {
        tokens.push(0);
    }
    let begin = tokens.len();
    for drawn in 0..count as u64 {
        let window = &tokens[tokens.len().saturating_sub(length)..];
        let last = window.len() - 1;
        let mut padded = window.to_vec();
        padded.resize(length, 0);
        let chosen: Vec<f32> = (0..length).map(|at| if at == last { 1.0 } else { 0.0 }).collect();
        let chosen = HostTensor::from_f32([1, length, 1], &chosen);
        let mut inputs = vec![];
        for input in &function.inputs {
            let ty = function.graph.ty(input.value).clone();
            match input.name.as_str() {
                names::TOKENS => {
                    inputs.push((input.name.clone(), crate::run::integers(ty, &padded)))
                }
                names::CHOSEN => inputs.push((input.name.clone(), chosen.clone())),
                _ => {}
            }
        }
        let outputs = executable.submit(names::GENERATE, inputs)?.wait()?;
        let logits = outputs.get(names::LOGITS).map(HostTensor::to_f64).unwrap_or_default();
        tokens.push(draw(&logits, choice, drawn));
    }
    Ok(tokens.split_off(begin))
}

/// A draw from softmax(logits / temperature) over the `top` most likely tokens.
fn draw(logits: &[f64], choice: &Choice, drawn: u64) -> i32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let taken = if choice.temperature > 0.0 { choice.top.unwrap_or(order.len()).max(1) } else { 1 };
    order.truncate(taken);
    let highest = order.first().map_or(0.0, |&token| logits[token]);
    let weights: Vec<f64> = order
        .iter()
        .map(|&token| ((logits[token] - highest) / choice.temperature.max(1e-6)).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let mut rest = uniform(choice.seed, drawn) * total;
    for (&token, weight) in order.iter().zip(&weights) {
        rest -= weight;
        if rest <= 0.0 {
            return i32::try_from(token).unwrap_or(0);
        }
    }
    order.last().map_or(0, |&token| i32::try_from(token).unwrap_or(0))
}

/// A number in 0 .. 1 from a key and a counter.
fn uniform(seed: u64, counter: u64) -> f64 {
    let bits = graph::random::sample_key(seed, counter, 0x67656e, 0).bits(0);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
