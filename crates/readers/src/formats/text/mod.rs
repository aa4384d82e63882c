//! Text of any kind: logs, tables and pasted terminal transcripts, line by line.
//!
//! A transcript mixes formats, so every line is offered to every grammar in the list; the first that knows it keeps
//! it and says as facts what it means. Knows lines; the grammars know their formats.

mod bindings;
mod collect_env;
mod device_monitor;
mod infiniband;
mod kernel;
mod limits;
mod markdown;
mod memory_summary;
mod nccl_log;
mod nccl_ras;
mod nccl_tests;
mod nccl_xml;
mod ncu_csv;
mod nsys_stats;
mod out_of_memory;
mod packages;
mod pci;
mod peer_access;
mod profiler_table;
mod progress;
mod prometheus;
mod segments;
mod services;
mod smi_query;
mod smi_table;
mod smi_topology;
mod steps;
mod support;
mod tables;
mod traceback;
mod transcript;
mod warnings;
mod watchdog;

use std::io::{BufRead, BufReader};

use timeline::{Line, Timeline};

pub use support::Context;

use crate::{Input, ReadError, Reader, input::cut_off};

/// One format of lines. Made anew for each input, so it may remember earlier lines.
pub trait Grammar {
    /// Short name of the format, as reports show it.
    fn name(&self) -> &'static str;

    /// Takes a line if it is of this format and states what it means; `false` leaves it to the next grammar.
    ///
    /// `text` is the line without a launcher's tag; facts quote `line`.
    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool;

    /// The input has ended.
    fn end(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}

/// Makes a grammar for one input.
type Maker = fn() -> Box<dyn Grammar>;

/// All grammars in order of precedence.
const GRAMMARS: &[Maker] = &[
    || Box::new(transcript::Transcript),
    || Box::new(nccl_ras::NcclRas::default()),
    || Box::new(nccl_xml::NcclXml::default()),
    || Box::new(prometheus::Prometheus::default()),
    || Box::new(nccl_log::NcclLog),
    || Box::new(watchdog::Watchdog),
    || Box::new(warnings::Warnings::default()),
    || Box::new(out_of_memory::OutOfMemory),
    || Box::new(nccl_tests::NcclTests::default()),
    || Box::new(bindings::Bindings),
    || Box::new(traceback::Traceback::default()),
    || Box::new(limits::Limits::default()),
    || Box::new(kernel::Kernel),
    || Box::new(services::Services::default()),
    || Box::new(packages::Packages::default()),
    || Box::new(pci::Pci::default()),
    || Box::new(infiniband::Infiniband::default()),
    || Box::new(peer_access::PeerAccess::default()),
    || Box::new(memory_summary::MemorySummary::default()),
    || Box::new(smi_table::SmiTable::default()),
    || Box::new(collect_env::CollectEnv::default()),
    || Box::new(smi_query::SmiQuery::default()),
    || Box::new(smi_topology::SmiTopology::default()),
    || Box::new(device_monitor::DeviceMonitor::default()),
    || Box::new(segments::Segments::default()),
    || Box::new(profiler_table::ProfilerTable::default()),
    || Box::new(nsys_stats::NsysStats::default()),
    || Box::new(ncu_csv::NcuCsv::default()),
    || Box::new(tables::Tables::default()),
    || Box::new(steps::Steps),
    || Box::new(progress::Progress),
];

/// Longer lines are cut here.
const LINE_BYTES: usize = 64 << 10;

/// The reader.
#[derive(Debug)]
pub struct Text;

impl Reader for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn formats(&self) -> Vec<&'static str> {
        GRAMMARS.iter().map(|make| make().name()).collect()
    }

    fn recognise(&self, head: &[u8]) -> bool {
        // Text holds no zero bytes and few other control characters.
        let control = |byte: &&u8| **byte < 9 || (**byte > 13 && **byte < 27);
        !head.contains(&0) && head.iter().filter(control).count() * 50 <= head.len()
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        read(input).map(|(timeline, _)| timeline)
    }

    fn read_named(&self, input: Input) -> Result<(Timeline, &'static str), ReadError> {
        read(input)
    }
}

/// Reads text and says which grammar knew most of it.
///
/// # Errors
/// Where no grammar knew any line.
pub fn read(input: Input) -> Result<(Timeline, &'static str), ReadError> {
    let mut timeline = Timeline::new();
    let mut memory = support::Memory::default();
    let mut grammars: Vec<(Box<dyn Grammar>, u64)> =
        GRAMMARS.iter().map(|make| (make(), 0)).collect();
    let mut markdown = markdown::Markdown::of(input.head());
    let mut lines = BufReader::with_capacity(1 << 20, input.into_reader());
    let (mut number, mut unknown) = (0_u32, 0_u64);
    let mut bytes = vec![];
    loop {
        bytes.clear();
        match read_line(&mut lines, &mut bytes) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => {
                cut_off(
                    &mut timeline,
                    &format!("cut off or damaged behind line {number} ({error})"),
                );
                break;
            }
        }
        number = number.saturating_add(1);
        let text = support::plain(&String::from_utf8_lossy(&bytes));
        if text.trim().is_empty() {
            continue;
        }
        let Some(text) = markdown.log_line(&text) else {
            unknown += 1;
            continue;
        };
        let line = Line { number, text: text.to_owned() };
        let tagged = support::untag(&line.text);
        let mut context = Context::new(&mut timeline, &mut memory, tagged.rank);
        let known = grammars.iter_mut().find_map(|(grammar, count)| {
            let known = grammar.line(tagged.text, &line, &mut context);
            *count += u64::from(known);
            known.then_some(())
        });
        unknown += u64::from(known.is_none());
    }
    for (grammar, _) in &mut grammars {
        grammar.end(&mut Context::new(&mut timeline, &mut memory, None));
    }
    let best = grammars.iter().max_by_key(|(_, count)| *count);
    let Some(name) = best.filter(|(_, count)| *count > 0).map(|(grammar, _)| grammar.name()) else {
        return Err(ReadError::NotRecognised("text of no known format"));
    };
    if unknown > 0 {
        timeline.skip("line of no known format");
        if let Some(skipped) = timeline.skipped.iter_mut().find(|s| s.reason.starts_with("line of"))
        {
            skipped.count = unknown;
        }
    }
    Ok((timeline, name))
}

/// Reads a line without its end, cut at [`LINE_BYTES`]; `false` at the end of the input.
fn read_line(lines: &mut impl BufRead, bytes: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut any = false;
    loop {
        let buffer = lines.fill_buf()?;
        if buffer.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE_BYTES.saturating_sub(bytes.len());
        bytes.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(buffer.len(), |at| at + 1);
        lines.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}
