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

#[cfg(test)]
mod tests {
    use std::io::{PipeReader as StdReader, PipeWriter as StdWriter, Read, Write};

    use unhang_wire::Line;

    use super::*;

    #[test]
    fn it_is_the_turn_of_others_after_so_many_bytes_and_then_a_new_turn_begins() {
        let mut turn = ReadTurn::default();
        for (bytes, is_over) in
            [(0, false), (65_535, false), (1, true), (0, false), (40_000, false), (40_000, true)]
        {
            turn.took(bytes);
            assert_eq!(turn.is_over(), is_over, "after {bytes} more");
        }
        assert!(!turn.is_over(), "what was read before counts no more");
    }

    #[test]
    fn each_wish_to_end_has_its_exit_code_and_its_cause() {
        assert_eq!((Stop::Interrupt.exit_code(), Stop::Interrupt.cause()), (130, "it was interrupted"));
        assert_eq!((Stop::Terminate.exit_code(), Stop::Terminate.cause()), (143, "it was told to end"));
    }

    #[test]
    fn no_more_is_gathered_than_a_quarter_of_the_queue() {
        for (queue_bytes, expect) in [
            (0, 0),
            (4000, 1000),
            (131_071, 32_767),
            (131_072, 32_768),
            (131_076, 32_768),
            (16 << 20, 32_768),
        ] {
            assert_eq!(gathered(queue_bytes), expect, "{queue_bytes}");
        }
    }

    #[test]
    fn only_the_lack_of_bytes_passes() {
        for (kind, expect) in [
            (io::ErrorKind::WouldBlock, true),
            (io::ErrorKind::BrokenPipe, false),
            (io::ErrorKind::Interrupted, false),
        ] {
            assert_eq!(is_passing(&kind.into()), expect, "{kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_set_to_what_is_due_and_is_left_alone_otherwise() {
        let hour = Duration::from_secs(3600);
        let now = Instant::now();
        let mut timer = Box::pin(tokio::time::sleep_until(now));
        for (at, expect) in [
            (Some(now + hour / 60), now + hour / 60),
            (None, now + hour),
            (Some(now + hour * 3), now + hour * 3),
            (None, now + hour * 3),
            (Some(now), now),
        ] {
            set(&mut timer, at);
            assert_eq!(timer.deadline(), expect);
        }
        timer.as_mut().await;
        set(&mut timer, Some(now));
        assert!(timer.is_elapsed(), "it is not started anew");
        set(&mut timer, Some(now + hour));
        assert!(!timer.is_elapsed());
    }

    fn from_client() -> (FromClient, StdWriter) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (FromClient::new(reader.into(), 1000).expect("a client"), writer)
    }

    fn line(client: &mut FromClient) -> Option<String> {
        match client.lines.next_line()? {
            Line::Whole(line) => Some(String::from_utf8_lossy(line).into_owned()),
            Line::Oversized(line) => panic!("{line}"),
        }
    }

    #[tokio::test]
    async fn a_client_is_read_until_it_closes_its_end() {
        let (mut client, mut writer) = from_client();
        assert_eq!((client.read_now(), client.ended), (ReadOutcome::Nothing, false));
        writer.write_all(b"one\ntwo\n").expect("room");
        let ready = client.readable().await;
        assert_eq!((client.read(ready), client.turn.0), (ReadOutcome::Bytes, 8));
        for expect in [Some("one"), Some("two"), None] {
            assert_eq!(line(&mut client).as_deref(), expect);
        }
        assert_eq!(client.read(Ok(())), ReadOutcome::Nothing);
        writer.write_all(b"three\n").expect("room");
        assert_eq!((client.read_now(), client.turn.0), (ReadOutcome::Bytes, 14));
        assert_eq!(line(&mut client).as_deref(), Some("three"));
        drop(writer);
        assert_eq!((client.read_now(), client.ended), (ReadOutcome::End, true));
    }

    #[tokio::test]
    async fn a_client_that_cannot_be_read_has_ended() {
        for (error, outcome, ended) in [
            (io::ErrorKind::WouldBlock, ReadOutcome::Nothing, false),
            (io::ErrorKind::ConnectionReset, ReadOutcome::End, true),
        ] {
            let (mut client, _writer) = from_client();
            assert_eq!((client.read(Err(error.into())), client.ended), (outcome, ended), "{error}");
        }
    }

    async fn to_client(queue_bytes: usize) -> (ToClient, StdReader) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let client = ToClient::new(writer.into(), queue_bytes).expect("a client");
        // The runtime does not know earlier that the pipe has room.
        client.writable().await;
        (client, reader)
    }

    #[tokio::test]
    async fn short_lines_are_gathered_and_a_longer_one_takes_them_along() {
        // Up to a quarter is gathered. Each line that waits counts for 97 bytes more.
        for (lengths, backlog) in
            [([0, 903], 1097), ([3, 900], 1097), ([3, 901], 0), ([1000, 0], 0), ([1001, 1], 98)]
        {
            let (mut client, mut reader) = to_client(4000).await;
            let mut expect = Vec::new();
            for length in lengths {
                let line = vec![b'x'; length];
                client.send(Class::Kept, &line, None);
                expect.extend(line);
                expect.push(b'\n');
            }
            assert_eq!((client.backlog(), client.is_waiting()), (backlog, backlog > 0), "{lengths:?}");
            client.flush();
            assert_eq!((client.backlog(), client.is_waiting()), (0, false), "{lengths:?}");
            assert!(!client.peer_gone() && client.shed() == 0);
            drop(client);
            let mut read = Vec::new();
            reader.read_to_end(&mut read).expect("bytes");
            assert!(read == expect, "{lengths:?}: {} bytes", read.len());
        }
    }

    #[tokio::test]
    async fn what_is_shed_is_counted_and_a_client_that_has_gone_is_noticed() {
        let (mut client, reader) = to_client(1000).await;
        client.gathered = usize::MAX;
        for _ in 0..10 {
            client.send(Class::Log, b"abc", None);
        }
        // The tenth one brings it over the limit, and it sheds down to 750 bytes.
        assert_eq!((client.shed(), client.backlog()), (0, 1000));
        client.send(Class::Log, b"abc", None);
        assert_eq!((client.shed(), client.backlog()), (4, 700));
        let soon = Deadline::after(Duration::from_millis(10));
        assert!(soon.timeout(client.closed()).await.is_err(), "it is still there");
        drop(reader);
        client.closed().await;
        assert!(!client.peer_gone(), "nothing was written yet");
        client.flush();
        assert_eq!((client.peer_gone(), client.backlog(), client.is_waiting()), (true, 0, false));
    }

    /// A client for which more waits than its pipe holds.
    async fn late_client() -> (ToClient, StdReader, usize) {
        let (mut client, reader) = to_client(4 << 20).await;
        let line = vec![b'x'; 99_999];
        for _ in 0..10 {
            client.send(Class::Kept, &line, None);
        }
        client.flush();
        assert!(client.is_waiting());
        (client, reader, 1_000_000)
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_a_client_that_pauses_less_than_two_seconds_gets_all_lines() {
        let (client, reader, length) = late_client().await;
        let began = Instant::now();
        let reads = tokio::spawn(async move {
            let mut reader = adopt_input(reader.into()).expect("a reader");
            let (mut read, mut buffer) = (0, vec![0; 200_000]);
            loop {
                // The client is slow on purpose, in paused time: it waits for nobody.
                tokio::time::sleep(Duration::from_millis(1900)).await;
                reader.readable().await.expect("readable");
                match reader.try_read(&mut buffer) {
                    Ok(0) => return read,
                    Ok(count) => read += count,
                    Err(error) => assert!(is_passing(&error), "{error}"),
                }
            }
        });
        client.deliver(Some(Deadline::after(Duration::from_secs(600)))).await;
        assert_eq!(reads.await.expect("it reads"), length);
        assert!(began.elapsed() > FLUSH_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_a_client_that_does_not_read_costs_one_pause_or_the_least_time() {
        let second = Duration::from_secs(1);
        for (ends_by, expect) in [
            (None, FLUSH_LIMIT),
            (Some(Duration::ZERO), FLUSH_LIMIT),
            (Some(second), second),
            (Some(second * 60), FLUSH_PAUSE),
        ] {
            let (client, _reader, _) = late_client().await;
            let began = Instant::now();
            client.deliver(ends_by.map(Deadline::after)).await;
            let took = began.elapsed();
            assert!((expect..expect + second / 10).contains(&took), "{ends_by:?}: {took:?}");
        }
    }
}
