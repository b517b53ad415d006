//! The stream of answers, read as fast as it comes: of a long line only both ends are kept, for the id is in one of them.
//!
//! # Invariants
//!
//! - Memory is bounded whatever comes.
//! - A read waits no longer than [`PATIENCE`].

use std::io::{self, Read};
use std::process::ChildStdout;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long an answer may take before the way counts as hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// Bytes kept of the beginning and of the end of a line.
const END: usize = 256;

/// One line that came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Its bytes, without the line end.
    pub(super) length: usize,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let room = END.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(END)..]);
        let excess = self.tail.len().saturating_sub(END);
        self.tail.drain(..excess);
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
    line: Line,
}

impl Answers {
    pub(super) fn new(stdout: ChildStdout) -> Self {
        Self { stdout, chunk: vec![0; CHUNK], unread: 0..0, line: Line::default() }
    }

    /// Waits for the next line.
    pub(super) fn next(&mut self) -> io::Result<Line> {
        loop {
            if self.unread.is_empty() {
                wait_readable(&self.stdout)?;
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
            return Ok(std::mem::take(&mut self.line));
        }
    }
}

fn wait_readable(stdout: &ChildStdout) -> io::Result<()> {
    let limit = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    let mut descriptors = [PollFd::new(stdout, PollFlags::IN)];
    match rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&limit)))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing came within {PATIENCE:?}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pieces: &[&[u8]]) -> Line {
        let mut line = Line::default();
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
        assert_eq!(line.head, vec![b'a'; END]);
        assert_eq!(line.tail, vec![b'b'; END]);
    }

    #[test]
    fn an_error_is_no_result() {
        assert!(line(&[b"{\"id\":1,\"result\":{}}"]).is_result());
        assert!(!line(&[b"{\"id\":1,\"error\":{\"code\":-31001}}"]).is_result());
    }
}
