//! One server over HTTP: requests to it, and its answers, whole or as a stream of events.
//!
//! Invariants
//!
//! - The limit of the connection bounds what is received, whole or event by event.
//! - A redirect is followed to the same origin alone, with the method and the body as they were: a message for one server goes to no other.
//! - URLs and headers may hold secrets: neither is in an error or a log.

use std::{error::Error as _, fmt, io, path::PathBuf, time::Duration};

pub use bytes::Bytes;
pub use reqwest::Url;
use reqwest::{
    Client, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE},
    redirect::Policy,
    retry,
};

use tokio::time::{Instant, sleep};
use url::form_urlencoded;

use crate::{
    oauth::{Authorization, AuthorizationError},
    sse::{Events, SseEvent},
    tls::client_builder,
};

/// The most redirects that are followed for one request.
const REDIRECTS: usize = 5;

/// Servers close idle connections, five seconds after the last request in the usual frameworks (Node, uvicorn). A request on its way just
/// then is lost, so this side closes a connection before they do.
const IDLE: Duration = Duration::from_secs(4);

/// The time for which a Unix socket may have nobody who takes a request.
const HAND_OVER: Duration = Duration::from_secs(3);
/// The pause between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

/// The most bytes of an answer that is not a message. They may tell a person what is wrong.
const COMPLAINT: usize = 4 << 10;

/// The address of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The server's URL.
    pub url: String,
    /// The headers of every request to it: names and values.
    pub headers: Vec<(String, String)>,
    /// Whether the proxies of the environment are used (`HTTPS_PROXY` and so on).
    pub uses_proxies: bool,
    /// The Unix socket at which the server listens, whatever the URL says. The process there may be about to hand over to another: a
    /// request that nobody took, or that was refused with 503, is repeated for a while.
    pub socket: Option<PathBuf>,
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Address").field("url", &self.shown()).finish_non_exhaustive()
    }
}

impl Address {
    /// Returns the URL without its possible secrets, the query and the user, so that people may see it.
    #[must_use]
    pub fn shown(&self) -> String {
        match Url::parse(&self.url) {
            Ok(url) => shown(&url),
            Err(_) => "an invalid URL".to_owned(),
        }
    }

    /// Checks whether the address can be used.
    ///
    /// # Errors
    /// Fails with [`HttpError::Address`], which says what is wrong with it.
    pub fn check(&self) -> Result<(), HttpError> {
        self.read().map(drop)
    }

    /// Returns the parts that may be secret: the values of the headers and the credentials in them, the user of the URL and the values of
    /// its query. Those of the URL are in it as they are written and as they are meant.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for (_, value) in &self.headers {
            secrets.push(value.clone());
            // A server that prints `Bearer TOKEN` may leave the first word out.
            secrets.extend(value.split_once(' ').map(|(_, credentials)| credentials.trim().to_owned()));
        }
        let Ok(url) = Url::parse(&self.url) else { return secrets };
        for part in [url.username(), url.password().unwrap_or_default()] {
            secrets.push(part.to_owned());
            // In these parts a plus sign means itself.
            secrets.extend(meant(&part.replace('+', "%2B")));
        }
        for pair in url.query().unwrap_or_default().split('&') {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            secrets.push(value.to_owned());
            secrets.extend(meant(value));
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }

    fn read(&self) -> Result<(Url, HeaderMap), HttpError> {
        let wrong = |why: &str| HttpError::Address(why.to_owned());
        let url = Url::parse(&self.url).map_err(|error| wrong(&format!("its URL is invalid: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("its URL does not begin with http:// or https://"));
        }
        let mut headers = HeaderMap::new();
        for (number, (name, value)) in self.headers.iter().enumerate() {
            // The text in the place of the name may be a secret.
            let name = HeaderName::try_from(name.as_str())
                .map_err(|_| wrong(&format!("the name of its header number {} is invalid", number + 1)))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| {
                wrong(&format!("the value of its header `{name}` has a character that a header cannot have"))
            })?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok((url, headers))
    }
}

/// Decodes a value of a query.
fn meant(value: &str) -> Option<String> {
    let pair = format!("value={value}");
    form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
}

fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address cannot be used.
    #[error("{0}")]
    Address(String),
    /// There is no connection: refused, no such host, no TLS.
    #[error("{0}")]
    Unreachable(String),
    /// The connection was there, and broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer is longer than the limit, which is this many bytes.
    #[error("it is longer than the limit of {0} bytes")]
    TooLarge(usize),
    /// There is no token for the request.
    #[error("{0}")]
    Authorization(#[from] AuthorizationError),
    /// The answer redirects to another origin.
    #[error("it redirects to {0}, which is another origin")]
    Redirected(String),
    /// The answers redirect again and again.
    #[error("it redirects more than {REDIRECTS} times")]
    Circle,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Sends a message.
    Post,
    /// Opens a stream of events.
    Get,
    /// Ends a session.
    Delete,
}

/// A request.
#[derive(Debug)]
pub struct HttpRequest {
    /// The kind of request.
    pub verb: Verb,
    /// The URL to send it to; `None` stands for the server's own URL.
    pub url: Option<Url>,
    /// The headers besides those of every request: names, in small letters, and values. A header that HTTP does not allow is left out.
    pub headers: Vec<(String, String)>,
    /// The message.
    pub body: Option<Bytes>,
}

/// The way to one server. Connections are kept and used again.
#[derive(Clone, Debug)]
pub struct Connection {
    client: Client,
    url: Url,
    headers: HeaderMap,
    authorization: Option<Authorization>,
    limit: usize,
    /// The time for which nobody may be there to take a request.
    takeover_limit: Duration,
}

impl Connection {
    /// Makes the way to a server, and connects nothing yet. Messages of up to `limit` bytes are received. `authorization` has the tokens
    /// for the server's requests, if it wants some.
    ///
    /// # Errors
    /// Fails with [`HttpError::Address`], which says what is wrong with it.
    pub fn new(
        address: &Address,
        authorization: Option<Authorization>,
        limit: usize,
    ) -> Result<Self, HttpError> {
        let (url, headers) = address.read()?;
        // This module follows redirects itself: reqwest would turn a POST into a GET, and send the headers to strangers.
        let mut builder = client_builder()
            .redirect(Policy::none())
            // This module also decides whether a request may be sent twice.
            .retry(retry::never().max_retries_per_request(0))
            .pool_idle_timeout(IDLE)
            .tcp_keepalive(Duration::from_secs(15));
        if !address.uses_proxies {
            builder = builder.no_proxy();
        }
        if let Some(socket) = &address.socket {
            // Each request gets its own connection: a request on a used one may never be heard.
            builder = builder.unix_socket(socket.as_path()).pool_max_idle_per_host(0);
        }
        let client = builder.build().map_err(|error| HttpError::Address(told(&error)))?;
        let takeover_limit = address.socket.as_ref().map_or(Duration::ZERO, |_| HAND_OVER);
        Ok(Self { client, url, headers, authorization, limit, takeover_limit })
    }

    /// Returns the server's own URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Resolves a reference against the server's own URL. The result has to be of the same origin.
    ///
    /// # Errors
    /// Fails with [`HttpError::Redirected`] if it is not, or with [`HttpError::Address`] if it is not a URL.
    pub fn resolve(&self, reference: &str) -> Result<Url, HttpError> {
        same_origin(&self.url, reference)
    }

    /// Makes a request, and waits until its answer has begun. If the server refuses its token, repeats it with a better one if there is one
    /// to be had.
    ///
    /// # Errors
    /// Fails with [`HttpError`]. An answer that tells of an error counts as an answer.
    pub async fn ask(&self, ask: HttpRequest) -> Result<HttpReply, HttpError> {
        let Some(authorization) = &self.authorization else { return self.attempt(&ask, None).await };
        loop {
            let token = authorization.token().await?;
            let reply = self.attempt(&ask, token.as_deref()).await?;
            let is_refused = matches!(reply.status(), 401 | 403);
            let challenge = reply.header(WWW_AUTHENTICATE.as_str());
            if !is_refused || !authorization.refused(token.as_deref(), reply.status(), challenge).await? {
                return Ok(reply);
            }
        }
    }

    async fn attempt(&self, ask: &HttpRequest, token: Option<&str>) -> Result<HttpReply, HttpError> {
        let HttpRequest { verb, url, headers, body } = ask;
        let mut url = url.as_ref().unwrap_or(&self.url).clone();
        let method = match verb {
            Verb::Post => Method::POST,
            Verb::Get => Method::GET,
            Verb::Delete => Method::DELETE,
        };
        for _ in 0..=REDIRECTS {
            let response = self.sent(|| {
                let mut request = self.client.request(method.clone(), url.clone());
                if let Some(token) = token {
                    request = request.bearer_auth(token);
                }
                if let Some(body) = body {
                    request = request.body(body.clone());
                }
                let mut request = request.build()?;
                // The headers go in unchanged here; the builder would move them through a map of its own.
                let all = request.headers_mut();
                all.extend(self.headers.clone());
                for (name, value) in headers {
                    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
                    {
                        all.insert(name, value);
                    }
                }
                Ok(request)
            });
            let response = response.await?;
            match response.headers().get(LOCATION).filter(|_| response.status().is_redirection()) {
                Some(location) => url = same_origin(&url, &String::from_utf8_lossy(location.as_bytes()))?,
                None => return Ok(HttpReply { response, limit: self.limit }),
            }
        }
        Err(HttpError::Circle)
    }

    /// Sends a request, and repeats it if nobody took it and another process is about to.
    async fn sent(&self, request: impl Fn() -> reqwest::Result<Request>) -> Result<Response, HttpError> {
        let began = Instant::now();
        loop {
            let outcome = match request() {
                Ok(request) => self.client.execute(request).await,
                Err(error) => Err(error),
            };
            let is_not_taken = match &outcome {
                Ok(response) => response.status() == StatusCode::SERVICE_UNAVAILABLE,
                Err(error) => error.is_connect() || was_unread(error),
            };
            if is_not_taken && began.elapsed() < self.takeover_limit {
                sleep(AGAIN).await;
                continue;
            }
            return outcome.map_err(|error| match error.is_connect() || error.is_builder() {
                true => HttpError::Unreachable(told(&error)),
                false => HttpError::Broken(told(&error)),
            });
        }
    }
}

/// Returns whether a connection broke because its other end was closed before it had read, or accepted, everything. Only a Unix socket says
/// so, and then nobody has acted upon what was sent.
fn was_unread(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        }
        source = error.source();
    }
    false
}

fn same_origin(base: &Url, reference: &str) -> Result<Url, HttpError> {
    let url = base
        .join(reference)
        .map_err(|error| HttpError::Address(format!("it redirects to an invalid URL: {error}")))?;
    if url.origin() == base.origin() { Ok(url) } else { Err(HttpError::Redirected(shown(&url))) }
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON, whole.
    Json,
    /// A stream of events.
    Events,
    /// Neither of the two.
    Other,
}

/// The beginning of an answer.
#[derive(Debug)]
pub struct HttpReply {
    response: Response,
    limit: usize,
}

impl HttpReply {
    /// Returns the status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns a header of the answer; `None` if it is absent or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the kind of content that the answer's `content-type` names.
    #[must_use]
    pub fn content(&self) -> Content {
        let kind = self.response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if kind.eq_ignore_ascii_case(b"text/event-stream") {
            Content::Events
        } else if kind.eq_ignore_ascii_case(b"application/json") {
            Content::Json
        } else {
            Content::Other
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// Fails with [`HttpError::TooLarge`] if it is over the limit, or with [`HttpError::Broken`].
    pub async fn whole(mut self) -> Result<Vec<u8>, HttpError> {
        let mut whole = Vec::new();
        while let Some(part) = self.response.chunk().await.map_err(|error| HttpError::Broken(told(&error)))? {
            if whole.len() + part.len() > self.limit {
                return Err(HttpError::TooLarge(self.limit));
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }

    /// Reads as much of the body as may tell a person something.
    pub async fn complaint(mut self) -> Vec<u8> {
        let mut begun = Vec::new();
        while begun.len() < COMPLAINT
            && let Ok(Some(part)) = self.response.chunk().await
        {
            begun.extend_from_slice(&part[..part.len().min(COMPLAINT - begun.len())]);
        }
        begun
    }

    /// Returns the events of the body.
    #[must_use]
    pub fn events(self) -> EventStream {
        EventStream { events: Events::new(self.limit), limit: self.limit, response: self.response }
    }
}

/// A stream of events that is being read. Dropping it closes the connection.
#[derive(Debug)]
pub struct EventStream {
    response: Response,
    events: Events,
    limit: usize,
}

impl EventStream {
    /// Waits for the next event; `None` at the end.
    ///
    /// # Errors
    /// Fails with [`HttpError::Broken`], or with [`HttpError::TooLarge`] if an event does not end soon after the limit.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, HttpError> {
        loop {
            if let Some(event) = self.events.next_event() {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(part)) => {
                    self.events.push(&part);
                    // An event somewhat over the limit is skipped; this one has no end.
                    if self.events.skipped() > 2 * self.limit as u64 {
                        return Err(HttpError::TooLarge(self.limit));
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(HttpError::Broken(told(&error))),
            }
        }
    }

    /// Returns the id after which the stream can be taken up again; `None` if the server does not offer that.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.events.last_id()
    }

    /// Returns how long to wait before that; `None` if the server did not say.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.events.retry()
    }
}

/// Returns the last cause of an error, which a person can act upon: the first ones say only that there was an error.
fn told(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
        if let Some(error) = cause.downcast_ref::<io::Error>()
            && error.get_ref().is_none()
        {
            break;
        }
    }
    if error.source().is_none() {
        // The error has no cause, and its own words contain the URL.
        return match error.is_timeout() {
            true => "it took too long".to_owned(),
            false => "the request could not be sent".to_owned(),
        };
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixListener,
        time::timeout,
    };

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

    fn connection(socket: PathBuf) -> Connection {
        let (url, headers) = ("http://localhost/mcp".to_owned(), Vec::new());
        let address = Address { url, headers, uses_proxies: false, socket: Some(socket) };
        Connection::new(&address, None, 1024).expect("an address")
    }

    fn ask() -> HttpRequest {
        HttpRequest { verb: Verb::Post, url: None, headers: Vec::new(), body: Some(Bytes::from_static(b"x")) }
    }

    #[tokio::test]
    async fn what_nobody_has_read_at_a_socket_is_asked_of_whoever_comes_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let first = UnixListener::bind(&path).expect("a socket");
        let connection = connection(path.clone());
        let asking = tokio::spawn(async move { connection.ask(ask()).await });
        // It has come, and what it says is not read any more: once before it was taken, and once after that.
        let came = tokio::task::spawn_blocking(move || {
            let mut fds = [PollFd::new(&first, PollFlags::IN)];
            poll(&mut fds, None).map(|_| first)
        });
        let first = came.await.expect("no panic").expect("it comes");
        drop(first);
        std::fs::remove_file(&path).expect("it is there");
        let second = UnixListener::bind(&path).expect("a socket");
        let again = async || {
            let again = timeout(Duration::from_secs(30), second.accept()).await;
            again.expect("it comes again").expect("a connection").0
        };
        let stream = again().await;
        stream.readable().await.expect("it asks");
        drop(stream);
        let mut stream = again().await;
        let mut request = vec![0; 1024];
        assert!(stream.read(&mut request).await.expect("it asks") > 0);
        stream.write_all(ANSWER).await.expect("it listens");
        let reply = asking.await.expect("no panic").expect("an answer");
        assert_eq!(reply.whole().await.expect("a body"), b"ok");
    }

    #[tokio::test]
    async fn what_somebody_has_read_is_not_asked_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let connection = connection(path);
        let asking = tokio::spawn(async move { connection.ask(ask()).await });
        let (mut stream, _) = listener.accept().await.expect("it comes");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\nx") {
            stream.read_buf(&mut request).await.expect("it asks");
        }
        drop(stream);
        let outcome = asking.await.expect("no panic");
        assert!(matches!(outcome, Err(HttpError::Broken(_))), "{outcome:?}");
    }
}
