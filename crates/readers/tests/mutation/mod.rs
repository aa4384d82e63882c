//! Damage of the kinds that files suffer and attackers write, from a seed that makes every run the same.
//!
//! Knows bytes, lines and numbers; no format.

use std::ops::Range;

/// A small deterministic source of numbers (xorshift).
pub struct Numbers(u64);

impl Numbers {
    /// A source of its own for a name.
    pub fn of(name: &str) -> Numbers {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Numbers(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix) | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit; 0 where the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_of<'t, T: ?Sized>(&mut self, items: &[&'t T]) -> &'t T {
        items[self.below(items.len())]
    }
}

/// Numbers at and beyond the ends of what readers hold them in.
const EXTREMES: &[&str] = &[
    "0",
    "-1",
    "-0.0",
    "1e308",
    "-1e-308",
    "NaN",
    "inf",
    "4294967296",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "0.000000000000000000000000000001",
    "7777777777777777.7777777777777777",
];

/// Marks that lead formats from one state to another, and bytes that are no text.
const TOKENS: &[&[u8]] = &[
    b"\n",
    b" ",
    b": ",
    b"|",
    b"[",
    b"]",
    b"(",
    b")",
    b"{",
    b"}",
    b"\"",
    b"'",
    b",",
    b"=",
    b"#",
    b"\t",
    b"\r",
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    b"\xf0\x9f",
    b"\x1b[4m",
    "\u{e9}\u{b5}\u{2028}".as_bytes(),
    b"B/../",
    b" NCCL INFO ",
    b"NCCL WARN ",
    b"Rank ",
    b"rank ",
    b" of ",
    b"Width x",
    b"0x",
    b"# ",
    b"$ ",
    b"GPU ",
    b"'size': ",
    b"Process ",
    b"\"ts\":",
    b"\"args\":{",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"null",
    b"\\u0000",
    b"\\ud800",
];

/// A seed with some damage, in every second case a single one that mostly keeps a strict format's outline; parts of
/// `others` may be spliced in.
pub fn mutated(seed: &[u8], others: &[&[u8]], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    if numbers.below(2) == 0 {
        nudge(&mut bytes, numbers);
    } else {
        for _ in 0..1 + numbers.below(6) {
            damage(&mut bytes, others, numbers);
        }
    }
    bytes
}

/// Another number, or another byte in place.
fn nudge(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(bytes.len());
    let place = number_from(bytes, at);
    match (numbers.below(4), place) {
        (0 | 1, Some(place)) => bytes[place].fill(b'0' + numbers.below(10) as u8),
        (2, Some(place)) => {
            let number = numbers.one_of(EXTREMES).bytes();
            bytes.splice(place, number).for_each(drop);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
    }
}

/// The first digits from a place on.
fn number_from(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
    let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(start..start + digits)
}

fn damage(bytes: &mut Vec<u8>, others: &[&[u8]], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = (at + numbers.below(40)).min(bytes.len());
    match numbers.below(16) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let part = bytes[at..end].repeat(1 + numbers.below(20));
            bytes.splice(at..at, part).for_each(drop);
        }
        3 if at < bytes.len() => bytes[at] = numbers.next() as u8,
        4 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
        5 => {
            let other = numbers.one_of(others);
            let from = numbers.below(other.len());
            bytes.splice(at..at, other[from..].iter().copied().take(400)).for_each(drop);
        }
        6..=9 => {
            let number = numbers.one_of(EXTREMES).bytes();
            if let Some(place) = number_from(bytes, at) {
                bytes.splice(place, number).for_each(drop);
            }
        }
        10 | 11 => {
            // A line is repeated or goes elsewhere.
            let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            let (from, to) = (numbers.below(lines.len()), numbers.below(lines.len() + 1));
            let Some(line) = lines.get(from) else { return };
            let before = lines[..to].concat();
            *bytes =
                [&before[..], &line.repeat(1 + numbers.below(3)), &bytes[before.len()..]].concat();
        }
        _ => {
            let token = numbers.one_of(TOKENS);
            bytes.splice(at..at, token.iter().copied()).for_each(drop);
        }
    }
}
