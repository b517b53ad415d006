//! The checks before every request: who asks, and whether the caller has too many requests at a time.
//!
//! Invariants: every path that is not listed as open here is closed to strangers, whatever is added later. No byte of a stranger's body is
//! read.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Frame, SizeHint};
use unhang_net::{
    oauth::{RESOURCE_METADATA, TokenRefusal},
    serve::{
        PeerAddress, UnprovenClient,
        axum::{
            Error,
            body::{Body, Bytes, HttpBody},
            http::{HeaderMap, HeaderValue, StatusCode, header},
            response::Response,
        },
    },
};

use super::{
    HttpState,
    access::{Access, AuthError, Share, TokenOwner},
    handlers::{put_off, refused},
};
use unhang_core::{config::KEYS_FIRST_PAUSE, fault::FaultKind};

/// The paths that a monitor may ask without a token: their answers say nothing of any client.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// The time after which a client that has too many requests may come back.
const REQUESTS_PAUSE: Duration = Duration::from_secs(1);

/// Checks who asks, and counts the request for that caller until its answer is taken. Returns `None` for an open path. Fails with the
/// response for a caller who may not ask.
pub(super) async fn admitted(
    http_state: &HttpState,
    peer: PeerAddress,
    path: &str,
    headers: &HeaderMap,
) -> Result<Option<(TokenOwner, Share)>, Box<Response>> {
    if is_open(path) {
        return Ok(None);
    }
    let access_policy = http_state.access_policy();
    let caller = match access_policy.access.caller(headers).await {
        Ok(caller) => caller,
        Err(auth_error) => {
            return Err(Box::new(turned_away(&access_policy.access, peer, &auth_error)));
        }
    };
    match http_state.requests.take(&caller) {
        Some(share) => Ok(Some((caller, share))),
        None => {
            let happened = "this client has as many requests in flight as one client may have".to_owned();
            Err(Box::new(busy(peer, happened, REQUESTS_PAUSE)))
        }
    }
}

/// Returns whether a stranger may ask for this path: the health checks, and the metadata of the authorization server.
fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
        || path.strip_prefix(RESOURCE_METADATA).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Tells a stranger what is missing and where to get it.
fn turned_away(access: &Access, peer: PeerAddress, auth_error: &AuthError) -> Response {
    let (status, happened, error) = match auth_error {
        AuthError::Silent => (StatusCode::UNAUTHORIZED, "the request has no token".to_owned(), None),
        AuthError::Unknown => {
            let happened = "the request has an unknown token".to_owned();
            (StatusCode::UNAUTHORIZED, happened, Some("invalid_token"))
        }
        AuthError::Refused(why @ TokenRefusal::Scope(_)) => {
            (StatusCode::FORBIDDEN, why.to_string(), Some("insufficient_scope"))
        }
        AuthError::Refused(why @ TokenRefusal::NoKeys(_)) => return of_stranger(access, no_keys(peer, why)),
        AuthError::Refused(why) => (StatusCode::UNAUTHORIZED, why.to_string(), Some("invalid_token")),
    };
    let hint = match access.resource() {
        None => "send `Authorization: Bearer TOKEN` with a token from the operator of this gateway",
        Some(_) => {
            "send `Authorization: Bearer TOKEN` with a token from the authorization server that \
             resource_metadata names"
        }
    };
    let mut response = refused(peer, status, FaultKind::InvalidRequest, happened, hint);
    if let Ok(challenge) = HeaderValue::from_str(&challenge(access, error)) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    of_stranger(access, response)
}

/// Marks an answer to a caller who has shown no good token. If tokens are required, that connection is the first to make room for others.
pub(super) fn of_stranger(access: &Access, mut response: Response) -> Response {
    if !access.is_open() {
        response.extensions_mut().insert(UnprovenClient);
    }
    response
}

/// Refuses a token that cannot be checked now.
fn no_keys(peer: PeerAddress, why: &TokenRefusal) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let hint = "try again in a moment; the operator finds the details in the log";
    // The details are for the operator alone.
    tracing::warn!("unhang cannot check a token: {why}");
    let happened = "unhang does not have the keys of the authorization server".to_owned();
    put_off(peer, status, happened, hint, KEYS_FIRST_PAUSE)
}

/// Returns the value of `WWW-Authenticate` (RFC 6750, RFC 9728).
fn challenge(access: &Access, error: Option<&str>) -> String {
    let mut parts = Vec::new();
    if let Some(resource) = access.resource() {
        parts.push(format!("resource_metadata=\"{}\"", resource.metadata_url()));
        if !resource.scopes().is_empty() {
            parts.push(format!("scope=\"{}\"", resource.scopes().join(" ")));
        }
    }
    parts.extend(error.map(|error| format!("error=\"{error}\"")));
    format!("Bearer {}", parts.join(", ")).trim_end().to_owned()
}

/// Refuses a request of a client that has as many as one client may have.
pub(super) fn busy(peer: PeerAddress, happened: String, after: Duration) -> Response {
    put_off(peer, StatusCode::TOO_MANY_REQUESTS, happened, "try again when some have ended", after)
}

/// An answer that counts for its caller until it is taken or its connection has ended.
struct CountedAnswer {
    body: Body,
    _share: Share,
}

/// Returns the same answer, which counts for its caller until it is taken.
pub(super) fn counted(response: Response, share: Share) -> Response {
    response.map(|body| Body::new(CountedAnswer { body, _share: share }))
}

impl HttpBody for CountedAnswer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
