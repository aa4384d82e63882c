//! PyTorch's process-group watchdog, its flight recorder's report, and mismatches of collectives.
//!
//! Facts of the process of the rank: `watchdog.sequence`, `watchdog.operation`, `watchdog.elements`,
//! `watchdog.timeout_ms` (a collective that timed out); `watchdog.last_enqueued`, `watchdog.last_completed`,
//! `watchdog.failed_sequence`; of the run: `collective.mismatch` (two ranks, two operations);
//! `flight.error` ("culprit rank, kind").

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, between, cut, integer_after},
};

/// The grammar.
#[derive(Debug)]
pub struct Watchdog;

impl Grammar for Watchdog {
    fn name(&self) -> &'static str {
        "watchdog"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if text.contains("Watchdog caught collective operation timeout") {
            let Some(process) = rank(text, context) else { return true };
            let process = Some(process);
            let work = after(text, "WorkNCCL(").unwrap_or("");
            if let Some(sequence) = integer_after(work, "SeqNum=") {
                context.fact(process, "watchdog.sequence", sequence, line);
            }
            if let Some(operation) =
                after(work, "OpType=").and_then(|rest| rest.split([',', ')']).next())
            {
                context.fact(process, "watchdog.operation", operation, line);
            }
            if let Some(elements) = integer_after(work, "NumelIn=") {
                context.fact(process, "watchdog.elements", elements, line);
            }
            if let Some(timeout) = integer_after(work, "Timeout(ms)=") {
                context.fact(process, "watchdog.timeout_ms", timeout, line);
            }
            return true;
        }
        if text.contains("detected by watchdog at work") {
            let Some(process) = rank(text, context) else { return true };
            let number = |names: [&str; 2]| names.iter().find_map(|name| integer_after(text, name));
            for (key, names) in [
                ("watchdog.failed_sequence", ["at work: ", "at work sequence id: "]),
                ("watchdog.last_enqueued", ["last enqueued NCCL work: ", "last enqueued work: "]),
                (
                    "watchdog.last_completed",
                    ["last completed NCCL work: ", "last completed work: "],
                ),
            ] {
                if let Some(value) = number(names) {
                    context.fact(Some(process), key, value, line);
                }
            }
            return true;
        }
        if text.contains("Detected mismatch between collectives on ranks") {
            let one = between(text, "Rank ", " is running");
            let operations: Vec<&str> = text
                .split("OpType=")
                .skip(1)
                .filter_map(|rest| rest.split([',', ')']).next())
                .take(2)
                .collect();
            let mut value = format!("rank {}", one.unwrap_or("?"));
            if !operations.is_empty() {
                value += &format!(": {}", operations.join(" against "));
            }
            context.fact(None, "collective.mismatch", value, line);
            return true;
        }
        if let Some(rest) = after(text, "Culprit rank ") {
            context.fact(None, "flight.error", cut(rest, 200), line);
            return true;
        }
        let consequences = [
            "Some NCCL operations have failed or timed out",
            "To avoid data inconsistency",
            "watchdog thread terminated with exception",
            "Stack trace of the failed collective",
        ];
        consequences.iter().any(|known| text.contains(known))
    }
}

/// The process of `[PG ID 0 PG GUID 0(default_pg) Rank 1]` or `[Rank 1]`, else of the launcher's tag.
fn rank(text: &str, context: &mut Context<'_>) -> Option<u32> {
    let rank =
        after(text, "[Rank ").or_else(|| after(text, " Rank ")).and_then(|r| integer_after(r, ""));
    match rank.and_then(|rank| u32::try_from(rank).ok()) {
        Some(rank) => context.process_of_rank(rank),
        None => context.tagged(),
    }
}
