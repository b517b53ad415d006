//! The actor of a server over HTTP: Streamable HTTP in all its revisions, and the HTTP+SSE of 2024-11-05.
//!
//! # Theory of operation
//!
//! Each message of ours is a POST, and a task ([`exchange`]). What its answer says is a message of the server, whichever request it
//! came with: answers are matched by their ids as everywhere. The era is found out as on stdio (`server/discover`, then
//! `initialize`). A server that refuses both with the status of something that does not know POST may be one of old: then a stream
//! is opened with GET, which says where to post.
//!
//! With a handshake there is a session: its name goes along with each request, a stream of its own brings what the server says
//! unasked, a stream that breaks off before its answer is taken up again where the server gave its events ids, and a session that
//! the server has forgotten (404) is begun anew, once for each request that met with that: it was not carried out. Without one
//! (2026-07-28) none of that exists: a broken stream is a lost request, and closing it withdraws it.
//!
//! Invariants
//!
//! - Nothing is awaited here but the next thing to attend to; each exchange ends with its request's deadline at the latest.
//! - A request is posted a second time only where the server has said that it did not take the first.
//! - At the end nothing of it is left: exchanges are aborted, and a session is deleted within the time for stopping.

mod exchange;
pub(crate) mod headers;
mod verdict;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout},
};
use unhang_net::{
    http::{Address, Ask, Bytes, Connection, HttpError, Url, Verb},
    sse::Event,
};
use unhang_switches::stands;
use unhang_wire::{Id, Line};

use self::{
    exchange::{Close, Place, Said, Which, exchange},
    verdict::{TOO_LARGE, error_member, in_short},
};
use super::{
    Mailbox, conversation,
    dialogue::{Dialogue, Heard, Out, Spoken},
    handshake::Ask as Handshake,
};
use crate::{
    client::{Error, ServerError},
    fault::Kind,
    revision::Revision,
    settings::HttpDialect,
};

/// What exchanges have said and the actor has not heard. It hears them at once.
const SAID: usize = 16;

/// How long after its answer a stream may take to end, so that its connection can serve again.
const LINGER: Duration = Duration::from_secs(1);

/// How long to wait before a broken stream is taken up again, where the server does not say it; and the least, whatever it says.
const RETRY: Duration = Duration::from_secs(1);
const LEAST_RETRY: Duration = Duration::from_millis(50);
/// The longest, where a stream ends again and again.
const MOST_RETRY: Duration = Duration::from_secs(30);

/// A server over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    /// Where it is.
    pub address: Address,
    /// Which of the ways of HTTP it speaks, where that is known.
    pub dialect: Option<HttpDialect>,
}

/// Speaks with the server until it is told to end.
pub(crate) async fn live(server: HttpServer, spoken: Spoken, mailbox: Mailbox) {
    let connection = Connection::new(&server.address, spoken.limits.max_message);
    let mut dialogue = Dialogue::new(spoken, mailbox, unhang_proc::drain::Tail::new(0));
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => {
            let happened = format!("`{}` could not be reached: {error}", dialogue.name);
            let failure = dialogue.failure(Kind::StartFailed, happened, "mend its url or its headers");
            dialogue.end(failure);
            return dialogue.gone();
        }
    };
    let (speaker, mut said) = mpsc::channel(SAID);
    let mut actor = Actor::new(&server, connection, dialogue, speaker);
    actor.begin();
    loop {
        actor.send();
        if actor.dialogue.is_ending {
            break;
        }
        let also = actor.next_look();
        tokio::select! {
            heard = actor.dialogue.next(also) => actor.attend(heard),
            Some((which, said)) = said.recv() => actor.hear(which, said),
            // How it ended was said; one that was aborted has nobody who waits.
            Some(_) = actor.tasks.join_next(), if !actor.tasks.is_empty() => {}
        }
    }
    actor.finish().await;
}

/// How messages get there.
#[derive(Debug)]
enum Way {
    /// Each is a POST to the server's own URL.
    Streamable,
    /// They are posted to where the stream has said, once it has, and all answers come on the stream (2024-11-05).
    Sse(Option<Url>),
}

/// A request that is with the server.
struct Exchange {
    method: Box<str>,
    line: Bytes,
    mirrored: Vec<(String, String)>,
    task: AbortHandle,
    /// Its stream has broken off, and is taken up again then, from there.
    resume: Option<(Instant, String)>,
}

/// The stream of what the server says unasked.
struct Stream {
    task: AbortHandle,
    is_open: bool,
    /// When it is opened again, and from where.
    again: Option<(Instant, Option<String>)>,
    retry: Duration,
}

struct Actor {
    dialogue: Dialogue,
    dialect: Option<HttpDialect>,
    address: String,
    connection: Connection,
    way: Way,
    /// The name of the session, where the server has given one.
    session: Option<String>,
    exchanges: HashMap<Id, Exchange>,
    /// What waits for the handshake, or to know where to post.
    held: VecDeque<Out>,
    /// Requests that met with a session that the server had forgotten.
    repeated: HashSet<Id>,
    /// The handshake of old is not over before the server has taken this.
    awaits_initialized: bool,
    stream: Option<Stream>,
    /// Streams that have brought their answer.
    lingering: VecDeque<(Instant, AbortHandle)>,
    tasks: JoinSet<()>,
    speaker: mpsc::Sender<(Which, Said)>,
}

impl Actor {
    fn new(
        server: &HttpServer,
        connection: Connection,
        dialogue: Dialogue,
        speaker: mpsc::Sender<(Which, Said)>,
    ) -> Self {
        Self {
            address: server.address.shown(),
            dialect: server.dialect,
            way: Way::Streamable,
            session: None,
            exchanges: HashMap::new(),
            held: VecDeque::new(),
            repeated: HashSet::new(),
            awaits_initialized: false,
            stream: None,
            lingering: VecDeque::new(),
            tasks: JoinSet::new(),
            dialogue,
            connection,
            speaker,
        }
    }

    fn begin(&mut self) {
        tracing::debug!("connecting to {}", self.address);
        if self.dialect == Some(HttpDialect::Sse) {
            self.open_old_stream();
            self.dialogue.begin(Handshake::Initialize);
        } else {
            self.dialogue.begin(Handshake::Discover);
        }
    }

    /// When this actor wants to be woken, whatever the dialogue waits for.
    fn next_look(&self) -> Option<Instant> {
        let resumed = self.exchanges.values().filter_map(|exchange| Some(exchange.resume.as_ref()?.0));
        let stream = self.stream.as_ref().and_then(|stream| Some(stream.again.as_ref()?.0));
        let lingering = self.lingering.front().map(|(until, _)| *until);
        resumed.chain(stream).chain(lingering).min()
    }

    fn attend(&mut self, heard: Heard) {
        let is_time = matches!(heard, Heard::Time);
        self.dialogue.attend(heard, 0);
        if is_time {
            self.look(Instant::now());
        }
    }

    /// Does what is due.
    fn look(&mut self, now: Instant) {
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, task)) = self.lingering.pop_front() {
                task.abort();
            }
        }
        let is_due = |exchange: &Exchange| exchange.resume.as_ref().is_some_and(|(at, _)| *at <= now);
        let due: Vec<Id> = self
            .exchanges
            .iter()
            .filter(|(_, exchange)| is_due(exchange))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let place = self.exchanges.get_mut(&id).and_then(|exchange| exchange.resume.take());
            let task = self.get(Which::Request(id.clone()), place.map(|(_, last_id)| last_id));
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.task = task;
            }
        }
        let again = self.stream.as_mut().and_then(|stream| stream.again.take_if(|(at, _)| *at <= now));
        if let Some((_, last_id)) = again {
            let task = self.get(Which::Stream, last_id);
            if let Some(stream) = &mut self.stream {
                stream.task = task;
            }
        }
    }

    /// Sends what the dialogue has to say, as far as it can be said now.
    fn send(&mut self) {
        while let Some(out) = self.dialogue.next_out() {
            match out {
                Out::Over(id) => self.over(&id),
                Out::Withdrawn(id, why) => self.withdrawn(&id, why),
                out if self.is_held(&out) => self.held.push_back(out),
                out => self.say(out),
            }
        }
        let held = std::mem::take(&mut self.held);
        for out in held {
            if self.is_held(&out) { self.held.push_back(out) } else { self.say(out) }
        }
    }

    /// Whether this has to wait: for the handshake, or for the place to post it to.
    fn is_held(&self, out: &Out) -> bool {
        if matches!(self.way, Way::Sse(None)) {
            return true;
        }
        match out {
            Out::Request { id, .. } if self.dialogue.of_handshake(id).is_some() => false,
            Out::Initialized(_) => false,
            _ => self.dialogue.is_shaking() || self.awaits_initialized,
        }
    }

    fn say(&mut self, out: Out) {
        match out {
            Out::Request { id, method, line, mirrored } => {
                // Who asked may have stopped waiting while it was held.
                if self.dialogue.awaits(&id) {
                    let line = Bytes::from(line);
                    let task = self.post(Which::Request(id.clone()), &method, &mirrored, line.clone());
                    self.exchanges.insert(id, Exchange { method, line, mirrored, task, resume: None });
                }
            }
            Out::Initialized(line) => {
                self.awaits_initialized = true;
                self.word(Which::Initialized, line);
            }
            Out::Word(line) => self.word(Which::Word, line),
            Out::Over(_) | Out::Withdrawn(..) => {}
        }
    }

    fn word(&mut self, which: Which, line: Vec<u8>) {
        self.post(which, "", &[], Bytes::from(line));
    }

    /// Posts a message.
    fn post(
        &mut self,
        which: Which,
        method: &str,
        mirrored: &[(String, String)],
        line: Bytes,
    ) -> AbortHandle {
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        let is_stateless = self.dialogue.is_stateless() || method == Handshake::Discover.method();
        if is_stateless {
            headers.push((headers::METHOD.to_owned(), method.to_owned()));
            headers.extend_from_slice(mirrored);
        }
        self.identify(&mut headers, method);
        let url = match &self.way {
            Way::Sse(url) => url.clone(),
            Way::Streamable => None,
        };
        self.exchange(which, Ask { verb: Verb::Post, url, headers, body: Some(line) })
    }

    /// Opens a stream, or takes one up again.
    fn get(&mut self, which: Which, last_id: Option<String>) -> AbortHandle {
        let mut headers = vec![("accept".to_owned(), "text/event-stream".to_owned())];
        headers.extend(last_id.map(|id| ("last-event-id".to_owned(), id)));
        self.identify(&mut headers, "");
        self.exchange(which, Ask { verb: Verb::Get, url: None, headers, body: None })
    }

    /// Says which revision is spoken, and in which session.
    fn identify(&self, headers: &mut Vec<(String, String)>, method: &str) {
        let revision = match (&self.dialogue.session, method) {
            (Some(session), _) => Some(session.revision),
            (None, "server/discover") => Some(Revision::V2026July),
            (None, _) => None,
        };
        // A server of 2024-11-05 knows no such header, and need not like it.
        let told = revision.filter(|_| matches!(self.way, Way::Streamable));
        headers.extend(told.map(|revision| (headers::REVISION.to_owned(), revision.name().to_owned())));
        headers.extend(self.session.iter().map(|session| (headers::SESSION.to_owned(), session.clone())));
    }

    fn exchange(&mut self, which: Which, ask: Ask) -> AbortHandle {
        let (connection, speaker) = (self.connection.clone(), self.speaker.clone());
        let limit = self.dialogue.limits.request_timeout;
        let is_word = matches!(which, Which::Word | Which::Initialized);
        self.tasks.spawn(async move {
            let told = (
                which.clone(),
                Said::Closed(Close::Failed(HttpError::Broken("no answer in time".to_owned()))),
            );
            let exchange = exchange(connection, ask, which, speaker.clone());
            if !is_word {
                exchange.await;
            } else if timeout(limit, exchange).await.is_err() {
                // Nobody's deadline ends these.
                let _gone = speaker.send(told).await;
            }
        })
    }

    /// The request has its outcome. Its stream may end by itself.
    fn over(&mut self, id: &Id) {
        self.repeated.remove(id);
        if let Some(exchange) = self.exchanges.remove(id) {
            self.lingering.push_back((Instant::now() + LINGER, exchange.task));
        }
    }

    /// Nobody waits any more. Closing the stream says so where there is no session; else it has to be said.
    fn withdrawn(&mut self, id: &Id, why: &str) {
        self.repeated.remove(id);
        if let Some(exchange) = self.exchanges.remove(id) {
            exchange.task.abort();
            if !self.dialogue.is_stateless() && !self.dialogue.is_shaking() {
                self.word(Which::Word, conversation::cancelled(id, why));
            }
        }
    }

    fn hear(&mut self, which: Which, said: Said) {
        match said {
            Said::Opened(session) => self.opened(&which, session),
            Said::Event(event) => self.event(&which, event),
            Said::Closed(close) => match which {
                Which::Request(id) if self.dialogue.awaits(&id) => self.closed(&id, close),
                Which::Request(_) => {}
                Which::Stream => self.stream_closed(close),
                Which::Initialized => self.initialized(close),
                Which::Word => self.word_closed(close),
            },
        }
    }

    fn opened(&mut self, which: &Which, session: Option<String>) {
        match which {
            Which::Request(id) if self.dialogue.of_handshake(id) == Some(Handshake::Initialize) => {
                self.session = session;
            }
            Which::Stream => {
                if let Some(stream) = &mut self.stream {
                    (stream.is_open, stream.retry) = (true, RETRY);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, which: &Which, event: Event) {
        self.dialogue.alive();
        match (event, which) {
            (Event::Message(message), _) => {
                self.dialogue.line(Line::Whole(&unhang_wire::one_line(&message)));
            }
            (Event::Oversized(length), Which::Request(id)) => {
                let name = self.dialogue.name.clone();
                let limit = self.dialogue.limits.max_message;
                let happened = |method: &str| {
                    format!("`{name}` answered `{method}` with {length} bytes, over the limit of {limit}")
                };
                self.dialogue.fail(id, Kind::TooLarge, happened, TOO_LARGE);
            }
            (Event::Oversized(length), _) => {
                tracing::warn!(
                    "`{}` said {length} bytes at once, over the limit; they were dropped",
                    self.dialogue.name
                );
            }
            (Event::Endpoint(reference), Which::Stream) if matches!(self.way, Way::Sse(None)) => {
                match self.connection.resolve(&reference) {
                    Ok(url) => self.way = Way::Sse(Some(url)),
                    Err(error) => self.lose(Kind::BadResponse, &format!("gave no place to post to: {error}")),
                }
            }
            (Event::Endpoint(_), _) => {}
        }
    }

    /// The server has taken the end of the handshake, or has not; other requests go out either way, for it may still answer them.
    fn initialized(&mut self, close: Close) {
        self.awaits_initialized = false;
        self.word_closed(close);
        if matches!(self.way, Way::Streamable) && self.stream.is_none() {
            let task = self.get(Which::Stream, None);
            self.stream = Some(Stream { task, is_open: false, again: None, retry: RETRY });
        }
    }

    fn word_closed(&mut self, close: Close) {
        match close {
            Close::Refused(status, _) => {
                tracing::warn!(
                    "`{}` refused a notification or an answer with HTTP {status}",
                    self.dialogue.name
                );
            }
            Close::Failed(error) | Close::Broke(error, _) => {
                tracing::warn!("a notification or an answer did not reach `{}`: {error}", self.dialogue.name);
            }
            Close::Ended(_) | Close::NoMessage(_) => {}
        }
    }

    fn stream_closed(&mut self, close: Close) {
        let Some(stream) = &mut self.stream else { return };
        if let Way::Sse(place) = &self.way {
            let what = match (place, self.dialect) {
                (Some(_), _) => "has ended the stream on which it answers",
                (None, Some(_)) => "opens no stream",
                (None, None) => "speaks neither Streamable HTTP nor the old HTTP+SSE",
            };
            let why = format!("{what}: {}", close.told());
            return self.lose(Kind::ServerExited, &why);
        }
        let place = match close {
            // It has none to offer, which it may.
            Close::Refused(..) | Close::NoMessage(_) if !stream.is_open => {
                self.stream = None;
                return;
            }
            Close::Ended(place) | Close::Broke(_, place) => place,
            _ => None,
        };
        let wait = place.as_ref().and_then(|place| place.retry).unwrap_or(stream.retry).max(LEAST_RETRY);
        stream.retry = (stream.retry * 2).min(MOST_RETRY);
        stream.again = Some((Instant::now() + wait, place.map(|place| place.last_id)));
    }

    /// The connection is of no use any more.
    fn lose(&mut self, kind: Kind, why: &str) {
        let kind =
            if self.dialogue.is_shaking() && kind == Kind::ServerExited { Kind::StartFailed } else { kind };
        let happened = format!("`{}` {why}", self.dialogue.name);
        let failure = self.dialogue.failure(kind, happened, "see whether it runs, and its log");
        self.dialogue.end(failure);
    }

    /// An exchange has ended, and its request is still unanswered.
    fn closed(&mut self, id: &Id, close: Close) {
        let is_posted_elsewhere = matches!(self.way, Way::Sse(Some(_)));
        match close {
            // Its answer comes on the stream.
            Close::Ended(_) | Close::NoMessage(_) if is_posted_elsewhere => {}
            Close::Ended(Some(place)) | Close::Broke(_, Some(place))
                if !self.dialogue.is_stateless() && stands("broken-stream-resumed") =>
            {
                self.resume(id, place);
            }
            Close::Refused(404, _) if self.session.is_some() && self.may_repeat(id) => self.renew(id),
            Close::Refused(status @ (400 | 404 | 405), _) if self.may_be_old(id) => {
                tracing::debug!("`{}` answers HTTP {status}; perhaps it speaks HTTP+SSE", self.dialogue.name);
                self.try_old(id);
            }
            Close::Refused(status, told) => self.refused(id, status, &told),
            close => {
                let is_away = matches!(close, Close::Failed(HttpError::Unreachable(_)));
                let (kind, hint) = close.verdict(self.dialogue.session.is_none());
                let (name, why) = (self.dialogue.name.clone(), close.told());
                let happened = |method: &str| match is_away {
                    true => format!("`{name}` could not be reached: {why}"),
                    false => format!("`{name}` gave no answer to `{method}`: {why}"),
                };
                self.dialogue.fail(id, kind, happened, hint);
            }
        }
    }

    fn resume(&mut self, id: &Id, place: Place) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            let wait = place.retry.unwrap_or(RETRY).max(LEAST_RETRY);
            exchange.resume = Some((Instant::now() + wait, place.last_id));
        }
    }

    fn may_repeat(&self, id: &Id) -> bool {
        !self.repeated.contains(id)
            && self.dialogue.of_handshake(id).is_none()
            && stands("forgotten-session-renewed")
    }

    /// The server has forgotten the session, and so has not carried the request out: both are begun anew.
    fn renew(&mut self, id: &Id) {
        if let Some(exchange) = self.exchanges.remove(id) {
            let Exchange { method, line, mirrored, .. } = exchange;
            self.held.push_back(Out::Request { id: id.clone(), method, line: line.into(), mirrored });
            self.repeated.insert(id.clone());
        }
        if !self.dialogue.is_shaking() {
            tracing::info!("`{}` has forgotten the session, and is asked for another", self.dialogue.name);
            self.session = None;
            if let Some(stream) = self.stream.take() {
                stream.task.abort();
            }
            self.dialogue.begin(Handshake::Initialize);
        }
    }

    /// Whether the server may be one of HTTP+SSE that refuses what it does not know.
    fn may_be_old(&self, id: &Id) -> bool {
        let is_handshake = self.dialogue.of_handshake(id) == Some(Handshake::Initialize);
        is_handshake
            && self.dialect.is_none()
            && matches!(self.way, Way::Streamable)
            && self.session.is_none()
    }

    fn try_old(&mut self, id: &Id) {
        self.open_old_stream();
        if let Some(Exchange { method, line, mirrored, .. }) = self.exchanges.remove(id) {
            self.held.push_back(Out::Request { id: id.clone(), method, line: line.into(), mirrored });
        }
    }

    fn open_old_stream(&mut self) {
        self.way = Way::Sse(None);
        let task = self.get(Which::Stream, None);
        self.stream = Some(Stream { task, is_open: false, again: None, retry: RETRY });
    }

    /// The server refuses a request: with an error of its own in the body, or with a status alone.
    fn refused(&mut self, id: &Id, status: u16, told: &[u8]) {
        let name = self.dialogue.name.clone();
        if let Some(error) = error_member(told).filter(|_| !matches!(status, 401 | 403)) {
            return self.dialogue.complete(id, |_, call| {
                Error::Server(Box::new(ServerError::read(&name, &call.method, &error)))
            });
        }
        let is_probe = self.dialogue.of_handshake(id) == Some(Handshake::Discover);
        let (kind, hint) = match status {
            401 | 403 => (Kind::StartFailed, "log in, or give it the header that it wants"),
            // Servers of old answer what they do not know with anything.
            _ if is_probe => (Kind::BadResponse, "see whether it is an MCP server"),
            404 | 405 => (Kind::StartFailed, "check the path of its URL"),
            500.. => (Kind::ServerExited, "try again later, or see its log"),
            _ => (Kind::BadResponse, "see whether it is an MCP server"),
        };
        let words = in_short(told);
        let happened = |method: &str| format!("`{name}` answered `{method}` with HTTP {status}{words}");
        self.dialogue.fail(id, kind, happened, hint);
    }

    /// Nobody waits any more, and everybody may know that it has gone.
    async fn finish(mut self) {
        self.tasks.abort_all();
        if let Some(session) = self.session.take() {
            let mut headers = vec![(headers::SESSION.to_owned(), session)];
            self.identify(&mut headers, "");
            let ask = Ask { verb: Verb::Delete, url: None, headers, body: None };
            // A server need not know how to, and has its own ways to forget.
            let _told = timeout(self.dialogue.limits.stop_grace, self.connection.ask(ask)).await;
        }
        self.dialogue.gone();
    }
}
