//! Every request that is made on the way to a token goes through here.
//!
//! Invariants
//!
//! - Requests go over https. Plain http is allowed to this machine only if the server that wants the token is on it: no other server can
//!   direct requests at services on this machine.
//! - No redirect is followed. If there may be one, the caller makes sure that it stays on its server.
//! - An answer has a limit of time, head and body together, and of bytes.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::Response;
use reqwest::{
    Client, Request, Url,
    header::{CONTENT_TYPE, HeaderValue},
    redirect::Policy,
};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use tokio::time::timeout;

use super::error::{AuthorizationError, told, told_url};
use crate::tls;

/// The limits of requests to others.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// The time for one answer, from the request to its last byte.
    pub answer: Duration,
    /// The most bytes in the body of an answer.
    pub body: usize,
}

impl Default for RequestLimits {
    /// Returns limits for metadata and tokens, which have a few kilobytes. The slowest login server needs half a minute to wake up.
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), body: 1 << 20 }
    }
}

/// The destinations of requests without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainHttp {
    /// No destination.
    Never,
    /// This machine.
    Here,
}

impl PlainHttp {
    /// Returns the destinations that a server may name: a server on this machine may name others on it.
    pub(super) fn of(server: &Url) -> Self {
        if is_here(server) { Self::Here } else { Self::Never }
    }
}

/// The HTTP client of this module, and its last failure.
pub(super) struct Requests {
    client: Client,
    limits: RequestLimits,
    plain: PlainHttp,
    failure: Mutex<Option<AuthorizationError>>,
}

impl Requests {
    pub(super) fn new(limits: RequestLimits, plain: PlainHttp) -> Result<Self, AuthorizationError> {
        let client = tls::client_builder().redirect(Policy::none()).build();
        let client = client.map_err(|error| AuthorizationError::System {
            what: "there is no HTTP client",
            why: root_of(&error),
        })?;
        Ok(Self { client, limits, plain, failure: Mutex::default() })
    }

    /// Returns the client, to build requests for [`Self::send`].
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes one request. The answer has its whole body.
    pub(super) async fn send(&self, request: Request) -> Result<Response<Vec<u8>>, AuthorizationError> {
        let url = told_url(request.url());
        require_secure(request.url(), self.plain)?;
        let exchange = self.exchange(request, &url);
        timeout(self.limits.answer, exchange)
            .await
            .unwrap_or(Err(AuthorizationError::Deadline { url, limit: self.limits.answer }))
    }

    async fn exchange(&self, request: Request, url: &str) -> Result<Response<Vec<u8>>, AuthorizationError> {
        let failed = |error: reqwest::Error| AuthorizationError::Unreachable {
            url: url.to_owned(),
            why: told(&root_of(&error)),
        };
        let mut response = self.client.execute(request).await.map_err(failed)?;
        let mut body = Vec::new();
        // The stream of a server that took the request for a subscription has no end, and nothing that is wanted here.
        let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(is_event_stream);
        while !is_stream && let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > self.limits.body {
                return Err(AuthorizationError::TooLarge { url: url.to_owned(), limit: self.limits.body });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response::from(response).map(|_taken: reqwest::Body| body))
    }

    /// Takes the last failure: errors of requests through [`OAuthHttpClient`] do not contain it.
    pub(super) fn take_failure(&self) -> Option<AuthorizationError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OAuthHttpClient for Requests {
    fn execute(&self, asked: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let answer = self.send(Request::try_from(asked.request)?).await;
            answer.map_err(|error| {
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                error.into()
            })
        })
    }
}

fn is_event_stream(content: &HeaderValue) -> bool {
    content.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream")
}

/// Returns the innermost cause of an error; the outer ones say only that something went wrong.
fn root_of(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Returns whether a URL leads to this machine, by its host alone.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Refuses a URL that is neither https nor, if `plain` allows it, on this machine.
pub(super) fn require_secure(url: &Url, plain: PlainHttp) -> Result<(), AuthorizationError> {
    if url.scheme() == "https" || url.scheme() == "http" && plain == PlainHttp::Here && is_here(url) {
        Ok(())
    } else {
        Err(AuthorizationError::Insecure { url: told_url(url) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_https_or_stay_here() {
        for url in [
            "https://example.org/token",
            "http://127.0.0.1:9/token",
            "http://127.8.8.8/",
            "http://[::1]:9/",
            "http://localhost/",
            "http://LOCALHOST.:9/",
            "http://a.localhost/",
        ] {
            assert_eq!(require_secure(&Url::parse(url).expect("a URL"), PlainHttp::Here), Ok(()), "{url}");
        }
        for url in [
            "http://example.org/token",
            "http://10.0.0.1/token",
            "http://localhost.example.org/",
            "http://127.0.0.1.example.org/",
            "ftp://127.0.0.1/",
            "data:text/plain,token",
        ] {
            assert!(require_secure(&Url::parse(url).expect("a URL"), PlainHttp::Here).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn f_35_a_server_elsewhere_sends_us_to_nothing_on_this_machine() {
        let url = |url: &str| Url::parse(url).expect("a URL");
        for (server, plain) in [
            ("https://example.org/mcp", PlainHttp::Never),
            ("http://10.0.0.1/mcp", PlainHttp::Never),
            ("https://localhost.example.org/mcp", PlainHttp::Never),
            ("http://127.0.0.1:9/mcp", PlainHttp::Here),
            ("http://localhost/mcp", PlainHttp::Here),
            ("https://[::1]/mcp", PlainHttp::Here),
        ] {
            assert_eq!(PlainHttp::of(&url(server)), plain, "{server}");
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = format!("http://{}/token", listener.local_addr().expect("an address"));
        let requests = Requests::new(RequestLimits::default(), PlainHttp::Never).expect("a client");
        let request = requests.client().get(&here).build().expect("a request");
        let refused = requests.send(request).await.expect_err("nothing is sent there");
        assert!(matches!(refused, AuthorizationError::Insecure { .. }), "{refused}");
        let came = timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(came.is_err(), "nobody has come");
    }
}
