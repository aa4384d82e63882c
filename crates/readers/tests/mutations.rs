//! Every byte string is a valid input: for each format that is known, damaged forms of real shapes through its reader.
//!
//! `COUNTERPOINT_FUZZ_INPUTS=40000 cargo test -p readers --test mutations` reads that many inputs per format.

mod mutation;
mod shapes;

use std::{
    fs,
    io::{Read, Write as _},
    path::Path,
};

use mutation::{Numbers, mutated};
use readers::{Input, ReadError, Reading, formats};
use shapes::SHAPES;

/// Inputs per format where nothing else is asked for.
const FEW: usize = 150;
/// Of the damaged inputs of a format at least this share is still read as it.
const STILL_READ: f64 = 0.25;
/// Peak memory of reading, in KiB.
const MOST_MEMORY: u64 = 1 << 20;

fn read(bytes: Vec<u8>) -> Result<Reading, ReadError> {
    readers::read(Input::from_bytes("input", bytes)?)
}

/// The format that reads an input and finds something in it.
fn read_as(bytes: Vec<u8>) -> Option<&'static str> {
    let reading = read(bytes).ok()?;
    let found = !reading.timeline.facts.is_empty() || !reading.timeline.spans.is_empty();
    found.then_some(reading.format)
}

/// Seeds of a format: its shapes, and those inputs of the rules' tests that it reads.
fn seeds<'a>(format: &str, rules: &'a [(Option<&'static str>, Vec<u8>)]) -> Vec<&'a [u8]> {
    let own = SHAPES.iter().filter(|(name, _)| *name == format).map(|(_, bytes)| *bytes);
    let others = rules.iter().filter(|(name, _)| *name == Some(format));
    own.chain(others.map(|(_, bytes)| bytes.as_slice())).collect()
}

fn inputs_of_rules() -> Vec<(Option<&'static str>, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/tests/logs");
    let mut folders: Vec<_> = fs::read_dir(folder)
        .expect("the rules' inputs exist")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.sort();
    let files = folders.iter().flat_map(|f| [f.join("positive.txt"), f.join("negative.txt")]);
    files
        .map(|path| fs::read(path).expect("an input can be read"))
        .map(|bytes| (read_as(bytes.clone()), bytes))
        .collect()
}

fn inputs_per_format() -> usize {
    let asked = std::env::var("COUNTERPOINT_FUZZ_INPUTS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(FEW)
}

#[test]
fn every_format_has_shapes_that_it_reads() {
    for format in formats::names() {
        assert!(SHAPES.iter().any(|(name, _)| *name == format), "{format} has no shape");
    }
    for (format, bytes) in SHAPES {
        let first = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        assert_eq!(read_as(bytes.to_vec()), Some(*format), "a shape of {format}: {first}");
    }
}

#[test]
fn no_format_panics_on_mutated_inputs() {
    let (rules, inputs) = (inputs_of_rules(), inputs_per_format());
    let all: Vec<&[u8]> = SHAPES.iter().map(|(_, bytes)| *bytes).collect();
    let mut told = format!("{:<22}{:>9}{:>12}\n", "format", "inputs", "still read");
    let mut few = vec![];
    for format in formats::names() {
        let seeds = seeds(format, &rules);
        let mut numbers = Numbers::of(format);
        let mut still = 0;
        for turn in 0..inputs {
            let bytes = mutated(seeds[turn % seeds.len()], &all, &mut numbers);
            still += usize::from(read_as(bytes) == Some(format));
        }
        let share = still as f64 / inputs as f64;
        told += &format!("{format:<22}{inputs:>9}{:>11.0} %\n", 100.0 * share);
        if share < STILL_READ {
            few.push(format);
        }
    }
    let memory = peak_memory().unwrap_or(0);
    told += &format!(
        "{} formats, {} inputs, at most {} MiB\n",
        formats::names().len(),
        formats::names().len() * inputs,
        memory >> 10
    );
    assert!(few.is_empty(), "seldom read once damaged: {few:?}\n{told}");
    assert!(memory <= MOST_MEMORY, "{told}");
    show(&told);
}

#[test]
fn no_compression_panics_on_mutated_inputs() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory can be written")
    };
    let zstd = |bytes: &[u8]| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(bytes, level)
    };
    for compress in [&gzip as &dyn Fn(&[u8]) -> Vec<u8>, &zstd] {
        let seeds: Vec<Vec<u8>> = SHAPES.iter().map(|(_, bytes)| compress(bytes)).collect();
        let all: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        for ((format, _), seed) in SHAPES.iter().zip(&seeds) {
            assert_eq!(read_as(seed.clone()), Some(*format));
        }
        let mut numbers = Numbers::of("compression");
        for turn in 0..inputs_per_format() {
            read_as(mutated(all[turn % all.len()], &all, &mut numbers));
        }
    }
    assert!(peak_memory().unwrap_or(0) <= MOST_MEMORY);
}

/// What `cargo test -- --nocapture` shows.
#[expect(clippy::print_stdout, reason = "figures of the test for the person who runs it")]
fn show(text: &str) {
    println!("{text}");
}

/// Most KiB that the process has held, where the system says so.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn damaged_forms_of_every_shape_are_read() {
    for (_, shape) in SHAPES {
        let long: Vec<u8> =
            shape.iter().copied().filter(|b| *b != b'\n').cycle().take(200_000).collect();
        let forms: Vec<Vec<u8>> = vec![
            vec![],
            shape[..shape.len() / 2].to_vec(),
            shape.iter().rev().copied().collect(),
            shape.iter().map(|byte| byte ^ 0x80).collect(),
            shape.iter().flat_map(|byte| [*byte, b'\r']).collect(),
            long,
            [shape, &[0; 64][..], shape].concat(),
        ];
        for form in forms {
            for reader in formats::ALL {
                if let Ok(input) = Input::from_bytes("input", form.clone()) {
                    let _ = reader.read(input);
                }
            }
        }
    }
}

/// A beginning, then the same bytes again and again.
struct Repeated {
    head: &'static [u8],
    piece: &'static [u8],
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !self.head.is_empty() {
            return self.head.read(buffer);
        }
        let count = buffer.len().min(self.left);
        for byte in &mut buffer[..count] {
            *byte = self.piece[self.at];
            self.at = (self.at + 1) % self.piece.len();
        }
        self.left -= count;
        Ok(count)
    }
}

/// What a small compressed file may hold: 64 MiB each, all together within the memory that reading may take.
#[test]
fn enormous_inputs_take_bounded_memory() {
    const EVENT: &[u8] =
        b"{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1},";
    const PICKLE: &[u8] = b"\x80\x04\x95\0\0\0\0\0\0\0\0";
    let cases: [(&str, &[u8], &[u8]); 14] = [
        ("events without line breaks", b"{\"traceEvents\":[", EVENT),
        ("an event without an end", b"{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"", b"a"),
        ("an event of line breaks", b"{\"traceEvents\":[{\"args\":[", b"1,\n"),
        ("nesting", b"{\"traceEvents\":[", b"[{\"a\":"),
        ("bytes behind the events", b"{\"traceEvents\":[]", b",\"a\":1"),
        ("values before the events", b"{\"schemaVersion\":1,\"deviceProperties\":[0", b",0"),
        ("values of nccl-tests", b"{\"bus_bw\":[0", b",0"),
        ("values of RAS", b"{\"nccl_version\":\"2\",\"communicators\":[0", b",0"),
        ("marks of a pickle", PICKLE, b"("),
        ("lists of a pickle", PICKLE, b"]"),
        ("objects in lists of a pickle", b"\x80\x04]", b"(N2222222222222222222222l"),
        ("a line without an end", b"alpha:1:2 [0] NCCL INFO ", b"Channel "),
        (
            "warnings",
            b"",
            b"alpha:1:2 [0] a.cc:1 NCCL WARN Call to connect returned Connection refused\n",
        ),
        ("tags", b"", b"<gpu dev=\"0\"><pci><net name=\"mlx5_0\">\n<system version=\"1\">\n"),
    ];
    for (name, head, piece) in cases {
        let endless = Repeated { head, piece, at: 0, left: 64 << 20 };
        let input = Input::from_reader(name, Box::new(endless)).expect("it can be opened");
        if let Ok(reading) = readers::read(input) {
            let facts = reading.timeline.facts.len();
            assert!(facts <= 50_000, "{name}: {facts} facts");
        }
        let memory = peak_memory().unwrap_or(0);
        assert!(memory <= MOST_MEMORY, "{name}: {} MiB", memory >> 10);
    }
}

/// What costs the square of its length where it is looked up in a list.
#[test]
fn as_many_of_a_kind_as_there_are_lines_are_read() {
    let lines = |line: fn(usize) -> String| (0..200_000).map(line).collect::<String>().into_bytes();
    let trace = |line: fn(usize) -> String| [&b"{\"traceEvents\":[\n"[..], &lines(line)].concat();
    let inputs: [Vec<u8>; 8] = [
        trace(|n| {
            format!(
                "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k{n}\",\"pid\":{n},\"tid\":{n},\"ts\":{n},\"dur\":1}},\n"
            )
        }),
        trace(|n| {
            format!(
                "{{\"ph\":\"X\",\"cat\":\"compute\",\"name\":\"k\",\"pid\":{n},\"tid\":{n},\"ts\":{n},\"dur\":1}},\n"
            )
        }),
        trace(|n| {
            format!(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{n},\"ts\":0,\"args\":{{\"name\":\"t\"}}}},\n{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"k\",\"pid\":1,\"tid\":{n},\"ts\":{n},\"dur\":1}},\n"
            )
        }),
        lines(|n| format!("host{n}x:7:7 [0] NCCL INFO Using network IB\n")),
        lines(|n| format!("alpha:{n}:7 [0] NCCL INFO Using network IB\n")),
        lines(|n| format!("[rank{n}]: step {n} step_time: 1.5\n")),
        lines(|n| format!("hca_id: mlx5_{n}\n state: PORT_ACTIVE\n")),
        lines(|n| format!("ii libnccl{n} 2.{n} amd64\n")),
    ];
    for input in inputs {
        let start = String::from_utf8_lossy(&input[..80]).into_owned();
        read(input).unwrap_or_else(|error| panic!("{error}: {start}"));
    }
}
