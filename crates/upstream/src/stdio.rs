//! The actor of a server on stdio: one task, one `select!`, which owns the process and its pipes.
//!
//! Invariants: no branch awaits a write, so a server that does not read delays nobody. A server that asks and takes no replies is read no
//! further, and then ends as a server that hangs. A server that says nothing, dies or will not end delays nobody beyond the limits. The
//! process is held until it has gone. A server that hangs while nobody talks to it is ended, so that the next request meets a server that
//! answers.

use std::{io, os::unix::ffi::OsStrExt, time::Duration};

use serde::de::IgnoredAny;
use tokio::{task::yield_now, time::Instant};
use unhang_proc::{
    drain::Tail,
    server::{ErrorPipe, Exit, Server, ServerEvent, ServerSpec},
    spawn::Environment,
};
use unhang_wire::{Id, Line, Lines, compose};

use super::{
    Mailbox,
    handshake::ServerInfo,
    long_answers::LongAnswers,
    process::{ProcessEvent, ServerProcess, awaited},
    request_keeping::RequestKeeping,
    resumed_request::ResumedRequest,
    upstream_session::{Outgoing, RequestOrigin, UpstreamConfig, UpstreamEvent, UpstreamSession},
};
use unhang_core::{
    config::{LARGE_BUFFER_KEPT, STOP_SLACK},
    error::Failure,
    fault::{FaultKind, Uselessness, end_of_server},
    health::{Advice, Health},
    queue::{Class, Queue},
    shell::{ReadTurn, gathered, is_passing},
    units::in_words,
};

/// The pause between two looks whether a server that is starting has written to its stderr.
const LIFE_LOOK: Duration = Duration::from_millis(250);

/// Owns the server from its start until it has gone.
pub(crate) async fn live(server: ServerSpec, config: UpstreamConfig, mailbox: Mailbox) {
    let mut actor = StdioActor::new(Some(server), config, mailbox);
    actor.start();
    actor.live().await;
}

/// Owns a server from which another process has gone, until the server has gone. `requests` are those that the server still works on.
pub(crate) async fn resume(
    (server, stderr, info): (Server, ErrorPipe, ServerInfo),
    (requests, answered): (Vec<(ResumedRequest, RequestOrigin)>, Vec<Id>),
    long_answers: LongAnswers,
    config: UpstreamConfig,
    mailbox: Mailbox,
) {
    let mut actor = StdioActor::new(None, config, mailbox);
    let name = &actor.upstream_session.name;
    actor.process = Some(ServerProcess::of(name, server, stderr, actor.tail.clone(), |_| {}));
    actor.upstream_session.resume(info, requests, answered);
    actor.long_answers = Some(long_answers);
    actor.live().await;
}

struct StdioActor {
    upstream_session: UpstreamSession,
    /// The way to start the server; `None` if another process has started it.
    server: Option<ServerSpec>,
    process: Option<ServerProcess>,
    to_server: Queue,
    lines: Lines,
    /// The long lines of a server that was taken over.
    long_answers: Option<LongAnswers>,
    turn: ReadTurn,
    /// The server was not read for a time, and the log has said so.
    was_held_back: bool,
    tail: Tail,
    /// The bytes of stderr at the last look; output on stderr may be a server's only sign of life.
    stderr_seen: u64,
    health: Health,
    /// The reason why the server is of no use any more, if it lives on.
    useless: Option<Uselessness>,
    /// The process had read all that it was sent when it began to end. One that reads nothing exits for a reason of its own.
    had_read: Option<bool>,
    /// Another process of the server is to be started when this one has gone.
    starts_another: bool,
    /// The time by which the server has to have gone, once its end has begun.
    ends_by: Option<Instant>,
    /// When the memory of a long line is given back.
    release_at: Option<Instant>,
    /// The requests that are jobs, for which the server goes on when this process has ended.
    keeping: RequestKeeping,
}

impl StdioActor {
    fn new(server: Option<ServerSpec>, config: UpstreamConfig, mailbox: Mailbox) -> Self {
        let tail = Tail::new(config.limits.stderr_tail);
        Self {
            lines: Lines::new(config.limits.max_message),
            long_answers: None,
            turn: ReadTurn::default(),
            was_held_back: false,
            // The queue never drops messages: what is asked of a server is asked. Its bound is that it refuses to take more.
            to_server: Queue::new(usize::MAX),
            health: Health::new(&config.limits, Duration::ZERO),
            upstream_session: UpstreamSession::new(config, mailbox, tail.clone()),
            process: None,
            stderr_seen: 0,
            useless: None,
            had_read: None,
            starts_another: false,
            ends_by: None,
            release_at: None,
            keeping: RequestKeeping::default(),
            server,
            tail,
        }
    }

    async fn live(mut self) {
        while !self.is_over() {
            let (reads, writes) = (self.reads(), self.has_output());
            let also = self.next_look();
            tokio::select! {
                event = self.upstream_session.next(also) => self.attend(event),
                awaited = awaited(&self.process, reads, writes) => match awaited {
                    ProcessEvent::Event(event) => self.process_event(event).await,
                    ProcessEvent::Readable(ready) => self.read(ready),
                    ProcessEvent::Writable => {}
                    ProcessEvent::InputClosed => self.input_closed(),
                },
            }
            self.send();
            self.keeping.tend(
                &mut self.upstream_session,
                self.process.as_mut(),
                &mut self.to_server,
                self.lines.held(),
            );
            if self.turn.is_over() {
                yield_now().await;
            }
        }
        self.finish();
    }

    fn is_over(&self) -> bool {
        self.process.is_none() || self.ends_by.is_some_and(|by| by <= Instant::now())
    }

    fn start(&mut self) {
        if self.spawned() {
            self.upstream_session.greet();
            self.send();
        }
    }

    /// Starts a process, and returns whether it runs.
    fn spawned(&mut self) -> bool {
        let Some(server) = &self.server else { return false };
        tracing::debug!("starting `{}`", self.upstream_session.name);
        match ServerProcess::start(&self.upstream_session.name, server, self.tail.clone(), |_| {}) {
            Ok(process) => self.process = Some(process),
            Err(error) => self.start_failed(&error.to_string()),
        }
        self.process.is_some()
    }

    /// Starts another process of a server that ended at `server/discover`.
    fn start_another(&mut self) {
        let limits = &self.upstream_session.limits;
        self.lines = Lines::new(limits.max_message);
        self.tail.clear();
        self.stderr_seen = 0;
        self.turn = ReadTurn::default();
        self.to_server = Queue::new(usize::MAX);
        self.health = Health::new(limits, self.upstream_session.now());
        (self.useless, self.had_read) = (None, None);
        if self.spawned() {
            self.upstream_session.greet_another_process();
        }
    }

    /// Sends the session's messages, and begins to end a server of no use.
    fn send(&mut self) {
        while let Some(out) = self.upstream_session.next_out() {
            match out {
                Outgoing::Request { line, .. } | Outgoing::Initialized(line) => self.say(Class::Kept, &line),
                Outgoing::Repeats { before, id } => {
                    self.keeping.asks_again(self.process.as_mut(), &self.to_server, &before, id);
                }
                // One is enough for a server that reads late.
                Outgoing::RootsChanged(line) => self.say(Class::ListChanged("roots".into()), &line),
                // From here on the queue counts the reply.
                Outgoing::Reply(line, _room) => self.say(Class::Reply, &line),
                Outgoing::Withdrawn(id, why) => self.say(Class::Kept, &compose::cancelled(&id, why)),
                Outgoing::Over(_) => {}
            }
        }
        if let Some(in_flight) = self.upstream_session.in_flight_at_stop.take()
            && self.keeping.has_jobs(self.process.as_ref())
        {
            return self.leave_server(&in_flight);
        }
        if self.upstream_session.is_ending && self.ends_by.is_none() {
            self.ends_by = Some(Instant::now() + self.upstream_session.limits.stop_limit() + STOP_SLACK);
            self.begin_stop();
        }
        if let Some(process) = &mut self.process {
            process.write_from(&mut self.to_server);
        }
    }

    /// Returns whether bytes wait for the server.
    fn has_output(&self) -> bool {
        !self.to_server.is_empty() || self.process.as_ref().is_some_and(ServerProcess::has_backlog)
    }

    /// Returns whether the server's stdout is read: not while more replies wait for the server than it takes. Requests to it do not count,
    /// for it may have to say something before it reads on.
    fn reads(&mut self) -> bool {
        let reads = self.to_server.replies() <= self.upstream_session.limits.queue_bytes;
        if !reads && !std::mem::replace(&mut self.was_held_back, true) {
            let name = &self.upstream_session.name;
            tracing::warn!(
                "`{name}` sends requests and does not read the answers; unhang reads its output again \
                 when it does"
            );
        }
        reads
    }

    fn say(&mut self, class: Class, line: &[u8]) {
        let full = line.len() + self.to_server.cost() > gathered(self.upstream_session.limits.queue_bytes);
        let input = self.process.as_mut().and_then(|process| process.server.input.as_mut());
        self.to_server.push(class, line, input.filter(|_| full), None);
    }

    /// Starts the stop. If jobs wait for the server, its last words stay in the journal until they have ended.
    fn begin_stop(&mut self) {
        let has_jobs = self.keeping.has_jobs(self.process.as_ref());
        match &mut self.process {
            Some(process) if has_jobs => process.server.begin_stop_kept(),
            Some(process) => process.server.begin_stop(),
            None => {}
        }
    }

    /// Leaves the server to the call holder, which the lifeline starts. The server hears that nobody waits for those of the requests
    /// `in_flight` that are no jobs.
    fn leave_server(&mut self, in_flight: &[Id]) {
        let name = &self.upstream_session.name;
        tracing::info!("unhang leaves `{name}` to a call holder, which goes on with its jobs");
        self.keeping.leave();
        for id in in_flight {
            if !self.keeping.has(id) {
                self.say(Class::Kept, &compose::cancelled(id, "the caller waits no more"));
            }
        }
        if let Some(mut process) = self.process.take() {
            process.write_from(&mut self.to_server);
        }
    }

    /// Returns when this actor has to be woken, whatever the session waits for; `None` if it need not be.
    fn next_look(&mut self) -> Option<Instant> {
        if self.lines.is_large() {
            self.release_at.get_or_insert_with(|| Instant::now() + LARGE_BUFFER_KEPT);
        }
        // Another thread reads the server's stderr, and tells nobody.
        let looks = self.upstream_session.is_shaking() && self.stderr_seen == 0;
        let health = self.watches_health().then(|| self.upstream_session.at(self.health.next_tick()));
        looks
            .then(|| Instant::now() + LIFE_LOOK)
            .into_iter()
            .chain(health)
            .chain(self.ends_by)
            .chain(self.release_at)
            .min()
    }

    fn watches_health(&self) -> bool {
        self.upstream_session.is_quiet()
            && self.process.as_ref().is_some_and(|process| !process.exited && !process.output_ended)
    }

    /// Checks whether a server that nobody talks to still answers, and ends it if it hangs. It would cost the next caller all of its time.
    fn check_health(&mut self) {
        if !self.watches_health() {
            return;
        }
        let now = self.upstream_session.now();
        let processor_time = || self.process.as_ref()?.server.cpu_time();
        match self.health.tick(now, processor_time) {
            Advice::Wait => {}
            Advice::Probe => {
                self.upstream_session.probe();
            }
            Advice::Restart(misses) => {
                let name = &self.upstream_session.name;
                let happened =
                    format!("`{name}` left {misses} health checks unanswered, and unhang ended it");
                tracing::warn!("{happened}");
                let failure = self.upstream_session.failure(
                    FaultKind::ServerExited,
                    happened,
                    "ask again; unhang starts it again",
                );
                self.upstream_session.end(failure);
            }
        }
    }

    fn attend(&mut self, event: UpstreamEvent) {
        if matches!(event, UpstreamEvent::Time) && self.upstream_session.is_shaking() {
            self.notice_life();
        }
        if matches!(event, UpstreamEvent::Time) {
            self.check_health();
            if self.release_at.take_if(|at| *at <= Instant::now()).is_some() {
                self.lines.release();
            }
        }
        self.upstream_session.attend(event, self.to_server.cost());
    }

    /// Notes output on stderr as a sign of life. Another thread reads it.
    fn notice_life(&mut self) {
        let seen = self.tail.bytes_seen();
        if seen > self.stderr_seen {
            self.stderr_seen = seen;
            self.upstream_session.alive();
        }
    }

    fn start_failed(&mut self, error: &str) {
        self.process = None;
        let happened = format!("`{}` could not be started: {error}", self.upstream_session.name);
        // Many configuration files have a whole command line in the place of a program.
        let program = self.server.as_ref().map(|server| server.program.as_bytes());
        let is_line = program.is_some_and(|program| program.iter().any(u8::is_ascii_whitespace));
        let hint = if is_line { ARGUMENTS_HINT } else { START_HINT };
        let failure = self.upstream_session.failure(FaultKind::StartFailed, happened, hint);
        self.upstream_session.end(failure);
    }

    fn read(&mut self, ready: io::Result<()>) {
        let Some(process) = &mut self.process else { return };
        let read = ready.and_then(|()| process.server.output.try_read(self.lines.spare()));
        self.take_read(read);
    }

    /// Takes the result of a read; returns true if there may be more at once.
    fn take_read(&mut self, read: io::Result<usize>) -> bool {
        match read {
            Ok(count @ 1..) => {
                self.lines.filled(count);
                self.turn.took(count);
                self.upstream_session.alive();
                self.health.life(self.upstream_session.now());
                self.keeping.read(count);
                self.end_long_line();
                let mut held = self.lines.held().len();
                while let Some(line) = self.lines.next_line() {
                    self.upstream_session.line(line);
                    self.keeping.note_line(&self.upstream_session, held);
                    held = self.lines.held().len();
                }
                if let Some(long_answers) = &mut self.long_answers {
                    long_answers.begin(&mut self.lines);
                }
                self.note_processed(count);
                true
            }
            Err(error) if is_passing(&error) => false,
            Ok(_) | Err(_) => {
                self.output_ended();
                false
            }
        }
    }

    /// Takes the bytes that belong to a long line, and the line if they end it.
    fn end_long_line(&mut self) {
        let Some(long_answers) = &mut self.long_answers else { return };
        let Some(line) = long_answers.take(&mut self.lines) else { return };
        let session = &mut self.upstream_session;
        if let Err(error) = long_answers.read(&line, |line| session.line(line)) {
            tracing::warn!("a long line of `{}` cannot be read from the disk: {error}", session.name);
            self.stop_useless("sent an answer that the disk has lost");
        }
        // A wake-up later would bring code into memory that a call holder at rest does not have.
        self.lines.release_now();
    }

    /// Tells the journal of a server that was taken over that nobody reads these bytes again: this process has no successor.
    fn note_processed(&mut self, count: usize) {
        let Some(process) = self.process.as_mut().filter(|_| self.server.is_none()) else { return };
        if let Err(error) = process.server.output.processed(count as u64) {
            tracing::warn!("the journal of `{}` cannot be marked: {error}", self.upstream_session.name);
        }
    }

    /// Notes the end of stdout. A server that exits closes it a moment before; a server that lives on without it is of no use, and is
    /// stopped.
    fn output_ended(&mut self) {
        let Some(process) = &mut self.process else { return };
        process.output_ended = true;
        if !process.exited && self.ends_by.is_none() {
            self.stop_useless("closed its stdout");
        }
    }

    /// Stops a server that lives on and is of no use any more. Its callers are told why when it has ended.
    fn stop_useless(&mut self, why: &'static str) {
        let since = self.upstream_session.now();
        self.useless.get_or_insert(Uselessness { since, why });
        self.note_what_was_read();
        self.begin_stop();
    }

    /// Notes whether the process has read all that it was sent, while the pipe can still tell.
    fn note_what_was_read(&mut self) {
        let input = self.process.as_ref().and_then(|process| process.server.input.as_ref());
        let is_all_read = input.is_some_and(|input| input.unread() == 0) && self.to_server.is_empty();
        self.had_read.get_or_insert(is_all_read);
    }

    /// Stops a server that has closed its stdin. It may still answer what it has read; its end tells the callers.
    fn input_closed(&mut self) {
        if let Some(process) = &mut self.process {
            process.input_closed = true;
            if self.ends_by.is_none() {
                self.stop_useless("closed its stdin");
            }
        }
    }

    async fn process_event(&mut self, event: ServerEvent) {
        let name = &self.upstream_session.name;
        match event {
            ServerEvent::Started { pid, tier } => {
                tracing::debug!("`{name}` runs as process {pid} ({tier:?})");
            }
            ServerEvent::Failed(error) => self.start_failed(&error.to_string()),
            ServerEvent::Exited(exit) => {
                self.last_words().await;
                self.exited(&exit);
            }
            ServerEvent::Kept => self.keeping.confirmed(self.process.as_mut()),
            ServerEvent::NotKept(error) => self.keeping.refused(self.process.as_mut(), &error.to_string()),
            ServerEvent::Gone(swept) => {
                if swept.leaked > 0 {
                    tracing::warn!("`{name}` left {} processes behind; unhang ended them", swept.leaked);
                }
                if let Some(process) = self.process.take() {
                    self.keeping.ended(process.server);
                }
                if std::mem::take(&mut self.starts_another) && !self.upstream_session.is_ending {
                    self.start_another();
                }
            }
        }
    }

    /// Reads the last output of a dead process, which is in the pipes already.
    async fn last_words(&mut self) {
        if let Some(process) = &mut self.process {
            process.exited = true;
        }
        while let Some(process) = self.process.as_mut().filter(|process| !process.output_ended) {
            let read = process.server.output.read_now(self.lines.spare());
            if !self.take_read(read) {
                break;
            }
        }
        if let Some(long_answers) = &mut self.long_answers {
            // The line is not whole.
            long_answers.give_up(&mut self.lines);
        }
        while let Some(line) = self.lines.finish() {
            // A server that dies in the middle of an answer has not answered; its end is the reason.
            if is_cut_off(&line) {
                tracing::warn!("`{}` ended in the middle of a line", self.upstream_session.name);
                continue;
            }
            self.upstream_session.line(line);
        }
        if let Some(process) = &mut self.process {
            process.last_stderr().await;
        }
    }

    fn exited(&mut self, exit: &Exit) {
        let name = &self.upstream_session.name;
        if self.upstream_session.is_ending {
            tracing::debug!("`{name}` ended ({exit})");
            if *exit == Exit::Unknown {
                tracing::debug!("the end of `{name}` was forced, because it did not end within its time");
            }
            return;
        }
        let (now, stop_grace) = (self.upstream_session.now(), self.upstream_session.limits.stop_grace);
        let our_reason = self.useless.and_then(|useless| useless.reason_of_end(now, stop_grace));
        let happened = end_of_server(name, &exit.to_string(), our_reason);
        let is_its_own_end = our_reason.is_none();
        self.note_what_was_read();
        if is_its_own_end
            && self.had_read == Some(true)
            && self.upstream_session.wants_another_process(&happened)
        {
            return self.starts_another = true;
        }
        let (kind, happened, hint) = match self.upstream_session.session {
            Some(_) => (FaultKind::ServerExited, happened, "see its stderr"),
            None => {
                let happened = format!("{happened} before it answered anything");
                let hint = match self.server.as_ref().map(|server| &server.environment) {
                    Some(Environment::Exactly(_)) => ENVIRONMENT_HINT,
                    Some(Environment::Inherit) | None => START_HINT,
                };
                (FaultKind::StartFailed, happened, hint)
            }
        };
        let failure = self.upstream_session.failure(kind, happened.clone(), hint);
        let mut failure = Failure { exit: Some(exit.to_string()), ..failure };
        if self.upstream_session.session.is_none() {
            self.upstream_session.tell_refusal(&mut failure);
        }
        self.upstream_session.end(failure);
        // If nobody waits for an answer, nothing else tells of it.
        tracing::info!("{happened}");
    }

    /// Ends the session, and tells every handle that the server has gone.
    fn finish(mut self) {
        let name = &self.upstream_session.name;
        if !self.upstream_session.is_ending {
            let happened = format!("`{name}` has gone");
            let failure = self.upstream_session.failure(FaultKind::ServerExited, happened, "see its stderr");
            self.upstream_session.end(failure);
        }
        if self.process.take().is_some() {
            tracing::warn!(
                "`{}` did not end within {}; its lifeline continues to end it",
                self.upstream_session.name,
                in_words(self.upstream_session.limits.stop_limit())
            );
        }
        self.upstream_session.gone();
    }
}

/// Returns whether this is the beginning of a JSON text and not the whole of it.
fn is_cut_off(line: &Line<'_>) -> bool {
    let Line::Whole(text) = line else { return false };
    serde_json::from_slice::<IgnoredAny>(text).is_err_and(|error| error.is_eof())
}

/// The hint for a server that cannot be started.
const START_HINT: &str = "check its command by running it in a terminal";

/// The hint for a server that cannot be started if the name of its program has spaces.
const ARGUMENTS_HINT: &str = "`command` is the program alone: put the arguments into `args`";

/// The hint for a server that cannot be started if its environment may lack something.
const ENVIRONMENT_HINT: &str = "check its command by running it in a terminal; if it works there, give it what it needs of your \
                                environment, by env or inherit-env = true in its configuration";
