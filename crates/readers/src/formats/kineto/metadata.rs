//! What a trace file says about itself around its events. Knows the keys of every generation of the format.

use serde_json::Value;

use super::json::Scanner;

/// Larger values are damage: parsed, they take thirty times as much.
const LONGEST_VALUE: usize = 8 << 20;

/// The parts of a file's metadata that are used.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub world_size: Option<u32>,
    /// Communication backend.
    pub backend: Option<String>,
    /// NCCL's version.
    pub nccl_version: Option<String>,
    /// `(device number, name, multiprocessors)`.
    pub devices: Vec<(i64, String, Option<i64>)>,
    /// `(group name, ranks)`.
    pub groups: Vec<(String, Vec<i64>)>,
    /// Wall-clock time of the events' zero, nanoseconds since 1970.
    pub base_time: Option<i64>,
    /// `(key, value)` of versions such as `cuda_runtime_version`.
    pub versions: Vec<(String, String)>,
}

impl Metadata {
    /// From the bytes before and after the list of events.
    pub fn read(before: &[u8], after: &[u8]) -> Metadata {
        let mut metadata = Metadata::default();
        let mut scanner = Scanner::new(before);
        if scanner.take(b'{') {
            metadata.members(scanner);
        }
        metadata.members(Scanner::new(after));
        metadata
    }

    /// Reads `"key": value` pairs until the bytes end or break.
    fn members(&mut self, mut scanner: Scanner<'_>) {
        loop {
            while scanner.take(b',') {}
            let Some(key) = scanner.text() else { return };
            if !scanner.take(b':') {
                return;
            }
            let Some(value) = scanner.skip() else { return };
            if key != b"traceEvents" {
                self.member(&String::from_utf8_lossy(key), value);
            }
        }
    }

    fn member(&mut self, key: &str, bytes: &[u8]) {
        if bytes.len() > LONGEST_VALUE {
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
        let int = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        match key {
            "distributedInfo" => {
                let small = |key: &str| value.get(key).and_then(int)?.try_into().ok();
                self.rank = small("rank");
                self.world_size = small("world_size");
                self.backend = value.get("backend").and_then(text);
                self.nccl_version = value.get("nccl_version").and_then(text);
                for group in value.get("pg_config").and_then(Value::as_array).into_iter().flatten()
                {
                    let name = group.get("pg_name").and_then(text).unwrap_or_default();
                    let ranks = group.get("ranks").and_then(Value::as_array);
                    let ranks = ranks.into_iter().flatten().filter_map(int).collect();
                    self.groups.push((name, ranks));
                }
            }
            "deviceProperties" => {
                for device in value.as_array().into_iter().flatten() {
                    let id = device.get("id").and_then(int).unwrap_or(-1);
                    let name = device.get("name").and_then(text).unwrap_or_default();
                    self.devices.push((id, name, device.get("numSms").and_then(int)));
                }
            }
            "baseTimeNanoseconds" | "baseTimeNanosecond" => self.base_time = int(&value),
            _ if key.ends_with("_version") => {
                if let Some(version) = text(&value) {
                    self.versions.push((key.to_owned(), version));
                }
            }
            _ => {}
        }
    }
}
