//! Every byte string is a valid input: damaged, cut, joined and enormous forms of real shapes through every reader.
//!
//! `COUNTERPOINT_FUZZ_INPUTS=40000 cargo test --release -p readers --test mutations` runs that many inputs per reader.

mod shapes;

use std::{fs, io::Read, path::Path};

use readers::{Input, formats::ALL};
use shapes::SHAPES;

/// A small deterministic source of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// All shapes: those of the readers' tests, and the inputs of the tests of the rules.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = SHAPES.iter().map(|shape| shape.as_bytes().to_vec()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/tests/logs");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the rules' inputs exist")
        .filter_map(|entry| Some(entry.ok()?.path().join("positive.txt")))
        .collect();
    files.sort();
    seeds.extend(files.iter().map(|path| fs::read(path).expect("an input can be read")));
    seeds
}

const TOKENS: &[&str] = &[
    "\n",
    " ",
    ": ",
    "|",
    "[",
    "]",
    "(",
    ")",
    "{",
    "\"",
    "'",
    ",",
    "=",
    "0",
    "-1",
    "99999999999999999999",
    "1e308",
    "NaN",
    "\u{0}",
    "\u{ff}",
    "é",
    "B/../",
    " NCCL INFO ",
    "NCCL WARN ",
    "Rank ",
    "rank ",
    " of ",
    "Width x",
    "0x",
    "# ",
    "$ ",
    "GPU ",
    "'size': ",
    "Process ",
    "4294967296",
    "18446744073709551616",
    "\t",
    "\u{1b}[4m",
];

/// A seed with some damage.
fn mutated(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..1 + numbers.below(8) {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + numbers.below(40)).min(bytes.len());
        match numbers.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                for _ in 0..1 + numbers.below(20) {
                    bytes.splice(at..at, part.iter().copied());
                }
            }
            3 if at < bytes.len() => bytes[at] = numbers.next() as u8,
            4 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            5 => {
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied().take(400));
            }
            6 => bytes
                .splice(at..end, b"7".iter().copied().cycle().take(numbers.below(40)))
                .for_each(drop),
            _ => bytes.splice(at..at, TOKENS[numbers.below(TOKENS.len())].bytes()).for_each(drop),
        }
    }
    bytes
}

#[test]
fn no_reader_panics_on_mutated_inputs() {
    let inputs: usize = std::env::var("COUNTERPOINT_FUZZ_INPUTS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(300);
    let seeds = seeds();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for reader in ALL {
        // Every second input is a damaged one of the reader's own.
        let own: Vec<Vec<u8>> =
            seeds.iter().filter(|seed| reader.recognise(seed)).cloned().collect();
        for turn in 0..inputs {
            let from = if turn % 2 == 0 && !own.is_empty() { &own } else { &seeds };
            let bytes = mutated(from, &mut numbers);
            if let Ok(input) = Input::from_bytes("input", bytes) {
                let _ = reader.recognise(input.head());
                let _ = reader.read(input);
            }
        }
    }
}

#[test]
fn damaged_forms_of_every_shape_are_read() {
    for seed in seeds() {
        let long: Vec<u8> =
            seed.iter().copied().filter(|b| *b != b'\n').cycle().take(200_000).collect();
        let zeros: Vec<u8> =
            seed.iter().copied().chain([0; 64]).chain(seed.iter().copied()).collect();
        let forms: Vec<Vec<u8>> = vec![
            vec![],
            seed[..seed.len() / 2].to_vec(),
            seed.iter().rev().copied().collect(),
            seed.iter().map(|byte| byte ^ 0x80).collect(),
            seed.iter().flat_map(|byte| [*byte, b'\r']).collect(),
            long,
            zeros,
        ];
        for form in forms {
            for reader in ALL {
                if let Ok(input) = Input::from_bytes("input", form.clone()) {
                    let _ = reader.read(input);
                }
            }
        }
    }
}

/// Endless repetition of a line.
struct Repeated {
    line: &'static [u8],
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.left);
        for byte in &mut buffer[..count] {
            *byte = self.line[self.at];
            self.at = (self.at + 1) % self.line.len();
        }
        self.left -= count;
        Ok(count)
    }
}

#[test]
fn endless_logs_keep_a_bounded_number_of_facts() {
    let line = b"alpha:1:2 [0] a.cc:1 NCCL WARN Call to connect returned Connection refused\n";
    let endless = Repeated { line, at: 0, left: 32 << 20 };
    let input = Input::from_reader("log", Box::new(endless)).expect("it can be opened");
    let reading = readers::read(input).expect("a NCCL log");
    assert_eq!(reading.format, "nccl-log");
    assert!(reading.timeline.facts.len() <= 20_000, "{} facts", reading.timeline.facts.len());
    assert!(reading.timeline.skipped.iter().any(|s| s.reason.contains("than are kept")));
}
