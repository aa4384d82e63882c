//! Cuts a stream of trace events into pieces between events and parses the pieces on all cores, in order.
//!
//! A line break never lies inside a JSON text, so a break between `,` and `{` at the events' level is a safe place to
//! cut. Files without line breaks are cut by walking the events. Knows nothing of events but their outline.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use super::{
    build::Batch,
    event::{Parsed, event},
    json::Scanner,
};
use crate::ReadError;

const CHUNK: usize = 2 << 20;
/// An event that is longer has no end.
const LONGEST_EVENT: usize = 32 << 20;
/// Of what follows the events no more is kept.
const MOST_AFTER: usize = 64 << 20;

/// The JSON around the list of events.
#[derive(Debug, Default)]
pub struct Outside {
    /// From the start up to the list.
    pub before: Vec<u8>,
    /// From the list's end to the file's.
    pub after: Vec<u8>,
    /// Where and why the bytes ended early, if they did.
    pub failure: Option<String>,
    /// Whether the bytes go on behind the end of the recording; nothing of that is read.
    pub more: bool,
}

/// Bytes that may end early.
struct Source<R> {
    bytes: R,
    read: u64,
    error: Option<std::io::Error>,
}

/// Parses all events and hands them to `merge` in the file's order.
///
/// # Errors
/// Where nothing could be read at all.
pub fn parse(bytes: impl Read + Send, mut merge: impl FnMut(Batch)) -> Result<Outside, ReadError> {
    let mut outside = Outside::default();
    let mut pending = vec![];
    let mut source = Source { bytes, read: 0, error: None };
    let Some(start) = find_list(&mut source, &mut pending)? else {
        outside.before = pending;
        outside.failure = Some(source.end());
        return Ok(outside);
    };
    outside.before = pending[..start].to_vec();
    pending.drain(..start);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let (chunk_sender, chunk_receiver) = sync_channel::<(usize, Vec<u8>)>(2);
    let chunk_receiver = Mutex::new(chunk_receiver);
    let (batch_sender, batch_receiver) = sync_channel::<(usize, Batch)>(2 * workers);
    thread::scope(|scope| {
        // Pieces that were parsed come back, so that their memory is used again rather than asked for anew.
        let (used_sender, used_receiver) = channel();
        for _ in 0..workers {
            let (receiver, sender, used) =
                (&chunk_receiver, batch_sender.clone(), used_sender.clone());
            scope.spawn(move || work(receiver, &sender, &used));
        }
        drop((batch_sender, used_sender));
        let reading = scope.spawn(move || cut(source, pending, &chunk_sender, &used_receiver));
        let mut early: BTreeMap<usize, Batch> = BTreeMap::new();
        let mut next = 0;
        let mut ended = false;
        for (index, batch) in batch_receiver {
            early.insert(index, batch);
            while let Some(mut batch) = early.remove(&next) {
                next += 1;
                if ended {
                    outside.more |= !batch.is_empty();
                    let room = MOST_AFTER.saturating_sub(outside.after.len());
                    outside.after.extend_from_slice(&batch.all[..batch.all.len().min(room)]);
                    continue;
                }
                if let Some(end) = batch.list_end {
                    ended = true;
                    outside.after.extend_from_slice(&batch.all[end..]);
                }
                batch.all = vec![];
                merge(batch);
            }
        }
        if let Ok(source) = reading.join()
            && (!ended || source.error.is_some())
        {
            outside.failure = Some(source.end());
        }
    });
    outside.more |= goes_on(&outside);
    Ok(outside)
}

/// Whether anything stands behind the JSON that holds the list.
fn goes_on(outside: &Outside) -> bool {
    let mut scanner = Scanner::new(&outside.after);
    // A list alone has no members behind it.
    let mut open = Scanner::new(&outside.before).peek() == Some(b'{');
    while open {
        while scanner.take(b',') {}
        if scanner.take(b'}') {
            open = false;
        } else if scanner.text().is_none() || !scanner.take(b':') || scanner.skip().is_none() {
            return false;
        }
    }
    scanner.peek().is_some()
}

fn work(
    chunks: &Mutex<Receiver<(usize, Vec<u8>)>>,
    batches: &SyncSender<(usize, Batch)>,
    used: &Sender<Vec<u8>>,
) {
    loop {
        let received = match chunks.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return,
        };
        let Ok((index, chunk)) = received else { return };
        let mut batch = parse_chunk(&chunk);
        // Bytes behind the list's end are asked for only while they are few: metadata, never events.
        if batch.list_end.is_some() || (chunk.len() <= CHUNK && batch.is_empty()) {
            batch.all = chunk;
        } else {
            // Nobody takes it back once all is read.
            let _ = used.send(chunk);
        }
        if batches.send((index, batch)).is_err() {
            return;
        }
    }
}

fn parse_chunk(chunk: &[u8]) -> Batch {
    let mut batch = Batch::default();
    let mut at = 0;
    while at < chunk.len() {
        let mut scanner = Scanner::new(&chunk[at..]);
        let Some(first) = scanner.peek() else { break };
        match first {
            b',' => at += scanner.position() + 1,
            b']' => {
                batch.list_end = Some(at + scanner.position() + 1);
                break;
            }
            b'{' => match event(&mut scanner) {
                Some(Parsed::Span(span)) => {
                    batch.push(&span);
                    at += scanner.position();
                }
                Some(Parsed::Name(process, thread, name)) => {
                    batch.name(process, thread, name);
                    at += scanner.position();
                }
                Some(Parsed::Unused(reason)) => {
                    batch.skip(reason);
                    at += scanner.position();
                }
                Some(Parsed::Damaged) => {
                    batch.skip("damaged event");
                    at += scanner.position();
                }
                None => {
                    batch.skip("damaged event");
                    at = next_event(chunk, at + 1);
                }
            },
            _ => {
                batch.skip("bytes between events");
                at = next_event(chunk, at + scanner.position() + 1);
            }
        }
    }
    batch
}

/// The next place where a line starts with an opening brace.
fn next_event(chunk: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(offset) = chunk.get(at..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        at += offset + 1;
        if Scanner::new(&chunk[at..]).peek() == Some(b'{') {
            return at;
        }
    }
    chunk.len()
}

/// Reads until the list of events has begun; yields the position behind its opening bracket.
fn find_list(
    source: &mut Source<impl Read>,
    pending: &mut Vec<u8>,
) -> Result<Option<usize>, ReadError> {
    const MOST: usize = 256 << 20;
    let finder = memchr::memmem::Finder::new(b"\"traceEvents\"");
    let mut searched = 0;
    loop {
        let more = source.fill(pending, CHUNK);
        if pending.is_empty() {
            return Err(ReadError::NotRecognised("empty"));
        }
        if Scanner::new(pending).peek() == Some(b'[') {
            return Ok(memchr::memchr(b'[', pending).map(|at| at + 1));
        }
        while let Some(offset) = finder.find(&pending[searched..]) {
            let after = searched + offset + finder.needle().len();
            let mut scanner = Scanner::new(&pending[after..]);
            if scanner.take(b':') && scanner.take(b'[') {
                return Ok(Some(after + scanner.position()));
            }
            if after + 64 > pending.len() && more {
                break;
            }
            searched = after;
        }
        if !more || pending.len() > MOST {
            return Ok(None);
        }
        searched = searched.max(pending.len().saturating_sub(CHUNK + 64));
    }
}

impl<R: Read> Source<R> {
    /// Appends up to `amount` bytes; `false` at the end or at damage, which is noted.
    fn fill(&mut self, pending: &mut Vec<u8>, amount: usize) -> bool {
        let before = pending.len();
        pending.resize(before + amount, 0);
        let mut filled = before;
        let more = loop {
            if filled == pending.len() {
                break true;
            }
            match self.bytes.read(&mut pending[filled..]) {
                Ok(0) => break false,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    break false;
                }
            }
        };
        pending.truncate(filled);
        self.read += (filled - before) as u64;
        more
    }

    /// Where the bytes end, and why where that is known.
    fn end(&self) -> String {
        match &self.error {
            None => format!("cut off after {} bytes", self.read),
            Some(error) => format!("cut off or damaged after {} bytes ({error})", self.read),
        }
    }
}

/// Reads on and sends pieces that end between events, in memory that was `used` before where there is some; yields the
/// bytes' end.
fn cut<R: Read>(
    mut source: Source<R>,
    mut pending: Vec<u8>,
    chunks: &SyncSender<(usize, Vec<u8>)>,
    used: &Receiver<Vec<u8>>,
) -> Source<R> {
    let mut index = 0;
    loop {
        let more = source.fill(&mut pending, CHUNK);
        let end = match more {
            true => {
                last_boundary(&pending).or((pending.len() > LONGEST_EVENT).then_some(pending.len()))
            }
            false => Some(pending.len()),
        };
        if let Some(end) = end {
            let mut rest = used.try_recv().unwrap_or_default();
            rest.clear();
            rest.extend_from_slice(&pending[end..]);
            pending.truncate(end);
            if chunks.send((index, std::mem::replace(&mut pending, rest))).is_err() {
                return source;
            }
            index += 1;
        }
        if !more {
            return source;
        }
    }
}

/// The last place between two events, or `None` where there is none yet.
fn last_boundary(pending: &[u8]) -> Option<usize> {
    let mut end = pending.len();
    for _ in 0..4096 {
        let Some(line_end) = memchr::memrchr(b'\n', &pending[..end]) else { break };
        end = line_end;
        let before = pending[..end].iter().rev().find(|byte| !byte.is_ascii_whitespace());
        let after = Scanner::new(&pending[end..]).peek();
        // Two spaces at most before an event: deeper braces belong to a list inside one.
        let indent = pending[end + 1..].iter().take_while(|&&byte| byte == b' ').count();
        if before == Some(&b',') && after == Some(b'{') && indent <= 4 {
            return Some(end + 1);
        }
    }
    walk_boundary(pending)
}

/// As [`last_boundary`], by walking whole events from the start: for files without line breaks.
fn walk_boundary(pending: &[u8]) -> Option<usize> {
    let mut scanner = Scanner::new(pending);
    let mut last = None;
    while let Some(first) = scanner.peek() {
        match first {
            b',' => {
                scanner.take(b',');
            }
            b'{' => {
                if scanner.skip().is_none() {
                    break;
                }
                last = Some(scanner.position());
            }
            _ => break,
        }
    }
    last
}
