//! The actor of a server on stdio: one task, one `select!`, which owns the process, its pipes and the clock.
//!
//! Invariants: no branch awaits a write, so a server that does not read delays nobody; a server that says nothing, dies or will
//! not end delays nobody beyond the limits; the process is held until it has gone.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use unhang_proc::{
    drain::Tail,
    server::{Exit, ServerEvent, ServerSpec},
};
use unhang_switches::stands;
use unhang_wire::{Id, Lines};

use super::{
    Command, Mailbox, Outcome, Phase, Progress, Request,
    conversation::{self, Conversation, Event},
    handshake::{Ask, Handshake, Introduction, Session, Step},
    process::{Awaited, Process, awaited},
};
use crate::{
    client::{Answer, Error, Failure, Listener},
    config::{Limits, STOP_SLACK, TAIL_LINES},
    fault::{Kind, in_words},
    queue::{Class, Queue},
    shell::{gathered, is_passing, set},
};

/// Between two looks whether a server that is starting has written to its stderr.
const LIFE_LOOK: Duration = Duration::from_millis(250);

/// What the actor needs.
pub(crate) struct Stdio {
    pub(crate) name: String,
    pub(crate) server: ServerSpec,
    pub(crate) limits: Limits,
    pub(crate) introduction: Introduction,
    pub(crate) listener: Arc<dyn Listener>,
}

/// Whose request it is.
enum Whose {
    Handshake(Ask),
    Caller { reply: oneshot::Sender<Outcome>, progress: Option<Progress> },
}

/// A question of the server that is being answered.
type Answered = (Id, Answer);

/// Owns the server from its start until it has gone.
pub(crate) async fn live(spec: Stdio, mailbox: Mailbox) {
    let mut timer = Box::pin(sleep_until(Instant::now()));
    let mut actor = Actor::new(spec, mailbox);
    actor.start();
    while !actor.is_over() {
        set(&mut timer, actor.next_tick());
        let writes = !actor.to_server.is_empty();
        let is_asked = actor.ends_by.is_none();
        tokio::select! {
            command = actor.mailbox.commands.recv(), if is_asked => actor.command(command),
            () = actor.mailbox.withdrawn.notified() => actor.withdraw(),
            awaited = awaited(&actor.process, true, writes) => match awaited {
                Awaited::Event(event) => actor.process_event(event).await,
                Awaited::Readable(ready) => actor.read(ready),
                Awaited::Writable => {}
                Awaited::InputClosed => actor.input_closed(),
            },
            Some(answered) = actor.questions.join_next(), if !actor.questions.is_empty() => {
                match answered {
                    Ok((id, answer)) => actor.answer(&id, answer),
                    // One that was withdrawn, or whose listener has panicked, which was told.
                    Err(_) => actor.asking.retain(|_, task| !task.is_finished()),
                }
            }
            () = &mut timer => actor.tick(),
        }
        actor.flush();
    }
    actor.finish();
}

struct Actor {
    name: String,
    server: ServerSpec,
    limits: Limits,
    introduction: Introduction,
    listener: Arc<dyn Listener>,
    mailbox: Mailbox,
    origin: Instant,
    conversation: Conversation<Whose>,
    handshake: Handshake,
    session: Option<Arc<Session>>,
    process: Option<Process>,
    to_server: Queue,
    lines: Lines,
    tail: Tail,
    /// Bytes of stderr at the last look, which is all that a server may give as a sign of life.
    stderr_seen: u64,
    questions: JoinSet<Answered>,
    /// The tasks that answer them.
    asking: HashMap<Id, AbortHandle>,
    /// By when it has to have gone, once its end has begun.
    ends_by: Option<Instant>,
}

impl Actor {
    fn new(spec: Stdio, mailbox: Mailbox) -> Self {
        let Stdio { name, server, limits, introduction, listener } = spec;
        Self {
            conversation: Conversation::new(&name, limits.max_message),
            handshake: Handshake::new(&name, Duration::ZERO),
            lines: Lines::new(limits.max_message),
            tail: Tail::new(limits.stderr_tail),
            // Never shed: what is asked of a server is asked. It is bounded by refusing to take more.
            to_server: Queue::new(usize::MAX),
            origin: Instant::now(),
            session: None,
            process: None,
            stderr_seen: 0,
            questions: JoinSet::new(),
            asking: HashMap::new(),
            ends_by: None,
            name,
            server,
            limits,
            introduction,
            listener,
            mailbox,
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn is_over(&self) -> bool {
        self.process.is_none() || self.ends_by.is_some_and(|by| by <= Instant::now())
    }

    fn start(&mut self) {
        tracing::debug!("starting `{}`", self.name);
        match Process::start(&self.name, &self.server, self.tail.clone(), |_| {}) {
            Ok(process) => {
                self.process = Some(process);
                self.ask(Ask::Discover);
                self.flush();
            }
            Err(error) => self.start_failed(&error.to_string()),
        }
    }

    /// Says a line of the handshake.
    fn ask(&mut self, ask: Ask) {
        // One deadline for both, from the start on.
        let limit = self.limits.start_timeout;
        let id = self.conversation.begin(Duration::ZERO, ask.method(), limit, Whose::Handshake(ask));
        let line = conversation::request(&id, ask.method(), &self.introduction.params(ask));
        self.say(&line);
    }

    fn say(&mut self, line: &[u8]) {
        let full = line.len() + self.to_server.cost() > gathered(self.limits.queue_bytes);
        let input = self.process.as_mut().and_then(|process| process.server.input.as_mut());
        self.to_server.push(Class::Kept, line, input.filter(|_| full), None);
    }

    fn flush(&mut self) {
        if let Some(input) = self.process.as_mut().and_then(|process| process.server.input.as_mut()) {
            self.to_server.flush(input);
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        let is_shaking = self.session.is_none() && self.ends_by.is_none();
        let handshake = is_shaking.then(|| self.handshake.next_tick()).flatten();
        // Its stderr is read elsewhere, and nobody tells.
        let look = (is_shaking && self.stderr_seen == 0).then(|| self.now() + LIFE_LOOK);
        let due = handshake.into_iter().chain(look).chain(self.conversation.next_deadline()).min();
        due.map(|due| self.origin + due).into_iter().chain(self.ends_by).min()
    }

    fn tick(&mut self) {
        let now = self.now();
        let mut events = Vec::new();
        self.conversation.expire(now, |event| events.push(event));
        self.take(events);
        if self.session.is_none() && self.ends_by.is_none() {
            self.notice_life();
            let step = self.handshake.tick(now);
            self.step(step);
        }
    }

    /// What a server writes to stderr is read elsewhere, and is a sign of life too.
    fn notice_life(&mut self) {
        let seen = self.tail.bytes_seen();
        if seen > self.stderr_seen {
            self.stderr_seen = seen;
            self.handshake.alive(self.now());
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            Step::Ask(ask) => self.ask(ask),
            Step::Ready(session) => self.ready(*session),
            Step::Failed(kind, happened, hint) => {
                let failure = Failure { elapsed: self.now(), ..self.failure(kind, happened, hint) };
                self.end(failure);
            }
            Step::FailedWith(failure) => self.end(*failure),
        }
    }

    fn ready(&mut self, session: Session) {
        if !session.revision.is_stateless() {
            self.say(&conversation::notification("notifications/initialized", "{}"));
        }
        tracing::info!(
            "`{}` is ready after {} (revision {})",
            self.name,
            in_words(self.now()),
            session.revision.name()
        );
        let session = Arc::new(session);
        self.session = Some(session.clone());
        self.tell(Phase::Ready(session));
    }

    fn tell(&self, phase: Phase) {
        self.mailbox.state.send_modify(|state| {
            // How it ended stays as it was first told.
            if !matches!(state.phase, Phase::Over(_)) {
                state.phase = phase;
            }
        });
    }

    fn failure(&self, kind: Kind, happened: String, hint: &str) -> Failure {
        Failure {
            kind,
            server: self.name.clone(),
            method: None,
            happened,
            hint: hint.to_owned(),
            elapsed: self.now(),
            limit: None,
            exit: None,
            evidence: self.conversation.evidence(&self.tail.last_lines(TAIL_LINES)),
        }
    }

    fn start_failed(&mut self, error: &str) {
        self.process = None;
        let happened = format!("`{}` could not be started: {error}", self.name);
        let failure = self.failure(Kind::StartFailed, happened, START_HINT);
        self.end(failure);
    }

    /// The server is of no use any more, or of no use to anybody: everybody who waits is told, and it is stopped.
    fn end(&mut self, failure: Failure) {
        let (now, mut events) = (self.now(), Vec::new());
        self.conversation.lose_all(now, &failure, |event| events.push(event));
        self.tell(Phase::Over(failure));
        self.ends_by.get_or_insert_with(|| Instant::now() + self.limits.stop_limit() + STOP_SLACK);
        self.questions.abort_all();
        self.take(events);
        if let Some(process) = &mut self.process {
            process.server.begin_stop();
        }
    }

    fn command(&mut self, command: Option<Command>) {
        match command {
            Some(Command::Request(request, reply)) => self.request(*request, reply),
            Some(Command::Stop) | None => {
                tracing::debug!("stopping `{}`", self.name);
                let happened = format!("the connection to `{}` was closed", self.name);
                let failure = self.failure(Kind::ShuttingDown, happened, "ask before it is closed");
                self.end(failure);
            }
        }
        // More may wait; what they make leaves together.
        while self.ends_by.is_none()
            && let Ok(next) = self.mailbox.commands.try_recv()
        {
            self.command(Some(next));
        }
    }

    fn request(&mut self, request: Request, reply: oneshot::Sender<Outcome>) {
        let Request { method, mut params, limit, progress } = request;
        let overload = if !stands("client-requests-bounded") {
            None
        } else if self.conversation.in_flight() >= self.limits.max_in_flight {
            Some(format!("`{}` has {} requests unanswered", self.name, self.conversation.in_flight()))
        } else if self.to_server.cost() > self.limits.queue_bytes {
            Some(format!(
                "`{}` does not read its stdin, and {} bytes wait for it",
                self.name,
                self.to_server.cost()
            ))
        } else {
            None
        };
        if let Some(happened) = overload {
            let failure =
                self.failure(Kind::Overloaded, happened, "ask again when it has answered some of them");
            // Whoever asked may have gone.
            let _gone = reply.send(Err(Failure { method: Some(method.into()), ..failure }.into()));
            return;
        }
        let wants_progress = progress.is_some();
        let id = self.conversation.begin(self.now(), &method, limit, Whose::Caller { reply, progress });
        if wants_progress {
            let meta = params.entry("_meta").or_insert_with(|| serde_json::json!({}));
            if let (Some(meta), Id::Integer(token)) = (meta.as_object_mut(), &id) {
                meta.insert("progressToken".to_owned(), (*token).into());
            }
        }
        if self.session.as_ref().is_some_and(|session| session.revision.is_stateless()) {
            self.introduction.sign(&mut params);
        }
        let params = serde_json::Value::from(params).to_string();
        tracing::debug!("waiting for `{}` to answer `{method}`, for at most {}", self.name, in_words(limit));
        self.say(&conversation::request(&id, &method, &params));
    }

    /// Somebody has stopped waiting.
    fn withdraw(&mut self) {
        if !stands("client-withdrawal-told") {
            return;
        }
        let abandoned = self.conversation.ids(|whose| match whose {
            Whose::Caller { reply, .. } => reply.is_closed(),
            Whose::Handshake(_) => false,
        });
        for id in abandoned {
            if self.conversation.withdraw(&id).is_some() {
                self.say(&conversation::cancelled(&id, "the caller waits no more"));
            }
        }
    }

    fn read(&mut self, ready: io::Result<()>) {
        let Some(process) = &mut self.process else { return };
        let read = ready.and_then(|()| process.server.output.try_read(self.lines.spare()));
        self.take_read(read);
    }

    /// Takes what was read; true when there may be more at once.
    fn take_read(&mut self, read: io::Result<usize>) -> bool {
        match read {
            Ok(count @ 1..) => {
                self.lines.filled(count);
                self.handshake.alive(self.now());
                let (now, mut events) = (self.now(), Vec::new());
                while let Some(line) = self.lines.next_line() {
                    self.conversation.line(now, line, &mut |event| events.push(event));
                }
                self.take(events);
                true
            }
            Err(error) if is_passing(&error) => false,
            Ok(_) | Err(_) => {
                self.output_ended();
                false
            }
        }
    }

    /// A server that goes closes its stdout a moment before; one that lives on without is of no use.
    fn output_ended(&mut self) {
        let Some(process) = &mut self.process else { return };
        process.output_ended = true;
        if !process.exited && self.ends_by.is_none() && stands("client-mute-server-stopped") {
            process.server.begin_stop();
        }
    }

    /// It may still answer what it has read, and is stopped; its end tells whoever waits.
    fn input_closed(&mut self) {
        if let Some(process) = &mut self.process {
            process.input_closed = true;
            if self.ends_by.is_none() {
                process.server.begin_stop();
            }
        }
    }

    fn take(&mut self, events: Vec<Event<Whose>>) {
        for event in events {
            match event {
                Event::Done(call, outcome) => self.done(call.whose, outcome),
                Event::Say(line) => self.say(&line),
                Event::Progress(id, params) => {
                    if let Some(Whose::Caller { progress: Some(progress), .. }) = self.conversation.whose(&id)
                    {
                        progress.send_replace(Some(params));
                    }
                }
                Event::Notification(method, params) => self.listener.notified(&method, params.as_deref()),
                Event::Question(id, method, params) => self.question(id, &method, params),
                Event::QuestionWithdrawn(id) => {
                    if let Some(task) = self.asking.remove(&id) {
                        task.abort();
                    }
                }
            }
        }
    }

    fn done(&mut self, whose: Whose, outcome: Outcome) {
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(mut failure) if failure.evidence.stderr_tail.is_empty() => {
                failure.evidence.stderr_tail = self.tail.last_lines(TAIL_LINES);
                Error::Failure(failure)
            }
            error => error,
        });
        match whose {
            // Whoever asked may have gone.
            Whose::Caller { reply, .. } => drop(reply.send(outcome)),
            Whose::Handshake(ask) if self.session.is_none() && self.ends_by.is_none() => {
                let step = self.handshake.answered(ask, outcome);
                self.step(step);
            }
            Whose::Handshake(_) => {}
        }
    }

    fn question(&mut self, id: Id, method: &str, params: Option<Box<RawValue>>) {
        let is_stateless = self.session.as_ref().is_some_and(|session| session.revision.is_stateless());
        if method == "ping" {
            self.say(&conversation::answer(&id, "{}"));
        } else if is_stateless {
            let text = format!(
                "`{method}` cannot be asked of a client of revision 2026-07-28; answer with input_required"
            );
            self.say(&conversation::refusal(&id, Kind::InvalidRequest.code(), &text));
        } else if self.questions.len() >= self.limits.max_in_flight {
            let text = format!("{} questions are still unanswered", self.questions.len());
            self.say(&conversation::refusal(&id, Kind::Overloaded.code(), &text));
        } else {
            let asked = self.listener.asked(method.to_owned(), params);
            let patience = self.limits.call_timeout;
            let key = id.clone();
            let task = self.questions.spawn(async move {
                let late = |_| {
                    Err((Kind::Deadline.code(), format!("nobody answered within {}", in_words(patience))))
                };
                (id, timeout(patience, asked).await.unwrap_or_else(late))
            });
            self.asking.insert(key, task);
        }
    }

    fn answer(&mut self, id: &Id, answer: Answer) {
        self.asking.remove(id);
        let line = match answer {
            Ok(result) => conversation::answer(id, &result.to_string()),
            Err((code, message)) => conversation::refusal(id, code, &message),
        };
        self.say(&line);
    }

    async fn process_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Started { pid, tier } => {
                tracing::debug!("`{}` runs as process {pid} ({tier:?})", self.name);
            }
            ServerEvent::Failed(error) => self.start_failed(&error.to_string()),
            ServerEvent::Exited(exit) => {
                self.last_words().await;
                self.exited(&exit);
            }
            ServerEvent::Gone(swept) => {
                if swept.leaked > 0 {
                    tracing::warn!("`{}` left {} processes behind; they were ended", self.name, swept.leaked);
                }
                self.process = None;
            }
        }
    }

    /// Everything that the dead process wrote is in the pipes already.
    async fn last_words(&mut self) {
        if let Some(process) = &mut self.process {
            process.exited = true;
        }
        while let Some(process) =
            self.process.as_mut().filter(|process| !process.output_ended && stands("client-last-words-read"))
        {
            let read = process.server.output.read_now(self.lines.spare());
            if !self.take_read(read) {
                break;
            }
        }
        let (now, mut events) = (self.now(), Vec::new());
        while let Some(line) = self.lines.finish() {
            self.conversation.line(now, line, &mut |event| events.push(event));
        }
        self.take(events);
        if let Some(process) = &mut self.process {
            process.last_stderr().await;
        }
    }

    fn exited(&mut self, exit: &Exit) {
        if self.ends_by.is_some() {
            tracing::debug!("`{}` ended ({exit})", self.name);
            return;
        }
        let (kind, happened, hint) = match self.session {
            Some(_) => (Kind::ServerExited, format!("`{}` ended ({exit})", self.name), "see its stderr"),
            None => {
                let happened = format!("`{}` ended ({exit}) before it answered anything", self.name);
                (Kind::StartFailed, happened, START_HINT)
            }
        };
        let failure = Failure { exit: Some(exit.to_string()), ..self.failure(kind, happened, hint) };
        self.end(failure);
    }

    /// Nobody waits any more, and everybody may know that it has gone.
    fn finish(mut self) {
        if self.ends_by.is_none() {
            let happened = format!("`{}` has gone", self.name);
            let failure = self.failure(Kind::ServerExited, happened, "see its stderr");
            self.end(failure);
        }
        if self.process.take().is_some() {
            tracing::warn!(
                "`{}` did not end within {}; its lifeline goes on without us",
                self.name,
                in_words(self.limits.stop_limit())
            );
        }
        self.mailbox.state.send_modify(|state| state.has_gone = true);
    }
}

/// What to do about a server that cannot be started.
const START_HINT: &str = "check its command by running it in a terminal";
