//! The stream of answers, read as fast as it comes: of a long line only both ends are kept, for the id is in one of them.
//! A stream whose lines are to be understood keeps more of each.
//!
//! # Invariants
//!
//! - Memory is bounded whatever comes.
//! - A read waits no longer than the patience that it was given.

use std::io::{self, Read};
use std::process::ChildStdout;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

/// How long an answer may take before the way counts as hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// Bytes kept of the beginning and of the end of a line where only its id counts.
pub(super) const ENDS: usize = 256;
/// The same where the line is to be understood.
pub(super) const WHOLE: usize = 256 << 10;

/// One line that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerLine {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// How much of each of the two is kept.
    kept: usize,
    /// Its bytes, without the line end.
    pub(super) length: usize,
}

impl AnswerLine {
    fn new(kept: usize) -> Self {
        Self { head: Vec::new(), tail: Vec::new(), kept, length: 0 }
    }

    fn push(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let room = self.kept.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(self.kept)..]);
        let excess = self.tail.len().saturating_sub(self.kept);
        self.tail.drain(..excess);
    }

    /// Returns the message; `None` for one that was not kept whole, or is no JSON.
    pub(super) fn message(&self) -> Option<Value> {
        serde_json::from_slice(&self.head).ok().filter(|_| self.head.len() == self.length)
    }

    /// Returns the number that is its id, wherever in the envelope it stands; `None` for what has none.
    pub(super) fn id(&self) -> Option<u64> {
        number_after(&self.head, b"\"id\":").or_else(|| number_after(&self.tail, b"\"id\":"))
    }

    /// Whether it carries a result; no text of ours contains the word.
    pub(super) fn is_result(&self) -> bool {
        find(&self.head, b"\"result\":").or_else(|| find(&self.tail, b"\"result\":")).is_some()
    }

    /// Its beginning, for an error message.
    pub(super) fn beginning(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

/// Where `pattern` ends in `text`.
fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern).map(|start| start + pattern.len())
}

/// Returns the whole number that follows `pattern`, white space apart.
pub(super) fn number_after(text: &[u8], pattern: &[u8]) -> Option<u64> {
    let rest = text[find(text, pattern)?..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Lines from the way under test.
pub(super) struct Answers {
    stdout: ChildStdout,
    chunk: Vec<u8>,
    /// What of the chunk has been read but not looked at.
    unread: std::ops::Range<usize>,
    line: AnswerLine,
    timeout: Duration,
}

impl Answers {
    /// `kept` is [`ENDS`] or [`WHOLE`].
    pub(super) fn new(stdout: ChildStdout, kept: usize, timeout: Duration) -> Self {
        Self { stdout, chunk: vec![0; CHUNK], unread: 0..0, line: AnswerLine::new(kept), timeout }
    }

    /// Waits for the next line.
    pub(super) fn next(&mut self) -> io::Result<AnswerLine> {
        let timeout = self.timeout;
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("nothing came within {timeout:?}"));
        self.next_within(timeout)?.ok_or_else(late)
    }

    /// The same; nothing where that much time has passed without a byte.
    pub(super) fn next_within(&mut self, limit: Duration) -> io::Result<Option<AnswerLine>> {
        loop {
            if self.unread.is_empty() {
                if !is_readable(&self.stdout, limit)? {
                    return Ok(None);
                }
                match self.stdout.read(&mut self.chunk)? {
                    0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream has ended")),
                    count => self.unread = 0..count,
                }
            }
            let unread = &self.chunk[self.unread.clone()];
            // `contains` is vectorised where `position` is not, and the answer is nearly always no in a large result.
            if !unread.contains(&b'\n') {
                self.line.push(unread);
                self.unread = 0..0;
                continue;
            }
            let end = unread.iter().position(|byte| *byte == b'\n').unwrap_or(unread.len());
            self.line.push(&unread[..end]);
            self.unread.start += end + 1;
            let kept = self.line.kept;
            return Ok(Some(std::mem::replace(&mut self.line, AnswerLine::new(kept))));
        }
    }
}

/// Whether there is something to be read, or an end, within this time.
fn is_readable(stdout: &ChildStdout, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut descriptors = [PollFd::new(stdout, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&limit)))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pieces: &[&[u8]]) -> AnswerLine {
        let mut line = AnswerLine::new(ENDS);
        for piece in pieces {
            line.push(piece);
        }
        line
    }

    #[test]
    fn the_id_is_found_at_either_end() {
        let letters = vec![b'x'; 100_000];
        assert_eq!(line(&[b"{\"jsonrpc\":\"2.0\",\"id\":17,\"result\":\"", &letters, b"\"}"]).id(), Some(17));
        assert_eq!(
            line(&[b"{\"result\":\"", &letters, b"\",\"jsonrpc\": \"2.0\", \"id\": 18}"]).id(),
            Some(18)
        );
        // The tail may come in pieces.
        assert_eq!(line(&[b"{\"result\":\"", &letters, b"\",\"i", b"d\":", b"19}"]).id(), Some(19));
        assert_eq!(line(&[b"{\"method\":\"notifications/message\"}"]).id(), None);
        assert_eq!(line(&[b"{\"id\":null}"]).id(), None);
    }

    #[test]
    fn only_the_ends_are_kept() {
        let line = line(&[&vec![b'a'; 1000], &vec![b'b'; 1000]]);
        assert_eq!(line.length, 2000);
        assert_eq!(line.head, vec![b'a'; ENDS]);
        assert_eq!(line.tail, vec![b'b'; ENDS]);
    }

    #[test]
    fn a_message_is_understood_only_where_it_was_kept_whole() {
        assert_eq!(line(&[b"{\"id\":", b"7}"]).message(), Some(serde_json::json!({"id": 7})));
        let cut = line(&[b"{\"id\":7}", &[b' '; ENDS]]);
        assert!(cut.message().is_none() && line(&[b"{"]).message().is_none());
    }

    #[test]
    fn an_error_is_no_result() {
        assert!(line(&[b"{\"id\":1,\"result\":{}}"]).is_result());
        assert!(!line(&[b"{\"id\":1,\"error\":{\"code\":-31001}}"]).is_result());
    }
}
