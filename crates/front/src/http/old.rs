//! The HTTP+SSE of 2024-11-05, for clients that know nothing newer. The first event of a stream says where messages are posted, and all
//! messages to the client come on that stream, answers included.
//!
//! Invariants: every check before other requests also comes before these. A session is the same as any other, with two differences. Its
//! answers go to the stream, and it ends with its stream, which cannot be resumed.

use std::sync::Arc;

use tokio::sync::oneshot;
use unhang_net::serve::{
    PeerAddress,
    axum::{
        Extension, Router,
        body::Body,
        extract::State,
        http::{HeaderMap, Method, StatusCode, Uri, header},
        response::{IntoResponse, Response},
        routing::{get, post},
    },
};

use super::{
    HttpRoute, HttpState,
    access::TokenOwner,
    asked::no_message,
    body::whole,
    handlers::{
        Post, Statuses, answer, brought, ending, no_events, no_json, refused, too_many, trace, wrong_verb,
    },
    reply_streams::ReplyForm,
    session::SessionCommand,
    shown,
};
use unhang_core::fault::FaultKind;

/// The path at which a client listens, which begins its session.
pub(super) const STREAM: &str = "/sse";

/// The path to which it posts.
pub(super) const MESSAGES: &str = "/messages";

/// The query parameter that names the session there.
const SESSION: &str = "sessionId=";

/// Makes the router of these two paths.
pub(super) fn router() -> Router<Arc<HttpState>> {
    Router::new()
        .route(STREAM, get(opened).head(no_verb_for_streams).fallback(no_verb_for_streams))
        .route(MESSAGES, post(said).fallback(no_verb_for_messages))
}

/// Returns the path to which messages of the session of this name are posted.
pub(super) fn endpoint_of(name: &str) -> String {
    format!("{MESSAGES}?{SESSION}{name}")
}

/// Begins a session for a client that opens its stream.
async fn opened(
    State(http_state): State<Arc<HttpState>>,
    Extension(peer): Extension<PeerAddress>,
    Extension(caller): Extension<TokenOwner>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = no_events(peer, &headers) {
        return refusal;
    }
    let (name, session) = match http_state.begin(&caller, HttpRoute::Old) {
        Ok(begun) => begun,
        Err(full) => return too_many(peer, full, "sessions"),
    };
    let (reply, replied) = oneshot::channel();
    // No other command is on its way yet. If the client goes now, the session notices that nobody listens, and ends.
    let sent = session.try_send(SessionCommand::Listen { after: None, reply });
    match (sent, replied.await) {
        (Ok(()), Ok(reply)) => {
            let session = shown(&name);
            tracing::info!(%peer, session, "{peer} ({caller}) begins the session {session} by HTTP+SSE");
            answer(&http_state, peer, reply, Statuses::Session).await
        }
        _ => ending(peer),
    }
}

/// Handles a message for the session that the endpoint names.
async fn said(
    State(http_state): State<Arc<HttpState>>,
    Extension(peer): Extension<PeerAddress>,
    Extension(caller): Extension<TokenOwner>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Some(refusal) = no_json(peer, &headers) {
        return refusal;
    }
    let mut members = uri.query().unwrap_or_default().split('&');
    let name = members.find_map(|member| member.strip_prefix(SESSION)).unwrap_or_default();
    let Some(session) = http_state.session(name, &caller, HttpRoute::Old) else {
        return no_such_session(peer);
    };
    let body = match whole(&http_state, peer, body).await {
        Ok(body) => body,
        Err(refused) => return refused.told_to(Some(session)),
    };
    let instead = no_message(&body.bytes);
    let (form, trace) = (ReplyForm::WholeOrEvents, trace(&headers));
    let post = Post { peer, caller, form, trace, window: None, param_headers: None, body };
    match instead {
        Some(asked) => brought(&http_state, post, asked).await,
        None => match post.ask(&session).await {
            Some(reply) => answer(&http_state, peer, reply, Statuses::Session).await,
            None => no_such_session(peer),
        },
    }
}

fn no_such_session(peer: PeerAddress) -> Response {
    let happened = "the session does not exist: it has ended with its stream, or it never began".to_owned();
    let hint = "open a new stream with GET /sse, and post to the address in its first event";
    refused(peer, StatusCode::NOT_FOUND, FaultKind::InvalidRequest, happened, hint)
}

/// Refuses another verb than GET. Newer clients try their own transport first, and take this as the sign to listen. In JSON-RPC it would
/// look like the answer of a server that speaks their transport.
async fn no_verb_for_streams(Extension(peer): Extension<PeerAddress>, method: Method) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let (number, kind) = (status.as_u16(), FaultKind::InvalidRequest.word());
    let text = format!(
        "{method} is not possible here; open a stream with GET, and post to the address in its first \
         event, or use Streamable HTTP at /mcp\n"
    );
    tracing::info!(%peer, status = number, kind, "unhang refused a request of {peer} with {number}: {}", text.trim_end());
    (status, [(header::ALLOW, "GET")], text).into_response()
}

async fn no_verb_for_messages(Extension(peer): Extension<PeerAddress>, method: Method) -> Response {
    wrong_verb(peer, &format!("{method} is not possible here"), "POST", "send messages with POST")
}
