//! One `unhang wrap` and the pipes to it, driven by turns that never block: the soak's own client.
//!
//! # Invariants
//!
//! - No read, write or wait blocks; a [`SoakGuard::turn`] lasts as long as its caller allows at most.
//! - What was said last is kept both ways, bounded, for the report of a violation.
//! - Only processes of this guard are ever signalled.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock;
use crate::failure::ChoreFailure;
use crate::leftovers::{self, MarkedProcess};
use crate::run::{self, ProgramRun};

/// Lines that are kept each way.
const KEPT_LINES: usize = 60;
/// Bytes that are kept of one line.
const KEPT_BYTES: usize = 400;
/// Bytes of stderr that are kept, from its end.
const KEPT_STDERR: usize = 16 << 10;
/// Read at once.
const PIECE: usize = 64 << 10;
/// Lines that are read before the earlier ones have been taken.
const ENOUGH_LINES: usize = 20_000;

/// A guard that runs or has ended.
#[derive(Debug)]
pub(crate) struct SoakGuard {
    child: Child,
    process: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Bytes that wait for the guard.
    unsent: VecDeque<u8>,
    /// What was read and has no end of line yet.
    partial: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    /// Whether stdout is read.
    pub(crate) reads: bool,
    reads_stderr: bool,
    status: Option<ExitStatus>,
    born: Instant,
    /// The last lines each way with their moments.
    to_guard: VecDeque<(Duration, String)>,
    from_guard: VecDeque<(Duration, String)>,
    stderr_tail: VecDeque<u8>,
}

impl SoakGuard {
    pub(crate) fn start(task: &ProgramRun, reads_stderr: bool) -> Result<Self, ChoreFailure> {
        let mut child = run::converse(task)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let prepare = || -> io::Result<OwnedFd> {
            for descriptor in [stdin.as_ref().map(nonblocking), stdout.as_ref().map(nonblocking)] {
                descriptor.transpose()?;
            }
            stderr.as_ref().map(nonblocking).transpose()?;
            let pid = Pid::from_child(&child);
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        };
        let process = prepare().map_err(|error| ChoreFailure::io("cannot prepare the pipes", &error))?;
        Ok(Self {
            child,
            process,
            stdin,
            stdout,
            stderr,
            unsent: VecDeque::new(),
            partial: Vec::new(),
            lines: VecDeque::new(),
            reads: true,
            reads_stderr,
            status: None,
            born: clock::now(),
            to_guard: VecDeque::new(),
            from_guard: VecDeque::new(),
            stderr_tail: VecDeque::new(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Queues bytes for the guard; they leave in the next turns.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.keep_sent(bytes);
        if self.stdin.is_some() {
            self.unsent.extend(bytes);
        }
    }

    /// Takes the next whole line that came, without its line feed.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front()
    }

    /// Whether everything that was sent has been taken out of the pipe too.
    pub(crate) fn has_read_all(&self) -> bool {
        let left = self.stdin.as_ref().and_then(|stdin| rustix::io::ioctl_fionread(stdin).ok());
        self.unsent.is_empty() && left.unwrap_or_default() == 0
    }

    /// Whether nobody reads what we write any more, or we have closed it.
    pub(crate) fn is_deaf(&self) -> bool {
        self.stdin.is_none()
    }

    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Whether stdout has ended.
    pub(crate) fn is_silent(&self) -> bool {
        self.stdout.is_none()
    }

    /// Bytes behind the last line feed.
    pub(crate) fn partial(&self) -> &[u8] {
        &self.partial
    }

    pub(crate) fn close_input(&mut self) {
        self.keep_sent(b"(end)");
        self.stdin = None;
        self.unsent.clear();
    }

    /// Goes away as a client that crashed.
    pub(crate) fn vanish(&mut self) {
        self.close_input();
        self.stdout = None;
        self.stderr = None;
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        self.keep_sent(format!("(signal {})", signal.as_raw()).as_bytes());
        let _gone_already = pidfd_send_signal(&self.process, signal);
    }

    /// Signals the server, or its lifeline, if there is one at the moment; returns whether there was.
    pub(crate) fn signal_below(&mut self, faulty_server: &str, wants_lifeline: bool, signal: Signal) -> bool {
        let Some((lifeline, server)) = self.below(faulty_server) else { return false };
        let pid = if wants_lifeline { lifeline } else { server };
        let who = if wants_lifeline { "the lifeline" } else { "the server" };
        let Some(descriptor) = open(pid) else { return false };
        // The number may have gone to another process before the descriptor was opened.
        if self.below(faulty_server) != Some((lifeline, server)) {
            return false;
        }
        self.keep_sent(format!("(signal {} to {who}, {pid})", signal.as_raw()).as_bytes());
        pidfd_send_signal(&descriptor, signal).is_ok()
    }

    /// Finds the lifeline and the server that runs this faulty server.
    pub(crate) fn below(&self, faulty_server: &str) -> Option<(u32, u32)> {
        let runs = |command: &str| {
            command.split(" zoo ").nth(1).is_some_and(|rest| rest.split(' ').next() == Some(faulty_server))
        };
        leftovers::lifelines(self.pid()).into_iter().find_map(|lifeline| {
            // Until the program has taken the place of its parent's, it is no server yet and still has that command.
            let is_server =
                |process: &MarkedProcess| process.command != lifeline.command && runs(&process.command);
            let server = leftovers::children(lifeline.pid).into_iter().find(is_server)?;
            Some((lifeline.pid, server.pid))
        })
    }

    /// Does what can be done, waiting for something at most so long; returns whether anything came or left.
    pub(crate) fn turn(&mut self, timeout: Duration) -> io::Result<bool> {
        self.wait(timeout)?;
        let mut moved = self.write()?;
        moved |= self.read_on()?;
        if self.reads_stderr {
            self.read_stderr()?;
        }
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            moved |= self.status.is_some();
        }
        Ok(moved)
    }

    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut awaited = Vec::with_capacity(4);
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !self.unsent.is_empty()) {
            awaited.push(PollFd::new(stdin, PollFlags::OUT));
        }
        if let Some(stdout) = self.stdout.as_ref().filter(|_| self.reads) {
            awaited.push(PollFd::new(stdout, PollFlags::IN));
        }
        if let Some(stderr) = self.stderr.as_ref().filter(|_| self.reads_stderr) {
            awaited.push(PollFd::new(stderr, PollFlags::IN));
        }
        if self.status.is_none() {
            awaited.push(PollFd::new(&self.process, PollFlags::IN));
        }
        match poll(&mut awaited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self) -> io::Result<bool> {
        let mut moved = false;
        while let Some(stdin) = self.stdin.as_mut().filter(|_| !self.unsent.is_empty()) {
            match stdin.write(self.unsent.as_slices().0) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.close_input(),
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Reads what is there, unless that much is read already; returns whether anything was.
    pub(crate) fn read_on(&mut self) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        let enough = !self.reads || self.lines.len() >= ENOUGH_LINES;
        let Some(stdout) = self.stdout.as_mut().filter(|_| !enough) else { return Ok(false) };
        let count = match stdout.read(&mut piece) {
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if count == 0 {
            self.stdout = None;
            return Ok(true);
        }
        let mut rest = &piece[..count];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.partial);
            line.extend_from_slice(&rest[..end]);
            keep(&mut self.from_guard, self.born.elapsed(), &line);
            self.lines.push_back(line);
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        Ok(true)
    }

    fn read_stderr(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let Some(stderr) = self.stderr.as_mut() else { return Ok(()) };
        match stderr.read(&mut piece) {
            Ok(0) => self.stderr = None,
            Ok(count) => {
                self.stderr_tail.extend(&piece[..count]);
                let excess = self.stderr_tail.len().saturating_sub(KEPT_STDERR);
                self.stderr_tail.drain(..excess);
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn keep_sent(&mut self, bytes: &[u8]) {
        keep(&mut self.to_guard, self.born.elapsed(), bytes);
    }

    /// What was said last both ways, and the end of stderr.
    pub(crate) fn story(&self) -> String {
        let sent = self.to_guard.iter().map(|(at, line)| (at, "->", line));
        let mut said: Vec<_> =
            sent.chain(self.from_guard.iter().map(|(at, line)| (at, "<-", line))).collect();
        said.sort_by_key(|(at, ..)| **at);
        let show =
            |(at, way, line): &(&Duration, &str, &String)| format!("{:8.3} {way} {line}\n", at.as_secs_f64());
        let said: String = said.iter().map(show).collect();
        let bytes: Vec<u8> = self.stderr_tail.iter().copied().collect();
        let stderr = String::from_utf8_lossy(&bytes);
        format!("last lines both ways, with seconds since the start:\n{said}\nend of stderr:\n{stderr}")
    }
}

/// Keeps the beginning of a line among the last ones.
fn keep(lines: &mut VecDeque<(Duration, String)>, at: Duration, line: &[u8]) {
    let shown = String::from_utf8_lossy(&line[..line.len().min(KEPT_BYTES)]);
    let cut = if line.len() > KEPT_BYTES { format!(" ... {} bytes", line.len()) } else { String::new() };
    if lines.len() >= KEPT_LINES {
        lines.pop_front();
    }
    lines.push_back((at, format!("{}{cut}", shown.trim_end())));
}

impl Drop for SoakGuard {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _gone_already = pidfd_send_signal(&self.process, Signal::KILL);
            // So that no zombie stays.
            clock::wait_until(Duration::from_secs(10), || !matches!(self.child.try_wait(), Ok(None)));
        }
    }
}

fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

fn nonblocking(descriptor: impl std::os::fd::AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(&descriptor, fcntl_getfl(&descriptor)? | OFlags::NONBLOCK)?)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
