//! Memory snapshots: a small one assembled here instruction by instruction, hostile ones, damaged ones.

use readers::{Input, ReadError, Reading};
use timeline::FactValue;

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend([0x8c, text.len() as u8]);
    out.extend(text.as_bytes());
}

fn int(out: &mut Vec<u8>, value: i32) {
    out.push(b'J');
    out.extend(value.to_le_bytes());
}

/// A dictionary of texts and numbers.
fn dict(out: &mut Vec<u8>, entries: &[(&str, Result<i32, &str>)]) {
    out.extend(b"}(");
    for (key, value) in entries {
        text(out, key);
        match value {
            Ok(number) => int(out, *number),
            Err(word) => text(out, word),
        }
    }
    out.push(b'u');
}

/// One device: a segment of 1000 bytes with 600 in use and 400 free; 900 were in use at most.
fn snapshot() -> Vec<u8> {
    let mut out = vec![0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend(b"}(");
    text(&mut out, "segments");
    out.extend(b"](}(");
    for (key, value) in
        [("device", 0), ("total_size", 1000), ("allocated_size", 600), ("active_size", 600)]
    {
        text(&mut out, key);
        int(&mut out, value);
    }
    text(&mut out, "blocks");
    out.extend(b"](");
    dict(&mut out, &[("size", Ok(600)), ("state", Err("active_allocated"))]);
    dict(&mut out, &[("size", Ok(400)), ("state", Err("inactive"))]);
    out.extend(b"eue");
    text(&mut out, "device_traces");
    out.extend(b"](](");
    for (action, size) in [
        ("alloc", 600),
        ("alloc", 300),
        ("free_completed", 300),
        ("oom", 9000),
        ("segment_free", 7),
    ] {
        dict(&mut out, &[("action", Err(action)), ("size", Ok(size))]);
    }
    out.extend(b"eeu.");
    out
}

fn read(bytes: Vec<u8>) -> Result<Reading, ReadError> {
    readers::read(Input::from_bytes("-", bytes)?)
}

#[test]
fn a_snapshot_says_what_is_held_and_what_was_held_at_most() {
    let reading = read(snapshot()).unwrap();
    assert_eq!(reading.format, "memory-snapshot");
    let of = |key: &str| reading.timeline.find_fact(None, key).cloned();
    for (key, value) in [
        ("memory.device", 0),
        ("memory.reserved_bytes", 1000),
        ("memory.allocated_bytes", 600),
        ("memory.non_releasable_bytes", 400),
        ("memory.reserved_segments", 1),
        ("memory.allocated_peak_bytes", 900),
        ("memory.ooms", 1),
        ("memory.segment_frees", 1),
    ] {
        assert_eq!(of(key), Some(FactValue::Int(value)), "{key}");
    }
}

#[test]
fn nothing_is_executed() {
    // os.system("true") in the three ways that pickles can call.
    let hostile: [&[u8]; 3] = [
        b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03.",
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.",
    ];
    for bytes in hostile {
        let error = read(bytes.to_vec()).unwrap_err().to_string();
        assert!(error.contains("refused"), "{error}");
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let whole = snapshot();
    for cut in 12..whole.len() {
        assert!(read(whole[..cut].to_vec()).is_err(), "{cut}");
    }
    for place in 11..whole.len() {
        for byte in [0, b'(', b'u', b'e', b'.', 0x94, b'h', 0xff] {
            let mut damaged = whole.clone();
            damaged[place] = byte;
            let _ = read(damaged);
        }
    }
    // A million lists, one in the other.
    let mut deep = vec![0x80, 4];
    deep.extend(std::iter::repeat_n(b']', 1_000_000));
    deep.extend(std::iter::repeat_n(b'a', 999_999));
    deep.push(b'.');
    assert!(read(deep).is_err());
}
