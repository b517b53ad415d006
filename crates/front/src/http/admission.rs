//! What is found out in front of all that can be asked for: who asks, and whether they ask for too much at a time.
//!
//! Invariants: what is not named here as open is closed to strangers, whatever is added later; nothing is read of a stranger's body.

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
use unhang_switches::stands;

use super::{
    HttpState,
    access::{Access, AuthError, Share, TokenOwner},
    handlers::{put_off, refused},
};
use unhang_core::{config::KEYS_FIRST_PAUSE, fault::FaultKind};

/// What whoever watches over us may ask without a token: it says nothing of anybody.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// When one of so many requests has ended.
const REQUESTS_PAUSE: Duration = Duration::from_secs(1);

/// Who asks, and what counts for them until their answer is taken; nothing, where whoever it is may ask. Who may not is turned away.
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
        Err(auth_error) if stands("strangers-need-a-token") => {
            return Err(Box::new(turned_away(&access_policy.access, peer, &auth_error)));
        }
        Err(_) => TokenOwner::Anybody,
    };
    match http_state.requests.take(&caller) {
        Some(share) => Ok(Some((caller, share))),
        None => {
            let happened = "as many requests of this client are in flight as one client may have".to_owned();
            Err(Box::new(busy(peer, happened, REQUESTS_PAUSE)))
        }
    }
}

/// Whether a stranger may ask for this: how we are, and who gives tokens for us.
fn is_open(path: &str) -> bool {
    OPEN.contains(&path)
        || path.strip_prefix(RESOURCE_METADATA).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Tells a stranger what is missing, and where it is to be had.
fn turned_away(access: &Access, peer: PeerAddress, auth_error: &AuthError) -> Response {
    let (status, happened, error) = match auth_error {
        AuthError::Silent => {
            (StatusCode::UNAUTHORIZED, "a request without a token came here".to_owned(), None)
        }
        AuthError::Unknown => {
            let happened = "a request with a token that is not known came here".to_owned();
            (StatusCode::UNAUTHORIZED, happened, Some("invalid_token"))
        }
        AuthError::Refused(why @ TokenRefusal::Scope(_)) => {
            (StatusCode::FORBIDDEN, why.to_string(), Some("insufficient_scope"))
        }
        AuthError::Refused(why @ TokenRefusal::NoKeys(_)) => return of_stranger(access, no_keys(peer, why)),
        AuthError::Refused(why) => (StatusCode::UNAUTHORIZED, why.to_string(), Some("invalid_token")),
    };
    let hint = match access.resource() {
        None => "send `Authorization: Bearer TOKEN` with one that whoever runs this gives you",
        Some(_) => {
            "send `Authorization: Bearer TOKEN` with one from the authorization server that resource_metadata leads to"
        }
    };
    let mut response = refused(peer, status, FaultKind::InvalidRequest, happened, hint);
    if let Ok(challenge) = HeaderValue::from_str(&challenge(access, error)) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    of_stranger(access, response)
}

/// An answer to somebody who has shown no good token. Where there is one to show, their connection is the first to make room for others.
pub(super) fn of_stranger(access: &Access, mut response: Response) -> Response {
    if !access.is_open() {
        response.extensions_mut().insert(UnprovenClient);
    }
    response
}

/// Nobody can say whether a token is good.
fn no_keys(peer: PeerAddress, why: &TokenRefusal) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let hint = "come back in a moment; whoever runs this finds more in the log";
    // What went wrong is for them alone.
    tracing::warn!("a token cannot be judged: {why}");
    let happened = "the keys of the authorization server are not known".to_owned();
    put_off(peer, status, happened, hint, KEYS_FIRST_PAUSE)
}

/// What stands in `WWW-Authenticate` (RFC 6750, RFC 9728).
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

/// One client has as much as one may have.
pub(super) fn busy(peer: PeerAddress, happened: String, after: Duration) -> Response {
    put_off(peer, StatusCode::TOO_MANY_REQUESTS, happened, "come back when some have ended", after)
}

/// An answer that counts for its caller until it is taken, or its connection has ended.
struct CountedAnswer {
    body: Body,
    _share: Share,
}

/// The same answer, counted so.
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
