//! What NCCL's RAS tells of a running job (`ncclras`, NCCL 2.24 and later), as text.
//!
//! Facts of the run: `nccl.version`, `cuda.driver_version`; `ras.nodes`, `ras.processes`, `ras.gpus`; `ras.communicator`
//! (status and errors of a group of communicators); `ras.usual` ("AllReduce 6650 29": up to this operation of this
//! collective so many ranks of a communicator have launched). Facts of the process of a rank that is an outlier:
//! `ras.launched` ("AllReduce 6648"); `ras.status`; `ras.error`; `ras.missing` (its communicator's data did not come)
//! and `ras.dead` (the line).

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, between, integer_after, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct NcclRas {
    inside: bool,
    /// What the rows after a heading are.
    part: Part,
    /// The collective whose counts differ.
    operation: String,
    /// The count of the ranks that are listed below it.
    count: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Job,
    Communicators,
    Mismatch,
    Incomplete,
    Dead,
    Error,
}

/// Headings and sentences of the report that state nothing by themselves.
const WORDS: &[&str] = &[
    "====",
    "Nodes  Processes",
    "(total)",
    "Group     Comms",
    "#  in group",
    "Errors",
    "Warnings",
    "Communicator ranks have different status",
    "Missing communicator data",
    "The missing ",
    "The outlier ",
    "TIMEOUT",
    "Encountered ",
    "Asynchronous error",
    "Initialization error",
    "No communicator data collected",
];

impl Grammar for NcclRas {
    fn name(&self) -> &'static str {
        "nccl-ras"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        if let Some((version, cuda)) = trimmed
            .strip_prefix("NCCL version ")
            .and_then(|rest| rest.split_once(" compiled with CUDA "))
        {
            self.inside = true;
            context.fact(None, "nccl.version", format!("{version}+cuda{cuda}"), line);
            return true;
        }
        if !self.inside {
            return false;
        }
        if let Some(version) = trimmed
            .strip_prefix("CUDA runtime version ")
            .and_then(|rest| integer_after(rest, "driver version "))
        {
            context.fact(None, "cuda.driver_version", version.to_string(), line);
            return true;
        }
        if self.heading(trimmed) {
            return true;
        }
        if trimmed.starts_with("Rank ") || trimmed.starts_with("Process ") {
            return self.outlier(trimmed, line, context);
        }
        if let Some((ranks, what)) =
            trimmed.split_once(" ranks have ").or(trimmed.split_once(" rank has "))
            && let Ok(ranks) = ranks.parse::<i64>()
        {
            self.count = launched(what);
            if let (Part::Mismatch, Some(count)) = (self.part, self.count) {
                let usual = format!("{} {count} {ranks}", self.operation);
                context.fact(None, "ras.usual", usual, line);
            }
            return true;
        }
        if WORDS.iter().any(|word| trimmed.starts_with(word)) {
            return true;
        }
        self.row(trimmed, line, context)
    }
}

impl NcclRas {
    fn heading(&mut self, text: &str) -> bool {
        self.part = match text {
            "Job summary" => Part::Job,
            "INCOMPLETE" => Part::Incomplete,
            "DEAD" => Part::Dead,
            _ if text.starts_with("Communicators...") => Part::Communicators,
            _ if text.starts_with("Communicator ranks have different ")
                && text.ends_with(" operation counts") =>
            {
                let operation = between(text, "different ", " operation").unwrap_or("");
                operation.clone_into(&mut self.operation);
                Part::Mismatch
            }
            // `#0-1 (fa93daea854b060b) MISMATCH`: a communicator, by its number in its group.
            _ if text.starts_with('#') && text.contains('(') => match text.rsplit(' ').next() {
                Some("INCOMPLETE") => Part::Incomplete,
                Some("MISMATCH") => Part::Mismatch,
                Some("ERROR") => Part::Error,
                _ => return false,
            },
            _ => return false,
        };
        self.count = None;
        true
    }

    /// `4  8  1  32  32` of the job; `0  1  4  8  32  32  RUNNING  MISMATCH` of communicators.
    fn row(&self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let words: Vec<&str> = text.split_whitespace().take(12).collect();
        let numbers: Vec<i64> = words.iter().map_while(|word| word.parse().ok()).collect();
        match (self.part, &numbers[..]) {
            (Part::Job, [nodes, _, _, processes, devices, ..]) => {
                context.fact(None, "ras.nodes", *nodes, line);
                context.fact(None, "ras.processes", *processes, line);
                context.fact(None, "ras.gpus", *devices, line);
            }
            (Part::Communicators, numbers) if numbers.len() >= 4 => {
                // The ranks of a node may be given as a range.
                if let [.., status, errors] = words[..] {
                    context.fact(None, "ras.communicator", format!("{status} {errors}"), line);
                }
            }
            (_, numbers) => return !numbers.is_empty(),
        }
        true
    }

    /// `Rank 12 has launched up to operation 641 -- GPU 4 managed by process 323032 on node 10.0.0.24`, or without what it
    /// did below a count; `Process 323032 on node 10.0.0.24 managing GPU 4`.
    fn outlier(&self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let node = after(text, " on node ").and_then(|rest| rest.split_whitespace().next());
        let pid = integer_after(text, "rocess ");
        context.rank = integer_after(text, "Rank ").and_then(|rank| u32::try_from(rank).ok());
        let mut process = None;
        if let (Some(node), Some(pid)) = (node, pid) {
            process = context.process(node, pid);
            // The process may have been named before its rank.
            if let (Some(process), Some(rank)) = (process, context.rank) {
                context.set_rank(process, rank);
            }
        }
        process = process.or_else(|| context.tagged());
        match self.part {
            Part::Incomplete => context.fact(process, "ras.missing", text, line),
            Part::Dead => context.fact(process, "ras.dead", text, line),
            Part::Error => {
                let error = between(text, " reported ", " --").unwrap_or(text);
                context.fact(process, "ras.error", error, line);
            }
            _ => {
                if let Some(status) = between(text, " has status ", " --") {
                    context.fact(process, "ras.status", status, line);
                } else if let Some(count) =
                    between(text, " has ", " --").and_then(launched).or(self.count)
                {
                    let launched = format!("{} {count}", self.operation);
                    context.fact(process, "ras.launched", launched, line);
                }
            }
        }
        true
    }
}

/// The last operation of `launched up to operation 641`; 0 of `not launched any operations`.
fn launched(text: &str) -> Option<i64> {
    if text.starts_with("not launched") {
        return Some(0);
    }
    after(text, "launched up to operation ").and_then(leading_number).map(|count| count as i64)
}
