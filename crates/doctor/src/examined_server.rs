//! One start of a server under examination: its process, and the messages in both directions.
//!
//! Invariants: nothing here waits without a limit. Whatever happens to an [`ExaminedServer`], the lifeline ends the server with all
//! processes that it has started.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until};
use unhang_proc::{
    drain::{LONGEST_PIECE, Tail},
    server::{Exit, ServerEvent, ServerSpec, SweptTree},
};
use unhang_wire::{Id, compose};

use super::response_reader::{ObservedReply, ResponseReader};
use super::{StartedServers, observations::ServerExit};
use unhang_core::{
    config::{LAST_MOMENT, STOP_SLACK},
    limits::Limits,
    queue::{Class, Queue},
    shell::is_passing,
};
use unhang_upstream::{
    client::{ReplyError, declined},
    process::{ProcessEvent, ServerProcess, awaited},
};

/// The most that is read at once.
const CHUNK: usize = 64 << 10;
/// Chunks that are still read after a server has ended. No pipe holds more.
const LAST_CHUNKS: usize = 64;
/// The most bytes of answers that may wait for a server that asks and does not read.
const MOST_ANSWERS: usize = 1 << 20;
/// The smallest part of the time that counts as the server's own.
const LEAST_NEEDED: u32 = 10;
/// How long to wait between the end of a server and the end of the sweep. The sweep has its own limits well below this.
const SWEEP_PATIENCE: Duration = Duration::from_secs(6);

/// The reason why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum NoAnswer {
    /// No answer came within this time.
    Silence(Duration),
    /// The server ended, in this way.
    Ended(String),
    /// The server closed its stdout and still runs.
    Mute,
    /// The server closed its stdin and still runs.
    Deaf,
    /// The answer cannot be used. This was noted.
    Spoilt,
}

/// An answer: a result as received, or the server's own error.
pub(super) type ServerReply = Result<String, (i64, String)>;

/// One start of a server.
pub(super) struct ExaminedServer {
    process: Option<ServerProcess>,
    reader: ResponseReader,
    to_server: Queue,
    tail: Tail,
    longest_line: Arc<AtomicU64>,
    last_id: i64,
    since: Instant,
    failure: Option<String>,
    exit: Option<(Exit, Instant)>,
    swept: Option<SweptTree>,
    started: Arc<Mutex<StartedServers>>,
}

/// The lifeline ends a server that is dropped, and somebody may want to wait for that.
impl Drop for ExaminedServer {
    fn drop(&mut self) {
        let lifelines = self.process.as_ref().map(|process| process.server.lifelines());
        let mut started = StartedServers::lock(&self.started);
        started.examined -= 1;
        started.lifelines.extend(lifelines.into_iter().flatten());
    }
}

impl ExaminedServer {
    /// Starts the server.
    pub(super) fn start(
        name: &str,
        spec: &ServerSpec,
        limits: &Limits,
        started: &Arc<Mutex<StartedServers>>,
    ) -> Result<ExaminedServer, String> {
        let (tail, longest_line) = (Tail::new(limits.stderr_tail), Arc::new(AtomicU64::new(0)));
        let (longest, mut length) = (longest_line.clone(), 0);
        let counted = Mutex::new(move |piece: &[u8]| {
            // A line that is longer than this comes in pieces of this length.
            length = if piece.len() == LONGEST_PIECE { length + piece.len() as u64 } else { 0 };
            longest.fetch_max(length.max(piece.len() as u64), Ordering::Relaxed);
        });
        let on_line = move |piece: &[u8]| {
            if let Ok(mut counted) = counted.lock() {
                counted(piece);
            }
        };
        let since = Instant::now();
        let process =
            ServerProcess::start(name, spec, tail.clone(), on_line).map_err(|error| error.to_string())?;
        StartedServers::lock(started).examined += 1;
        Ok(ExaminedServer {
            process: Some(process),
            reader: ResponseReader::new(limits.max_message),
            to_server: Queue::new(usize::MAX),
            tail,
            longest_line,
            last_id: 0,
            since,
            failure: None,
            exit: None,
            swept: None,
            started: Arc::clone(started),
        })
    }

    /// Returns the time since the start.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the time since the start, without the time for which other processes had the processors: a busy machine is not the server's
    /// fault.
    pub(super) fn needed(&self) -> Duration {
        let age = self.age();
        let kept = self.process.as_ref().map(|process| process.server.processor_wait()).unwrap_or_default();
        // Processes that waited side by side are counted twice.
        age.saturating_sub(kept).max(age / LEAST_NEEDED)
    }

    pub(super) fn reader(&mut self) -> &mut ResponseReader {
        &mut self.reader
    }

    /// Returns why the command could not be executed, if it could not.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn is_over(&self) -> bool {
        self.exit.is_some() || self.process.is_none() || self.failure.is_some()
    }

    /// Returns the bytes on stderr, the length of the longest line, and the last line.
    pub(super) fn stderr(&self) -> (u64, u64, Option<String>) {
        let longest = self.longest_line.load(Ordering::Relaxed);
        (self.tail.bytes_seen(), longest, self.tail.last_lines(1).pop())
    }

    /// Describes how the server ended, with its last line on stderr.
    pub(super) fn exit(&self) -> String {
        let exit = match (&self.failure, &self.exit) {
            (Some(failure), _) => return failure.clone(),
            (None, Some((exit, _))) => exit.to_string(),
            (None, None) => "in an unknown way".to_owned(),
        };
        match self.tail.last_lines(1).pop() {
            Some(line) => format!("{exit}; its last line on stderr: {}", line.trim()),
            None => exit,
        }
    }

    /// Lists the server's processes that hold its stdin.
    pub(super) fn holders(&self) -> Vec<u32> {
        self.process.as_ref().map(|process| process.server.input_holders()).unwrap_or_default()
    }

    fn is_mute(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.output_ended)
    }

    fn is_deaf(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.input_closed)
    }

    /// Sends a line as it is.
    pub(super) fn say(&mut self, line: &[u8]) {
        if let Some(input) = self.process.as_mut().and_then(|process| process.server.input.as_mut()) {
            self.to_server.push(Class::Kept, line, Some(input), None);
        }
    }

    /// Returns the id that the next request will have.
    pub(super) fn next_id(&self) -> i64 {
        self.last_id + 1
    }

    /// Sends a request and returns its id. `params` is JSON.
    pub(super) fn send(&mut self, method: &str, params: &str) -> i64 {
        self.last_id += 1;
        self.reader.book().ask(self.last_id);
        let line = compose::request(&Id::Integer(self.last_id), method, params);
        self.say(&line);
        self.last_id
    }

    /// Withdraws a request.
    pub(super) fn cancel(&mut self, id: i64) {
        self.reader.book().cancel(id);
        self.say(&compose::cancelled(&Id::Integer(id), "the examination goes on"));
    }

    /// Sends a request and waits for the answer. Returns how long it took, too.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: &str,
        limit: Duration,
    ) -> Result<(ServerReply, Duration), NoAnswer> {
        let since = Instant::now();
        let id = self.send(method, params);
        let answer = self.answer(id, limit).await?;
        Ok((answer, since.elapsed()))
    }

    /// Waits for the answer to a request that was sent.
    pub(super) async fn answer(&mut self, id: i64, limit: Duration) -> Result<ServerReply, NoAnswer> {
        let by = Instant::now() + limit;
        self.until(by, |talk| {
            talk.reader.has_reply(id) || talk.is_over() || talk.is_mute() || talk.is_deaf()
        })
        .await;
        if !self.reader.has_reply(id) && (self.is_mute() || self.is_deaf()) {
            // A server that is about to end closes its pipes a moment before. A server that only stopped reading may still answer.
            let moment = Instant::now() + LAST_MOMENT;
            self.until(moment, |talk| talk.reader.has_reply(id) || talk.is_over()).await;
        }
        match self.reader.book().take(id) {
            Some(ObservedReply::Result(result)) => Ok(Ok(result)),
            Some(ObservedReply::Error(code, message)) => Ok(Err((code, message))),
            Some(ObservedReply::Spoilt) => Err(NoAnswer::Spoilt),
            None if self.is_over() => Err(NoAnswer::Ended(self.exit())),
            None if self.is_mute() => Err(NoAnswer::Mute),
            None if self.is_deaf() => Err(NoAnswer::Deaf),
            None => Err(NoAnswer::Silence(limit)),
        }
    }

    /// Returns whether the server has been sent lines that are not messages.
    pub(super) fn is_excused(&mut self) -> bool {
        self.reader.book().is_excused
    }

    /// Listens for a while, at most until the answer to this request comes. The answer stays to be taken.
    pub(super) async fn listen_for(&mut self, id: i64, length: Duration) {
        self.until(Instant::now() + length, |talk| talk.reader.has_reply(id) || talk.is_over()).await;
    }

    /// Listens for a while, at most until the server ends.
    pub(super) async fn listen(&mut self, length: Duration) {
        self.until(Instant::now() + length, ExaminedServer::is_over).await;
    }

    /// Closes the server's stdin and waits for its end.
    pub(super) async fn end_input(&mut self, limit: Duration) -> ServerExit {
        // Lines that still wait for the server are written first.
        let by = Instant::now() + limit;
        self.until(by, |talk| talk.to_server.is_empty() || talk.is_over()).await;
        if let Some(process) = &mut self.process {
            process.server.input = None;
        }
        self.ending(limit).await
    }

    /// Sends the server SIGTERM and waits for its end.
    pub(super) async fn terminate(&mut self, limit: Duration) -> ServerExit {
        if let Some(process) = &mut self.process {
            process.server.terminate();
        }
        self.ending(limit).await
    }

    async fn ending(&mut self, limit: Duration) -> ServerExit {
        let since = Instant::now();
        self.until(since + limit, ExaminedServer::is_over).await;
        let exit = self.exit;
        if exit.is_some() {
            // The number of processes that it left comes with the end of the sweep.
            self.until(Instant::now() + SWEEP_PATIENCE, |talk| talk.swept.is_some()).await;
        }
        ServerExit {
            after: exit.map(|(_, at)| at.saturating_duration_since(since)),
            waited: limit,
            exit: exit.map(|(exit, _)| exit.to_string()),
            is_failure: exit.is_some_and(|(exit, _)| exit != Exit::Code(0)),
            leaked: self.swept.map_or(0, |swept| swept.leaked),
        }
    }

    /// Kills the server, whatever it does, and waits for its end.
    pub(super) async fn kill(&mut self, limits: &Limits) {
        if let Some(process) = &mut self.process {
            process.server.kill_now();
        }
        let by = Instant::now() + limits.stop_limit() + STOP_SLACK;
        self.until(by, |talk| talk.swept.is_some()).await;
    }

    /// Handles events until the given time, or until `is_done` returns true.
    async fn until(&mut self, by: Instant, is_done: impl Fn(&ExaminedServer) -> bool) {
        while !is_done(self) && self.process.is_some() && Instant::now() < by {
            self.step(by).await;
        }
    }

    async fn step(&mut self, by: Instant) {
        let writes = !self.to_server.is_empty();
        let happened = tokio::select! {
            happened = awaited(&self.process, true, writes) => happened,
            () = sleep_until(by) => return,
        };
        match happened {
            ProcessEvent::Event(event) => self.process_event(event).await,
            ProcessEvent::Readable(ready) => drop(self.read(ready)),
            ProcessEvent::Writable => {}
            ProcessEvent::InputClosed => {
                if let Some(process) = &mut self.process {
                    process.input_closed = true;
                }
            }
        }
        self.answer_questions();
        if let Some(input) = self.process.as_mut().and_then(|process| process.server.input.as_mut()) {
            self.to_server.flush(input);
        }
    }

    /// Reads the bytes that are there. Returns true if there may be more.
    fn read(&mut self, ready: io::Result<()>) -> bool {
        let Some(process) = &mut self.process else { return false };
        let mut chunk = vec![0; CHUNK];
        let read = match (process.exited, ready) {
            (true, _) => process.server.output.read_now(&mut chunk),
            (false, ready) => ready.and_then(|()| process.server.output.try_read(&mut chunk)),
        };
        match read {
            Ok(count @ 1..) => {
                self.reader.hear(&chunk[..count]);
                true
            }
            Err(error) if is_passing(&error) => false,
            Ok(_) | Err(_) => {
                process.output_ended = true;
                false
            }
        }
    }

    async fn process_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Started { .. } => {}
            ServerEvent::Failed(error) => self.failure = Some(error.to_string()),
            ServerEvent::Exited(exit) => {
                if let Some(process) = &mut self.process {
                    process.exited = true;
                }
                // Everything that the server wrote is in the pipes already.
                for _ in 0..LAST_CHUNKS {
                    if self.is_mute() || !self.read(Ok(())) {
                        break;
                    }
                }
                self.reader.finish();
                if let Some(process) = &mut self.process {
                    process.last_stderr().await;
                }
                self.exit = Some((exit, Instant::now()));
            }
            // An examination calls no `Server::keep`, so the lifeline sends neither.
            ServerEvent::Kept | ServerEvent::NotKept(_) => {}
            ServerEvent::Gone(swept) => {
                self.swept = Some(swept);
                self.process = None;
            }
        }
    }

    /// Responds to the server's requests as a client that has declared nothing.
    fn answer_questions(&mut self) {
        for (id, method) in std::mem::take(&mut self.reader.book().questions) {
            if self.to_server.cost() > MOST_ANSWERS {
                return;
            }
            let line = if method == "ping" {
                compose::answer(&id, "{}")
            } else {
                let ReplyError { code, message, .. } = declined(&method);
                compose::error(&id, code, &message, None)
            };
            self.say(&line);
        }
    }
}
