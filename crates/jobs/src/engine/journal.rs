//! The thread that writes the logs of calls: one for all of them, so that a disk that stands still delays nobody.
//!
//! Invariants
//!
//! - A caller that has a line to write never waits. Lines that find no room are dropped, and the log says how many.
//! - A log has a limit; once it is reached, the last line says so.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use rustix::fs::OFlags;
use tokio::sync::oneshot;

/// The most lines that wait for the disk, of all calls together.
const WAITING: usize = 1024;

/// The longest line that is kept, in bytes. A server may log megabytes at once.
const LONGEST: usize = 8 << 10;

/// The thread's stack; it writes to files.
const STACK: usize = 128 << 10;

enum Order {
    Write(Arc<Path>, Vec<u8>),
    SayWhenDone(oneshot::Sender<()>),
}

/// A handle to the thread, which ends when all handles have gone.
#[derive(Clone, Debug)]
pub(super) struct Journal(mpsc::SyncSender<Order>);

/// The writer of one call's log.
#[derive(Debug)]
pub(super) struct LogWriter {
    journal: Journal,
    path: Arc<Path>,
    /// The number of bytes by which the log may still grow.
    room: u64,
    /// The number of lines that were dropped since the last line that found room in the queue.
    dropped: u64,
}

impl Journal {
    /// Starts the thread; `None` if the system cannot start one.
    pub(super) fn start() -> Option<Self> {
        let (sender, orders) = mpsc::sync_channel(WAITING);
        let work = move || {
            for order in orders {
                match order {
                    Order::Write(path, text) => {
                        if let Err(error) = append(&path, &text) {
                            tracing::debug!("{} cannot be written: {error}", path.display());
                        }
                    }
                    // The caller may have gone.
                    Order::SayWhenDone(done) => drop(done.send(())),
                }
            }
        };
        let started = thread::Builder::new().name("jobs-journal".into()).stack_size(STACK).spawn(work);
        started.is_ok().then_some(Self(sender))
    }

    pub(super) fn pen(&self, path: PathBuf, limit: u64) -> LogWriter {
        LogWriter { journal: self.clone(), path: path.into(), room: limit, dropped: 0 }
    }
}

impl LogWriter {
    /// Adds a line. Never waits.
    pub(super) fn line(&mut self, line: &str) {
        if self.room == 0 {
            return;
        }
        let mut text = Vec::new();
        if self.dropped > 0 {
            text.extend_from_slice(format!("({} lines are missing here)\n", self.dropped).as_bytes());
        }
        let end = line.floor_char_boundary(LONGEST);
        // One entry is one line.
        text.extend(line[..end].bytes().map(|byte| if byte == b'\n' || byte == b'\r' { b' ' } else { byte }));
        text.push(b'\n');
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let is_last = length >= self.room;
        if is_last {
            text = b"(the log is full; unhang drops the rest)\n".to_vec();
        }
        match self.journal.0.try_send(Order::Write(Arc::clone(&self.path), text)) {
            Ok(()) => {
                self.dropped = 0;
                self.room = if is_last { 0 } else { self.room - length };
            }
            Err(_full) => self.dropped += 1,
        }
    }

    /// Waits until everything before is written, if the queue has room for the question. Cancel-safe.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.journal.0.try_send(Order::SayWhenDone(done)).is_ok() {
            // The thread may have panicked; then nothing more will be written.
            let _over = written.await;
        }
    }
}

fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    file.write_all(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_log_has_a_limit_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut pen = Journal::start().unwrap().pen(path.clone(), 20);
        for line in ["one\r\ntwo", "three", "four and more", "five"] {
            pen.line(line);
        }
        pen.flush().await;
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one  two\nthree\n(the log is full; unhang drops the rest)\n");
    }
}
