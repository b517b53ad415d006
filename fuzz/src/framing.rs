//! Framing: any bytes, in reads of any size, give the lines of a split that has the whole stream before it.

use std::sync::Arc;

use unhang_wire::{Line, Lines, Oversized};

use crate::json::{self, JsonObject};

/// The longest lines; the larger ones make the buffer grow and shrink.
const LIMITS: [usize; 6] = [64, 16, 0, 1_000, 70_000, 300_000];

/// Sizes of reads.
const READS: [&[usize]; 8] =
    [&[usize::MAX], &[1], &[2, 3, 5], &[7, 1], &[61], &[4_096, 1, 100], &[65_536], &[65_537, 255, 1]];

/// The longest stream that is tried.
const MAX_STREAM: usize = 400_000;

/// What may be held beyond the longest line: the room for one read.
const ROOM: usize = 512 << 10;

/// The first byte chooses the limit, the second how it is read; the rest is the stream, in which `\x01`, a byte and a
/// number stand for many such bytes.
///
/// # Panics
/// When an invariant is broken.
pub fn framing(bytes: &[u8]) {
    let [limit, reads, stream @ ..] = bytes else { return };
    let max_message = LIMITS[usize::from(*limit) % LIMITS.len()];
    let stream = unroll(stream);
    let found = lines_of(&stream, max_message, *reads);
    assert_eq!(found.len(), naive(&stream, max_message).count(), "as many lines as there are");
    for (found, expected) in found.iter().zip(naive(&stream, max_message)) {
        match found {
            OwnedLine::Whole(line) => assert_eq!(line, expected, "the line as it came"),
            OwnedLine::Oversized(oversized) => judge(oversized, expected, max_message),
        }
    }
}

#[derive(Debug)]
enum OwnedLine {
    Whole(Vec<u8>),
    Oversized(Oversized),
}

fn unroll(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest
        && stream.len() < MAX_STREAM
    {
        rest = after;
        match (first, after) {
            (1, [byte, count, after @ ..]) => {
                stream.resize(stream.len() + 512 * usize::from(*count), *byte);
                rest = after;
            }
            _ => stream.push(*first),
        }
    }
    stream
}

/// What the code under test makes of the stream. The highest bits of `reads` say whether several reads are made before
/// lines are taken, whether somebody keeps the memory of earlier lines, and whether memory is given back.
fn lines_of(mut stream: &[u8], max_message: usize, reads: u8) -> Vec<OwnedLine> {
    let (reads_ahead, keeps, releases) = (reads & 0x80 != 0, reads & 0x40 != 0, reads & 0x20 != 0);
    let mut kept: Option<(Arc<Vec<u8>>, Vec<u8>)> = None;
    let mut lines = Lines::new(max_message);
    let mut found = Vec::new();
    // So many small reads of a long stream would take all the time there is.
    let least = stream.len() / 4_096;
    for (count, read) in READS[usize::from(reads) % READS.len()].iter().cycle().enumerate() {
        if stream.is_empty() {
            break;
        }
        let (chunk, rest) = stream.split_at((*read).max(least).max(1).min(stream.len()));
        stream = rest;
        lines.push(chunk);
        if let Some((memory, before)) = kept.take() {
            assert!(*memory == before, "memory that is lent is not written to");
        }
        if keeps {
            let memory = lines.memory();
            let before = memory.to_vec();
            kept = Some((memory, before));
        }
        if !reads_ahead || count % 3 == 0 {
            found.extend(std::iter::from_fn(|| lines.next_line().map(owned)));
        }
        if releases {
            lines.release();
        }
        if !reads_ahead && chunk.len() <= 65_536 {
            assert!(lines.capacity() <= max_message + ROOM, "{} bytes are held", lines.capacity());
        }
    }
    found.extend(std::iter::from_fn(|| lines.finish().map(owned)));
    assert!(lines.finish().is_none() && lines.next_line().is_none(), "the end is the end");
    found
}

fn owned(line: Line<'_>) -> OwnedLine {
    match line {
        Line::Whole(bytes) => OwnedLine::Whole(bytes.to_vec()),
        Line::Oversized(oversized) => OwnedLine::Oversized(oversized),
    }
}

/// The same by splitting.
fn naive(stream: &[u8], max_message: usize) -> impl Iterator<Item = &[u8]> {
    let text = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(move |line| line.len() > max_message || !json::trim(line).is_empty())
}

/// A line that was too long is measured, and on JSON its id and method are those that a parser finds.
fn judge(oversized: &Oversized, line: &[u8], max_message: usize) {
    assert_eq!(oversized.length, line.len() as u64, "its length without its ending");
    assert!(line.len() > max_message, "a line that fits is kept");
    let Some(object) = json::value(line).and_then(JsonObject::new) else { return };
    let id = object.only("id").and_then(json::id);
    assert_eq!(oversized.id.as_ref().map(unhang_wire::Id::to_json), id, "{}", line.escape_ascii());
    let method = object.only("method").filter(|method| method.len() <= 512).and_then(json::text);
    assert_eq!(oversized.method, method, "{}", line.escape_ascii());
    assert_eq!(oversized.shape, json::shape(&object), "{}", line.escape_ascii());
}
