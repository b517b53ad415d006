//! The session of an actor with its server, whatever carries the messages: the requests of callers, the handshake, the server's questions,
//! and the clock of all of them.
//!
//! The actor waits for [`UpstreamSession::next`] beside its own pipes or streams. It hands every message in, and sends what
//! [`UpstreamSession::next_out`] returns afterwards.
//!
//! Invariants: nothing here waits for the server. Each caller gets one outcome. When the session is over, everybody has been told why.

mod audience;
mod greeting;
mod in_flight;
mod known_roots;
mod outbox;
mod reply_budget;
mod upstream_questions;

use std::{pin::Pin, sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep_until},
};
use unhang_bridge::params::{to_modern, with_progress_token, without_progress_token};
use unhang_proc::drain::Tail;
use unhang_wire::{Id, Json, Line, compose};

use self::{
    audience::{AbandonedCalls, Audience},
    outbox::Outbox,
    upstream_questions::{AnsweredQuestion, UpstreamQuestions, related_task},
};
pub(crate) use self::{outbox::Outgoing, reply_budget::ReplyReservation};
use super::{
    ActorCommand, ActorRequest, LISTEN, Mailbox, ProgressSender, RequestOutcome, RequestSignature,
    ServerPhase,
    call_stream::CallStream,
    handshake::{Handshake, HandshakeRequest, Introduction, ServerInfo},
    kept_request::{KeepCommand, SentRequest},
    listener::ServerListener,
    question::{ELICITATION_COMPLETE, OfSession, SideMessage, SideMessageSender, TASK_BEGUN},
    request_table::{PendingRequest, RequestTable, TableEvent},
};
use unhang_core::{
    config::TAIL_LINES,
    error::{Error, Failure, ServerError},
    fault::FaultKind,
    limits::Limits,
    shell::set,
    units::in_words,
};

/// The timer's setting while nobody waits.
const AGES: Duration = Duration::from_hours(24);

/// The part of the way to a caller that logs leave free.
const ROOM_BESIDE_LOGS: usize = 4;

/// The parties of a session, and its limits.
pub(crate) struct UpstreamConfig {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) introduction: Introduction,
    pub(crate) listener: Arc<dyn ServerListener>,
    /// The server was found to know handshakes alone.
    pub(crate) is_legacy: bool,
}

/// The origin of a request.
pub(crate) enum RequestOrigin {
    Handshake(HandshakeRequest),
    /// A probe, which nobody waits for: any answer will do.
    Probe,
    Caller {
        reply: oneshot::Sender<RequestOutcome>,
        progress: Option<ProgressSender>,
        asides: Option<SideMessageSender>,
        session: Option<OfSession>,
        stream: Option<CallStream>,
    },
}

/// An event for the session, besides the messages of the server.
pub(crate) enum UpstreamEvent {
    Command(Option<ActorCommand>),
    Withdrawn,
    /// The roots of the client have changed.
    RootsChanged,
    Answered(Option<AnsweredQuestion>),
    Time,
}

/// The session with one server.
pub(crate) struct UpstreamSession {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    introduction: Introduction,
    listener: Arc<dyn ServerListener>,
    is_legacy: bool,
    /// The session was taken over from another process.
    is_resumed: bool,
    mailbox: Mailbox,
    origin: Instant,
    timer: Pin<Box<Sleep>>,
    request_table: RequestTable<RequestOrigin>,
    /// Calls that nobody waits for any more and that the server may still be working on.
    abandoned: AbandonedCalls,
    handshake: Handshake,
    pub(crate) session: Option<Arc<ServerInfo>>,
    tail: Tail,
    questions: UpstreamQuestions,
    out: Outbox,
    /// The end has begun: nothing is asked any more.
    pub(crate) is_ending: bool,
    /// The requests that were in flight when the owner of the last handle ended the session, or nobody had one; `None` before.
    pub(crate) in_flight_at_stop: Option<Vec<Id>>,
    /// The orders to keep requests that the actor has not taken yet.
    pub(crate) keep_commands: Vec<KeepCommand>,
    /// The server is reached over HTTP, so it has no stderr to show.
    pub(crate) is_remote: bool,
    /// The last error with which the server has answered a caller, until the actor takes it.
    pub(crate) refused: Option<Box<ServerError>>,
    /// The server has answered a caller, and the actor has not taken that yet.
    pub(crate) has_answered: bool,
    /// The outcome of the last probe of a remote server, until the actor takes it.
    pub(crate) probed: Option<(Id, RequestOutcome)>,
}

impl UpstreamSession {
    /// Makes the session. It sends nothing before [`UpstreamSession::begin`] or [`UpstreamSession::greet`].
    pub(crate) fn new(config: UpstreamConfig, mailbox: Mailbox, tail: Tail) -> Self {
        let UpstreamConfig { name, limits, introduction, listener, is_legacy } = config;
        Self {
            request_table: RequestTable::new(&name, limits.max_message),
            abandoned: AbandonedCalls::default(),
            handshake: Handshake::new(&name, Duration::ZERO, HandshakeRequest::Discover),
            origin: Instant::now(),
            timer: Box::pin(sleep_until(Instant::now())),
            session: None,
            questions: UpstreamQuestions::new(&name, &limits, listener.clone()),
            out: Outbox::default(),
            is_ending: false,
            in_flight_at_stop: None,
            keep_commands: Vec::new(),
            is_remote: false,
            refused: None,
            has_answered: false,
            probed: None,
            name,
            limits,
            introduction,
            listener,
            is_legacy,
            is_resumed: false,
            mailbox,
            tail,
        }
    }

    /// Returns the time since the session was made.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns the moment that is so long after the session was made.
    pub(crate) fn at(&self, since: Duration) -> Instant {
        // A limit of ages counts as none.
        self.origin.checked_add(since).unwrap_or_else(|| Instant::now() + AGES)
    }

    /// Returns whether the server may ask this client for something.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.introduction.may_be_asked()
    }

    /// Returns whether requests of callers wait for a handshake.
    pub(crate) fn is_shaking(&self) -> bool {
        self.session.is_none() && !self.is_ending
    }

    /// Returns whether every request says all that the server has to know (2026-07-28).
    pub(crate) fn is_stateless(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.revision.is_stateless())
    }

    /// Waits for the next event. `also` is when the actor itself wants to be woken. Cancel-safe.
    pub(crate) async fn next(&mut self, also: Option<Instant>) -> UpstreamEvent {
        let due = self.next_tick().into_iter().chain(also).min();
        set(&mut self.timer, due);
        let is_asked = !self.is_ending;
        tokio::select! {
            command = self.mailbox.commands.recv(), if is_asked => UpstreamEvent::Command(command),
            () = self.mailbox.withdrawn.notified() => UpstreamEvent::Withdrawn,
            () = self.mailbox.roots.notified(), if self.session.is_some() && is_asked => UpstreamEvent::RootsChanged,
            answered = self.questions.next_answer(), if !self.questions.is_empty() => UpstreamEvent::Answered(answered),
            () = &mut self.timer => UpstreamEvent::Time,
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        let handshake = self.is_shaking().then(|| self.handshake.next_tick()).flatten();
        let due = handshake.into_iter().chain(self.request_table.next_deadline()).min();
        due.map(|due| self.origin + due)
    }

    /// Handles an event. `waiting` is the number of bytes that the server has not taken yet.
    pub(crate) fn attend(&mut self, event: UpstreamEvent, waiting: usize) {
        match event {
            UpstreamEvent::Command(command) => self.command(command, waiting),
            UpstreamEvent::Withdrawn => self.withdraw(),
            UpstreamEvent::RootsChanged if self.is_stateless() => {}
            UpstreamEvent::RootsChanged => {
                let line = compose::notification("notifications/roots/list_changed", "{}");
                self.out.push(Outgoing::RootsChanged(line));
            }
            UpstreamEvent::Answered(answered) => {
                self.questions.reply(answered, &self.request_table, &mut self.out);
            }
            UpstreamEvent::Time => self.tick(),
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

    /// Notes a sign of life of the server.
    pub(crate) fn alive(&mut self) {
        self.handshake.alive(self.now());
    }

    /// Takes a line that the server said, and that may be about any request.
    pub(crate) fn line(&mut self, line: Line<'_>) {
        self.line_beside(None, line);
    }

    /// Takes a line that the server said on the stream of this request, which the line is about. `None` stands for a stream of all requests.
    pub(crate) fn line_beside(&mut self, request: Option<&Id>, line: Line<'_>) {
        let (now, mut events) = (self.now(), Vec::new());
        let junk_before = self.request_table.junk_lines();
        self.request_table.line(now, line, &mut |event| events.push(event));
        let junk = self.request_table.junk_lines() - junk_before;
        if junk > 0 {
            self.listener.wrote_junk(junk);
        }
        self.take_beside(request, events);
    }

    /// Fails a request for a reason that is known from elsewhere than from a message.
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

    /// Ends a request with an error that is known from elsewhere than from a message.
    pub(crate) fn complete(
        &mut self,
        id: &Id,
        outcome: impl FnOnce(&RequestTable<RequestOrigin>, &PendingRequest<RequestOrigin>) -> Error,
    ) {
        let event = self.request_table.complete(id, outcome);
        self.take(event.into_iter().collect());
    }

    /// Makes a failure of the server, with the evidence that it has left.
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

    /// Ends the session: the server is of no use any more, or not wanted any more. Everybody who waits is told.
    pub(crate) fn end(&mut self, failure: Failure) {
        let (now, mut events) = (self.now(), Vec::new());
        self.request_table.lose_all(now, &failure, |event| events.push(event));
        self.tell(ServerPhase::Over(failure.into()));
        self.is_ending = true;
        self.questions.abort_all();
        self.take(events);
    }

    /// Tells every handle that the server and everything that belonged to it has gone.
    pub(crate) fn gone(self) {
        self.mailbox.state.send_modify(|state| state.has_gone = true);
    }

    fn tell(&self, phase: ServerPhase) {
        self.mailbox.state.send_modify(|state| {
            // The first reason for the end stays.
            if !matches!(state.phase, ServerPhase::Over(_)) {
                state.phase = phase;
            }
        });
    }

    fn command(&mut self, command: Option<ActorCommand>, waiting: usize) {
        let mut next = command;
        loop {
            match next {
                Some(ActorCommand::Request(request, reply)) => self.request(*request, reply, waiting),
                // Over HTTP nothing can be kept, and dropping the order says so.
                Some(ActorCommand::Keep(command)) if self.is_remote => drop(command),
                Some(ActorCommand::Keep(command)) => self.keep_commands.push(*command),
                Some(ActorCommand::Stop) | None => self.stop(),
            }
            // More commands may be there; their messages leave together.
            match self.mailbox.commands.try_recv() {
                Ok(command) if !self.is_ending => next = Some(command),
                _ => return,
            }
        }
    }

    fn stop(&mut self) {
        tracing::debug!("stopping `{}`", self.name);
        let is_caller = |whose: &RequestOrigin| matches!(whose, RequestOrigin::Caller { .. });
        self.in_flight_at_stop = Some(self.request_table.ids(is_caller));
        let happened = format!("the connection to `{}` was closed", self.name);
        let failure =
            self.failure(FaultKind::ShuttingDown, happened, "send requests before the connection is closed");
        self.end(failure);
    }

    fn request(&mut self, request: ActorRequest, reply: oneshot::Sender<RequestOutcome>, waiting: usize) {
        let ActorRequest {
            method,
            mut params,
            since,
            limit,
            progress,
            asides,
            session,
            signed,
            mirrored,
            sent,
            stream,
        } = request;
        if let Some(happened) = self.overload(waiting + self.out.unsent()) {
            let failure =
                self.failure(FaultKind::Overloaded, happened, "ask again when it has answered some of them");
            // The caller may have gone.
            let _gone = reply.send(Err(Failure { method: Some(method.into()), ..failure }.into()));
            return;
        }
        let wants_progress = progress.is_some();
        // The request may be older than this server.
        let before = self.origin.saturating_duration_since(since);
        let since = since.saturating_duration_since(self.origin);
        let whose = RequestOrigin::Caller { reply, progress, asides, session, stream };
        let id = self.request_table.begin_late((since, before), &method, limit, whose);
        if wants_progress {
            params = with_progress_token(Json::new(params.as_bytes()), &id);
        } else if let Some(without) = without_progress_token(&params) {
            // The client's own token may equal a token of another call. The server's progress would then reach the wrong client.
            params = without;
        }
        if self.is_stateless() {
            params = match signed {
                RequestSignature::ByUs => self.introduction.signed(&params),
                RequestSignature::By(signature) => to_modern(Json::new(params.as_bytes()), &signature),
                RequestSignature::Already => params,
            };
        }
        if limit == Duration::MAX {
            tracing::debug!("waiting for `{}` to answer `{method}`, for as long as it runs", self.name);
        } else {
            let limit = in_words(limit);
            tracing::debug!("waiting for `{}` to answer `{method}`, for at most {limit}", self.name);
        }
        if let Some(sent) = sent {
            let before = sent.send_replace(Some(match self.is_remote {
                false => SentRequest::new(id.clone(), &self.mailbox),
                true => SentRequest::remote(id.clone()),
            }));
            if let Some(before) = before.and_then(|before| before.id_here(&self.mailbox)) {
                self.out.push(Outgoing::Repeats { before, id: id.clone() });
            }
        }
        let line = compose::request(&id, &method, &params);
        self.out.request(id, method, line, mirrored);
    }

    /// Returns why the server can take no more requests now; `None` if it can.
    fn overload(&self, waiting: usize) -> Option<String> {
        let in_flight = self.request_table.in_flight();
        if in_flight >= self.limits.max_in_flight {
            Some(format!("`{}` has {in_flight} requests unanswered", self.name))
        } else if waiting > self.limits.queue_bytes {
            Some(format!("`{}` does not read its input, and {waiting} bytes wait for it", self.name))
        } else {
            None
        }
    }

    /// Withdraws the requests whose callers have stopped waiting.
    fn withdraw(&mut self) {
        let abandoned = self.request_table.ids(|whose| match whose {
            RequestOrigin::Caller { reply, .. } => reply.is_closed(),
            RequestOrigin::Handshake(_) | RequestOrigin::Probe => false,
        });
        for id in abandoned {
            if let Some(call) = self.request_table.withdraw(&id) {
                self.give_up(&call);
                self.out.push(Outgoing::Withdrawn(id, "the caller waits no more"));
            }
        }
    }

    fn take(&mut self, events: Vec<TableEvent<RequestOrigin>>) {
        self.take_beside(None, events);
    }

    fn take_beside(&mut self, request: Option<&Id>, events: Vec<TableEvent<RequestOrigin>>) {
        for event in events {
            match event {
                TableEvent::Done(call, outcome) => self.done(call, outcome),
                TableEvent::Late(id) => self.abandoned.answered(&id),
                TableEvent::Withdrawn(id, why) => self.out.push(Outgoing::Withdrawn(id, why)),
                TableEvent::Say(line) => self.questions.refuse_invalid(line, &mut self.out),
                TableEvent::Progress(id, params) => {
                    if let Some(RequestOrigin::Caller { progress: Some(progress), .. }) =
                        self.request_table.whose(&id)
                    {
                        progress.send_replace(Some(params));
                    }
                }
                TableEvent::Notification(method, params) => self.notified(request, &method, params),
                TableEvent::Question(id, method, params) => self.question(request, (id, &method, params)),
                TableEvent::QuestionWithdrawn(id) => self.questions.withdraw(&id),
            }
        }
    }

    fn notified(&mut self, request: Option<&Id>, method: &str, params: Option<Box<RawValue>>) {
        let beside_a_call = match method {
            "notifications/message" => params.clone().map(SideMessage::Logged),
            ELICITATION_COMPLETE => params.clone().map(SideMessage::ElicitationOver),
            TASK_BEGUN => Some(SideMessage::TaskBegun),
            _ => None,
        };
        if let Some(message) = beside_a_call
            && let Audience::Call { asides } | Audience::One { asides, .. } = self.audience(request)
        {
            // If too much is on its way, logs are lost. They leave room for all else.
            let is_log = matches!(message, SideMessage::Logged(_));
            // Each resumed call is a job with a log of its own, and a line could be about any of them.
            if is_log && self.is_resumed && self.request_table.in_flight() > 1 {
                return;
            }
            if !is_log || asides.capacity() > asides.max_capacity() / ROOM_BESIDE_LOGS {
                let _lossy = asides.try_send(message);
            }
            return;
        }
        if method != "notifications/subscriptions/acknowledged" {
            return self.listener.notified(method, params.as_deref());
        }
        // The acknowledgement is for the subscriber, and the first message that it gets.
        let Some(params) = params else { return };
        let members: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let id = members["_meta"]["io.modelcontextprotocol/subscriptionId"].as_i64().map(Id::Integer);
        if let Some(RequestOrigin::Caller { progress: Some(told), .. }) =
            id.and_then(|id| self.request_table.whose(&id))
        {
            told.send_replace(Some(params));
        }
    }

    fn done(&mut self, call: PendingRequest<RequestOrigin>, outcome: RequestOutcome) {
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
            // That was not an answer, and the server may still be working on the call.
            self.give_up(&call);
        }
        self.out.push(Outgoing::Over(call.id.clone()));
        if matches!(call.whose, RequestOrigin::Caller { .. }) {
            match &outcome {
                Ok(_) => self.has_answered = true,
                Err(Error::Server(error)) => self.refused = Some(error.clone()),
                Err(_) => {}
            }
        }
        match call.whose {
            // The caller may have gone.
            RequestOrigin::Caller { reply, .. } => drop(reply.send(outcome)),
            RequestOrigin::Handshake(ask) if self.is_shaking() => {
                let step = self.handshake.answered(ask, outcome);
                self.step(step);
            }
            RequestOrigin::Probe if self.is_remote => self.probed = Some((call.id, outcome)),
            RequestOrigin::Handshake(_) | RequestOrigin::Probe => {}
        }
    }

    fn question(&mut self, request: Option<&Id>, (id, method, params): (Id, &str, Option<Box<RawValue>>)) {
        if self.is_stateless() && self.is_remote && !self.questions.is_of_leader {
            return self.cannot_be_asked(request, method);
        }
        let (is_stateless, now) = (self.is_stateless(), self.now());
        // Only a server with tasks can mean one.
        let has_tasks = |session: &ServerInfo| session.capabilities.contains_key("tasks");
        let has_tasks = !is_stateless && self.session.as_deref().is_some_and(has_tasks);
        let task = if has_tasks { related_task(params.as_deref()) } else { None };
        let audience = |carrying: &_| match task {
            Some(task) => Audience::Task(task),
            None => self.abandoned.audience(now, &self.request_table, request, carrying),
        };
        self.questions.put((id, method, params), is_stateless, audience, &mut self.out);
    }

    /// Fails the request in which a stateless server over HTTP asks something, because no message can carry the reply (2026-07-28).
    fn cannot_be_asked(&mut self, request: Option<&Id>, method: &str) {
        let text = format!("`{}` sent `{method}`, which revision 2026-07-28 does not have", self.name);
        match request {
            Some(request) => {
                let happened =
                    |asked: &str| format!("{text}, and waits for the reply before it answers `{asked}`");
                let hint = "this is a fault of the server, which has to answer with `input_required`; \
                    `era = \"legacy\"` in its configuration lets it ask";
                self.fail(request, FaultKind::BadResponse, happened, hint);
            }
            None => tracing::warn!("unhang dropped a request of a server: {text}"),
        }
    }

    /// Notes that nobody waits any more for this call, which the server has not answered.
    fn give_up(&mut self, call: &PendingRequest<RequestOrigin>) {
        self.abandoned.give_up(self.now(), call, self.limits.job_timeout);
    }

    /// Finds the audience of what the server says beside its answers.
    fn audience(&self, request: Option<&Id>) -> Audience<'_> {
        self.abandoned.audience(self.now(), &self.request_table, request, &self.questions.carrying())
    }

    /// Limits the number of replies that may wait, for a transport on which each costs more than its bytes.
    pub(crate) fn bound_replies(&mut self, most: usize) {
        self.questions.budget.bound(most);
    }

    /// Notes that the server is the leading window, which asks beside its answers.
    pub(crate) fn asks_for_windows(&mut self) {
        self.questions.is_of_leader = true;
    }

    /// Takes the next thing to send, if any.
    pub(crate) fn next_out(&mut self) -> Option<Outgoing> {
        self.out.next()
    }
}

#[cfg(test)]
mod tests;
