//! The JSON file that nccl-tests write with `-J`.
//!
//! The facts are those of the printed table (`test.*`), with `nccl.version` and, of the whole environment that the file
//! holds, NCCL's own settings alone.

use serde_json::Value;
use timeline::Timeline;

use crate::{Input, ReadError, Reader};

/// The reader.
#[derive(Debug)]
pub struct NcclTestsJson;

/// Larger files are not of this format.
const MOST_BYTES: u64 = 16 << 20;
/// Rows and devices beyond this number are left out.
const MOST_ROWS: usize = 1 << 16;

impl Reader for NcclTestsJson {
    fn name(&self) -> &'static str {
        "nccl-tests-json"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        let has = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
        head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
            && !has("\"traceEvents\"")
            && (has("\"warmup_iters\"") || has("\"aggregated_iterations\"") || has("\"bus_bw\""))
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let nothing = |message: String| ReadError::Nothing { format: "nccl-tests-json", message };
        let file = super::json_document(input, self.name(), MOST_BYTES)?;
        let Some(results) = file["results"].as_array() else {
            return Err(nothing("no results".to_owned()));
        };
        let mut timeline = Timeline::new();
        timeline.fact(None, "test.run", file["config"].to_string());
        if let Some(version) = file["nccl_version"].as_str() {
            timeline.fact(None, "nccl.version", version);
        }
        for setting in file["env"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if setting.starts_with("NCCL_") {
                timeline.fact(None, "nccl.env", setting);
            }
        }
        for device in file["devices"].as_array().into_iter().flatten().take(MOST_ROWS) {
            if let Some(rank) = device["rank"].as_i64() {
                timeline.fact(None, "test.rank", rank);
            }
            if let Some(host) = device["hostname"].as_str() {
                timeline.fact(None, "test.host", host);
            }
        }
        let program = file["args"][0].as_str().unwrap_or("");
        let operation = program.rsplit('/').next().unwrap_or("").trim_end_matches("_perf");
        for result in results.iter().take(MOST_ROWS) {
            row(&mut timeline, operation, result);
        }
        if let Some(wrong) = file["out_of_bounds"]["count"].as_i64() {
            timeline.fact(None, "test.wrong", wrong);
        }
        if let Some(average) = file["average_bus_bandwidth"]["bandwidth"].as_f64() {
            timeline.fact(None, "test.average_busbw_gbs", average);
        }
        Ok(timeline)
    }
}

/// One size: the better of out of place and in place.
fn row(timeline: &mut Timeline, operation: &str, result: &Value) {
    let rates = ["out_of_place", "in_place"].into_iter().filter_map(|place| {
        let place = &result[place];
        Some((place["alg_bw"].as_f64()?, place["bus_bw"].as_f64()?))
    });
    let best = rates.max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(size), Some((algorithm, bus))) = (result["size"].as_i64(), best) else {
        timeline.skip("result without size or rate");
        return;
    };
    if !operation.is_empty() {
        timeline.fact(None, "test.operation", operation);
    }
    timeline.fact(None, "test.bytes", size);
    if let Some(kind) = result["type"].as_str() {
        timeline.fact(None, "test.type", kind);
    }
    timeline.fact(None, "test.algbw_gbs", algorithm);
    timeline.fact(None, "test.busbw_gbs", bus);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version": 3, "args": ["/opt/all_reduce_perf", "-b", "1M"],
        "env": ["HOME=/home/someone", "NCCL_DEBUG=INFO"], "nccl_version": "2.28.9",
        "config": {"nthreads": 1, "ngpus": 1, "warmup_iters": 1},
        "devices": [{"rank": 0, "hostname": "alpha"}, {"rank": 1, "hostname": "beta"}],
        "results": [{"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": -1,
            "out_of_place": null, "in_place": {"time": 60.1, "alg_bw": 17.4, "bus_bw": 17.4, "nwrong": 0}}],
        "out_of_bounds": {"count": 0, "okay": true}, "average_bus_bandwidth": {"bandwidth": 17.4, "okay": true}}"#;

    #[test]
    fn states_rows_and_only_the_settings_of_nccl() {
        let input = Input::from_bytes("-", FILE.as_bytes().to_vec()).expect("bytes can be read");
        let reading = crate::read(input).expect("it is recognised");
        assert_eq!(reading.format, "nccl-tests-json");
        let keys: Vec<String> = reading
            .timeline
            .facts
            .iter()
            .map(|fact| format!("{} {:?}", fact.key, fact.value))
            .collect();
        assert!(keys.iter().any(|key| key == "test.busbw_gbs Float(17.4)"), "{keys:?}");
        assert!(keys.iter().any(|key| key == "test.operation Text(\"all_reduce\")"), "{keys:?}");
        assert!(keys.iter().any(|key| key.contains("NCCL_DEBUG=INFO")), "{keys:?}");
        assert!(!keys.iter().any(|key| key.contains("someone")), "{keys:?}");
    }

    #[test]
    fn damaged_files_are_refused_with_their_reason() {
        for cut in [0, 1, 40, FILE.len() / 2, FILE.len() - 1] {
            let Ok(input) = Input::from_bytes("-", FILE.as_bytes()[..cut].to_vec()) else {
                continue;
            };
            assert!(NcclTestsJson.read(input).is_err(), "cut at {cut}");
        }
    }
}
