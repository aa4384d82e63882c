//! Lines by which a program tells where each of its ranks is: `[rank 0] batch 12 - entered`, `validation (rank 1)`.
//!
//! Facts of the process of the rank: `progress.batch` and `progress.validation` (the line).

use timeline::Line;

use super::{Context, Grammar, support::integer_after};

/// The grammar.
#[derive(Debug)]
pub struct Progress;

impl Grammar for Progress {
    fn name(&self) -> &'static str {
        "progress-log"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if text.len() > 300 {
            return false;
        }
        let lower = text.to_lowercase();
        let found = ["[rank ", "rank[", "(rank ", "rank "]
            .iter()
            .find_map(|mark| integer_after(&lower, mark));
        let rank = found.and_then(|rank| u32::try_from(rank).ok()).or(context.rank);
        let Some(rank) = rank else { return false };
        let validation = ["validation", "validating", "evaluation", "evaluating"];
        let batch = ["batch", "iteration", "step "];
        let key = if validation.iter().any(|word| lower.contains(word)) {
            "progress.validation"
        } else if batch.iter().any(|word| lower.contains(word)) {
            "progress.batch"
        } else {
            return false;
        };
        let process = context.process_of_rank(rank);
        context.fact(process, key, text.trim(), line);
        true
    }
}
