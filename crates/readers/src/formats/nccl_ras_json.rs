//! What NCCL's RAS tells of a running job, as JSON (`ncclras -f json`, NCCL 2.28 and later).
//!
//! The facts are those of the text (`ras.*`, `nccl.version`, `cuda.driver_version`): of the run, for each collective of a
//! communicator whose ranks differ, the counts that several ranks have; of the outliers' processes their own.

use std::collections::BTreeMap;

use serde_json::Value;
use timeline::{Process, Timeline};

use crate::{Input, ReadError, Reader};

/// The reader.
#[derive(Debug)]
pub struct NcclRasJson;

/// Larger files are not read: 600 bytes a rank.
const MOST_BYTES: u64 = 16 << 20;
/// Outliers of one communicator beyond this number are left out.
const MOST_OUTLIERS: usize = 256;

impl Reader for NcclRasJson {
    fn name(&self) -> &'static str {
        "nccl-ras-json"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        let has = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
        head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
            && has("\"nccl_version\"")
            && has("\"communicators\"")
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let nothing = |message: String| ReadError::Nothing { format: "nccl-ras-json", message };
        let file = super::json_document(input, self.name(), MOST_BYTES)?;
        let Some(communicators) = file["communicators"].as_array() else {
            return Err(nothing("no communicators".to_owned()));
        };
        let mut timeline = Timeline::new();
        if let Some(version) = file["nccl_version"].as_str() {
            timeline.fact(None, "nccl.version", version);
        }
        if let Some(version) = file["cuda_driver_version"].as_i64() {
            timeline.fact(None, "cuda.driver_version", version.to_string());
        }
        let mut processes = Processes::default();
        for communicator in communicators {
            read_communicator(communicator, &mut processes, &mut timeline);
        }
        Ok(timeline)
    }
}

/// Processes of ranks, each once.
#[derive(Default)]
struct Processes(BTreeMap<(u64, String, i64), u32>);

impl Processes {
    fn of(&mut self, rank: &Value, timeline: &mut Timeline) -> u32 {
        let number = rank["rank"].as_u64().unwrap_or(u64::MAX);
        let host = rank["host"].as_str().unwrap_or("").to_owned();
        let pid = rank["pid"].as_i64().unwrap_or(-1);
        *self.0.entry((number, host.clone(), pid)).or_insert_with(|| {
            timeline.add_process(Process {
                rank: u32::try_from(number).ok(),
                host: (!host.is_empty()).then_some(host),
                pid: (pid >= 0).then_some(pid),
                name: format!("rank {number}"),
            })
        })
    }
}

fn read_communicator(communicator: &Value, processes: &mut Processes, timeline: &mut Timeline) {
    let list = |key: &str| communicator[key].as_array().map_or(&[][..], Vec::as_slice);
    let (ranks, missing) = (list("ranks"), list("missing_ranks"));
    let state = if missing.is_empty() { "OK" } else { "INCOMPLETE" };
    timeline.fact(None, "ras.communicator", state);
    for rank in missing.iter().take(MOST_OUTLIERS) {
        let dead = rank["status"]["considered_dead"] == true;
        let key = if dead { "ras.dead" } else { "ras.missing" };
        let text = format!("rank {} of {} ranks", rank["rank"], communicator["size"]);
        let process = processes.of(rank, timeline);
        timeline.fact(Some(process), key, text);
    }
    for rank in ranks {
        let status = &rank["status"];
        let code = |key: &str| status[key].as_i64().filter(|&code| code != 0);
        if let Some(code) = code("async_error").or(code("init_state")) {
            let process = processes.of(rank, timeline);
            timeline.fact(Some(process), "ras.error", format!("error {code}"));
        }
        if status["abort_flag"] == true {
            let process = processes.of(rank, timeline);
            timeline.fact(Some(process), "ras.status", "ABORT");
        }
    }
    let operations = ranks.first().and_then(|rank| rank["collective_counts"].as_object());
    for operation in operations.into_iter().flatten().map(|(operation, _)| operation) {
        counts(operation, ranks, processes, timeline);
    }
}

/// The counts of one collective, where ranks differ.
fn counts(operation: &str, ranks: &[Value], processes: &mut Processes, timeline: &mut Timeline) {
    let count = |rank: &Value| rank["collective_counts"][operation].as_i64();
    let mut seen: BTreeMap<i64, usize> = BTreeMap::new();
    for count in ranks.iter().filter_map(count) {
        *seen.entry(count).or_default() += 1;
    }
    if seen.len() < 2 {
        return;
    }
    let usual = seen.iter().max_by_key(|(_, ranks)| **ranks).map(|(count, _)| *count);
    for (count, ranks) in seen.iter().filter(|(_, ranks)| **ranks > 1).take(MOST_OUTLIERS) {
        timeline.fact(None, "ras.usual", format!("{operation} {count} {ranks}"));
    }
    for rank in ranks.iter().filter(|rank| count(rank) != usual).take(MOST_OUTLIERS) {
        let (process, Some(count)) = (processes.of(rank, timeline), count(rank)) else { continue };
        timeline.fact(Some(process), "ras.launched", format!("{operation} {count}"));
    }
}
