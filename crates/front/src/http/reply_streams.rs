//! The open posts and the streams of one session over HTTP: every line of the session finds its way to the client here. Pure, except for the
//! clock.
//!
//! Theory of operation. If the answer to a post comes first, it goes out whole, as JSON. Otherwise the post gets a stream of events that
//! ends with the answer. That happens if another line for the post comes first, or if the answer takes longer than [`EVENTS_AFTER`]. If the
//! client prefers events or asks for progress, the stream begins as soon as the session has accepted the request. Lines about the session
//! go to the stream that the client has opened for them. No stream begins while a request waits for servers and may still be refused,
//! because the status of that answer may have to be 400 or 404.
//!
//! Invariants
//!
//! - A request that unhang refuses at once is answered whole, so that the refusal keeps its status. No stream begins before that is known.
//! - The bytes that wait for the client are bounded: beyond the limit the session is marked as not read. The same limit bounds the delivered
//!   events of ended streams.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    message_budget::MessageBudget,
    stream::{BufferedBytes, EventMarks, ResponseStream, StreamBody},
};
use crate::{
    effects::{ErrorAnswer, LineTarget, SessionEffects, StreamKey},
    tally::FrontTally,
};
use unhang_core::{queue::Class, revision::Revision};

/// The time after which a post without an answer gets a stream, so that its client hears from unhang.
const EVENTS_AFTER: Duration = Duration::from_secs(5);

/// The most streams that have ended and can be resumed, in case their reader has missed the end.
const ENDED_STREAMS: usize = 16;

/// How long those streams are kept.
const ENDED_KEPT: Duration = Duration::from_secs(60);

/// The key of the stream for lines about the session.
pub(super) const SESSION_STREAM: StreamKey = 0;

/// The reply to a post, or to a client that wants to listen.
pub(super) enum PostReply {
    /// The post was accepted, and gets no answer.
    Taken,
    /// The whole answer, and its error if it is one.
    Whole(Vec<u8>, Option<ErrorAnswer>),
    /// A stream of events.
    Events(StreamBody),
    /// The session no longer keeps the stream that the client wants to resume.
    Gone,
}

/// The form of the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// JSON: the client takes no events.
    Whole,
    /// JSON if the answer comes first, and soon; otherwise a stream.
    WholeOrEvents,
    /// A stream from the start, unless the request is refused.
    EventsAtOnce,
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

/// A post that has no answer yet.
struct OpenPost {
    form: ReplyForm,
    answer: PendingReply,
}

enum PendingReply {
    Not(oneshot::Sender<PostReply>),
    Begun(ResponseStream),
}

/// The effects of a session over HTTP: its open posts and its streams.
pub(super) struct HttpEffects {
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
    /// Posts without an answer that get a stream at once, as soon as it is certain that their answers have no status of their own.
    due_at_once: Vec<StreamKey>,
    /// The streams of such posts that are answered before they begin.
    answered_at_once: Vec<(oneshot::Sender<PostReply>, ResponseStream)>,
    /// Whether a stream begins with an event that only gives its number, for resuming (2025-11-25).
    is_primed: bool,
    is_deaf: bool,
}

impl HttpEffects {
    /// Makes the effects of a session without posts. `limit` bounds the bytes that wait for the client.
    pub(super) fn new(manner: ReplyMode, limit: usize, tally: Arc<FrontTally>) -> HttpEffects {
        HttpEffects {
            posts: HashMap::new(),
            rooms: HashMap::new(),
            unanswered: VecDeque::new(),
            listened: None,
            ended: VecDeque::new(),
            held: BufferedBytes::new(tally),
            left: Arc::default(),
            limit,
            manner,
            due_at_once: Vec::new(),
            answered_at_once: Vec::new(),
            is_primed: false,
            is_deaf: false,
        }
    }

    /// Notes a post that the session is about to handle.
    pub(super) fn opened(
        &mut self,
        key: StreamKey,
        room: Option<MessageBudget>,
        form: ReplyForm,
        reply: oneshot::Sender<PostReply>,
    ) {
        self.rooms.extend(room.map(|room| (key, room)));
        if self.has_one_stream() {
            // The answer comes on the one stream, at any time.
            let _gone = reply.send(PostReply::Taken);
        } else {
            self.posts.insert(key, OpenPost { form, answer: PendingReply::Not(reply) });
        }
    }

    /// Notes that the session has handled a post. `is_awaited` tells whether an answer is still to come. The revision is that of the
    /// handshake, which this post may have been.
    pub(super) fn handled(&mut self, key: StreamKey, is_awaited: bool, revision: Option<Revision>) {
        if self.has_one_stream() {
            if !is_awaited {
                self.rooms.remove(&key);
            }
            return;
        }
        self.is_primed = revision == Some(Revision::V2025November);
        if !is_awaited {
            self.nothing_to_client(key);
        } else if self.posts.get(&key).is_some_and(|post| post.form == ReplyForm::EventsAtOnce) {
            self.due_at_once.push(key);
        } else {
            self.unanswered.push_back((Instant::now() + EVENTS_AFTER, key));
        }
    }

    /// Begins the streams that are due at once. A post that `may_get_a_status` waits until that is decided.
    pub(super) fn begin_streams(&mut self, may_get_a_status: impl Fn(StreamKey) -> bool) {
        for (reply, stream) in std::mem::take(&mut self.answered_at_once) {
            // If the client has gone, it can resume the stream.
            let _left = reply.send(PostReply::Events(self.read(&stream)));
        }
        for key in std::mem::take(&mut self.due_at_once) {
            if may_get_a_status(key) {
                self.due_at_once.push(key);
                continue;
            }
            let _begun = self.begun(key);
        }
    }

    /// Returns what is notified when the reader of a stream leaves before its end.
    pub(super) fn left(&self) -> Arc<Notify> {
        Arc::clone(&self.left)
    }

    /// Returns whether the client has not read what it was sent, and too much waits for it.
    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Returns whether no post waits for an answer.
    pub(super) fn has_no_posts(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns whether the client of the one stream has opened it and left it again.
    pub(super) fn is_left(&self) -> bool {
        self.has_one_stream() && self.listened.is_some() && !self.is_read()
    }

    fn stream(&mut self, key: StreamKey) -> ResponseStream {
        let marks = match self.manner {
            ReplyMode::Streams => EventMarks::Number,
            ReplyMode::Alone => EventMarks::None,
            ReplyMode::OneStream(_) => EventMarks::Kind,
        };
        ResponseStream::new(key, self.limit, marks, self.held.clone(), Arc::clone(&self.left))
    }

    pub(super) fn is_alone(&self) -> bool {
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
            PendingReply::Not(_) => self.posts.get(&key)?.form != ReplyForm::Whole,
        };
        if !is_ready {
            return None;
        }
        let stream = self.stream(key);
        let post = self.posts.get_mut(&key)?;
        if let PendingReply::Not(reply) =
            std::mem::replace(&mut post.answer, PendingReply::Begun(stream.clone()))
        {
            // If the client has gone, it can resume the stream, or the request is withdrawn elsewhere.
            let _left = reply.send(PostReply::Events(self.read(&stream)));
        }
        Some(stream)
    }

    /// Begins to read a stream from here on, for the client that gets it first or listens to it anew.
    fn read(&self, stream: &ResponseStream) -> StreamBody {
        if self.is_primed { stream.read_primed() } else { stream.read(None) }
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
        let Some(OpenPost { form, answer }) = self.posts.remove(&key) else { return };
        let is_refused = error.is_some_and(|error| error.is_ours);
        match answer {
            PendingReply::Not(reply) if form == ReplyForm::EventsAtOnce && !is_refused => {
                let stream = self.stream(key);
                self.say(&stream, Class::Kept, line);
                stream.end();
                self.answered_at_once.push((reply, stream.clone()));
                self.keep(key, stream);
            }
            // If the client has gone, the answer is dropped: it was for no other.
            PendingReply::Not(reply) => drop(reply.send(PostReply::Whole(line.to_vec(), error))),
            PendingReply::Begun(stream) => {
                self.say(&stream, Class::Kept, line);
                stream.end();
                self.keep(key, stream);
            }
        }
    }

    /// Keeps a stream that has ended, so that its client can resume it. The oldest streams are forgotten if all of them have too many
    /// events that were delivered.
    fn keep(&mut self, key: StreamKey, stream: ResponseStream) {
        if self.is_alone() {
            return;
        }
        self.ended.push_back((Instant::now() + ENDED_KEPT, key, stream));
        if self.ended.len() > ENDED_STREAMS {
            self.ended.pop_front();
        }
        let delivered = |ended: &(_, _, ResponseStream)| ended.2.delivered_bytes();
        while self.ended.iter().map(delivered).sum::<usize>() > self.limit
            && let Some(oldest) = self.ended.iter().position(|ended| delivered(ended) > 0)
        {
            self.ended.remove(oldest);
        }
    }

    /// Begins the streams of posts that have waited too long, and forgets streams that ended long ago. A post that `may_get_a_status` waits
    /// again.
    pub(super) fn tick(&mut self, now: Instant, may_get_a_status: impl Fn(StreamKey) -> bool) {
        while self.ended.pop_front_if(|(until, ..)| *until <= now).is_some() {}
        while let Some((_, key)) = self.unanswered.pop_front_if(|(due, _)| *due <= now) {
            if may_get_a_status(key) {
                self.unanswered.push_back((now + EVENTS_AFTER, key));
                continue;
            }
            let _begun = self.begun(key);
        }
    }

    pub(super) fn next_due(&mut self) -> Option<Instant> {
        let is_waiting = |posts: &HashMap<StreamKey, OpenPost>, key: &StreamKey| {
            let is_due = |post: &OpenPost| {
                post.form != ReplyForm::Whole && matches!(post.answer, PendingReply::Not(_))
            };
            posts.get(key).is_some_and(is_due)
        };
        while self.unanswered.front().is_some_and(|(_, key)| !is_waiting(&self.posts, key)) {
            self.unanswered.pop_front();
        }
        let unanswered = self.unanswered.front().map(|(due, _)| *due);
        unanswered.into_iter().chain(self.ended.front().map(|(until, ..)| *until)).min()
    }

    /// Returns the stream for a client that listens. With `after` the client resumes a stream, which may be gone.
    pub(super) fn listen(&mut self, after: Option<(u64, u64)>) -> PostReply {
        match after {
            None => {
                let stream = match self.listened.take() {
                    Some(stream) => stream,
                    None => self.stream(SESSION_STREAM),
                };
                if let ReplyMode::OneStream(endpoint) = &self.manner {
                    stream.say_endpoint(endpoint);
                }
                let body = self.read(&stream);
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
    pub(super) fn is_read(&self) -> bool {
        let is_waited_for = |post: &OpenPost| match &post.answer {
            PendingReply::Not(reply) => !reply.is_closed(),
            PendingReply::Begun(stream) => stream.is_read(),
        };
        self.listened.as_ref().is_some_and(ResponseStream::is_read) || self.posts.values().any(is_waited_for)
    }

    /// Waits until the client of a request that stands alone has gone, if its answer has not begun. Waits forever otherwise. Cancel-safe.
    pub(super) async fn client_gone(&mut self) {
        match self.posts.values_mut().next() {
            Some(OpenPost { answer: PendingReply::Not(reply), .. }) => {
                reply.closed().await;
            }
            _ => pending().await,
        }
    }

    /// Ends the open streams, so that their connections end too.
    pub(super) fn end(&mut self) {
        self.begin_streams(|_| true);
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
        self.has_one_stream() || self.posts.get(&stream).is_some_and(|post| post.form != ReplyForm::Whole)
    }

    fn client_backlog(&self) -> usize {
        self.held.bytes()
    }
}
