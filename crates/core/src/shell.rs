//! What each shell around a pure machine is made of: the client's two pipes, the alarm clock, and the wish to end.
//!
//! Invariants: nothing here awaits a write; what waits for the client is bounded by whoever asks [`ToClient::backlog`]
//! before it reads on; at the end it is delivered for as long as the client reads.

use std::{io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use tokio::time::{Instant, Sleep};
use unhang_proc::{
    deadline::Deadline,
    pipe::{Flush, PipeReader, PipeWriter, adopt_input, adopt_output},
};
use unhang_switches::stands;
use unhang_wire::Lines;

use crate::{
    config::{FLUSH_LIMIT, FLUSH_PAUSE},
    exit,
    queue::{Class, Queue},
};

/// Bytes of lines that are gathered, to leave together when what was read at once has been dealt with: with many calls in
/// flight that is one system call where there were 35. A longer line is worth a system call and not worth a copy.
const GATHERED: usize = 32 << 10;

/// What is read of one peer before it is the turn of others. A pipe that is never empty is always ready, and who waits for it would
/// never let anybody else run: in one thread there are all servers, all clients and the clock.
const TURN: usize = 64 << 10;

/// What was read of one peer since it was the turn of others.
#[derive(Debug, Default)]
pub struct ReadTurn(usize);

impl ReadTurn {
    /// So much was read.
    pub fn took(&mut self, bytes: usize) {
        self.0 += bytes;
    }

    /// Whether it is the turn of others; the next one begins then.
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
    /// As by SIGINT.
    Interrupt,
    /// As by SIGTERM.
    Terminate,
}

impl Stop {
    /// The exit code of a program that ended because of it.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Stop::Interrupt => exit::INTERRUPTED,
            Stop::Terminate => exit::TERMINATED,
        }
    }

    /// Why the session ends, for a sentence.
    pub fn cause(self) -> &'static str {
        match self {
            Stop::Interrupt => "it was interrupted",
            Stop::Terminate => "it was told to end",
        }
    }
}

/// Arms the timer, without touching it where nothing changed.
pub fn set(timer: &mut Pin<Box<Sleep>>, at: Option<Instant>) {
    // With nothing due, a look once an hour does no harm.
    let at = at.unwrap_or_else(|| timer.deadline().max(Instant::now() + Duration::from_secs(3600)));
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
}

/// What is gathered before it leaves: never so much that gathering would pass for pressure.
pub fn gathered(queue_bytes: usize) -> usize {
    GATHERED.min(queue_bytes / 4)
}

/// Nothing to read at the moment.
pub fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock && stands("idle-is-not-the-end")
}

/// What the client writes.
pub struct FromClient {
    input: PipeReader,
    /// What was read and not yet taken.
    pub lines: Lines,
    /// What of it was read before others had theirs.
    pub turn: ReadTurn,
    /// Its end was seen.
    pub ended: bool,
}

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// There may be whole lines now.
    Bytes,
    /// Nothing was there after all.
    Nothing,
    /// The client has closed it.
    End,
}

impl FromClient {
    /// Reads lines of at most `max_message` bytes from a client.
    ///
    /// # Errors
    /// Where the descriptor cannot be read.
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

    /// Reads what is there.
    pub fn read(&mut self, ready: io::Result<()>) -> ReadOutcome {
        let read = ready.and_then(|()| self.input.try_read(self.lines.spare()));
        self.take(read)
    }

    /// Reads what is there, whether or not the runtime has heard of it.
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

/// What waits for the client, and the way there.
pub struct ToClient {
    output: PipeWriter,
    /// Copies what others would have to wait for.
    copier: Flush,
    queue: Queue,
    gathered: usize,
}

impl ToClient {
    /// Writes to a client, and keeps about `queue_bytes` bytes that it has not taken yet.
    ///
    /// # Errors
    /// Where the descriptor cannot be written to.
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

    /// Sends what can be sent now.
    pub fn flush(&mut self) {
        self.queue.flush(&mut self.output);
    }

    /// Bytes that wait.
    pub fn backlog(&self) -> usize {
        self.queue.cost()
    }

    /// Whether anything waits.
    pub fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A write failed: the client reads no more.
    pub fn peer_gone(&self) -> bool {
        self.queue.peer_gone()
    }

    /// Messages dropped or merged so far.
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

    /// Delivers what waits. A client that reads, however slowly, gets all of it while there is time; one that has stopped
    /// reading costs no more than [`FLUSH_PAUSE`].
    pub async fn deliver(mut self, ends_by: Option<Deadline>) {
        let least = Deadline::after(FLUSH_LIMIT);
        let last = ends_by.map_or(least, |ends_by| ends_by.max(least));
        let pause = || match stands("flush-bounded") {
            true => last.within(FLUSH_PAUSE),
            false => Deadline::after(Duration::MAX),
        };
        let mut deadline = pause();
        while self.is_waiting() && stands("waiting-answers-delivered") {
            if deadline.timeout(self.output.writable()).await.is_err() {
                tracing::warn!("the client did not take {} bytes of answers", self.backlog());
                break;
            }
            self.flush();
            if stands("reading-renews-patience") {
                deadline = pause();
            }
        }
        drop(self.output);
        self.copier.finish(deadline).await;
    }
}
