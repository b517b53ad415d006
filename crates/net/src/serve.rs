//! Clients that come over HTTP: their connections, each with an end to every wait.
//!
//! Invariants
//!
//! - A client that is slow with the head of a request, or takes nothing of its answer, loses its connection; it costs no other
//!   client anything meanwhile. The same goes for who is slow with the handshake of TLS, or says something else in its place.
//! - There are at most so many connections at a time; further ones wait in the system's own queue. Of one address there are at most
//!   so many; further ones end at once, for in the queue they would stand before those of others. Where there is no room, connections on
//!   which nobody has asked for anything, or has shown that they may, make room first.
//! - To a socket among the files processes of our own user can come, and no others: the kernel is asked whose they are.
//! - Once the end has come, nothing new is accepted, and each connection ends with the answer that it is at.
//! - To a socket among the files everybody comes with one request, and whoever has come before the end is heard: so that those who
//!   meet with nobody there, or are told that they were not taken, can ask somebody else without doing anything twice.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

pub use axum;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_service::Service;
use unhang_switches::stands;

use crate::{
    connection_shares::{ConnectionCounts, ConnectionShare, is_one},
    silent_connections::{SILENCE, SilentConnections, UnprovenConnection},
    tls::Acceptor,
    write_deadline::WriteDeadline,
};

/// How long nothing is accepted after the system had nothing to give: descriptors come back when others end.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Bytes that a connection reads ahead at most, and so the longest head of a request: enough to read large bodies fast, and little where
/// thousands of connections wait.
const READ_AHEAD: usize = 64 << 10;

/// How long somebody who has come to a socket among the files may take, at the end, to begin to ask.
const LAST_HEAD: Duration = Duration::from_millis(500);

/// Who asks; an extension of each request to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// Somebody at this address.
    Network(SocketAddr),
    /// A process that may open our socket.
    Local {
        /// Its number, where the system tells.
        process: Option<i32>,
        /// The number of the user whose it is, where the system tells.
        user: Option<u32>,
    },
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Network(address) => address.fmt(formatter),
            PeerAddress::Local { .. } => formatter.write_str("a process of this machine"),
        }
    }
}

/// What makes a socket among the files be found.
pub type Claim = Box<dyn Send + Sync>;

/// Where clients come.
pub enum HttpListener {
    /// To a port.
    Network(TcpListener),
    /// To a socket among the files. By the claim they find it; it is dropped when nobody is to come any more. Without one the socket is
    /// somebody else's, who keeps it open: whoever has come and was not accepted is heard by whoever serves there next.
    Local(UnixListener, Option<Claim>),
}

impl From<TcpListener> for HttpListener {
    fn from(listener: TcpListener) -> Self {
        HttpListener::Network(listener)
    }
}

/// A connection that has come.
enum IncomingStream {
    Network(TcpStream, SocketAddr),
    Local(UnixStream),
}

impl HttpListener {
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<IncomingStream>> {
        match self {
            HttpListener::Network(listener) => listener
                .poll_accept(context)
                .map_ok(|(stream, address)| IncomingStream::Network(stream, address)),
            HttpListener::Local(listener, _) => {
                listener.poll_accept(context).map_ok(|(stream, _)| IncomingStream::Local(stream))
            }
        }
    }
}

/// Where a connection is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Who asks.
    pub peer: PeerAddress,
    /// The address of ours that it came to, over the network. Where we listen at all addresses, it tells which.
    pub arrived: Option<SocketAddr>,
    /// Whether TLS is spoken with them.
    pub speaks_tls: bool,
}

/// On an answer, as an extension: whoever asked has not shown that they may, where that is wanted. A connection on which nobody has is
/// as one on which nobody has asked for anything.
#[derive(Clone, Copy, Debug)]
pub struct UnprovenClient;

/// Who answers what is asked.
pub trait HttpHandler: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, from: Origin, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

impl HttpHandler for Router {
    async fn answer(&self, from: Origin, mut request: Request<Body>) -> Response {
        request.extensions_mut().insert(from.peer);
        // A router is ready at any time, and answers everything.
        self.clone().call(request).await.unwrap_or_else(|never| match never {})
    }
}

/// What connections are limited by.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Those of one address; of IPv6 the network counts, of which one machine has as many addresses as it likes.
    pub of_one: usize,
    /// For how long a connection may be idle, or take for the head of a request; and how long a handshake of TLS may take.
    pub head: Duration,
    /// For how long a client may take nothing of what is sent to it.
    pub deaf: Duration,
}

/// Serves whoever comes to any of these until `ending` says that it is over, and then those who are there until they have their answers.
/// While there is an acceptor TLS is all that is spoken over the network; those who are there go on as they began.
pub async fn serve(
    listeners: Vec<HttpListener>,
    handler: impl HttpHandler,
    bounds: ConnectionLimits,
    tls: watch::Receiver<Option<Acceptor>>,
    mut ending: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(bounds.connections));
    let counts = ConnectionCounts::default();
    let silent = SilentConnections::default();
    let mut connections = JoinSet::new();
    let is_over = ending.clone();
    let mut turn = 0;
    loop {
        tokio::select! {
            _over_or_gone = ending.wait_for(|ending| *ending) => break,
            Some(_) = connections.join_next() => {}
            (stream, permit) = next(&listeners, turn, &room, &silent) => {
                turn += 1;
                let address = match &stream {
                    IncomingStream::Network(_, peer) => Some(peer.ip()),
                    IncomingStream::Local(_) => None,
                };
                let connection_share = match address {
                    Some(address) => take_share(&counts, &silent, address, bounds.of_one).map(Some),
                    None => Some(None),
                };
                let Some(connection_share) = connection_share else {
                    tracing::info!("one who has {} connections already gets no other", bounds.of_one);
                    continue;
                };
                let (handler, is_over, tls) = (handler.clone(), is_over.clone(), tls.borrow().clone());
                let newcomer = Arc::new(silent.enter(address));
                connections.spawn(async move {
                    let _held = (permit, connection_share);
                    match stream {
                        IncomingStream::Network(stream, peer) => {
                            adjust(&stream, bounds);
                            over_network(stream, peer, handler, bounds, tls, newcomer, is_over).await;
                        }
                        IncomingStream::Local(stream) => among_the_files(stream, handler, bounds, newcomer, is_over).await,
                    }
                });
            }
        }
    }
    for listener in listeners {
        if let HttpListener::Local(listener, Some(claim)) = listener {
            for stream in last(listener, claim) {
                let newcomer = Arc::new(silent.enter(None));
                connections.spawn(among_the_files(
                    stream,
                    handler.clone(),
                    bounds,
                    newcomer,
                    is_over.clone(),
                ));
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Room for one more connection. Cancel-safe.
async fn permit(room: &Arc<Semaphore>, silent: &SilentConnections) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
            return Some(permit);
        }
        silent.send_away(|_| true, true);
        // Whoever is silent for too short a time now is not then.
        if let Ok(permit) = timeout(SILENCE, Arc::clone(room).acquire_owned()).await {
            return permit.ok();
        }
    }
}

/// Counts one more connection of this address; none where it has its share, and all who have it ask for something.
fn take_share(
    counts: &ConnectionCounts,
    silent: &SilentConnections,
    address: IpAddr,
    share: usize,
) -> Option<ConnectionShare> {
    counts.take_share(address, share).or_else(|| {
        // That one ends in a moment, so that there is one too many for no longer.
        let has_gone = silent.send_away(|other| is_one(other, address), false);
        has_gone.then(|| counts.take_share(address, usize::MAX)).flatten()
    })
}

/// The next connection, once there is room for it. Where many come to several listeners, each has its turn. Cancel-safe.
async fn next(
    listeners: &[HttpListener],
    turn: usize,
    room: &Arc<Semaphore>,
    silent: &SilentConnections,
) -> (IncomingStream, Option<OwnedSemaphorePermit>) {
    // It is never closed.
    let permit = match stands("connections-bounded") {
        true => permit(room, silent).await,
        false => None,
    };
    let (before, from) = listeners.split_at(turn.checked_rem(listeners.len()).unwrap_or_default());
    loop {
        let accepted = poll_fn(|context| {
            let ready = |listener: &HttpListener| match listener.poll_accept(context) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            };
            from.iter().chain(before).find_map(ready).map_or(Poll::Pending, Poll::Ready)
        });
        match accepted.await {
            Ok(stream) => return (stream, permit),
            Err(error) if is_of_one(&error) => {}
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                sleep(NO_ROOM).await;
            }
        }
    }
}

/// Those who had come to a socket among the files before it was gone.
fn last(listener: UnixListener, claim: Claim) -> impl Iterator<Item = UnixStream> {
    drop(claim);
    // What tokio has not noticed yet counts as well.
    let listener = listener.into_std().ok();
    std::iter::from_fn(move || {
        let (stream, _) = listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        UnixStream::from_std(stream).ok()
    })
}

/// The trouble of one client, which had gone before we came.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Origin {
    /// Of somebody who has come to a socket among the files.
    fn among_the_files(stream: &UnixStream) -> Origin {
        let credentials = stream.peer_cred().ok();
        let process = credentials.and_then(|credentials| credentials.pid());
        let user = credentials.map(|credentials| credentials.uid());
        Origin { peer: PeerAddress::Local { process, user }, arrived: None, speaks_tls: false }
    }
}

/// Talks to somebody who has come to a socket among the files, if it is us: nobody else is to come there, whatever the modes of the
/// socket and of its folder have become. The system has no clock for those who take nothing, so there is one here.
async fn among_the_files(
    stream: UnixStream,
    handler: impl HttpHandler,
    bounds: ConnectionLimits,
    newcomer: Arc<UnprovenConnection>,
    ending: watch::Receiver<bool>,
) {
    let from = Origin::among_the_files(&stream);
    if !may_come(from.peer, rustix::process::geteuid().as_raw()) {
        tracing::warn!("a process of another user came to our socket and was sent away: {:?}", from.peer);
        return;
    }
    talk(WriteDeadline::new(stream, bounds.deaf), from, handler, bounds, newcomer, ending).await;
}

/// Whether somebody at a socket among the files is of this user.
fn may_come(peer: PeerAddress, own: u32) -> bool {
    matches!(peer, PeerAddress::Local { user: Some(user), .. } if user == own)
}

/// What a connection over the network needs besides.
fn adjust(stream: &TcpStream, bounds: ConnectionLimits) {
    // Without either the connection works, if not as well.
    let _faster = stream.set_nodelay(true);
    if stands("deaf-connection-ends") {
        let user_timeout = u32::try_from(bounds.deaf.as_millis()).unwrap_or(u32::MAX);
        let _safer = rustix::net::sockopt::set_tcp_user_timeout(stream, user_timeout);
    }
}

/// Talks to somebody over the network, once the two have shaken hands where TLS is spoken.
async fn over_network(
    stream: TcpStream,
    peer: SocketAddr,
    handler: impl HttpHandler,
    bounds: ConnectionLimits,
    tls: Option<Acceptor>,
    newcomer: Arc<UnprovenConnection>,
    mut ending: watch::Receiver<bool>,
) {
    let arrived = stream.local_addr().ok();
    let from = Origin { peer: PeerAddress::Network(peer), arrived, speaks_tls: tls.is_some() };
    let Some(tls) = tls else { return talk(stream, from, handler, bounds, newcomer, ending).await };
    let limit = if stands("slow-handshake-ends") { bounds.head } else { Duration::MAX };
    let shaken = tokio::select! {
        shaken = timeout(limit, tls.accept(stream)) => shaken,
        () = newcomer.sent_away() => return,
        // There is no request yet that an answer could be waited for.
        _over_or_gone = ending.wait_for(|ending| *ending) => return,
    };
    match shaken {
        Ok(Ok(stream)) => talk(stream, from, handler, bounds, newcomer, ending).await,
        Ok(Err(error)) => tracing::info!("{peer} did not come to speak TLS with us: {error}"),
        Err(_) => tracing::info!("{peer} did not come to speak TLS with us within {limit:?}"),
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    from: Origin,
    handler: impl HttpHandler,
    bounds: ConnectionLimits,
    newcomer: Arc<UnprovenConnection>,
    mut ending: watch::Receiver<bool>,
) {
    let speaker = Arc::clone(&newcomer);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        speaker.speaks();
        let (handler, speaker) = (handler.clone(), Arc::clone(&speaker));
        async move {
            let answer = match head_length(&request) {
                0..=READ_AHEAD => handler.answer(from, request.map(Body::new)).await,
                // What comes in one piece may be longer than what is read ahead.
                _ => head_too_long(from.peer),
            };
            speaker.was_answered(answer.extensions().get::<UnprovenClient>().is_none());
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).max_buf_size(READ_AHEAD);
    if matches!(from.peer, PeerAddress::Local { .. }) {
        builder.keep_alive(false);
    }
    if stands("slow-head-ends") {
        builder.header_read_timeout(bounds.head);
    }
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut is_ending = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("the connection of {} broke: {error}", from.peer);
                }
                return;
            }
            () = newcomer.sent_away() => {
                if !newcomer.has_asked() {
                    tracing::info!("{} has asked for nothing, and made room for others", from.peer);
                    return;
                }
                tracing::info!("{} has shown no token, and made room for others", from.peer);
                // What it was answered it may still take.
                connection.as_mut().graceful_shutdown();
            }
            () = until_ending(&mut ending, from.peer), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// How long the head of a request is, as heads are usually written: blanks beyond that, and what stands behind `#`, are not told to us.
fn head_length<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let scheme = uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let line = request.method().as_str().len() + scheme + authority + path + "  HTTP/1.1\r\n".len();
    let field = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    line + request.headers().iter().map(field).sum::<usize>() + "\r\n".len()
}

fn head_too_long(peer: PeerAddress) -> Response {
    tracing::info!("{peer} was refused with 431: the head of its request is longer than {READ_AHEAD} bytes");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let why = format!("the head of a request has {READ_AHEAD} bytes at most\n");
    let mut response = (status, [(header::CONNECTION, "close")], why).into_response();
    response.extensions_mut().insert(UnprovenClient);
    response
}

/// The end, for whoever has come and may still be about to ask.
async fn until_ending(ending: &mut watch::Receiver<bool>, peer: PeerAddress) {
    // What it gives is not to be held over the next wait.
    let _over_or_gone = ending.wait_for(|ending| *ending).await.is_ok();
    if matches!(peer, PeerAddress::Local { .. }) {
        sleep(LAST_HEAD).await;
    }
}

#[cfg(test)]
mod tests;
