//! The connections to a bucket, over the client for HTTP and TLS that all of unhang uses.
//!
//! Invariants
//!
//! - No redirect is followed: the next server would get a signature that is not for it.
//! - An answer has a limit, whatever the server sends.

use std::{error::Error as StdError, future::Future, io, pin::Pin, time::Duration};

use http_body_util::{BodyExt as _, Limited};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
        HttpService,
    },
};
use reqwest::{Request, redirect::Policy, retry};
use unhang_net::tls::client_builder;

/// The time that a connection may take to be made. A store that is away is told soon.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The most bytes of an answer without an object, such as an error.
const LONGEST_MESSAGE: usize = 64 << 10;

/// Makes clients for a bucket.
#[derive(Debug)]
pub(crate) struct BucketConnector {
    /// Whether connections without TLS are allowed.
    pub(crate) allows_http: bool,
    /// The bytes of the largest object that is expected.
    pub(crate) largest: usize,
}

/// A client for a bucket.
#[derive(Debug)]
struct BucketClient {
    client: reqwest::Client,
    largest: usize,
}

impl HttpConnector for BucketConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let builder = client_builder()
            .https_only(!self.allows_http)
            .redirect(Policy::none())
            // The library above decides whether a request may be sent twice.
            .retry(retry::never().max_retries_per_request(0))
            .connect_timeout(CONNECT_LIMIT);
        let client = builder
            .build()
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(HttpClient::new(BucketClient { client, largest: self.largest }))
    }
}

impl HttpService for BucketClient {
    /// Sends a request. The signature is what the trait's `async fn` stands for.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.answer(request))
    }
}

impl BucketClient {
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = reqwest::Url::parse(&parts.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut request = Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let answer = self.client.execute(request).await.map_err(|error| failed(error.into()))?;
        let limit =
            if answer.status().is_success() { self.largest.max(LONGEST_MESSAGE) } else { LONGEST_MESSAGE };
        let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
        let body = HttpResponseBody::new(Limited::new(body, limit).map_err(failed));
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// Makes the error of a request that got no whole answer. The library above repeats it or not by its kind.
fn failed(error: Box<dyn StdError + Send + Sync>) -> HttpError {
    let kind = match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_timeout() => HttpErrorKind::Timeout,
        Some(error) if error.is_connect() => HttpErrorKind::Connect,
        Some(error) if error.is_decode() => HttpErrorKind::Decode,
        Some(error) if was_cut(error) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    match error.downcast::<reqwest::Error>() {
        // The address has the key of the object, and the caller names it.
        Ok(error) => HttpError::new(kind, error.without_url()),
        Err(error) => HttpError::new_boxed(kind, error),
    }
}

/// Returns whether the connection broke in the middle.
fn was_cut(error: &reqwest::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let mut cause = error.source();
    while let Some(inner) = cause {
        let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind.is_some_and(|kind| {
            [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&kind)
        }) {
            return true;
        }
        cause = inner.source();
    }
    false
}
