//! Nsight Systems' SQLite exports, of any version: columns are found by looking, not by version.
//!
//! Facts: `device.N.name`, `device.N.multiprocessors` of a process, `nsys.version` of the run. Knows the export's tables;
//! what a kernel or call means for a step is the diagnosis' matter. A file may hold any SQL: only plain tables are read,
//! nothing of the file's schema is trusted.

mod build;
mod table;

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, limits::Limit};
use timeline::Timeline;

use crate::{ReadError, Reader, input::Input};

/// The reader.
#[derive(Debug)]
pub struct Nsys;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Longer texts and rows are damage.
const LONGEST_VALUE: i32 = 16 << 20;
/// Memory SQLite may use.
const HEAP: i64 = 256 << 20;

impl Reader for Nsys {
    fn name(&self) -> &'static str {
        "nsys"
    }

    fn recognise(&self, head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    fn read(&self, input: Input) -> Result<Timeline, ReadError> {
        let on_disk = input.plain_file.clone().filter(|path| !path.as_os_str().is_empty());
        match on_disk {
            Some(path) => read(&path),
            None => {
                let file = to_file(input)?;
                read(file.path())
            }
        }
    }
}

/// Bytes of a compressed or piped export that are unpacked to disk: a few kilobytes of zeros could fill it.
const MOST_UNPACKED: u64 = 32 << 30;

/// SQLite needs a file to seek in.
fn to_file(input: Input) -> Result<tempfile::NamedTempFile, ReadError> {
    let mut file = tempfile::NamedTempFile::new()?;
    let mut bytes = input.into_reader();
    let mut buffer = vec![0; 1 << 20];
    let mut unpacked = 0;
    loop {
        match bytes.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                unpacked += count as u64;
                if unpacked > MOST_UNPACKED {
                    return Err(ReadError::Nothing {
                        format: "nsys",
                        message: "over 32 GiB unpacked: name the unpacked file itself".to_owned(),
                    });
                }
                file.write_all(&buffer[..count])?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // What came so far may still hold whole tables.
            Err(_) => break,
        }
    }
    file.flush()?;
    Ok(file)
}

fn read(path: &Path) -> Result<Timeline, ReadError> {
    let nothing = |message: String| ReadError::Nothing { format: "nsys", message };
    let connection = open(path).map_err(|error| nothing(format!("cannot be opened ({error})")))?;
    let timeline =
        build::timeline(&connection).map_err(|error| nothing(format!("damaged ({error})")))?;
    if timeline.spans.is_empty() {
        let damage: Vec<String> =
            timeline.skipped.iter().map(|s| format!("{} {}", s.count, s.reason)).collect();
        let found = if damage.is_empty() {
            "no table of an Nsight Systems export".to_owned()
        } else {
            damage.join(", ")
        };
        return Err(nothing(format!("a database without usable events ({found})")));
    }
    Ok(timeline)
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    // Immutable: no journal beside the file is looked for and none is made.
    let connection =
        Connection::open_with_flags(format!("file:{}?immutable=1", quoted(path)), flags)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // The answer is a row, which `pragma_update` does not expect.
    connection.query_row(&format!("PRAGMA hard_heap_limit = {HEAP}"), [], |_| Ok(()))?;
    Ok(connection)
}

/// A path inside a URI.
fn quoted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let mut text = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
