//! One session over HTTP: an actor that receives the client's posts, and answers each post whole or with a stream of events.
//!
//! Theory of operation. As over pipes, the session is one task and one `select!`; only the ways of its lines differ. If the answer to a
//! post comes first, it goes out whole, as JSON. Otherwise the post gets a stream of events that ends with the answer. That happens if
//! another line for the post comes first, or if the answer takes longer than [`EVENTS_AFTER`]. Lines about the session go to the stream
//! that the client has opened for them. No stream begins for a call whose headers cannot be compared with its arguments yet, because the
//! status of that answer may have to be 400.
//!
//! A request of 2026-07-28 stands alone: it has an actor of its own, which ends with its answer, or with its client. A client of 2024-11-05
//! has one stream for everything that it hears, answers included, and its session ends with that stream.
//!
//! Invariants
//!
//! - Nothing here waits for a client. The queue to a client that does not read is bounded in bytes; beyond that the session ends.
//! - In a session of several streams, a broken connection withdraws nothing, and the client can resume a stream where it broke. A request
//!   that stands alone is withdrawn with its connection. A session of one stream ends with its connection, for it cannot be resumed.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use unhang_net::serve::axum::body::Bytes;
use unhang_wire::{Line, one_line};

use super::{
    message_budget::MessageBudget,
    stream::{BufferedBytes, EventMarks, ResponseStream, StreamBody},
};
use crate::{
    effects::{ErrorAnswer, LineTarget, SessionEffects, StreamKey},
    session_runtime::SessionRuntime,
    tally::add_one,
};
use unhang_core::{
    config::SESSION_IDLE,
    exit,
    limits::Limits,
    queue::Class,
    revision::Revision,
    shell::{Stop, set},
    telemetry::Parent,
};
use unhang_upstream::http::param_headers::ReceivedParamHeaders;

/// The time after which a post without an answer gets a stream, so that its client hears from unhang.
const EVENTS_AFTER: Duration = Duration::from_secs(5);

/// The most posts on their way to a session.
const MAILS: usize = 64;

/// The most streams that have ended and can be resumed, in case their reader has missed the end.
const ENDED_STREAMS: usize = 16;

/// How long those streams are kept.
const ENDED_KEPT: Duration = Duration::from_secs(60);

/// The key of the stream for lines about the session.
const SESSION_STREAM: StreamKey = 0;

/// The reply to a post, or to a client that wants to listen.
pub(super) enum PostReply {
    /// The post was accepted, and gets no answer.
    Taken,
    /// The whole answer, and its error if it is one.
    Whole(Vec<u8>, Option<ErrorAnswer>),
    /// A stream of events.
    Events(StreamBody),
    /// There is no such stream any more.
    Gone,
}

/// The input of a session.
pub(super) enum SessionCommand {
    /// A message.
    Post {
        body: Bytes,
        /// The room of the body in the budget, kept until the post is answered, because the request stays in memory until then.
        room: Option<MessageBudget>,
        takes_events: bool,
        trace: Option<Parent>,
        /// Its `Mcp-Param-*` headers, if they have to be compared with its arguments.
        param_headers: Option<ReceivedParamHeaders>,
        reply: oneshot::Sender<PostReply>,
    },
    /// The client listens. `after` is the last event that it has, if it resumes a stream.
    Listen { after: Option<(u64, u64)>, reply: oneshot::Sender<PostReply> },
    /// The client ends the session.
    End { reply: oneshot::Sender<PostReply> },
    /// The client's token is not accepted any more.
    Revoke,
}

/// The sender of commands to a session.
pub(super) type SessionHandle = mpsc::Sender<SessionCommand>;

/// Makes the mailbox of a new session: the sender and the receiver of its commands.
pub(super) fn mailbox() -> (SessionHandle, mpsc::Receiver<SessionCommand>) {
    mpsc::channel(MAILS)
}

/// The way in which lines reach a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyMode {
    /// On a stream for each post and one for the session, all of which can be resumed (2025-03-26 to 2025-11-25).
    Streams,
    /// As the answer to the only request (2026-07-28).
    Alone,
    /// On one stream, whose first event names this endpoint for messages (2024-11-05).
    OneStream(String),
}

/// The reason why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionOver {
    /// Its client has ended it, or had only one request.
    Done,
    /// Its client has been silent for a long time.
    Idle,
    /// Its client does not read.
    Deaf,
    /// The client's token is not accepted any more.
    Revoked,
}

/// A post that has no answer yet.
struct OpenPost {
    takes_events: bool,
    answer: PendingReply,
}

enum PendingReply {
    Not(oneshot::Sender<PostReply>),
    Begun(ResponseStream),
}

/// The effects of a session over HTTP: its open posts and its streams.
struct HttpEffects {
    posts: HashMap<StreamKey, OpenPost>,
    /// The room of unanswered posts in the message budget, for those that take any.
    rooms: HashMap<StreamKey, MessageBudget>,
    /// Posts without an answer, with the times at which they get a stream.
    unanswered: VecDeque<(Instant, StreamKey)>,
    /// The stream to which the client listens.
    listened: Option<ResponseStream>,
    /// Ended streams that can be resumed, with the times until which they are kept.
    ended: VecDeque<(Instant, StreamKey, ResponseStream)>,
    held: BufferedBytes,
    left: Arc<Notify>,
    limit: usize,
    manner: ReplyMode,
    /// Whether a stream begins with an event that only gives its number, for resuming (2025-11-25).
    is_primed: bool,
    is_deaf: bool,
}

impl HttpEffects {
    fn stream(&mut self, key: StreamKey) -> ResponseStream {
        let marks = match self.manner {
            ReplyMode::Streams => EventMarks::Number,
            ReplyMode::Alone => EventMarks::None,
            ReplyMode::OneStream(_) => EventMarks::Kind,
        };
        ResponseStream::new(key, self.limit, marks, self.held.clone(), Arc::clone(&self.left))
    }

    fn is_alone(&self) -> bool {
        self.manner == ReplyMode::Alone
    }

    /// Returns whether all lines come on one stream.
    fn has_one_stream(&self) -> bool {
        matches!(self.manner, ReplyMode::OneStream(_))
    }

    /// Sends a line about the session. Drops it if the client has not opened the session's stream.
    fn say_to_session(&mut self, class: Class, line: &[u8]) {
        if let Some(stream) = self.listened.clone() {
            self.say(&stream, class, line);
        }
    }

    /// Returns the stream of a post, and begins it if necessary. Returns `None` if the post has ended, or its client takes no events.
    fn begun(&mut self, key: StreamKey) -> Option<ResponseStream> {
        let is_ready = match &self.posts.get(&key)?.answer {
            PendingReply::Begun(stream) => return Some(stream.clone()),
            PendingReply::Not(_) => self.posts.get(&key)?.takes_events,
        };
        if !is_ready {
            return None;
        }
        let stream = self.stream(key);
        if self.is_primed {
            stream.say(Class::Kept, b"");
        }
        let post = self.posts.get_mut(&key)?;
        if let PendingReply::Not(reply) =
            std::mem::replace(&mut post.answer, PendingReply::Begun(stream.clone()))
        {
            // If the client has gone, it can resume the stream, or the request is withdrawn elsewhere.
            let _left = reply.send(PostReply::Events(stream.read(None)));
        }
        Some(stream)
    }

    /// Sends an event on a stream, unless the client has too much unread. Then the session is marked as not read.
    fn say(&mut self, stream: &ResponseStream, class: Class, data: &[u8]) {
        if self.held.bytes() > self.limit {
            self.is_deaf = true;
            return;
        }
        stream.say(class, data);
    }

    fn answer(&mut self, key: StreamKey, error: Option<ErrorAnswer>, line: &[u8]) {
        let Some(OpenPost { answer, .. }) = self.posts.remove(&key) else { return };
        match answer {
            // If the client has gone, the answer is dropped: it was for no other.
            PendingReply::Not(reply) => drop(reply.send(PostReply::Whole(line.to_vec(), error))),
            PendingReply::Begun(stream) => {
                self.say(&stream, Class::Kept, line);
                stream.end();
                self.keep(key, stream);
            }
        }
    }

    /// Keeps a stream that has ended, so that its client can resume it.
    fn keep(&mut self, key: StreamKey, stream: ResponseStream) {
        if self.is_alone() {
            return;
        }
        self.ended.push_back((Instant::now() + ENDED_KEPT, key, stream));
        if self.ended.len() > ENDED_STREAMS {
            self.ended.pop_front();
        }
    }

    /// Begins the streams of posts that have waited too long, and forgets streams that ended long ago. A post that `may_get_a_status` waits
    /// again.
    fn tick(&mut self, now: Instant, may_get_a_status: impl Fn(StreamKey) -> bool) {
        while self.ended.pop_front_if(|(until, ..)| *until <= now).is_some() {}
        while let Some((_, key)) = self.unanswered.pop_front_if(|(due, _)| *due <= now) {
            if may_get_a_status(key) {
                self.unanswered.push_back((now + EVENTS_AFTER, key));
                continue;
            }
            let _begun = self.begun(key);
        }
    }

    fn next_due(&mut self) -> Option<Instant> {
        let is_waiting = |posts: &HashMap<StreamKey, OpenPost>, key: &StreamKey| {
            posts
                .get(key)
                .is_some_and(|post| post.takes_events && matches!(post.answer, PendingReply::Not(_)))
        };
        while self.unanswered.front().is_some_and(|(_, key)| !is_waiting(&self.posts, key)) {
            self.unanswered.pop_front();
        }
        let unanswered = self.unanswered.front().map(|(due, _)| *due);
        unanswered.into_iter().chain(self.ended.front().map(|(until, ..)| *until)).min()
    }

    /// Returns the stream for a client that listens. With `after` the client resumes a stream, which may be gone.
    fn listen(&mut self, after: Option<(u64, u64)>) -> PostReply {
        match after {
            None => {
                let stream = match self.listened.take() {
                    Some(stream) => stream,
                    None => self.stream(SESSION_STREAM),
                };
                if let ReplyMode::OneStream(endpoint) = &self.manner {
                    stream.say_endpoint(endpoint);
                }
                let body = stream.read(None);
                self.listened = Some(stream);
                PostReply::Events(body)
            }
            Some((key, number)) => {
                let ended = self.ended.iter().find(|(_, ended, _)| *ended == key).map(|(.., stream)| stream);
                let open = self.posts.get(&key).and_then(|post| match &post.answer {
                    PendingReply::Begun(stream) => Some(stream),
                    PendingReply::Not(_) => None,
                });
                let listened = self.listened.as_ref().filter(|_| key == SESSION_STREAM);
                match listened.or(open).or(ended) {
                    Some(stream) => PostReply::Events(stream.read(Some(number))),
                    None => PostReply::Gone,
                }
            }
        }
    }

    /// Returns whether the client listens, or waits for the answer to a post.
    fn is_read(&self) -> bool {
        let is_waited_for = |post: &OpenPost| match &post.answer {
            PendingReply::Not(reply) => !reply.is_closed(),
            PendingReply::Begun(stream) => stream.is_read(),
        };
        self.listened.as_ref().is_some_and(ResponseStream::is_read) || self.posts.values().any(is_waited_for)
    }

    /// Waits until the client of a request that stands alone has gone, if its answer has not begun. Waits forever otherwise. Cancel-safe.
    async fn client_gone(&mut self) {
        match self.posts.values_mut().next() {
            Some(OpenPost { answer: PendingReply::Not(reply), .. }) => {
                reply.closed().await;
            }
            _ => pending().await,
        }
    }

    /// Ends the open streams, so that their connections end too.
    fn end(&mut self) {
        for (_, post) in self.posts.drain() {
            if let PendingReply::Begun(stream) = post.answer {
                stream.end();
            }
        }
        if let Some(stream) = self.listened.take() {
            stream.end();
        }
    }
}

impl SessionEffects for HttpEffects {
    fn to_client(&mut self, to: LineTarget, class: Class, line: &[u8]) {
        if let LineTarget::Answer { stream, .. } = &to {
            self.rooms.remove(stream);
        }
        match to {
            _ if self.has_one_stream() => self.say_to_session(class, line),
            LineTarget::Answer { stream, error } => self.answer(stream, error, line),
            LineTarget::Beside(key) => {
                // A client that takes no events gets only its answer.
                if let Some(stream) = self.begun(key) {
                    self.say(&stream, class, line);
                }
            }
            LineTarget::Session => self.say_to_session(class, line),
        }
    }

    fn nothing_to_client(&mut self, stream: StreamKey) {
        self.rooms.remove(&stream);
        match self.posts.remove(&stream).map(|post| post.answer) {
            Some(PendingReply::Not(reply)) => drop(reply.send(PostReply::Taken)),
            Some(PendingReply::Begun(begun)) => {
                begun.end();
                self.keep(stream, begun);
            }
            None => {}
        }
    }

    fn takes_more(&self, stream: StreamKey) -> bool {
        self.has_one_stream() || self.posts.get(&stream).is_some_and(|post| post.takes_events)
    }

    fn client_backlog(&self) -> usize {
        self.held.bytes()
    }
}

/// The actor of one session.
pub(super) struct HttpSession {
    work: SessionRuntime,
    effects: HttpEffects,
    commands: mpsc::Receiver<SessionCommand>,
    next_stream: StreamKey,
    last_seen: Instant,
    /// The reason why the session is over, once it is.
    over: Option<SessionOver>,
    /// The name of the session in the log.
    name: String,
}

impl HttpSession {
    /// Makes a session, or the actor of a request that stands alone.
    pub(super) fn new(
        name: String,
        mut work: SessionRuntime,
        limits: &Limits,
        commands: mpsc::Receiver<SessionCommand>,
        manner: ReplyMode,
    ) -> HttpSession {
        work.mcp_session.set_session_name(&name);
        let effects = HttpEffects {
            posts: HashMap::new(),
            rooms: HashMap::new(),
            unanswered: VecDeque::new(),
            listened: None,
            ended: VecDeque::new(),
            held: BufferedBytes::new(Arc::clone(work.tally())),
            left: Arc::default(),
            limit: limits.queue_bytes,
            manner,
            is_primed: false,
            is_deaf: false,
        };
        HttpSession {
            work,
            effects,
            commands,
            next_stream: SESSION_STREAM,
            last_seen: Instant::now(),
            over: None,
            name,
        }
    }

    /// Serves the session until its client ends it, is silent too long or does not read, its token is revoked, or `ending` is set. Then
    /// waits until all work for it has ended.
    pub(super) async fn run(mut self, mut ending: watch::Receiver<bool>) {
        let mut timer = Box::pin(sleep_until(Instant::now()));
        let left = Arc::clone(&self.effects.left);
        let (mut is_ending, mut is_stopped) = (false, false);
        while self.work.act().is_none() {
            if let Some(reason) = self.is_over().filter(|_| !is_stopped) {
                is_stopped = true;
                self.stop(reason);
                continue;
            }
            let due = self.next_tick();
            set(&mut timer, due);
            tokio::select! {
                command = self.commands.recv(), if !is_stopped => match command {
                    Some(command) => self.take(command),
                    None => self.is_over_because(SessionOver::Done),
                },
                event = self.work.event() => self.work.take(event, &mut self.effects),
                // A client that was there a moment ago is not forgotten yet.
                () = left.notified() => self.last_seen = Instant::now(),
                () = self.effects.client_gone(), if self.effects.is_alone() && !is_stopped => {
                    self.is_over_because(SessionOver::Done);
                }
                _over_or_gone = ending.wait_for(|ending| *ending), if !is_ending => {
                    is_ending = true;
                    // Accepted commands are not refused.
                    while let Ok(command) = self.commands.try_recv() {
                        self.take(command);
                    }
                    self.work.mcp_session.drain(self.work.now(), Stop::Terminate.cause(), &mut self.effects);
                }
                () = &mut timer => self.tick(),
            }
        }
        self.effects.end();
    }

    fn take(&mut self, command: SessionCommand) {
        self.last_seen = Instant::now();
        match command {
            SessionCommand::Post { body, room, takes_events, trace, param_headers, reply } => {
                self.work.mcp_session.set_trace_parent(trace);
                self.work.mcp_session.set_param_headers(param_headers);
                self.post(&body, room, takes_events, reply);
            }
            // If the client has gone, its next listener takes this place.
            SessionCommand::Listen { after, reply } => drop(reply.send(self.effects.listen(after))),
            SessionCommand::End { reply } => {
                let _gone = reply.send(PostReply::Taken);
                self.is_over_because(SessionOver::Done);
            }
            SessionCommand::Revoke => self.is_over_because(SessionOver::Revoked),
        }
    }

    /// Notes that the session is over. The first reason counts.
    fn is_over_because(&mut self, reason: SessionOver) {
        self.over.get_or_insert(reason);
    }

    fn post(
        &mut self,
        body: &[u8],
        room: Option<MessageBudget>,
        takes_events: bool,
        reply: oneshot::Sender<PostReply>,
    ) {
        self.next_stream += 1;
        let key = self.next_stream;
        self.effects.rooms.extend(room.map(|room| (key, room)));
        if self.effects.has_one_stream() {
            // The answer comes on the one stream, at any time.
            let _gone = reply.send(PostReply::Taken);
        } else {
            self.effects.posts.insert(key, OpenPost { takes_events, answer: PendingReply::Not(reply) });
        }
        let now = self.work.now();
        // The body becomes one line, as servers need it.
        self.work.mcp_session.client_line(now, key, Line::Whole(&one_line(body)), &mut self.effects);
        if self.effects.has_one_stream() {
            if self.effects.rooms.contains_key(&key) && !self.work.mcp_session.awaits(key) {
                self.effects.rooms.remove(&key);
            }
            return;
        }
        if self.work.mcp_session.awaits(key) {
            self.effects.unanswered.push_back((Instant::now() + EVENTS_AFTER, key));
        } else {
            self.effects.nothing_to_client(key);
        }
        self.effects.is_primed = self.work.mcp_session.revision() == Some(Revision::V2025November);
    }

    /// Returns whether the client is expected to come back to a call.
    fn is_parked(&self) -> bool {
        self.work.mcp_session.has_parked()
    }

    fn is_over(&self) -> Option<SessionOver> {
        if self.over.is_some() {
            return self.over;
        }
        if self.effects.is_deaf {
            return Some(SessionOver::Deaf);
        }
        if self.effects.is_alone() {
            let begun = self.next_stream != SESSION_STREAM;
            let is_left = || !self.effects.is_read();
            let is_over = match self.effects.posts.is_empty() {
                true => !self.is_parked(),
                false => is_left(),
            };
            return (begun && is_over).then_some(SessionOver::Done);
        }
        let has_come = self.effects.has_one_stream() && self.effects.listened.is_some();
        if has_come && !self.effects.is_read() {
            return Some(SessionOver::Done);
        }
        (self.last_seen.elapsed() >= SESSION_IDLE && !self.effects.is_read()).then_some(SessionOver::Idle)
    }

    fn next_tick(&mut self) -> Option<Instant> {
        let idle = (!self.effects.is_alone()).then(|| self.last_seen + SESSION_IDLE);
        // If the client still listens, the next look is one period later.
        let idle = idle.map(|at| if at <= Instant::now() { Instant::now() + SESSION_IDLE } else { at });
        self.work.next_tick().into_iter().chain(self.effects.next_due()).chain(idle).min()
    }

    fn tick(&mut self) {
        let mcp_session = &self.work.mcp_session;
        self.effects.tick(Instant::now(), |key| mcp_session.has_unchecked_headers(key));
        self.work.mcp_session.tick(self.work.now(), &mut self.effects);
    }

    /// Fails the requests in flight, and tells the work behind them to stop.
    fn stop(&mut self, reason: SessionOver) {
        let cause = match reason {
            SessionOver::Done => "its client ended it",
            SessionOver::Idle => "its client was silent for too long",
            SessionOver::Deaf => "its client does not read",
            SessionOver::Revoked => "unhang no longer accepts its token",
        };
        let waiting = self.effects.held.bytes();
        if reason == SessionOver::Deaf {
            add_one(&self.work.tally().deaf);
            let session = self.name.as_str();
            tracing::warn!(
                session,
                "unhang closes the session {session} with {waiting} bytes waiting: {cause}"
            );
        } else if !self.effects.is_alone() {
            let session = self.name.as_str();
            tracing::info!(session, "the session {session} ends: {cause}");
        }
        let ending = format!("the session is ending because {cause}");
        self.work.mcp_session.stop(self.work.now(), exit::DONE, &ending, &mut self.effects);
        self.effects.end();
    }
}
