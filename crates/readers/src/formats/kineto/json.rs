//! A forgiving JSON scanner over bytes: walks objects, yields numbers and texts without building a tree.
//!
//! Knows JSON, not traces. Every function says `None` at damage and never reads past the end.

use memchr::memchr2;

/// A position in bytes of JSON.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner at the start.
    pub fn new(bytes: &'a [u8]) -> Scanner<'a> {
        Scanner { bytes, at: 0 }
    }

    /// Bytes walked so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, without walking past it.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Walks past `expected` if it comes next.
    pub fn take(&mut self, expected: u8) -> bool {
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    /// A text without its quotes, escapes as they stand.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            let offset = memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            self.at += offset;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Some(&self.bytes[start..self.at - 1]);
            }
            // An escape: its second byte cannot end the text.
            self.at += 2;
        }
    }

    /// The bytes of a number, `true`, `false` or `null`.
    pub fn word(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        while let Some(&byte) = self.bytes.get(self.at) {
            if matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r' | b':') {
                break;
            }
            self.at += 1;
        }
        (self.at > start).then(|| &self.bytes[start..self.at])
    }

    /// A text or a word: what scalars are made of.
    pub fn scalar(&mut self) -> Option<&'a [u8]> {
        if self.peek()? == b'"' { self.text() } else { self.word() }
    }

    /// Walks past any value and yields its bytes.
    pub fn skip(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.text()?;
            }
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match *self.bytes.get(self.at)? {
                        b'"' => {
                            self.text()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            if depth == 0 {
                                self.at += 1;
                                break;
                            }
                        }
                        _ => {}
                    }
                    self.at += 1;
                }
            }
            _ => {
                self.word()?;
            }
        }
        Some(&self.bytes[start..self.at])
    }

    /// Walks an object: `member` is called at each value with its key and must walk past the value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&'a [u8], &mut Scanner<'a>) -> Option<()>,
    ) -> Option<()> {
        if !self.take(b'{') {
            return None;
        }
        if self.take(b'}') {
            return Some(());
        }
        loop {
            let key = self.text()?;
            if !self.take(b':') {
                return None;
            }
            member(key, self)?;
            if self.take(b'}') {
                return Some(());
            }
            if !self.take(b',') {
                return None;
            }
        }
    }
}

/// A whole number, possibly negative.
pub fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
    }
    Some(if negative { -value } else { value })
}

/// Microseconds in decimal digits as whole nanoseconds, from the digits alone; digits beyond the nanosecond round
/// half up. An exponent is accepted through a float, since nothing exact was written there.
pub fn microseconds(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, digits),
    };
    let point = memchr::memchr(b'.', digits).unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or(&[]));
    if fraction.iter().chain(whole).any(|byte| !byte.is_ascii_digit()) {
        let value: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let nanoseconds = (value * 1e3).round();
        let sound = nanoseconds.is_finite() && nanoseconds.abs() < 9e18;
        return sound.then_some(if negative { -(nanoseconds as i64) } else { nanoseconds as i64 });
    }
    let mut value = integer(whole)?.checked_mul(1000)?;
    let mut unit = 100;
    for &byte in fraction.iter().take(3) {
        value = value.checked_add(i64::from(byte - b'0') * unit)?;
        unit /= 10;
    }
    value = value.checked_add(i64::from(fraction.get(3).is_some_and(|&byte| byte >= b'5')))?;
    Some(if negative { -value } else { value })
}

/// A text with its escapes resolved.
pub fn unescape(text: &[u8]) -> String {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text).into_owned();
    }
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(text);
    quoted.push(b'"');
    let plain = || String::from_utf8_lossy(text).into_owned();
    serde_json::from_slice(&quoted).unwrap_or_else(|_| plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_from_their_digits() {
        let cases: [(&str, Option<i64>); 12] = [
            ("5179396178540.919", Some(5_179_396_178_540_919)),
            ("1661203462598738", Some(1_661_203_462_598_738_000)),
            ("0.5", Some(500)),
            ("12.3456", Some(12_346)),
            ("-1.25", Some(-1250)),
            ("1e3", Some(1_000_000)),
            ("99999999999999999999", None),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("-9223372036854775.8075", None),
            ("", None),
            ("abc", None),
        ];
        for (digits, expected) in cases {
            assert_eq!(microseconds(digits.as_bytes()), expected, "{digits}");
        }
    }

    #[test]
    fn damage_is_seen() {
        for text in ["{\"a\": [1, {\"b\": \"}\\\"]\"}", "{\"a\"", "{\"a\": \"x", "", "{\"a\": 1"] {
            assert!(Scanner::new(text.as_bytes()).skip().is_none(), "{text}");
        }
        let whole = "{\"a\": [1, {\"b\": \"}\\\"]\"}], \"c\": null}";
        assert_eq!(Scanner::new(whole.as_bytes()).skip().map(<[u8]>::len), Some(whole.len()));
    }
}
