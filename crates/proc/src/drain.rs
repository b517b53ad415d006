//! Drains a server's stderr by bytes, from the moment of its start until end-of-file (L-05, L-06, X-12, promise 3).
//!
//! Invariants
//! - The drain reads on, whatever the lines are like: a line without end costs no memory and stops nothing (contract 3.3).
//! - Memory is bounded: the tail's ring, one chunk, one piece of a line.
//! - The thread ends at end-of-file or soon after it is told to. A grandchild that holds the pipe cannot keep it.
//!
//! Theory of operation: one thread waits for the pipe and for a stop descriptor. All bytes that it reads go into the [`Tail`] and, cut into
//! lines, to the callback. To the server a slow callback looks like a slow reader, so the callback should only hand on.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    deadline::Deadline,
    pipe::{pair, wait},
    server::ErrorPipe,
};

/// Bytes read at once: the capacity of an ordinary pipe.
const CHUNK: usize = 64 * 1024;
/// The longest piece of a line that is handed on at once. A longer line comes in several pieces.
pub const LONGEST_PIECE: usize = 8 * 1024;
/// Characters of a line that [`Tail::last_lines`] keeps.
const LONGEST_TAIL_LINE: usize = 2_000;
/// How long an abandoned drain may take to read the bytes that are there.
const LAST_TURN: Duration = Duration::from_secs(2);
/// The most chunks that an abandoned drain reads from a pipe that is filled all the time.
const LAST_CHUNKS: u32 = 16;
/// The stack of the drain's thread; the callback formats a line of log at most.
const STACK: usize = 256 * 1024;

/// The last bytes of a stream, for error reports. Clones share them.
#[derive(Clone, Debug)]
pub struct Tail(Arc<Mutex<Ring>>);

#[derive(Debug)]
struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    seen: u64,
    /// When the newest byte came.
    last: Option<Instant>,
}

impl Tail {
    /// Makes a tail of `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring { bytes: VecDeque::new(), capacity, seen: 0, last: None })))
    }

    /// Adds bytes, and forgets the oldest if there is no room.
    pub fn push(&self, bytes: &[u8]) {
        let mut ring = self.ring();
        ring.seen += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        ring.last = Some(Instant::now());
        let newest = bytes.get(bytes.len().saturating_sub(ring.capacity)..).unwrap_or_default();
        let excess = (ring.bytes.len() + newest.len()).saturating_sub(ring.capacity);
        ring.bytes.drain(..excess);
        ring.bytes.extend(newest);
    }

    /// Forgets all bytes: what follows comes from another process.
    pub fn clear(&self) {
        let mut ring = self.ring();
        let capacity = ring.capacity;
        *ring = Ring { bytes: VecDeque::new(), capacity, seen: 0, last: None };
    }

    /// Returns the last lines that are not empty, oldest first, fit to be shown. Control characters are left out, each line is cut to 2,000
    /// characters, and bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let ring = self.ring();
        let (bytes, is_cut) =
            (ring.bytes.iter().copied().collect::<Vec<u8>>(), ring.seen > ring.bytes.len() as u64);
        drop(ring);
        let mut lines: Vec<String> = bytes
            .split(|&byte| byte == b'\n')
            .rev()
            .map(readable)
            .filter(|line| !line.is_empty())
            .take(count)
            .collect();
        // If the ring has cut into a character, the replacement for the rest of that character is dropped.
        if is_cut && let Some(oldest) = lines.last_mut() {
            *oldest = oldest.trim_start_matches(char::REPLACEMENT_CHARACTER).to_owned();
        }
        lines.reverse();
        lines
    }

    /// Returns for how long no byte has come; `None` if none ever came.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.ring().last.map(|last| last.elapsed())
    }

    /// Returns how many bytes have passed in all.
    #[must_use]
    pub fn bytes_seen(&self) -> u64 {
        self.ring().seen
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let shown = text.chars().map(|character| if character == '\t' { ' ' } else { character });
    shown
        .filter(|character| !character.is_control())
        .take(LONGEST_TAIL_LINE)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// A running drain. Dropping it tells the thread to end.
#[derive(Debug)]
pub struct Drain {
    ended: Option<oneshot::Receiver<bool>>,
    /// Closing this descriptor tells the thread to stop.
    stop: Option<OwnedFd>,
}

impl Drain {
    /// Waits for end-of-file, but not beyond the deadline: a process that outlives the server may hold the pipe. After the deadline the
    /// drain is abandoned. It first reads the bytes that are there by then, because on a busy machine its thread may not have had its turn.
    /// Returns whether everything was read to the end.
    pub async fn finish(&mut self, deadline: Deadline) -> bool {
        let Some(mut ended) = self.ended.take() else { return false };
        let outcome = deadline.timeout(&mut ended).await;
        self.stop = None;
        match outcome {
            Ok(is_end) => is_end.unwrap_or(false),
            Err(_) => {
                // This wait depends on our own thread alone.
                let _ = Deadline::after(LAST_TURN).timeout(ended).await;
                false
            }
        }
    }
}

/// Starts to drain the pipe into the tail. Each line, without its ending, also goes to `on_line`, on the drain's thread. A line over 8 KiB
/// goes there in pieces of that size.
pub fn drain(pipe: ErrorPipe, tail: Tail, on_line: impl FnMut(&[u8]) + Send + 'static) -> Drain {
    let (done, ended) = oneshot::channel();
    let start = || -> std::io::Result<OwnedFd> {
        let (stopped, stop) = pair()?;
        let work = move || {
            let is_end = read_to_end(&pipe, &stopped, &tail, on_line);
            // The receiver may have been dropped.
            let _ = done.send(is_end);
        };
        thread::Builder::new().name("drain".to_owned()).stack_size(STACK).spawn(work)?;
        Ok(stop)
    };
    // Without a thread the pipe is closed. A server survives a closed pipe better than a pipe that nobody reads (L-02).
    Drain { stop: start().ok(), ended: Some(ended) }
}

/// Reads until end-of-file. Returns `false` if it was told to stop before that, or if the pipe broke. After the word to stop it still reads
/// the bytes that are there, up to the capacity of a pipe.
fn read_to_end(pipe: &ErrorPipe, stopped: &OwnedFd, tail: &Tail, on_line: impl FnMut(&[u8])) -> bool {
    let mut chunk = vec![0; CHUNK];
    let mut lines = LineCutter { piece: Vec::new(), on_line };
    let mut left = None;
    loop {
        let mut polled = [PollFd::new(pipe, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if !wait(&mut polled, None) {
            continue;
        }
        let has_more = !polled[0].revents().is_empty();
        if !polled[1].revents().is_empty() {
            let left = left.get_or_insert(LAST_CHUNKS);
            if !has_more || *left == 0 {
                lines.finish();
                return false;
            }
            *left -= 1;
        } else if !has_more {
            continue;
        }
        match rustix::io::read(pipe, &mut chunk) {
            Ok(0) => {
                lines.finish();
                return true;
            }
            Ok(count) => {
                let bytes = chunk.get(..count).unwrap_or_default();
                tail.push(bytes);
                lines.push(bytes);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return false,
        }
    }
}

/// Cuts a stream into lines, and long lines into pieces.
struct LineCutter<F> {
    /// The start of a line whose end has not come yet; shorter than a piece.
    piece: Vec<u8>,
    on_line: F,
}

impl<F: FnMut(&[u8])> LineCutter<F> {
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = LONGEST_PIECE - self.piece.len();
            let window = bytes.get(..room.min(bytes.len())).unwrap_or_default();
            let (taken, after, is_whole) = match window.iter().position(|&byte| byte == b'\n') {
                Some(end) => (window.get(..end), bytes.get(end + 1..), true),
                None => (Some(window), bytes.get(window.len()..), window.len() == room),
            };
            self.add(taken.unwrap_or_default(), is_whole);
            bytes = after.unwrap_or_default();
        }
    }

    fn add(&mut self, taken: &[u8], is_whole: bool) {
        if !is_whole {
            self.piece.extend_from_slice(taken);
        } else if self.piece.is_empty() {
            // The usual case: no copy.
            (self.on_line)(without_return(taken));
        } else {
            self.piece.extend_from_slice(taken);
            (self.on_line)(without_return(&self.piece));
            self.piece.clear();
        }
    }

    fn finish(&mut self) {
        if !self.piece.is_empty() {
            (self.on_line)(without_return(&self.piece));
            self.piece.clear();
        }
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests;
