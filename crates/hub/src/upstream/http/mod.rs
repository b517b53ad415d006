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
mod hearing;
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
    oauth::Authorization,
};
use unhang_wire::Id;

use self::exchange::{Close, Said, Which, exchange};
use super::{
    Mailbox, conversation,
    dialogue::{Dialogue, Heard, Out, Spoken},
    handshake::Ask as Handshake,
};
use crate::{fault::Kind, revision::Revision, settings::HttpDialect};

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
#[derive(Clone, Debug)]
pub struct HttpServer {
    /// Where it is.
    pub address: Address,
    /// Which of the ways of HTTP it speaks, where that is known.
    pub dialect: Option<HttpDialect>,
    /// Its tokens, where it wants some.
    pub authorization: Option<Authorization>,
}

/// Speaks with the server until it is told to end.
pub(crate) async fn live(server: HttpServer, spoken: Spoken, mailbox: Mailbox) {
    let connection =
        Connection::new(&server.address, server.authorization.clone(), spoken.limits.max_message);
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

    fn open_old_stream(&mut self) {
        self.way = Way::Sse(None);
        let task = self.get(Which::Stream, None);
        self.stream = Some(Stream { task, is_open: false, again: None, retry: RETRY });
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
