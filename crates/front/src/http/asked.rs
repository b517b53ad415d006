//! What a post is: the beginning of a session, a part of one, or a request that stands alone; and whether its headers say what its
//! body does. Pure.
//!
//! Invariants (2026-07-28, "Request Metadata")
//!
//! - A post that names a revision without sessions, in its body or in its headers, stands alone, whatever else it names.
//! - Of such a post the headers say exactly what the body says, or it is refused: whoever stands in between has read the headers.

use std::borrow::Cow;

use data_encoding::BASE64;
use unhang_net::serve::axum::http::HeaderMap;
use unhang_switches::stands;
use unhang_wire::{self as wire, Body, Id, Json, Message, Piece, read};

use crate::{client_request::declares_capabilities, parked_calls::own_state};
use unhang_core::revision::Revision;
use unhang_upstream::http::headers::{METHOD, NAME, REVISION, SESSION, subject};

/// What a post is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostKind {
    /// It begins a session.
    Begins,
    /// It belongs to the session of this name.
    Belongs(String),
    /// It stands alone. Whether it says all that such a request has to say of its client, and the state of ours with which it comes
    /// back to a call.
    Alone { is_introduced: bool, state: Option<String> },
    /// The headers do not say what the body says. The id is that of the request.
    Differs(Option<Id>, String),
    /// It names a revision for its session that there is none of.
    Foreign(Option<Id>, String),
    /// It belongs to a session, and does not say to which.
    Homeless(Option<Id>),
    /// It is not one message: several, or none.
    Crowd,
}

/// What a post with these headers and this body is.
pub(super) fn asked(headers: &HeaderMap, body: &[u8]) -> PostKind {
    let mut pieces = read(body);
    let piece = match (pieces.next(), pieces.next()) {
        (Some(piece), None) => piece,
        _ => return PostKind::Crowd,
    };
    let (id, method, params) = match &piece {
        Piece::Message(Message { body: Body::Request { id, method, params, .. }, .. }) => {
            (Some(id.clone()), Some(&**method), *params)
        }
        Piece::Message(Message { body: Body::Notification { method, params }, .. }) => {
            (None, Some(&**method), *params)
        }
        _ => (None, None, None),
    };
    let revision = text(headers, REVISION);
    let named = params.and_then(wire::request_version);
    let session = text(headers, SESSION).map(Cow::into_owned);
    let is_of_session = |name: &str| session.is_some() && Revision::of_handshake(name).is_some();
    let stands_alone = revision.as_deref().is_some_and(|name| Revision::of_request(name).is_some())
        || named.as_deref().is_some_and(|name| !is_of_session(name));
    if stands_alone {
        let (revision, named) = (revision.as_deref(), named.as_deref());
        return match differs(headers, id.is_some(), revision, named, method, params) {
            Some(why) if stands("headers-say-what-the-body-says") => PostKind::Differs(id, why),
            _ => PostKind::Alone {
                is_introduced: named.is_some() && params.is_some_and(declares_capabilities),
                state: own_state(params),
            },
        };
    }
    if let Some(name) = revision.filter(|name| Revision::of_handshake(name).is_none()) {
        return PostKind::Foreign(id, name.into_owned());
    }
    match (method, session, &piece) {
        (Some("initialize"), _, _) => PostKind::Begins,
        (_, Some(session), _) => PostKind::Belongs(session),
        (_, None, Piece::Message(_) | Piece::Batch(_)) => PostKind::Homeless(id),
        // What is no message belongs nowhere, and is answered for what it is.
        (_, None, Piece::Invalid(_) | Piece::Junk(_)) => PostKind::Alone { is_introduced: true, state: None },
    }
}

/// What a post is that was to be a message, by its body alone; nothing, where it is one, or several of one sender's in an array.
pub(super) fn no_message(body: &[u8]) -> Option<PostKind> {
    let mut pieces = read(body);
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Message(_) | Piece::Batch(_)), None) => None,
        // What it is instead is said by whoever answers it.
        (Some(Piece::Invalid(_) | Piece::Junk(_)), None) => {
            Some(PostKind::Alone { is_introduced: true, state: None })
        }
        _ => Some(PostKind::Crowd),
    }
}

/// In what the headers differ from the body.
fn differs(
    headers: &HeaderMap,
    is_request: bool,
    revision: Option<&str>,
    named: Option<&str>,
    method: Option<&str>,
    params: Option<Json<'_>>,
) -> Option<String> {
    let Some(revision) = revision else { return Some(format!("there is no {REVISION}")) };
    if let Some(named) = named.filter(|named| *named != revision) {
        return Some(format!("{REVISION} is `{revision}`, and the body names `{named}`"));
    }
    // The text asks it of requests alone.
    let method = method.filter(|_| is_request)?;
    // What this revision is not is told of that, whatever else is wrong.
    Revision::of_request(revision)?;
    let Some(told) = text(headers, METHOD) else { return Some(format!("there is no {METHOD}")) };
    if told != method {
        return Some(format!("{METHOD} is `{told}`, and the method `{}`", method.escape_debug()));
    }
    let member = subject(method)?;
    // Without it there is nothing that could differ, and the request is refused for that.
    let about = wire::text_member(params?, member)?;
    let Some(told) = text(headers, NAME) else { return Some(format!("there is no {NAME}")) };
    match decoded(&told) {
        Some(told) if told == about => None,
        Some(told) => Some(format!("{NAME} is `{}`, and {member} another", told.escape_debug())),
        None => Some(format!("{NAME} has what no header can have")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// What a header stands for.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix("=?base64?").and_then(|value| value.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok().map(Cow::Owned),
        None => value.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t')).then_some(Cow::Borrowed(value)),
    }
}
