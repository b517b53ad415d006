//! The actor of a server over HTTP: Streamable HTTP in all its revisions, and the HTTP+SSE of 2024-11-05.
//!
//! # Theory of operation
//!
//! Each message to the server is a POST, and a task (`exchange`). The answers of exchanges are messages of the server, whichever request
//! they came with: they are matched by their ids as everywhere. The actor finds out the era as on stdio (`server/discover`, then
//! `initialize`). A server that refuses both with the status of a server without POST may speak the old HTTP+SSE: then the actor opens a
//! stream with GET, which says where to post.
//!
//! With a handshake there is a session, and its name goes along with each request. A stream of its own brings what the server says unasked.
//! A stream that breaks off before its answer is taken up again if the server gave its events ids. A session that the server has forgotten
//! (404) is begun anew, once for each request that met with that: the server did not carry it out. Without a handshake (2026-07-28) none of
//! that exists: a broken stream is a lost request, and closing the stream withdraws the request. A lost request that changes nothing
//! (lists, reads, pings) is sent once more: servers close idle connections just when a request is on its way.
//!
//! Invariants
//!
//! - The actor awaits nothing but the next event; each exchange ends with its request's deadline at the latest.
//! - A call is posted a second time only if the server has said that it did not take the first.
//! - A call that is left to another process ([`crate::call_stream`]) is not withdrawn, and its session is not deleted.
//! - At the end nothing of it is left. Exchanges are aborted, a server with a session is told that nobody waits, and the session is
//!   deleted, each within the time for stopping.

mod era_probe;
mod exchange;
pub mod headers;
mod hearing;
pub mod param_headers;
pub(crate) mod resumption;
mod verdict;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout},
};
use unhang_net::{
    http::{Address, Bytes, Connection, HttpError, HttpRequest, Url, Verb},
    oauth::Authorization,
};
use unhang_wire::{Id, compose};

use self::{
    era_probe::EraProbe,
    exchange::{Close, ExchangeEvent, ExchangeKind, exchange},
    resumption::WatchedStream,
};
use super::{
    Mailbox,
    handshake::HandshakeRequest as Handshake,
    upstream_session::{Outgoing, ReplyReservation, UpstreamConfig, UpstreamEvent, UpstreamSession},
};
use unhang_core::{fault::FaultKind, revision::Revision};

/// The transports of MCP over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpDialect {
    /// Streamable HTTP.
    Streamable,
    /// The old HTTP+SSE of 2024-11-05.
    Sse,
}

/// The capacity of the channel from the exchanges to the actor, which reads it at once.
const SAID: usize = 16;

/// The time that a stream gets to end after its answer, so that its connection can serve again.
const LINGER: Duration = Duration::from_secs(1);

/// The pause before a broken stream is taken up again if the server gives none, and the least pause, whatever the server says.
const RETRY: Duration = Duration::from_secs(1);
const LEAST_RETRY: Duration = Duration::from_millis(50);
/// The longest pause, for a stream that ends again and again without a word. A stream that has lasted as long counts as healthy.
const MOST_RETRY: Duration = Duration::from_secs(30);

/// The time for which requests wait until the server has taken the end of a legacy handshake. It should answer with 202 at once.
const INITIALIZED: Duration = Duration::from_secs(3);

/// The time for which requests wait until the stream for the server's questions is open. Some servers lose the questions that they ask
/// before, and wait for the answer for ever. Others do not even confirm the stream until they have something to say.
const LISTENING: Duration = Duration::from_secs(1);

/// The most requests with one server at the same time, each with a connection of its own; others wait, within their limits. A process has
/// some thousand descriptors for everything.
pub const REQUESTS: usize = 200;
/// The most notifications and answers with one server at the same time.
const WORDS: usize = 16;
/// The most notifications and answers that wait for their turn. Nothing holds back a server that asks for more, since the answers of other
/// requests come on the same way.
const WORDS_WAITING: usize = 1000;

/// A server over HTTP.
#[derive(Clone, Debug)]
pub struct HttpServer {
    /// The server's URL and headers.
    pub address: Address,
    /// The server's transport, if it is known.
    pub dialect: Option<HttpDialect>,
    /// The server's tokens, if it wants some.
    pub authorization: Option<Authorization>,
}

/// Talks with the server until it is told to end.
pub(crate) async fn live(server: HttpServer, config: UpstreamConfig, mailbox: Mailbox) {
    if let Some((mut actor, said)) = connected(&server, (config, mailbox), |_| {}) {
        actor.begin();
        run(actor, said).await;
    }
}

/// Makes the actor of a server, whose session `begin` prepares. Ends the session with the reason and returns `None` if the address or the
/// headers of the server cannot be used.
fn connected(
    server: &HttpServer,
    (config, mailbox): (UpstreamConfig, Mailbox),
    begin: impl FnOnce(&mut UpstreamSession),
) -> Option<(HttpActor, mpsc::Receiver<(ExchangeKind, ExchangeEvent)>)> {
    let connection =
        Connection::new(&server.address, server.authorization.clone(), config.limits.max_message);
    let mut upstream_session = UpstreamSession::new(config, mailbox, unhang_proc::drain::Tail::new(0));
    upstream_session.is_remote = true;
    upstream_session.bound_replies(WORDS_WAITING);
    if server.address.socket.is_some() {
        upstream_session.asks_for_windows();
    }
    begin(&mut upstream_session);
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => {
            let happened = format!("`{}` could not be reached: {error}", upstream_session.name);
            let failure =
                upstream_session.failure(FaultKind::StartFailed, happened, "fix its url or its headers");
            upstream_session.end(failure);
            upstream_session.gone();
            return None;
        }
    };
    let (speaker, said) = mpsc::channel(SAID);
    Some((HttpActor::new(server, connection, upstream_session, speaker), said))
}

/// Talks with the server until the session ends.
async fn run(mut actor: HttpActor, mut said: mpsc::Receiver<(ExchangeKind, ExchangeEvent)>) {
    loop {
        actor.send();
        if actor.upstream_session.is_ending {
            break;
        }
        let also = actor.next_look();
        tokio::select! {
            event = actor.upstream_session.next(also) => actor.attend(event),
            Some((which, said)) = said.recv() => actor.hear(which, said),
            // The exchange has said how it ended; nobody waits for one that was aborted.
            Some(_) = actor.tasks.join_next(), if !actor.tasks.is_empty() => {}
            Some(_) = actor.words.join_next(), if !actor.words.is_empty() => {}
        }
    }
    // From now on nobody hears the exchanges, and none waits for the channel.
    drop(said);
    actor.finish().await;
}

/// The way of messages to the server.
#[derive(Debug)]
enum HttpTransport {
    /// Each message is a POST to the server's own URL.
    Streamable,
    /// Messages are posted to the URL that the stream names, once it has; all answers come on the stream (2024-11-05).
    Sse(Option<Url>),
}

/// A request that is with the server.
struct Exchange {
    method: Box<str>,
    line: Bytes,
    mirrored: Vec<(String, String)>,
    task: AbortHandle,
    /// The session that the request belongs to.
    session: Option<String>,
    /// The request's stream has broken off, and is taken up again from there.
    broken: Option<BrokenStream>,
    /// The request was lost, and is with the server once more.
    is_repeated: bool,
    /// The answer to another request came on this request's stream.
    is_crossed: bool,
    /// The request is of another process, and was never posted by this one.
    is_resumed: bool,
    /// The listener that hears of the stream, if there is one.
    watched: Option<WatchedStream>,
}

/// The point at which the stream of a request has broken off.
struct BrokenStream {
    last_id: String,
    retry: Duration,
    /// The time at which the stream is taken up again; `None` while it is.
    at: Option<Instant>,
    /// The attempts in a row at which the server could not be asked.
    vain: u32,
}

/// The stream on which the server speaks unasked.
struct ListeningStream {
    number: u64,
    task: AbortHandle,
    /// The time at which it was opened, while it is open.
    open: Option<Instant>,
    has_been_open: bool,
    /// The time at which it is opened again.
    at: Option<Instant>,
    last_id: Option<String>,
    /// The least pause before that. It grows each time that the stream has ended with nothing said.
    pause: Duration,
}

struct HttpActor {
    upstream_session: UpstreamSession,
    dialect: Option<HttpDialect>,
    address: String,
    connection: Connection,
    way: HttpTransport,
    /// The name of the session, if the server has given one.
    session: Option<String>,
    exchanges: HashMap<Id, Exchange>,
    /// Messages that wait for the handshake, or for the URL to post to.
    held: VecDeque<Outgoing>,
    /// Requests that met with a session that the server had forgotten.
    repeated: HashSet<Id>,
    /// The probes that find out whether the server still speaks as it did.
    era_probe: EraProbe,
    /// A legacy handshake is not over before the server has taken `notifications/initialized`.
    awaits_initialized: bool,
    /// The time until which requests wait at most for the stream to be open.
    listens_by: Option<Instant>,
    stream: Option<ListeningStream>,
    /// The number of streams so far.
    streams: u64,
    /// Streams that have brought their answer.
    lingering: VecDeque<(Instant, AbortHandle)>,
    tasks: JoinSet<()>,
    /// Notifications and answers, which are still delivered when everything else ends.
    words: JoinSet<()>,
    requests_at_once: Arc<Semaphore>,
    words_at_once: Arc<Semaphore>,
    speaker: mpsc::Sender<(ExchangeKind, ExchangeEvent)>,
    /// The number of notifications and answers that did not reach the server.
    lost_words: u64,
    /// Whether the session is deleted at the end: no other process needs it.
    deletes_session: Arc<AtomicBool>,
}

impl HttpActor {
    fn new(
        server: &HttpServer,
        connection: Connection,
        upstream_session: UpstreamSession,
        speaker: mpsc::Sender<(ExchangeKind, ExchangeEvent)>,
    ) -> Self {
        Self {
            address: server.address.shown(),
            dialect: server.dialect,
            way: HttpTransport::Streamable,
            session: None,
            exchanges: HashMap::new(),
            held: VecDeque::new(),
            repeated: HashSet::new(),
            era_probe: EraProbe::default(),
            awaits_initialized: false,
            listens_by: None,
            stream: None,
            streams: 0,
            lingering: VecDeque::new(),
            tasks: JoinSet::new(),
            words: JoinSet::new(),
            requests_at_once: Arc::new(Semaphore::new(REQUESTS)),
            words_at_once: Arc::new(Semaphore::new(WORDS)),
            upstream_session,
            connection,
            speaker,
            lost_words: 0,
            deletes_session: Arc::new(AtomicBool::new(true)),
        }
    }

    fn begin(&mut self) {
        tracing::debug!("connecting to {}", self.address);
        if self.dialect == Some(HttpDialect::Sse) {
            self.open_old_stream();
            self.upstream_session.begin(Handshake::Initialize);
        } else {
            self.upstream_session.greet();
        }
    }

    /// Returns when this actor has to be woken, whatever the session waits for; `None` if it need not be.
    fn next_look(&self) -> Option<Instant> {
        let resumed = self.exchanges.values().filter_map(|exchange| exchange.broken.as_ref()?.at);
        let stream = self.stream.as_ref().and_then(|stream| stream.at);
        let lingering = self.lingering.front().map(|(until, _)| *until);
        resumed.chain(stream).chain(lingering).chain(self.listens_by).min()
    }

    fn attend(&mut self, event: UpstreamEvent) {
        let is_time = matches!(event, UpstreamEvent::Time);
        let is_answered = matches!(event, UpstreamEvent::Answered(_));
        self.upstream_session.attend(event, 0);
        if is_answered && !self.upstream_session.is_asked() {
            self.exchanges
                .values_mut()
                .filter_map(|exchange| exchange.watched.as_mut())
                .for_each(WatchedStream::release);
        }
        if is_time {
            self.look(Instant::now());
        }
    }

    /// Does everything that is due.
    fn look(&mut self, now: Instant) {
        self.listens_by = self.listens_by.filter(|by| *by > now);
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, task)) = self.lingering.pop_front() {
                task.abort();
            }
        }
        let is_due = |at: &mut Instant| *at <= now;
        let due: Vec<(Id, String)> = self
            .exchanges
            .iter_mut()
            .filter_map(|(id, exchange)| {
                let broken = exchange.broken.as_mut()?;
                broken.at.take_if(is_due).map(|_| (id.clone(), broken.last_id.clone()))
            })
            .collect();
        for (id, last_id) in due {
            let task = self.get(ExchangeKind::Request(id.clone()), Some(last_id));
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.task = task;
            }
        }
        let again = self.stream.as_mut().and_then(|stream| {
            stream.at.take_if(is_due)?;
            Some((stream.number, stream.last_id.clone()))
        });
        if let Some((number, last_id)) = again {
            let task = self.get(ExchangeKind::Stream(number), last_id);
            if let Some(stream) = &mut self.stream {
                stream.task = task;
            }
        }
    }

    /// Sends the session's messages, as far as they can be sent now.
    fn send(&mut self) {
        while let Some(out) = self.upstream_session.next_out() {
            match out {
                Outgoing::Over(id) => self.end_exchange(&id),
                Outgoing::Withdrawn(id, why) => self.withdrawn(&id, why),
                out if self.is_held(&out) => self.held.push_back(out),
                out => self.say(out),
            }
        }
        let held = std::mem::take(&mut self.held);
        for out in held {
            if self.is_held(&out) { self.held.push_back(out) } else { self.say(out) }
        }
    }

    /// Returns whether this has to wait: for the handshake, or for the URL to post it to.
    fn is_held(&self, out: &Outgoing) -> bool {
        if matches!(self.way, HttpTransport::Sse(None)) {
            return true;
        }
        match out {
            Outgoing::Request { id, .. } if self.upstream_session.of_handshake(id).is_some() => false,
            Outgoing::Initialized(_) => false,
            Outgoing::Request { .. } if self.listens_by.is_some() => true,
            _ => self.upstream_session.is_shaking() || self.awaits_initialized,
        }
    }

    fn say(&mut self, out: Outgoing) {
        match out {
            Outgoing::Request { id, method, line, mirrored } => {
                // The caller may have stopped waiting while the request was held.
                if self.upstream_session.awaits(&id) {
                    let line = Bytes::from(line);
                    let task = self.post(ExchangeKind::Request(id.clone()), &method, &mirrored, line.clone());
                    let session = self.session.clone();
                    let watched = self.watched(&id);
                    let exchange = Exchange {
                        method,
                        line,
                        mirrored,
                        task,
                        session,
                        broken: None,
                        is_repeated: false,
                        is_crossed: false,
                        is_resumed: false,
                        watched,
                    };
                    self.exchanges.insert(id, exchange);
                }
            }
            Outgoing::Initialized(line) => {
                self.awaits_initialized = true;
                self.word(ExchangeKind::Initialized, line, None);
            }
            Outgoing::RootsChanged(line) => self.word(ExchangeKind::Word, line, None),
            Outgoing::Reply(line, room) => self.word(ExchangeKind::Word, line, Some(room)),
            Outgoing::Over(_) | Outgoing::Withdrawn(..) | Outgoing::Repeats { .. } => {}
        }
    }

    fn word(&mut self, which: ExchangeKind, line: Vec<u8>, room: Option<ReplyReservation>) {
        let ask = self.posted("", &[], Bytes::from(line));
        self.exchange(which, ask, room);
    }

    fn open_old_stream(&mut self) {
        self.way = HttpTransport::Sse(None);
        self.open_stream();
    }

    fn open_stream(&mut self) {
        self.streams += 1;
        let number = self.streams;
        let task = self.get(ExchangeKind::Stream(number), None);
        self.stream = Some(ListeningStream {
            number,
            task,
            open: None,
            has_been_open: false,
            at: None,
            last_id: None,
            pause: Duration::ZERO,
        });
    }

    /// Posts a message.
    fn post(
        &mut self,
        which: ExchangeKind,
        method: &str,
        mirrored: &[(String, String)],
        line: Bytes,
    ) -> AbortHandle {
        let ask = self.posted(method, mirrored, line);
        self.exchange(which, ask, None)
    }

    fn posted(&self, method: &str, mirrored: &[(String, String)], line: Bytes) -> HttpRequest {
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        let is_stateless = self.upstream_session.is_stateless() || method == Handshake::Discover.method();
        if is_stateless && method != Handshake::Initialize.method() {
            headers.push((headers::METHOD.to_owned(), method.to_owned()));
            headers.extend_from_slice(mirrored);
        }
        self.identify(&mut headers, method);
        let url = match &self.way {
            HttpTransport::Sse(url) => url.clone(),
            HttpTransport::Streamable => None,
        };
        HttpRequest { verb: Verb::Post, url, headers, body: Some(line) }
    }

    /// Opens a stream, or takes one up again.
    fn get(&mut self, which: ExchangeKind, last_id: Option<String>) -> AbortHandle {
        let mut headers = vec![("accept".to_owned(), "text/event-stream".to_owned())];
        headers.extend(last_id.map(|id| ("last-event-id".to_owned(), id)));
        self.identify(&mut headers, "");
        self.exchange(which, HttpRequest { verb: Verb::Get, url: None, headers, body: None }, None)
    }

    /// Adds the headers that name the revision and the session.
    fn identify(&self, headers: &mut Vec<(String, String)>, method: &str) {
        // A probe sends these as somebody who has no session.
        let is_discovery = method == Handshake::Discover.method();
        let is_greeting = is_discovery || method == Handshake::Initialize.method();
        let session = self.upstream_session.session.as_ref().filter(|_| !is_greeting);
        let revision = match is_discovery {
            true => Some(Revision::V2026July),
            false => session.map(|session| session.revision),
        };
        // A server of 2024-11-05 does not know this header, and need not accept it.
        let told = revision.filter(|_| matches!(self.way, HttpTransport::Streamable));
        headers.extend(told.map(|revision| (headers::REVISION.to_owned(), revision.name().to_owned())));
        let named = self.session.iter().filter(|_| !is_greeting);
        headers.extend(named.map(|session| (headers::SESSION.to_owned(), session.clone())));
    }

    /// Starts the task of an exchange. `room` is the room of a reply, until it has left.
    fn exchange(
        &mut self,
        which: ExchangeKind,
        ask: HttpRequest,
        room: Option<ReplyReservation>,
    ) -> AbortHandle {
        let (connection, speaker) = (self.connection.clone(), self.speaker.clone());
        let mut limit = self.upstream_session.limits.request_timeout;
        if which == ExchangeKind::Initialized {
            limit = limit.min(INITIALIZED);
        }
        let is_word = matches!(which, ExchangeKind::Word | ExchangeKind::Initialized);
        let turns = match &which {
            ExchangeKind::Request(id) if self.upstream_session.of_handshake(id).is_none() => {
                Some(&self.requests_at_once)
            }
            ExchangeKind::Word => Some(&self.words_at_once),
            _ => None,
        };
        let turns = turns.cloned();
        let tasks = if which == ExchangeKind::Word { &mut self.words } else { &mut self.tasks };
        tasks.spawn(async move {
            let _room = room;
            let _turn = match turns {
                // The semaphore is never closed.
                Some(turns) => turns.acquire_owned().await.ok(),
                None => None,
            };
            let told = (
                which.clone(),
                ExchangeEvent::Closed(Close::Failed(HttpError::Broken("no answer in time".to_owned()))),
            );
            let exchange = exchange(connection, ask, which, speaker.clone());
            if !is_word {
                exchange.await;
            } else if timeout(limit, exchange).await.is_err() {
                // No request's deadline ends these.
                let _gone = speaker.send(told).await;
            }
        })
    }

    /// Ends the exchange of a request that has its outcome. Its stream may still end by itself.
    fn end_exchange(&mut self, id: &Id) {
        self.repeated.remove(id);
        if let Some(exchange) = self.exchanges.remove(id) {
            if self.upstream_session.is_ending {
                // The outcome is that this client has ended.
                return self.tell_withdrawn(id, &exchange, "the client ends");
            }
            self.lingering.push_back((Instant::now() + LINGER, exchange.task));
        }
    }

    /// Ends the exchange of a request that nobody waits for any more. Closing the stream tells a stateless server; others get a
    /// notification.
    fn withdrawn(&mut self, id: &Id, why: &str) {
        self.repeated.remove(id);
        if let Some(exchange) = self.exchanges.remove(id) {
            self.tell_withdrawn(id, &exchange, why);
        }
    }

    fn tell_withdrawn(&mut self, id: &Id, exchange: &Exchange, why: &str) {
        exchange.task.abort();
        if exchange.watched.as_ref().is_some_and(WatchedStream::is_left) {
            // The process that resumes the stream needs the session.
            return self.deletes_session.store(false, Ordering::Relaxed);
        }
        let has_session =
            self.upstream_session.session.as_ref().is_some_and(|session| !session.revision.is_stateless());
        // A server that takes none of them does not need to know.
        if has_session && self.words.len() < WORDS_WAITING {
            self.word(ExchangeKind::Word, compose::cancelled(id, why), None);
        }
    }

    /// Ends all exchanges and the session, and tells every handle that the server has gone.
    async fn finish(mut self) {
        self.tasks.abort_all();
        let grace = self.upstream_session.limits.stop_grace;
        let words = async { while self.words.join_next().await.is_some() {} };
        // A notification that nobody waits any more may be on its way.
        let _said = timeout(grace, words).await;
        let deletes = self.deletes_session.load(Ordering::Relaxed);
        if let Some(session) = self.session.take().filter(|_| deletes) {
            let mut headers = vec![(headers::SESSION.to_owned(), session)];
            self.identify(&mut headers, "");
            let ask = HttpRequest { verb: Verb::Delete, url: None, headers, body: None };
            // A server need not support this, and has its own ways to forget.
            let _told = timeout(grace, self.connection.ask(ask)).await;
        }
        self.upstream_session.gone();
    }
}
