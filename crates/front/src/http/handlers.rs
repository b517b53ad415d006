//! The handlers of HTTP requests, and the statuses of their answers.
//!
//! Invariants: every refusal has a body that says why, and a line in the log that says to whom. No byte of a body is read before its sender
//! is known to be allowed.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use unhang_net::serve::{
    PeerAddress,
    axum::{
        Extension,
        body::{Body, Bytes},
        extract::{Request, State},
        http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
        response::{IntoResponse, Response},
    },
};
use unhang_wire::{self as wire, Id};

use super::{
    Full, HttpRoute, HttpState,
    accept::{AcceptHeader, EVENTS, JSON},
    access::TokenOwner,
    admission::busy,
    asked::{AskedPost, PostKind, asked},
    body::{WholeBody, whole},
    message_budget::NoRoom,
    old,
    operators::told,
    reply_streams::{PostReply, ReplyForm},
    session::{SessionCommand, SessionHandle},
    shown,
    stream::parse_id,
    window_orders::{ordered, read_order},
};
use crate::{effects::ErrorAnswer, session_runtime::OfWindow, window_questions::read_reply};
use unhang_core::{
    config::{RETRY_MOST, ROOM_PATIENCE},
    fault::{Evidence, Fault, FaultKind},
    revision::Revision,
    telemetry::Parent,
};
use unhang_gateway::OfSession;
use unhang_upstream::http::{
    headers::{CallLimit, LIMIT, REVISION, SESSION, WINDOW},
    param_headers::ReceivedParamHeaders,
};
use unhang_upstream::window_job::{CALL, ORDER, WindowCallName, WindowJobOrder};

/// The name of unhang as a whole in errors.
const NAME: &str = "unhang";

const SESSION_HEADER: HeaderName = HeaderName::from_static(SESSION);
const LAST_EVENT: &str = "last-event-id";

/// A refusal: its status and its text.
struct HttpRefusal<'a> {
    status: StatusCode,
    kind: FaultKind,
    id: Option<&'a Id>,
    happened: String,
    hint: &'a str,
    /// The time after which another try makes sense, if that is known.
    retry_after: Option<Duration>,
}

impl HttpRefusal<'_> {
    fn answer(self, peer: PeerAddress) -> Response {
        let HttpRefusal { status, kind, id, happened, hint, retry_after } = self;
        let fault = Fault {
            kind,
            server: NAME,
            method: None,
            happened,
            hint,
            elapsed: Duration::ZERO,
            limit: None,
            retry_after,
            exit: None,
            evidence: Evidence::default(),
        };
        let (number, kind) = (status.as_u16(), kind.word());
        tracing::info!(%peer, status = number, kind, "unhang refused a request of {peer} with {number}: {}", fault.message());
        let mut response = (status, [(header::CONTENT_TYPE, JSON)], fault.response(id)).into_response();
        if let Some(after) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, after.as_secs().max(1).into());
        }
        response
    }
}

pub(super) fn refused(
    peer: PeerAddress,
    status: StatusCode,
    kind: FaultKind,
    happened: String,
    hint: &str,
) -> Response {
    HttpRefusal { status, kind, id: None, happened, hint, retry_after: None }.answer(peer)
}

/// Refuses a request that makes sense to try again after a while.
pub(super) fn put_off(
    peer: PeerAddress,
    status: StatusCode,
    happened: String,
    hint: &str,
    after: Duration,
) -> Response {
    HttpRefusal { status, kind: FaultKind::Overloaded, id: None, happened, hint, retry_after: Some(after) }
        .answer(peer)
}

/// Handles a posted message.
pub(super) async fn posted(
    http_state: &Arc<HttpState>,
    peer: PeerAddress,
    caller: TokenOwner,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let headers = head.headers;
    if let Some(refusal) = no_json(peer, &headers) {
        return refusal;
    }
    let takes = AcceptHeader::by(&headers);
    if !takes.json && !takes.events {
        let happened = "the request does not accept the types of the answers".to_owned();
        let hint = "accept application/json and text/event-stream";
        return refused(peer, StatusCode::NOT_ACCEPTABLE, FaultKind::InvalidRequest, happened, hint);
    }
    let body = match whole(http_state, peer, body).await {
        Ok(body) => body,
        Err(refused) => {
            let name = text(&headers, &SESSION_HEADER);
            let session = name.and_then(|name| http_state.session(name, &caller, HttpRoute::Streamable));
            return refused.told_to(session);
        }
    };
    if let Some(questions) = &http_state.context.window_questions
        && let Some((question, replied)) = read_reply(&body.bytes)
    {
        questions.replied(question, replied).await;
        return StatusCode::ACCEPTED.into_response();
    }
    if http_state.context.are_windows()
        && let Some((id, order)) = read_order(&body.bytes)
    {
        return ordered(http_state, &id, order).await;
    }
    let AskedPost { kind, wants_progress } = asked(&headers, &body.bytes);
    let (form, trace, window) = (takes.form(wants_progress), trace(&headers), window(&headers));
    // In a session there are no such headers. Between windows nobody reads them.
    let stands_alone = matches!(kind, PostKind::Alone { .. }) && !http_state.context.are_windows();
    let param_headers = stands_alone.then(|| param_headers(&headers));
    brought(http_state, Post { peer, caller, form, trace, window, param_headers, body }, kind).await
}

/// Refuses a body of another type than JSON. A page could send some of those without asking whether it may.
pub(super) fn no_json(peer: PeerAddress, headers: &HeaderMap) -> Option<Response> {
    let kind = text(headers, &header::CONTENT_TYPE).unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON) {
        return None;
    }
    let happened = format!("the request has a body of the type `{}`", kind.escape_debug());
    let hint = "send one JSON-RPC message as application/json";
    Some(refused(peer, StatusCode::UNSUPPORTED_MEDIA_TYPE, FaultKind::InvalidRequest, happened, hint))
}

/// Passes a post of this kind to the session that answers it, or refuses it.
pub(super) async fn brought(http_state: &Arc<HttpState>, post: Post, asked: PostKind) -> Response {
    let peer = post.peer;
    match asked {
        PostKind::Alone { is_introduced, state } => {
            let statuses = if is_introduced { Statuses::Alone } else { Statuses::Nobody };
            let call = post.window.as_ref().and_then(|window| window.call);
            let holder = state.and_then(|state| http_state.holder(&state, &post.caller, call));
            match holder.map_or_else(|| http_state.alone(&post.caller, peer, post.window.clone()), Ok) {
                Ok(session) => post.to(http_state, session, statuses).await,
                Err(full) => too_many(peer, full, "requests"),
            }
        }
        PostKind::Begins => begun(http_state, post).await,
        PostKind::Belongs(name) => match http_state.session(&name, &post.caller, HttpRoute::Streamable) {
            Some(session) => post.to(http_state, session, Statuses::Session).await,
            None => no_such_session(peer),
        },
        PostKind::Differs(id, why) => {
            let hint = "put the same value in the header and in the body";
            let (status, kind) = (StatusCode::BAD_REQUEST, FaultKind::HeaderMismatch);
            HttpRefusal { status, kind, id: id.as_ref(), happened: why, hint, retry_after: None }.answer(peer)
        }
        PostKind::Foreign(id, name) => {
            let happened = format!(
                "{REVISION} names the revision `{}`, which unhang does not support",
                name.escape_debug()
            );
            let hint = "name the revision that `initialize` agreed on";
            let (status, kind) = (StatusCode::BAD_REQUEST, FaultKind::InvalidRequest);
            HttpRefusal { status, kind, id: id.as_ref(), happened, hint, retry_after: None }.answer(peer)
        }
        PostKind::Homeless(id) => {
            let happened = format!("the message belongs to no session: it has no {SESSION}");
            let hint = "begin with `initialize`, and send the name of the session with each later message; or \
                name the revision 2026-07-28 in the headers and the body";
            let (status, kind) = (StatusCode::BAD_REQUEST, FaultKind::InvalidRequest);
            HttpRefusal { status, kind, id: id.as_ref(), happened, hint, retry_after: None }.answer(peer)
        }
        PostKind::Crowd => {
            let happened = "the body is not one JSON-RPC message".to_owned();
            let hint = "send one message with each POST";
            refused(peer, StatusCode::BAD_REQUEST, FaultKind::InvalidRequest, happened, hint)
        }
    }
}

fn no_such_session(peer: PeerAddress) -> Response {
    let happened = "the session does not exist: it has ended, or it never began".to_owned();
    refused(
        peer,
        StatusCode::NOT_FOUND,
        FaultKind::InvalidRequest,
        happened,
        "begin a new session with `initialize`",
    )
}

pub(super) fn ending(peer: PeerAddress) -> Response {
    let hint = "try again in a moment";
    refused(
        peer,
        StatusCode::SERVICE_UNAVAILABLE,
        FaultKind::ShuttingDown,
        "the session is ending".to_owned(),
        hint,
    )
}

pub(super) fn too_many(peer: PeerAddress, full: Full, what: &str) -> Response {
    match full {
        Full::Ending => return ending(peer),
        Full::OfOne => {
            let happened = format!("this client has as many {what} as one client may have");
            return busy(peer, happened, RETRY_MOST);
        }
        Full::All => {}
    }
    let happened = format!("there are too many {what}");
    let status = StatusCode::SERVICE_UNAVAILABLE;
    put_off(peer, status, happened, "try again when some have ended", RETRY_MOST)
}

/// How the codes of errors become statuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Statuses {
    /// In a session they do not, except for the codes of invalid messages. A server's refusal is an answer of the session, whatever its
    /// code.
    Session,
    /// As 2026-07-28 defines them.
    Alone,
    /// The same, for a request that does not say all that it must say of its client.
    Nobody,
}

impl Statuses {
    fn of(self, error: Option<ErrorAnswer>) -> StatusCode {
        let error = error.filter(|error| error.is_ours || self != Statuses::Session);
        match (self, error.map(|error| error.code)) {
            (_, Some(-32700 | -32600)) => StatusCode::BAD_REQUEST,
            (Statuses::Alone | Statuses::Nobody, Some(-32022..=-32020)) => StatusCode::BAD_REQUEST,
            (Statuses::Alone | Statuses::Nobody, Some(-32601)) => StatusCode::NOT_FOUND,
            (Statuses::Nobody, Some(-32602)) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        }
    }
}

/// Returns the trace that headers name.
pub(super) fn trace(headers: &HeaderMap) -> Option<Parent> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Parent::read(text("traceparent")?, text("tracestate"))
}

/// Returns the headers that repeat arguments.
fn param_headers(headers: &HeaderMap) -> ReceivedParamHeaders {
    ReceivedParamHeaders::among(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Returns what the headers say of the window that asks. Returns `None` if they name no window.
fn window(headers: &HeaderMap) -> Option<OfWindow> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let limit = text(LIMIT).and_then(CallLimit::read);
    let call = text(CALL).and_then(WindowCallName::read);
    let order = text(ORDER).map(WindowJobOrder::read_header);
    Some(OfWindow { session: OfSession::read(text(WINDOW)?)?, limit, call, order })
}

/// A post on its way to the session that answers it.
pub(super) struct Post {
    pub(super) peer: PeerAddress,
    pub(super) caller: TokenOwner,
    pub(super) form: ReplyForm,
    /// The trace that its headers name.
    pub(super) trace: Option<Parent>,
    /// The part of its headers about a window, which counts from windows alone.
    pub(super) window: Option<OfWindow>,
    /// The part of its headers that repeats arguments, if it has to be compared with them.
    pub(super) param_headers: Option<ReceivedParamHeaders>,
    pub(super) body: WholeBody,
}

impl Post {
    async fn to(self, http_state: &HttpState, session: SessionHandle, statuses: Statuses) -> Response {
        let peer = self.peer;
        match self.ask(&session).await {
            Some(reply) => answer(http_state, peer, reply, statuses).await,
            None => ending(peer),
        }
    }

    pub(super) async fn ask(self, session: &SessionHandle) -> Option<PostReply> {
        let (reply, replied) = oneshot::channel();
        let Post { body, form, trace, param_headers, .. } = self;
        let WholeBody { bytes: body, room } = body;
        let command = SessionCommand::Post { body, room, form, trace, param_headers, reply };
        session.send(command).await.ok()?;
        replied.await.ok()
    }
}

/// Begins a session, unless its first message is refused.
async fn begun(http_state: &Arc<HttpState>, post: Post) -> Response {
    let (peer, caller) = (post.peer, post.caller.clone());
    let (name, session) = match http_state.begin(&caller, HttpRoute::Streamable) {
        Ok(begun) => begun,
        Err(full) => return too_many(peer, full, "sessions"),
    };
    let reply = post.ask(&session).await;
    let is_begun = matches!(reply, Some(PostReply::Whole(_, None) | PostReply::Events(_)));
    let mut response = match reply {
        Some(reply) => answer(http_state, peer, reply, Statuses::Session).await,
        None => ending(peer),
    };
    let is_session = is_begun && response.status().is_success();
    match HeaderValue::from_str(&name) {
        Ok(value) if is_session => {
            let session = shown(&name);
            tracing::info!(%peer, session, "{peer} ({caller}) begins the session {session}");
            response.headers_mut().insert(SESSION_HEADER, value);
        }
        _ => http_state.forget(&name),
    }
    response
}

/// Makes the response to a post. A response that is sent whole keeps its room in the budget until the client has taken it.
pub(super) async fn answer(
    http_state: &HttpState,
    peer: PeerAddress,
    reply: PostReply,
    statuses: Statuses,
) -> Response {
    match reply {
        PostReply::Taken => StatusCode::ACCEPTED.into_response(),
        PostReply::Whole(line, error) => match roomy(http_state, peer, line).await {
            Ok(line) => (statuses.of(error), [(header::CONTENT_TYPE, JSON)], line).into_response(),
            Err(refusal) => *refusal,
        },
        PostReply::Events(body) => events(Body::new(body)),
        PostReply::Gone => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Takes room in the budget for an answer. Without room the answer is dropped, and the client is told.
async fn roomy(http_state: &HttpState, peer: PeerAddress, answer: Vec<u8>) -> Result<Bytes, Box<Response>> {
    match http_state.budget.room_for(answer.len()).await {
        Ok(None) => Ok(answer.into()),
        Ok(Some(room)) => Ok(room.keep(answer)),
        Err(NoRoom) => {
            let happened =
                format!("other messages use the memory that an answer of {} bytes needs", answer.len());
            let hint = "the server carried out the request, but its answer is lost; try again in a moment, or \
                raise message-memory under [http] of unhang.toml";
            let id = answered_id(&answer);
            let (status, kind) = (StatusCode::SERVICE_UNAVAILABLE, FaultKind::Overloaded);
            let refusal = HttpRefusal {
                status,
                kind,
                id: id.as_ref(),
                happened,
                hint,
                retry_after: Some(ROOM_PATIENCE),
            };
            Err(Box::new(refusal.answer(peer)))
        }
    }
}

/// Returns the id of the answered request.
fn answered_id(answer: &[u8]) -> Option<Id> {
    match wire::read(answer).next() {
        Some(wire::Piece::Message(wire::Message { body: wire::Body::Response { id, .. }, .. })) => Some(id),
        _ => None,
    }
}

fn events(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, EVENTS),
        (header::CACHE_CONTROL, "no-cache"),
        // Without this, nginx buffers the events.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// Refuses a listener that does not accept events.
pub(super) fn no_events(peer: PeerAddress, headers: &HeaderMap) -> Option<Response> {
    if AcceptHeader::by(headers).events {
        return None;
    }
    let happened = "the request does not accept events, and this stream has only events".to_owned();
    let hint = "accept text/event-stream; send messages with POST";
    Some(refused(peer, StatusCode::NOT_ACCEPTABLE, FaultKind::InvalidRequest, happened, hint))
}

/// Opens the event stream of a session for its client.
pub(super) async fn listened(
    State(http_state): State<Arc<HttpState>>,
    Extension(peer): Extension<PeerAddress>,
    Extension(caller): Extension<TokenOwner>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = no_events(peer, &headers) {
        return refusal;
    }
    let session = match session_of(&http_state, peer, &caller, &headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let last = headers.get(LAST_EVENT).map(|id| id.to_str().ok().and_then(parse_id));
    let unknown = || {
        let happened = format!("unhang no longer has the event that {LAST_EVENT} names");
        let hint = "send the requests of that stream again";
        refused(peer, StatusCode::BAD_REQUEST, FaultKind::InvalidRequest, happened, hint)
    };
    let after = match last {
        None => None,
        Some(Some(after)) => Some(after),
        Some(None) => return unknown(),
    };
    let (reply, replied) = oneshot::channel();
    let sent = session.send(SessionCommand::Listen { after, reply }).await;
    match (sent, replied.await) {
        (Ok(()), Ok(PostReply::Gone)) => unknown(),
        (Ok(()), Ok(reply)) => answer(&http_state, peer, reply, Statuses::Session).await,
        _ => no_such_session(peer),
    }
}

/// Ends a session for its client.
pub(super) async fn ended(
    State(http_state): State<Arc<HttpState>>,
    Extension(peer): Extension<PeerAddress>,
    Extension(caller): Extension<TokenOwner>,
    headers: HeaderMap,
) -> Response {
    let session = match session_of(&http_state, peer, &caller, &headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    if let Some(name) = text(&headers, &SESSION_HEADER) {
        http_state.forget(name);
    }
    let (reply, replied) = oneshot::channel();
    let sent = session.send(SessionCommand::End { reply }).await;
    // A session that has ended meanwhile counts as ended, too.
    let _replied = (sent, replied.await);
    StatusCode::OK.into_response()
}

/// Finds the session that a request names. Fails with a refusal if there is none, or if the request's revision has no sessions.
fn session_of(
    http_state: &HttpState,
    peer: PeerAddress,
    caller: &TokenOwner,
    headers: &HeaderMap,
) -> Result<SessionHandle, Box<Response>> {
    let revision = headers.get(REVISION).and_then(|revision| revision.to_str().ok());
    if revision.is_some_and(|name| Revision::of_request(name).is_some()) {
        return Err(Box::new(not_allowed(peer, "the revision 2026-07-28 has no sessions")));
    }
    let Some(name) = text(headers, &SESSION_HEADER) else {
        let happened = format!("the request names no session: it has no {SESSION}");
        let hint = "begin a session with `initialize`";
        return Err(Box::new(refused(
            peer,
            StatusCode::BAD_REQUEST,
            FaultKind::InvalidRequest,
            happened,
            hint,
        )));
    };
    http_state.session(name, caller, HttpRoute::Streamable).ok_or_else(|| Box::new(no_such_session(peer)))
}

fn not_allowed(peer: PeerAddress, why: &str) -> Response {
    wrong_verb(peer, why, "POST", "send messages with POST")
}

/// Refuses a verb, and names the verbs that are allowed.
pub(super) fn wrong_verb(peer: PeerAddress, why: &str, verbs: &'static str, hint: &str) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut response = refused(peer, status, FaultKind::InvalidRequest, why.to_owned(), hint);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(verbs));
    response
}

pub(super) async fn no_such_verb(Extension(peer): Extension<PeerAddress>, method: Method) -> Response {
    let why = format!("{method} is not possible here");
    wrong_verb(peer, &why, "GET, POST, DELETE", "send messages with POST")
}

pub(super) async fn nowhere(Extension(peer): Extension<PeerAddress>, request: Request) -> Response {
    let happened = format!("the path {} does not exist", request.uri().path().escape_debug());
    let hint = match request.uri().path() {
        old::STREAM | old::MESSAGES => {
            "MCP is at /mcp; the HTTP+SSE of 2024-11-05 is there with --sse, or with `sse = true` under [http] of unhang.toml"
        }
        _ => "MCP is at /mcp; the other paths are /health, /ready, /status and /metrics",
    };
    refused(peer, StatusCode::NOT_FOUND, FaultKind::InvalidRequest, happened, hint)
}

/// Handles the request for the metadata that names the authorization server (RFC 9728), below any path of unhang's URL.
pub(super) async fn resource_metadata(
    State(http_state): State<Arc<HttpState>>,
    Extension(peer): Extension<PeerAddress>,
    request: Request,
) -> Response {
    match http_state.access_policy().access.resource() {
        Some(resource) => told(StatusCode::OK, &resource.metadata()),
        None => nowhere(Extension(peer), request).await,
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
