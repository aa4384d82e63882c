//! nccl-tests' printed tables, versions 2.10 to 2.19.
//!
//! Facts of the run, in the order of the lines: `test.run` (the parameters of a header; several of one command mean
//! that every process tested alone); `test.rank` and `test.host` (a device line); `test.operation`, `test.bytes`,
//! `test.type`, `test.algbw_gbs` and `test.busbw_gbs` (a row, the better of out of place and in place);
//! `test.average_busbw_gbs`; `test.wrong` (values out of bounds); `test.version`; `test.failure`.

use timeline::Line;

use super::{
    Context, Grammar,
    support::{after, between, leading_number},
};

/// The grammar.
#[derive(Debug, Default)]
pub struct NcclTests {
    operation: String,
    root: bool,
}

const TYPES: &[&str] = &[
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
    "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2",
];

impl Grammar for NcclTests {
    fn name(&self) -> &'static str {
        "nccl-tests"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if let Some(at) = text.find("Test NCCL failure").or(text.find("Test CUDA failure")) {
            context.fact(None, "test.failure", &text[at..], line);
            return true;
        }
        if text.contains(": Test failure ") || text.contains(": Test timeout ") {
            context.fact(None, "test.failure", text.trim(), line);
            return true;
        }
        let trimmed = text.trim();
        match trimmed.strip_prefix('#') {
            Some(comment) => self.comment(comment.trim(), line, context),
            None => self.row(trimmed, line, context).is_some(),
        }
    }
}

impl NcclTests {
    fn comment(&mut self, comment: &str, line: &Line, context: &mut Context<'_>) -> bool {
        if comment.starts_with("nThread ") && comment.contains("minBytes") {
            let command = context.command();
            if let Some(at) = command.find("_perf") {
                let name = command[..at].rsplit([' ', '/']).next().unwrap_or("");
                self.operation = name.to_owned();
            }
            context.fact(None, "test.run", comment, line);
        } else if let Some(version) = comment.strip_prefix("nccl-tests version ") {
            context.fact(None, "test.version", version, line);
        } else if let Some(name) = after(comment, "Collective test starting: ") {
            name.trim().trim_end_matches("_perf").clone_into(&mut self.operation);
        } else if comment.starts_with("Rank ") && comment.contains(" Pid ") {
            let Some(rank) = after(comment, "Rank ").and_then(leading_number) else { return false };
            context.fact(None, "test.rank", rank as i64, line);
            if let Some(host) = between(comment, " on ", " device") {
                context.fact(None, "test.host", host.trim(), line);
            }
        } else if comment.starts_with("size ") && comment.contains("busbw") {
            self.root = comment.contains(" root ");
        } else if let Some(rest) = after(comment, "Avg bus bandwidth") {
            let value = after(rest, ":").and_then(leading_number);
            let Some(value) = value else { return false };
            context.fact(None, "test.average_busbw_gbs", value, line);
        } else if let Some(rest) = after(comment, "Out of bounds values") {
            let Some(count) = after(rest, ":").and_then(leading_number) else { return false };
            context.fact(None, "test.wrong", count as i64, line);
        } else {
            return [
                "Using devices",
                "nccl-tests",
                "out-of-place",
                "(B)",
                "GPU memory",
                "Collective test",
            ]
            .iter()
            .any(|known| comment.starts_with(known));
        }
        true
    }

    fn row(&self, text: &str, line: &Line, context: &mut Context<'_>) -> Option<()> {
        let mut words = text.split_whitespace();
        let (size, count) = (words.next()?, words.next()?);
        let size: i64 = size.parse().ok()?;
        count.parse::<i64>().ok()?;
        let kind = words.next().filter(|word| TYPES.contains(word))?;
        let mut rest: Vec<&str> = words.take(20).collect();
        if rest.first()?.starts_with(|c: char| c.is_ascii_alphabetic()) {
            rest.remove(0);
        }
        let whole = |word: &&str| word.parse::<i64>().is_ok();
        if rest.first().is_some_and(whole) && (self.root || rest.len() > 8) {
            rest.remove(0);
        }
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<f64>().ok());
        let rates = [(number(1), number(2)), (number(5), number(6))];
        let best = rates.into_iter().filter_map(|(a, b)| Some((a?, b?)));
        let (algorithm, bus) = best.max_by(|a, b| a.1.total_cmp(&b.1))?;
        if !self.operation.is_empty() {
            context.fact(None, "test.operation", self.operation.as_str(), line);
        }
        context.fact(None, "test.bytes", size, line);
        context.fact(None, "test.type", kind, line);
        context.fact(None, "test.algbw_gbs", algorithm, line);
        context.fact(None, "test.busbw_gbs", bus, line);
        Some(())
    }
}
