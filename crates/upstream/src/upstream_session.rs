//! What an actor says to its server and hears of it, whatever carries the messages: the requests of callers, the handshake, the
//! server's questions, and the clock of all of them.
//!
//! The actor waits for [`UpstreamSession::next`] beside its own pipes or streams, hands every message in, and sends what
//! [`UpstreamSession::next_out`] gives afterwards.
//!
//! Invariants: nothing here waits for the server; whoever asked is told once; when it is over, everybody has been told why.

mod hearers;
mod probe;
mod replies;

use std::{
    collections::{HashMap, VecDeque},
    future::ready,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, value::RawValue};
use tokio::{
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::{Instant, Sleep, sleep_until, timeout},
};
use unhang_bridge::params::{to_modern, with_progress_token};
use unhang_proc::drain::Tail;
use unhang_switches::stands;
use unhang_wire::{Id, Json, Line};

pub(crate) use self::replies::Room;
use self::{
    hearers::{GivenUp, Hears},
    replies::Replies,
};
use super::{
    ActorCommand, ActorRequest, Mailbox, Outcome, Progress, ServerPhase, Signed,
    handshake::{Handshake, HandshakeRequest, Introduction, REMOTE_START_HINT, START_HINT, ServerInfo, Step},
    listener::Listener,
    question::{self, Asides, OfSession, Replied, SideMessage},
    request_table::{self, PendingRequest, RequestTable, TableEvent},
};
use unhang_core::{
    config::TAIL_LINES,
    error::{Error, Failure},
    fault::FaultKind,
    limits::Limits,
    shell::set,
    units::in_words,
};

/// For as long as nobody waits.
const AGES: Duration = Duration::from_hours(24);

/// Who speaks with whom, and within which limits.
pub(crate) struct UpstreamConfig {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) introduction: Introduction,
    pub(crate) listener: Arc<dyn Listener>,
    /// The server was found to know handshakes alone.
    pub(crate) is_legacy: bool,
}

/// Whose request it is.
pub(crate) enum RequestOrigin {
    Handshake(HandshakeRequest),
    /// Nobody's: any answer will do.
    Probe,
    Caller {
        reply: oneshot::Sender<Outcome>,
        progress: Option<Progress>,
        asides: Option<Asides>,
        session: Option<OfSession>,
    },
}

/// What is to be sent, or to be sent no more.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A request. `mirrored` goes along where messages have headers.
    Request { id: Id, method: Box<str>, line: Vec<u8>, mirrored: Vec<(String, String)> },
    /// The end of a handshake of old.
    Initialized(Vec<u8>),
    /// The reply to what the server asked, and the room that it has until it has left.
    Reply(Vec<u8>, Room),
    /// Nobody waits for the answer to this request any more, for this reason.
    Withdrawn(Id, &'static str),
    /// This request has its outcome.
    Over(Id),
}

/// A question of the server that is being answered.
type Answered = (Id, Replied, Room);

/// What has to be attended to, besides what the server says.
pub(crate) enum Incoming {
    Command(Option<ActorCommand>),
    Withdrawn,
    Answered(Option<Answered>),
    Time,
}

/// The dialogue with one server.
pub(crate) struct UpstreamSession {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    introduction: Introduction,
    listener: Arc<dyn Listener>,
    is_legacy: bool,
    mailbox: Mailbox,
    origin: Instant,
    timer: Pin<Box<Sleep>>,
    request_table: RequestTable<RequestOrigin>,
    /// What nobody waits for any more and the server may be at still.
    given_up: GivenUp,
    handshake: Handshake,
    pub(crate) session: Option<Arc<ServerInfo>>,
    tail: Tail,
    questions: JoinSet<Answered>,
    /// The tasks that answer them.
    asking: HashMap<Id, AbortHandle>,
    replies: Replies,
    /// What is to be sent now, in this order, and its bytes.
    out: VecDeque<Outgoing>,
    unsent: usize,
    /// Its end has begun: nothing is asked any more.
    pub(crate) is_ending: bool,
    /// It is no process of ours, and has no stderr that we could show.
    pub(crate) is_remote: bool,
}

impl UpstreamSession {
    /// Nothing is said before [`UpstreamSession::begin`].
    pub(crate) fn new(config: UpstreamConfig, mailbox: Mailbox, tail: Tail) -> Self {
        let UpstreamConfig { name, limits, introduction, listener, is_legacy } = config;
        Self {
            request_table: RequestTable::new(&name, limits.max_message),
            given_up: GivenUp::default(),
            handshake: Handshake::new(&name, Duration::ZERO, HandshakeRequest::Discover),
            origin: Instant::now(),
            timer: Box::pin(sleep_until(Instant::now())),
            session: None,
            questions: JoinSet::new(),
            asking: HashMap::new(),
            replies: Replies::new(&limits),
            out: VecDeque::new(),
            unsent: 0,
            is_ending: false,
            is_remote: false,
            name,
            limits,
            introduction,
            listener,
            is_legacy,
            mailbox,
            tail,
        }
    }

    /// The first handshake begins, in the way that the server was found to understand.
    pub(crate) fn greet(&mut self) {
        if !self.is_legacy {
            return self.begin(HandshakeRequest::Discover);
        }
        self.handshake = Handshake::guessing(&self.name, self.now());
        self.ask(HandshakeRequest::Initialize);
    }

    /// The handshake begins with this.
    pub(crate) fn begin(&mut self, ask: HandshakeRequest) {
        self.session = None;
        // Whoever greets it anew knows nothing of what it was asked before.
        self.given_up = GivenUp::default();
        self.handshake = Handshake::new(&self.name, self.now(), ask);
        self.ask(ask);
    }

    /// Since the dialogue was made.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When that is the time since the dialogue was made.
    pub(crate) fn at(&self, since: Duration) -> Instant {
        // A limit of ages is none.
        self.origin.checked_add(since).unwrap_or_else(|| Instant::now() + AGES)
    }

    /// Whether the server may ask us for something.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.introduction.may_be_asked()
    }

    /// Whether requests of callers wait for a handshake.
    pub(crate) fn is_shaking(&self) -> bool {
        self.session.is_none() && !self.is_ending
    }

    /// Whether every request says all that the server has to know (2026-07-28).
    pub(crate) fn is_stateless(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.revision.is_stateless())
    }

    /// Waits for the next thing to attend to. `also` is when the actor itself wants to be woken. Cancel-safe.
    pub(crate) async fn next(&mut self, also: Option<Instant>) -> Incoming {
        let due = self.next_tick().into_iter().chain(also).min();
        set(&mut self.timer, due);
        let is_asked = !self.is_ending;
        tokio::select! {
            command = self.mailbox.commands.recv(), if is_asked => Incoming::Command(command),
            () = self.mailbox.withdrawn.notified() => Incoming::Withdrawn,
            // Where it is an error the question was withdrawn, or its listener has panicked, which was told.
            Some(answered) = self.questions.join_next(), if !self.questions.is_empty() => Incoming::Answered(answered.ok()),
            () = &mut self.timer => Incoming::Time,
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        let handshake = self.is_shaking().then(|| self.handshake.next_tick()).flatten();
        let due = handshake.into_iter().chain(self.request_table.next_deadline()).min();
        due.map(|due| self.origin + due)
    }

    /// Attends to it. `waiting` is how many bytes the server has not taken yet.
    pub(crate) fn attend(&mut self, heard: Incoming, waiting: usize) {
        match heard {
            Incoming::Command(command) => self.command(command, waiting),
            Incoming::Withdrawn => self.withdraw(),
            Incoming::Answered(Some((id, answer, room))) => self.answer(&id, answer, room),
            Incoming::Answered(None) => self.asking.retain(|_, task| !task.is_finished()),
            Incoming::Time => self.tick(),
        }
    }

    fn tick(&mut self) {
        let (now, mut events) = (self.now(), Vec::new());
        self.request_table.expire(now, |event| events.push(event));
        self.take(events);
        if self.is_shaking() {
            let step = self.handshake.tick(now);
            self.step(step);
        }
    }

    /// The server has given a sign of life.
    pub(crate) fn alive(&mut self) {
        self.handshake.alive(self.now());
    }

    /// The server said this.
    pub(crate) fn line(&mut self, line: Line<'_>) {
        let (now, mut events) = (self.now(), Vec::new());
        let junk_before = self.request_table.junk_lines();
        self.request_table.line(now, line, &mut |event| events.push(event));
        let junk = self.request_table.junk_lines() - junk_before;
        if junk > 0 {
            self.listener.wrote_junk(junk);
        }
        self.take(events);
    }

    /// What came of a request is known from elsewhere than from a message: it has failed, in this way.
    pub(crate) fn fail(
        &mut self,
        id: &Id,
        kind: FaultKind,
        happened: impl FnOnce(&str) -> String,
        hint: &str,
    ) {
        let now = self.now();
        self.complete(id, |request_table, call| {
            request_table.failure(now, call, kind, happened(&call.method), hint).into()
        });
    }

    /// What came of a request is known from elsewhere than from a message.
    pub(crate) fn complete(
        &mut self,
        id: &Id,
        outcome: impl FnOnce(&RequestTable<RequestOrigin>, &PendingRequest<RequestOrigin>) -> Error,
    ) {
        let event = self.request_table.complete(id, outcome);
        self.take(event.into_iter().collect());
    }

    /// Whether somebody waits for this answer.
    pub(crate) fn awaits(&self, id: &Id) -> bool {
        self.request_table.whose(id).is_some()
    }

    /// The request of the handshake that has this id.
    pub(crate) fn of_handshake(&self, id: &Id) -> Option<HandshakeRequest> {
        match self.request_table.whose(id) {
            Some(RequestOrigin::Handshake(ask)) => Some(*ask),
            _ => None,
        }
    }

    /// Our verdict on the server.
    pub(crate) fn failure(&self, kind: FaultKind, happened: String, hint: &str) -> Failure {
        Failure {
            kind,
            server: self.name.clone(),
            method: None,
            happened,
            hint: hint.to_owned(),
            elapsed: self.now(),
            limit: None,
            retry_after: None,
            exit: None,
            evidence: self.request_table.evidence(&self.tail),
            unquoted: None,
        }
    }

    /// The server is of no use any more, or of no use to anybody: everybody who waits is told.
    pub(crate) fn end(&mut self, failure: Failure) {
        let (now, mut events) = (self.now(), Vec::new());
        self.request_table.lose_all(now, &failure, |event| events.push(event));
        self.tell(ServerPhase::Over(failure.into()));
        self.is_ending = true;
        self.questions.abort_all();
        self.take(events);
    }

    /// Everything that the server was has gone.
    pub(crate) fn gone(self) {
        self.mailbox.state.send_modify(|state| state.has_gone = true);
    }

    fn tell(&self, phase: ServerPhase) {
        self.mailbox.state.send_modify(|state| {
            // How it ended stays as it was first told.
            if !matches!(state.phase, ServerPhase::Over(_)) {
                state.phase = phase;
            }
        });
    }

    fn ask(&mut self, ask: HandshakeRequest) {
        // One deadline for all of the handshake, from its beginning on.
        let (since, limit) = (self.handshake.since(), self.limits.start_timeout);
        let id = self.request_table.begin(since, ask.method(), limit, RequestOrigin::Handshake(ask));
        let line = request_table::request(&id, ask.method(), &self.introduction.params(ask));
        self.out.push_back(Outgoing::Request { id, method: ask.method().into(), line, mirrored: Vec::new() });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            Step::Ask(ask) => self.ask(ask),
            Step::Ready(session) => self.ready(*session),
            Step::Failed(kind, happened, hint) => {
                let hint = if self.is_remote && hint == START_HINT { REMOTE_START_HINT } else { hint };
                let failure = self.failure(kind, happened, hint);
                self.end(failure);
            }
            Step::FailedWith(failure) => self.end(*failure),
        }
    }

    fn ready(&mut self, session: ServerInfo) {
        if !session.revision.is_stateless() {
            let line = request_table::notification("notifications/initialized", "{}");
            self.out.push_back(Outgoing::Initialized(line));
        }
        let (since, revision) = (self.now(), session.revision.name());
        tracing::info!("`{}` is ready after {} (revision {revision})", self.name, in_words(since));
        let session = Arc::new(session);
        self.session = Some(session.clone());
        self.tell(ServerPhase::Ready(session));
    }

    fn command(&mut self, command: Option<ActorCommand>, waiting: usize) {
        let mut next = command;
        loop {
            match next {
                Some(ActorCommand::Request(request, reply)) => self.request(*request, reply, waiting),
                Some(ActorCommand::Stop) | None => self.stop(),
            }
            // More may be there; what they make leaves together.
            match self.mailbox.commands.try_recv() {
                Ok(command) if !self.is_ending => next = Some(command),
                _ => return,
            }
        }
    }

    fn stop(&mut self) {
        tracing::debug!("stopping `{}`", self.name);
        let happened = format!("the connection to `{}` was closed", self.name);
        let failure = self.failure(FaultKind::ShuttingDown, happened, "ask before it is closed");
        self.end(failure);
    }

    fn request(&mut self, request: ActorRequest, reply: oneshot::Sender<Outcome>, waiting: usize) {
        let ActorRequest { method, mut params, since, limit, progress, asides, session, signed, mirrored } =
            request;
        if let Some(happened) = self.overload(waiting + self.unsent) {
            let failure =
                self.failure(FaultKind::Overloaded, happened, "ask again when it has answered some of them");
            // Whoever asked may have gone.
            let _gone = reply.send(Err(Failure { method: Some(method.into()), ..failure }.into()));
            return;
        }
        let wants_progress = progress.is_some();
        // It may be older than this server.
        let before = self.origin.saturating_duration_since(since);
        let since = since.saturating_duration_since(self.origin);
        let whose = RequestOrigin::Caller { reply, progress, asides, session };
        let id = self.request_table.begin_late((since, before), &method, limit, whose);
        if wants_progress {
            params = with_progress_token(Json::new(params.as_bytes()), &id);
        }
        if self.is_stateless() {
            params = match signed {
                Signed::ByUs => self.introduction.signed(&params),
                Signed::By(signature) => to_modern(Json::new(params.as_bytes()), &signature),
                Signed::Already => params,
            };
        }
        if limit == Duration::MAX {
            tracing::debug!("waiting for `{}` to answer `{method}`, for as long as it runs", self.name);
        } else {
            let limit = in_words(limit);
            tracing::debug!("waiting for `{}` to answer `{method}`, for at most {limit}", self.name);
        }
        let line = request_table::request(&id, &method, &params);
        self.unsent += line.len();
        self.out.push_back(Outgoing::Request { id, method, line, mirrored });
    }

    /// Why no more can be asked now, where that is so.
    fn overload(&self, waiting: usize) -> Option<String> {
        let in_flight = self.request_table.in_flight();
        if !stands("client-requests-bounded") {
            None
        } else if in_flight >= self.limits.max_in_flight {
            Some(format!("`{}` has {in_flight} requests unanswered", self.name))
        } else if waiting > self.limits.queue_bytes {
            Some(format!("`{}` does not read what it is sent, and {waiting} bytes wait for it", self.name))
        } else {
            None
        }
    }

    /// Somebody has stopped waiting.
    fn withdraw(&mut self) {
        if !stands("client-withdrawal-told") {
            return;
        }
        let abandoned = self.request_table.ids(|whose| match whose {
            RequestOrigin::Caller { reply, .. } => reply.is_closed(),
            RequestOrigin::Handshake(_) | RequestOrigin::Probe => false,
        });
        for id in abandoned {
            if let Some(call) = self.request_table.withdraw(&id) {
                self.give_up(&call);
                self.out.push_back(Outgoing::Withdrawn(id, "the caller waits no more"));
            }
        }
    }

    fn take(&mut self, events: Vec<TableEvent<RequestOrigin>>) {
        for event in events {
            match event {
                TableEvent::Done(call, outcome) => self.done(call, outcome),
                TableEvent::Late(id) => self.given_up.answered(&id),
                TableEvent::Withdrawn(id, why) => self.out.push_back(Outgoing::Withdrawn(id, why)),
                TableEvent::Say(line) => self.refuse(line),
                TableEvent::Progress(id, params) => {
                    if let Some(RequestOrigin::Caller { progress: Some(progress), .. }) =
                        self.request_table.whose(&id)
                    {
                        progress.send_replace(Some(params));
                    }
                }
                TableEvent::Notification(method, params) => self.notified(&method, params),
                TableEvent::Question(id, method, params) => self.question(id, &method, params),
                TableEvent::QuestionWithdrawn(id) => {
                    if let Some(task) = self.asking.remove(&id) {
                        task.abort();
                    }
                }
            }
        }
    }

    fn notified(&mut self, method: &str, params: Option<Box<RawValue>>) {
        if method == "notifications/message"
            && let (Hears::One { asides, .. }, Some(params)) = (self.asides(), &params)
        {
            // Where too much is on its way it is lost, as logs may be.
            let _lossy = asides.try_send(SideMessage::Logged(params.clone()));
            return;
        }
        if method != "notifications/subscriptions/acknowledged" {
            return self.listener.notified(method, params.as_deref());
        }
        // It is for whoever subscribed, and the first that they hear.
        let Some(params) = params else { return };
        let members: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let id = members["_meta"]["io.modelcontextprotocol/subscriptionId"].as_i64().map(Id::Integer);
        if let Some(RequestOrigin::Caller { progress: Some(told), .. }) =
            id.and_then(|id| self.request_table.whose(&id))
        {
            told.send_replace(Some(params));
        }
    }

    fn done(&mut self, call: PendingRequest<RequestOrigin>, outcome: Outcome) {
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(mut failure) if failure.evidence.stderr_tail.is_empty() => {
                failure.evidence.stderr_tail = self.tail.last_lines(TAIL_LINES);
                failure.evidence.stderr_age = self.tail.age();
                Error::Failure(failure)
            }
            error => error,
        });
        if let Err(Error::Failure(failure)) = &outcome
            && ![FaultKind::BadResponse, FaultKind::TooLarge].contains(&failure.kind)
        {
            // That was no answer, and the server may be at it still.
            self.give_up(&call);
        }
        self.out.push_back(Outgoing::Over(call.id));
        match call.whose {
            // Whoever asked may have gone.
            RequestOrigin::Caller { reply, .. } => drop(reply.send(outcome)),
            RequestOrigin::Handshake(ask) if self.is_shaking() => {
                let step = self.handshake.answered(ask, outcome);
                self.step(step);
            }
            RequestOrigin::Handshake(_) | RequestOrigin::Probe => {}
        }
    }

    fn question(&mut self, id: Id, method: &str, params: Option<Box<RawValue>>) {
        let Some(mut room) = self.room(&id) else { return };
        let bytes = params.as_ref().map_or(0, |params| params.get().len());
        if method == "ping" {
            self.reply(request_table::answer(&id, "{}"), room);
        } else if self.is_stateless() {
            let text = format!(
                "`{method}` cannot be asked of a client of revision 2026-07-28; answer with input_required"
            );
            self.refused(&id, FaultKind::InvalidRequest.code(), &text, room);
        } else if self.questions.len() >= self.limits.max_in_flight {
            let text = format!("{} questions are still unanswered", self.questions.len());
            self.refused(&id, FaultKind::Overloaded.code(), &text, room);
        } else if !self.holds(&mut room, bytes) {
            let text = format!("{bytes} bytes are too many beside the questions that are still unanswered");
            self.refused(&id, FaultKind::Overloaded.code(), &text, room);
        } else {
            let asked = self.asked(method, params);
            let patience = self.limits.call_timeout;
            let key = id.clone();
            let task = self.questions.spawn(async move {
                let late = |_| {
                    Err((
                        FaultKind::Deadline.code(),
                        format!("nobody answered within {}", in_words(patience)),
                    ))
                };
                (id, timeout(patience, asked).await.unwrap_or_else(late), room)
            });
            self.asking.insert(key, task);
        }
    }

    /// Asks the session whose request a question is about; the listener, where none is in flight.
    fn asked(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = Replied> + Send>> {
        let method = method.to_owned();
        match self.asides() {
            Hears::Nobody => {
                let answer = self.listener.asked(method, params);
                Box::pin(async move { answer.await.map(|result| result.to_string()) })
            }
            Hears::One { asides, is_of_several, session } => {
                let (asides, enough) = (asides.clone(), self.listener.asks(&method, session));
                Box::pin(async move {
                    let declined = (FaultKind::Cancelled.code(), format!("`{method}` is declined: "));
                    tokio::select! {
                        replied = question::ask_one(&asides, method, params, is_of_several) => replied,
                        why = enough => Err((declined.0, declined.1 + &why)),
                    }
                })
            }
            Hears::Several => {
                self.listener.asks_in_a_crowd(&method);
                let why = "nothing says which of several calls it is about, and one that was given up counts until it is answered; ask again \
                           in one that runs alone";
                let declined = (FaultKind::MethodNotFound.code(), format!("`{method}` is declined: {why}"));
                Box::pin(ready(Err(declined)))
            }
        }
    }

    fn answer(&mut self, id: &Id, answer: Replied, room: Room) {
        self.asking.remove(id);
        match answer {
            Ok(result) => self.reply(request_table::answer(id, &result), room),
            Err((code, message)) => self.refused(id, code, &message, room),
        }
    }

    /// The next thing to send, if any.
    pub(crate) fn next_out(&mut self) -> Option<Outgoing> {
        let out = self.out.pop_front();
        if out.is_none() {
            self.unsent = 0;
        }
        out
    }
}

#[cfg(test)]
mod tests;
