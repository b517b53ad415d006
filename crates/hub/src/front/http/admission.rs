//! The layer in front of all that can be asked for: who asks, and whether they ask for too much at a time.
//!
//! Invariants: what is not named here as open is closed to strangers, whatever is added later; nothing is read of a stranger's body.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http_body::{Frame, SizeHint};
use unhang_net::serve::{
    Peer,
    axum::{
        Error, Extension,
        body::{Body, Bytes, HttpBody},
        extract::{Request, State},
        http::{HeaderValue, StatusCode, header},
        middleware::Next,
        response::Response,
    },
};
use unhang_switches::stands;

use super::{
    Gate,
    access::{Caller, Share, Stranger},
    handlers::refused,
};
use crate::fault::Kind;

/// What whoever watches over us may ask without a token: it says nothing of anybody.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// Lets those in who may ask, as the [`Caller`] that their request has from here on.
pub(super) async fn admitted(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match gate.access.caller(request.headers()) {
        Ok(caller) => caller,
        Err(stranger) if stands("strangers-need-a-token") => return unauthorized(peer, stranger),
        Err(_) => Caller::Anybody,
    };
    let Some(share) = gate.requests.take(&caller) else {
        let happened = "as many requests of this client are in flight as one client may have".to_owned();
        return busy(peer, happened, "1");
    };
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    response.map(|body| Body::new(Counted { body, _share: share }))
}

fn unauthorized(peer: Peer, stranger: Stranger) -> Response {
    let (happened, challenge) = match stranger {
        Stranger::Silent => ("a request without a token came here", "Bearer"),
        Stranger::Unknown => {
            ("a request with a token that is not known came here", "Bearer error=\"invalid_token\"")
        }
    };
    let hint = "send `Authorization: Bearer TOKEN` with one that whoever runs this gives you";
    let status = StatusCode::UNAUTHORIZED;
    let mut response = refused(peer, status, Kind::InvalidRequest, happened.to_owned(), hint);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// One client has as much as one may have.
pub(super) fn busy(peer: Peer, happened: String, seconds: &'static str) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let hint = "come back when some have ended";
    let mut response = refused(peer, status, Kind::Overloaded, happened, hint);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
    response
}

/// An answer that counts for its caller until it is taken, or its connection has ended.
struct Counted {
    body: Body,
    _share: Share,
}

impl HttpBody for Counted {
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
