//! Framing: a stream of bytes cut into lines, in bounded memory.
//!
//! A line ends with a line feed or with carriage return and line feed. Blank lines, and a byte order mark at the very beginning, are
//! skipped. A line of more than `max_message` bytes is not kept. A scanner reads its id and method while it passes, the owner is told, and
//! the next line is read as usual (limit `max-message`, design 3).
//!
//! Invariants
//!
//! - The lines depend on the bytes alone, never on how they were cut into reads.
//! - Every byte is searched for a line feed once, and moved at most a constant number of times.
//! - If the owner always takes all lines, memory stays below `max_message` and one chunk. The memory of a long line is kept for the next
//!   one until [`Lines::release`] finds that there was none, so that an idle connection holds little.
//! - Memory that somebody else holds too ([`Lines::memory`]) is never written to.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Id;
use crate::envelope_scan::EnvelopeScan;
use crate::json::blanks;
use crate::message::MessageShape;

/// The least room that is offered for reading: the default capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// The most room that is offered while a long line arrives. It saves system calls and still fits a core's cache. It is more than a pipe
/// holds: a read that does not fill its room has emptied the pipe.
const MAX_CHUNK: usize = 512 * 1024;

/// The most memory that is kept while no long line is arriving.
const IDLE_CAPACITY: usize = 256 * 1024;

/// The byte order mark, in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Cuts a stream of bytes into lines.
///
/// The owner repeats three steps: read into [`Lines::spare`], call [`Lines::filled`], call [`Lines::next_line`] until it returns `None`. At
/// the end of the stream the owner calls [`Lines::finish`] until that returns `None`.
#[derive(Debug)]
pub struct Lines {
    max_message: usize,
    /// The buffer. Its length is what was initialised; only `start..end` was received.
    buffer: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    /// There is no line feed before this place.
    searched: usize,
    /// The most bytes that were held since the last [`Lines::release`].
    most_held: usize,
    /// Whether the first bytes of the stream have been looked at.
    begun: bool,
    skipping: Option<SkippedMessage>,
}

/// A line of the stream.
#[derive(Clone, Debug)]
pub enum Line<'a> {
    /// The whole line without its ending, never blank, up to `max_message` bytes.
    Whole(&'a [u8]),
    /// A line that was longer than that. Its text is gone.
    Oversized(Oversized),
}

/// The facts about a line that was too long to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Oversized {
    /// Its length in bytes, without its ending.
    pub length: u64,
    /// The id at the top level, if the line is an object with an id that can be trusted.
    pub id: Option<Id>,
    /// The method at the top level, decoded.
    pub method: Option<String>,
    /// The kind of message that it seems meant to be.
    pub shape: MessageShape,
}

impl fmt::Display for Oversized {
    /// Writes the known facts in place of the line's text.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "({} bytes", self.length)?;
        if let Some(method) = &self.method {
            write!(formatter, ", method {method}")?;
        }
        if let Some(id) = &self.id {
            write!(formatter, ", id {}", id.to_json())?;
        }
        formatter.write_str(")")
    }
}

/// A message that is too long to be kept, while its bytes come and are skipped.
#[derive(Debug, Default)]
pub struct SkippedMessage {
    length: u64,
    /// Whether the last byte was a carriage return, which belongs to the line ending if a line feed follows.
    carriage_return: bool,
    envelope_scan: EnvelopeScan,
}

/// A line before it is lent out.
enum FoundLine {
    Whole(Range<usize>),
    Oversized(Oversized),
}

impl Lines {
    /// Makes a reader for lines of up to `max_message` bytes, not counting their ending. It allocates nothing yet.
    pub fn new(max_message: usize) -> Self {
        Self {
            max_message,
            buffer: Arc::default(),
            start: 0,
            end: 0,
            searched: 0,
            most_held: 0,
            begun: false,
            skipping: None,
        }
    }

    /// Returns room to read into, which is never empty. The owner takes all lines first: lines that were not taken stay in memory.
    pub fn spare(&mut self) -> &mut [u8] {
        let room = (self.end - self.start).clamp(CHUNK, MAX_CHUNK);
        if Arc::get_mut(&mut self.buffer).is_none() {
            self.move_to_fresh_memory(room);
        }
        // Nobody else holds the buffer now, so nothing is cloned.
        let buffer = Arc::make_mut(&mut self.buffer);
        if buffer.len() - self.end < CHUNK {
            // The bytes that are held move to the front.
            buffer.copy_within(self.start..self.end, 0);
            self.searched -= self.start;
            self.end -= self.start;
            self.start = 0;
            grow(buffer, self.end + room, self.max_message.saturating_add(MAX_CHUNK));
        }
        // After a long line there may be far more room than fits the cache.
        let until = buffer.len().min(self.end + MAX_CHUNK);
        &mut buffer[self.end..until]
    }

    /// Notes that `count` bytes were read into the room that [`Lines::spare`] returned.
    pub fn filled(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end + count);
        self.most_held = self.most_held.max(self.end - self.start);
    }

    /// Copies bytes in, for an owner that has them already.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.spare();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// Returns the next line that has ended, or `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        let found = self.find();
        if found.is_none() {
            self.rewind();
        }
        self.lend(found?)
    }

    /// Returns the lines that were not taken yet at the end of the stream, then the one without an ending, then `None`.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        let found = self.find().or_else(|| self.last());
        self.lend(found?)
    }

    /// Returns the bytes that were received and belong to no line that was taken. Of a line that is too long there are none.
    pub fn held(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the bytes of [`Lines::held`] up to the next line feed, and whether there is one. For an owner that keeps a long line elsewhere.
    pub fn held_of_line(&self) -> (&[u8], bool) {
        let held = self.held();
        match memchr::memchr(b'\n', held) {
            Some(end) => (held.get(..end).unwrap_or_default(), true),
            None => (held, false),
        }
    }

    /// Forgets so many bytes of [`Lines::held`], which the owner keeps elsewhere.
    pub fn discard(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
        self.searched = self.searched.max(self.start);
        self.rewind();
    }

    /// Takes the first bytes of a line that is known to be too long. Nothing is held, and none of the bytes is a line feed.
    pub fn push_skipped(&mut self, bytes: &[u8]) {
        self.skipping.get_or_insert_default().feed(bytes);
    }

    /// Returns how many bytes of memory are held.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns whether more memory is held than an idle connection may keep.
    pub fn is_large(&self) -> bool {
        self.capacity() > IDLE_CAPACITY
    }

    /// Frees memory that no line has needed since the last call. The owner calls this now and then while [`Lines::is_large`]. Clearing
    /// fresh memory for each long line would take longer than reading into it.
    pub fn release(&mut self) {
        let held = self.end - self.start;
        let needed = std::mem::replace(&mut self.most_held, held);
        // The bound is a quarter, because a buffer that has just been doubled for the arriving line is fuller than that.
        if self.is_large() && needed < self.capacity() / 4 {
            self.move_to_fresh_memory(CHUNK);
        }
    }

    /// Frees the memory of a long line at once, for an owner that rests from now on.
    pub fn release_now(&mut self) {
        if self.is_large() {
            self.most_held = self.end - self.start;
            self.move_to_fresh_memory(CHUNK);
        }
    }

    /// Shares the memory of the lines that were taken since the last [`Lines::spare`], for an owner that needs one for longer and would
    /// have to copy it. As long as it is held, reading goes on in other memory.
    pub fn memory(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.buffer)
    }

    fn lend(&self, found: FoundLine) -> Option<Line<'_>> {
        Some(match found {
            FoundLine::Whole(range) => Line::Whole(&self.buffer[range]),
            FoundLine::Oversized(oversized) => Line::Oversized(oversized),
        })
    }

    /// Takes lines until one is not blank.
    fn find(&mut self) -> Option<FoundLine> {
        self.skip_byte_order_mark()?;
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) else {
                self.searched = self.end;
                self.skip_if_long();
                return None;
            };
            let line_feed = self.searched + found;
            let line = self.start..line_feed;
            self.start = line_feed + 1;
            self.searched = self.start;
            if let Some(found) = self.ended(line) {
                return Some(found);
            }
        }
    }

    /// Takes the rest at the end of the stream as a line.
    fn last(&mut self) -> Option<FoundLine> {
        let line = self.start..self.end;
        self.start = self.end;
        self.searched = self.end;
        self.begun = true;
        self.ended(line)
    }

    /// Sorts a line that has ended: whole, oversized, or blank. Returns `None` if it is blank.
    fn ended(&mut self, line: Range<usize>) -> Option<FoundLine> {
        let bytes = &self.buffer[line.clone()];
        let ending = bytes.strip_suffix(b"\r");
        let content = ending.unwrap_or(bytes);
        if self.skipping.is_none() && self.fits(content) {
            let whole = line.start..line.start + content.len();
            let blank = blanks(content) == content.len();
            return (!blank).then_some(FoundLine::Whole(whole));
        }
        let mut skipping = self.skipping.take().unwrap_or_default();
        skipping.feed(bytes);
        Some(FoundLine::Oversized(skipping.finish()))
    }

    /// Gives up a line as soon as it is certainly too long.
    fn skip_if_long(&mut self) {
        let held = &self.buffer[self.start..self.end];
        let content = held.strip_suffix(b"\r").unwrap_or(held);
        if self.skipping.is_none() && self.fits(content) {
            return;
        }
        self.skipping.get_or_insert_default().feed(held);
        self.start = self.end;
    }

    fn fits(&self, line: &[u8]) -> bool {
        line.len() <= self.max_message
    }

    /// Skips a byte order mark at the beginning. Returns `None` while the stream is too short to tell.
    fn skip_byte_order_mark(&mut self) -> Option<()> {
        if self.begun {
            return Some(());
        }
        let held = &self.buffer[self.start..self.end];
        if held.starts_with(BYTE_ORDER_MARK) {
            self.start += BYTE_ORDER_MARK.len();
            self.searched = self.start;
        } else if BYTE_ORDER_MARK.starts_with(held) {
            return None;
        }
        self.begun = true;
        Some(())
    }

    /// Moves the held bytes into a new buffer with this much room behind them.
    fn move_to_fresh_memory(&mut self, room: usize) {
        let held = &self.buffer[self.start..self.end];
        let mut fresh = Vec::with_capacity(held.len() + room);
        fresh.extend_from_slice(held);
        self.searched -= self.start;
        self.end -= self.start;
        self.start = 0;
        self.buffer = Arc::new(fresh);
    }

    /// Starts again at the front of the buffer if no bytes are held.
    fn rewind(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.searched = 0;
        }
    }
}

/// Grows a buffer to at least this length: by doubling, but not beyond `most` unless that is too little.
fn grow(buffer: &mut Vec<u8>, needed: usize, most: usize) {
    if needed > buffer.capacity() {
        let capacity = (2 * buffer.capacity()).min(most).max(needed);
        buffer.reserve_exact(capacity - buffer.len());
    }
    // Only the bytes that are about to be read into are zeroed. Memory that is never used is never touched.
    if needed > buffer.len() {
        buffer.resize(needed, 0);
    }
}

impl SkippedMessage {
    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.length += bytes.len() as u64;
        self.carriage_return = *last == b'\r';
        self.envelope_scan.feed(bytes);
    }

    /// Returns the facts about the message, as far as its bytes have come.
    pub fn finish(self) -> Oversized {
        let skimmed = self.envelope_scan.finish();
        Oversized {
            length: self.length - u64::from(self.carriage_return),
            id: skimmed.id,
            method: skimmed.method,
            shape: skimmed.shape,
        }
    }
}

#[cfg(test)]
mod tests;
