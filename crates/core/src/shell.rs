//! The common parts of each shell around a pure machine: the client's two pipes, the alarm clock, and the wish to end.
//!
//! Invariants: nothing here awaits a write. The caller bounds what waits for the client: it asks [`ToClient::backlog`] before it reads on.
//! At the end the waiting lines are delivered for as long as the client reads.

use std::{io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use tokio::time::{Instant, Sleep};
use unhang_proc::{
    deadline::Deadline,
    pipe::{Flush, PipeReader, PipeWriter, adopt_input, adopt_output},
};
use unhang_wire::Lines;

use crate::{
    config::{FLUSH_LIMIT, FLUSH_PAUSE},
    exit,
    queue::{Class, Queue},
};

/// The bytes of lines that are gathered and leave together, once the input of one read has been dealt with. With many calls in flight that
/// is one system call instead of 35. A longer line is worth a system call and not worth a copy.
const GATHERED: usize = 32 << 10;

/// The bytes that are read of one peer before it is the turn of others. A pipe that is never empty is always ready, and a reader of it
/// would never let anything else run. All servers, all clients and the clock are in one thread.
const TURN: usize = 64 << 10;

/// The bytes that were read of one peer since it was the turn of others.
#[derive(Debug, Default)]
pub struct ReadTurn(usize);

impl ReadTurn {
    /// Notes that so many bytes were read.
    pub fn took(&mut self, bytes: usize) {
        self.0 += bytes;
    }

    /// Returns whether it is the turn of others. If it is, the next turn begins.
    pub fn is_over(&mut self) -> bool {
        let is_over = self.0 >= TURN;
        if is_over {
            self.0 = 0;
        }
        is_over
    }
}

/// A request from outside to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A wish as by SIGINT.
    Interrupt,
    /// A wish as by SIGTERM.
    Terminate,
}

impl Stop {
    /// Returns the exit code of a program that ended because of it.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Stop::Interrupt => exit::INTERRUPTED,
            Stop::Terminate => exit::TERMINATED,
        }
    }

    /// Returns why the session ends, for a sentence.
    pub fn cause(self) -> &'static str {
        match self {
            Stop::Interrupt => "it was interrupted",
            Stop::Terminate => "it was told to end",
        }
    }
}

/// Sets the timer, and does not touch it if nothing changed.
pub fn set(timer: &mut Pin<Box<Sleep>>, at: Option<Instant>) {
    // If nothing is due, a look once an hour does no harm.
    let at = at.unwrap_or_else(|| timer.deadline().max(Instant::now() + Duration::from_secs(3600)));
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
}

/// Returns how many bytes are gathered before they leave: never so many that gathering would pass for pressure.
pub fn gathered(queue_bytes: usize) -> usize {
    GATHERED.min(queue_bytes / 4)
}

/// Returns whether the error only says that there is nothing to read at the moment.
pub fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The client's lines.
pub struct FromClient {
    input: PipeReader,
    /// The bytes that were read and not yet taken.
    pub lines: Lines,
    /// The bytes that were read before it was the turn of others.
    pub turn: ReadTurn,
    /// Whether the end was seen.
    pub ended: bool,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Bytes were read: there may be whole lines now.
    Bytes,
    /// There was nothing to read after all.
    Nothing,
    /// The client has closed its end.
    End,
}

impl FromClient {
    /// Reads lines of at most `max_message` bytes from a client.
    ///
    /// # Errors
    /// Fails if the descriptor cannot be read.
    pub fn new(input: OwnedFd, max_message: usize) -> io::Result<FromClient> {
        Ok(FromClient {
            input: adopt_input(input)?,
            lines: Lines::new(max_message),
            turn: ReadTurn::default(),
            ended: false,
        })
    }

    /// Waits until a read is worth while. Cancel-safe.
    pub async fn readable(&self) -> io::Result<()> {
        self.input.readable().await
    }

    /// Reads the bytes that are there.
    pub fn read(&mut self, ready: io::Result<()>) -> ReadOutcome {
        let read = ready.and_then(|()| self.input.try_read(self.lines.spare()));
        self.take(read)
    }

    /// Reads the bytes that are there, whether or not the runtime has heard of them.
    pub fn read_now(&mut self) -> ReadOutcome {
        let read = self.input.read_now(self.lines.spare());
        self.take(read)
    }

    fn take(&mut self, read: io::Result<usize>) -> ReadOutcome {
        match read {
            Ok(count @ 1..) => {
                self.lines.filled(count);
                self.turn.took(count);
                ReadOutcome::Bytes
            }
            Err(error) if is_passing(&error) => ReadOutcome::Nothing,
            Ok(_) | Err(_) => {
                self.ended = true;
                ReadOutcome::End
            }
        }
    }
}

/// The lines that wait for the client, and the way to the client.
pub struct ToClient {
    output: PipeWriter,
    /// Copies the bytes if others would have to wait for them.
    copier: Flush,
    queue: Queue,
    gathered: usize,
}

impl ToClient {
    /// Writes to a client, and keeps about `queue_bytes` bytes that it has not taken yet.
    ///
    /// # Errors
    /// Fails if the descriptor cannot be written to.
    pub fn new(output: OwnedFd, queue_bytes: usize) -> io::Result<ToClient> {
        let (output, copier) = adopt_output(output)?;
        Ok(ToClient { output, copier, queue: Queue::new(queue_bytes), gathered: gathered(queue_bytes) })
    }

    /// Takes a line; a short one leaves with the next [`ToClient::flush`].
    pub fn send(&mut self, class: Class, line: &[u8], memory: Option<&Arc<Vec<u8>>>) {
        let full = line.len() + self.queue.cost() > self.gathered;
        let sink = full.then_some(&mut self.output);
        self.queue.push(class, line, sink, memory);
    }

    /// Sends as much as can be sent now.
    pub fn flush(&mut self) {
        self.queue.flush(&mut self.output);
    }

    /// Returns the bytes that wait.
    pub fn backlog(&self) -> usize {
        self.queue.cost()
    }

    /// Returns whether anything waits.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether a write failed: then the client reads no more.
    pub fn peer_gone(&self) -> bool {
        self.queue.peer_gone()
    }

    /// Returns how many messages were dropped or merged so far.
    pub fn shed(&self) -> u64 {
        self.queue.shed()
    }

    /// Waits until a flush is worth while; an error shows at the write itself. Cancel-safe.
    pub async fn writable(&self) {
        let _shows_at_the_write = self.output.writable().await;
    }

    /// Waits until the client has closed its end. Cancel-safe.
    pub async fn closed(&self) {
        self.output.closed().await;
    }

    /// Delivers the lines that wait. A client that reads, however slowly, gets all of them while there is time. A client that has stopped
    /// reading costs no more than [`FLUSH_PAUSE`].
    pub async fn deliver(mut self, ends_by: Option<Deadline>) {
        let least = Deadline::after(FLUSH_LIMIT);
        let last = ends_by.map_or(least, |ends_by| ends_by.max(least));
        let pause = || last.within(FLUSH_PAUSE);
        let mut deadline = pause();
        while self.is_waiting() {
            if deadline.timeout(self.output.writable()).await.is_err() {
                tracing::warn!("the client did not take {} bytes of answers", self.backlog());
                break;
            }
            self.flush();
            deadline = pause();
        }
        drop(self.output);
        self.copier.finish(deadline).await;
    }
}
