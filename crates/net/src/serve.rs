//! Clients that come over HTTP: their connections, each with an end to every wait.
//!
//! Invariants
//!
//! - A client that is slow with the head of a request, or takes nothing of its answer, loses its connection; it costs no other client
//!   anything meanwhile. So does a client that is slow with the handshake of TLS, or says something else in its place.
//! - The number of connections at a time is bounded; further ones wait in the system's own queue. So is the number from one address;
//!   further ones end at once, for in the queue they would stand before those of others. If there is no room, connections on which nobody
//!   has asked for anything, or has shown that it may, make room first.
//! - Only processes of this process's own user can come to a Unix socket: the kernel says whose they are.
//! - Once the end has come, nothing new is accepted, and each connection ends with the answer that it is at.
//! - At a Unix socket each connection has one request, and every client that has come before the end is heard. So a client that meets
//!   nobody there, or is told that it was not taken, can ask another process without doing anything twice.

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

use crate::{
    connection_shares::{ConnectionCounts, ConnectionShare, is_one},
    silent_connections::{SILENCE, SilentConnections, UnprovenConnection},
    tls::Acceptor,
    write_deadline::WriteDeadline,
};

/// The pause after the system had no descriptor to give: they come back when other connections end.
const NO_ROOM: Duration = Duration::from_millis(100);

/// The most bytes that a connection reads ahead, and so the longest head of a request: enough to read large bodies fast, and little if
/// thousands of connections wait.
const READ_AHEAD: usize = 64 << 10;

/// The time that a client at a Unix socket gets, at the end, to begin its request.
const LAST_HEAD: Duration = Duration::from_millis(500);

/// The client that asks; an extension of each request to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A client at this address.
    Network(SocketAddr),
    /// A process that may open the Unix socket.
    Local {
        /// The process id, if the system tells.
        process: Option<i32>,
        /// The id of the process's user, if the system tells.
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

/// The claim by which clients find a Unix socket.
pub type Claim = Box<dyn Send + Sync>;

/// A listener to which clients come.
pub enum HttpListener {
    /// A TCP port.
    Network(TcpListener),
    /// A Unix socket. Clients find it by the claim, which is dropped when nobody is to come any more. Without a claim the socket belongs to
    /// another owner, who keeps it open: the next server at that socket hears the clients that were not accepted.
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

/// The origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client.
    pub peer: PeerAddress,
    /// The local address that the connection came to, over the network. If the listener has all addresses, this tells which.
    pub arrived: Option<SocketAddr>,
    /// Whether the connection speaks TLS.
    pub speaks_tls: bool,
}

/// An extension of an answer: the client has not shown that it may ask, if that is wanted. A connection on which no client has counts as
/// one on which nobody has asked for anything.
#[derive(Clone, Copy, Debug)]
pub struct UnprovenClient;

/// Answers requests.
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

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The most connections at a time.
    pub connections: usize,
    /// The most connections of one address. Of IPv6 the network counts, because one machine has as many addresses in it as it likes.
    pub of_one: usize,
    /// The time for which a connection may be idle, or take for the head of a request or for the handshake of TLS.
    pub head: Duration,
    /// The time for which a client may take nothing of what is sent to it.
    pub deaf: Duration,
}

/// Serves all clients of these listeners until `ending` is true, and then the clients that are there until they have their answers. While
/// there is an acceptor, new connections over the network speak TLS alone; earlier ones go on as they began.
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
                    tracing::info!("unhang refused a connection from an address that already has {} connections", bounds.of_one);
                    continue;
                };
                let (handler, is_over, tls) = (handler.clone(), is_over.clone(), tls.borrow().clone());
                let newcomer = Arc::new(silent.enter(address));
                connections.spawn(async move {
                    let _held = (permit, connection_share);
                    match stream {
                        IncomingStream::Network(stream, peer) => {
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

/// Waits for room for one more connection. Cancel-safe.
async fn permit(room: &Arc<Semaphore>, silent: &SilentConnections) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
            return Some(permit);
        }
        silent.send_away(|_| true, true);
        // A connection that has not been silent for long enough now will have been then.
        if let Ok(permit) = timeout(SILENCE, Arc::clone(room).acquire_owned()).await {
            return permit.ok();
        }
    }
}

/// Counts one more connection of this address; `None` if the address has its share, and none of its connections is silent.
fn take_share(
    counts: &ConnectionCounts,
    silent: &SilentConnections,
    address: IpAddr,
    share: usize,
) -> Option<ConnectionShare> {
    counts.take_share(address, share).or_else(|| {
        // The connection that was sent away ends in a moment, so one is too many for no longer.
        let has_gone = silent.send_away(|other| is_one(other, address), false);
        has_gone.then(|| counts.take_share(address, usize::MAX)).flatten()
    })
}

/// Waits for room, and accepts the next connection. If many come to several listeners, each listener has its turn. Cancel-safe.
async fn next(
    listeners: &[HttpListener],
    turn: usize,
    room: &Arc<Semaphore>,
    silent: &SilentConnections,
) -> (IncomingStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let permit = permit(room, silent).await;
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

/// Accepts the clients that had come to a Unix socket before it was gone.
fn last(listener: UnixListener, claim: Claim) -> impl Iterator<Item = UnixStream> {
    drop(claim);
    // A connection that tokio has not noticed yet counts as well.
    let listener = listener.into_std().ok();
    std::iter::from_fn(move || {
        let (stream, _) = listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        UnixStream::from_std(stream).ok()
    })
}

/// Returns whether the error concerns one client alone, which had gone before it was accepted.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Origin {
    /// Makes the origin of a client at a Unix socket.
    fn among_the_files(stream: &UnixStream) -> Origin {
        let credentials = stream.peer_cred().ok();
        let process = credentials.and_then(|credentials| credentials.pid());
        let user = credentials.map(|credentials| credentials.uid());
        Origin { peer: PeerAddress::Local { process, user }, arrived: None, speaks_tls: false }
    }
}

/// Talks to a client at a Unix socket, if it is of this user: nobody else may come there, whatever the modes of the socket and of its
/// folder have become. The system has no timeout for a client that takes nothing, so this has one.
async fn among_the_files(
    stream: UnixStream,
    handler: impl HttpHandler,
    bounds: ConnectionLimits,
    newcomer: Arc<UnprovenConnection>,
    ending: watch::Receiver<bool>,
) {
    let from = Origin::among_the_files(&stream);
    if !may_come(from.peer, rustix::process::geteuid().as_raw()) {
        tracing::warn!("unhang refused a process of another user at its socket: {:?}", from.peer);
        return;
    }
    talk(WriteDeadline::new(stream, bounds.deaf), from, handler, bounds, newcomer, ending).await;
}

/// Returns whether a client at a Unix socket is of this user.
fn may_come(peer: PeerAddress, own: u32) -> bool {
    matches!(peer, PeerAddress::Local { user: Some(user), .. } if user == own)
}

/// Sets the options of a connection over the network.
#[cfg(target_os = "linux")]
fn adjust(stream: TcpStream, bounds: ConnectionLimits) -> TcpStream {
    // Without these options the connection works, if not as well.
    let _faster = stream.set_nodelay(true);
    let user_timeout = u32::try_from(bounds.deaf.as_millis()).unwrap_or(u32::MAX);
    let _safer = rustix::net::sockopt::set_tcp_user_timeout(&stream, user_timeout);
    stream
}

/// Sets the options of a connection over the network. The system has no timeout for a client that takes nothing, so the connection gets one.
#[cfg(not(target_os = "linux"))]
fn adjust(stream: TcpStream, bounds: ConnectionLimits) -> WriteDeadline<TcpStream> {
    let _faster = stream.set_nodelay(true);
    WriteDeadline::new(stream, bounds.deaf)
}

/// Talks to a client over the network, after the handshake of TLS if TLS is spoken.
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
    let stream = adjust(stream, bounds);
    let from = Origin { peer: PeerAddress::Network(peer), arrived, speaks_tls: tls.is_some() };
    let Some(tls) = tls else { return talk(stream, from, handler, bounds, newcomer, ending).await };
    let limit = bounds.head;
    let shaken = tokio::select! {
        shaken = timeout(limit, tls.accept(stream)) => shaken,
        () = newcomer.sent_away() => return,
        // There is no request yet whose answer could be awaited.
        _over_or_gone = ending.wait_for(|ending| *ending) => return,
    };
    match shaken {
        Ok(Ok(stream)) => talk(stream, from, handler, bounds, newcomer, ending).await,
        Ok(Err(error)) => tracing::info!("the TLS handshake with {peer} failed: {error}"),
        Err(_) => tracing::info!("the TLS handshake with {peer} did not end within {limit:?}"),
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
                // A head that comes in one piece may be longer than what is read ahead.
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
    builder.header_read_timeout(bounds.head);
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
                    tracing::info!("unhang closed the connection of {}, which sent no request, to make room for \
                        others", from.peer);
                    return;
                }
                tracing::info!("unhang closes the connection of {}, which showed no token, to make room for others", from.peer);
                // The client may still take the answer that it has got.
                connection.as_mut().graceful_shutdown();
            }
            () = until_ending(&mut ending, from.peer), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Returns the length of a request's head, as heads are usually written: hyper reports neither further blanks nor the part behind `#`.
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
    tracing::info!("unhang refused a request of {peer} with 431: its head is longer than {READ_AHEAD} bytes");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let why = format!("the head of a request has {READ_AHEAD} bytes at most\n");
    let mut response = (status, [(header::CONNECTION, "close")], why).into_response();
    response.extensions_mut().insert(UnprovenClient);
    response
}

/// Waits for the end, and a little longer for a client that has come to a Unix socket and may still be about to ask.
async fn until_ending(ending: &mut watch::Receiver<bool>, peer: PeerAddress) {
    // The guard that this returns must not be held over the next wait.
    let _over_or_gone = ending.wait_for(|ending| *ending).await.is_ok();
    if matches!(peer, PeerAddress::Local { .. }) {
        sleep(LAST_HEAD).await;
    }
}

#[cfg(test)]
mod tests;
