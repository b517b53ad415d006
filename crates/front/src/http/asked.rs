//! Classifies a post: the beginning of a session, a part of one, or a request that stands alone. Checks also whether its headers say the
//! same as its body. Pure.
//!
//! Invariants (2026-07-28, "Request Metadata")
//!
//! - A post that names a revision without sessions, in its body or its headers, stands alone, whatever else it names.
//! - The headers of such a post say exactly what the body says, or it is refused: proxies have read the headers. A header that comes twice
//!   is refused too, for two readers may each take another one.

use std::borrow::Cow;

use unhang_net::serve::axum::http::HeaderMap;
use unhang_wire::{self as wire, Body, Id, Json, Message, MessageShape, Piece, read};

use crate::{client_request::declares_capabilities, parked_calls::own_state};
use unhang_core::revision::Revision;
use unhang_upstream::http::headers::{METHOD, NAME, REVISION, SESSION, decoded, subject};

/// The kind of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostKind {
    /// It begins a session.
    Begins,
    /// It belongs to the session of this name.
    Belongs(String),
    /// It stands alone. `is_introduced` tells whether it says all that such a request must say of its client. `state` is the state of
    /// unhang with which it comes back to a call.
    Alone { is_introduced: bool, state: Option<String> },
    /// The headers do not say what the body says. The id is the request's.
    Differs(Option<Id>, String),
    /// Its header names a revision that does not exist.
    Foreign(Option<Id>, String),
    /// It belongs to a session, but does not name it.
    Homeless(Option<Id>),
    /// It is not a single message: several, or none.
    Crowd,
}

/// A post, as far as the way of its answer depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedPost {
    pub(super) kind: PostKind,
    /// Whether it is a request that wants to hear of its progress.
    pub(super) wants_progress: bool,
}

/// Classifies a post with these headers and this body.
pub(super) fn asked(headers: &HeaderMap, body: &[u8]) -> AskedPost {
    let mut pieces = read(body);
    let piece = match (pieces.next(), pieces.next()) {
        (Some(piece), None) => piece,
        _ => return AskedPost { kind: PostKind::Crowd, wants_progress: false },
    };
    let wants_progress = match &piece {
        Piece::Message(Message { body: Body::Request { params, .. }, .. }) => {
            params.and_then(wire::progress_token).is_some()
        }
        _ => false,
    };
    AskedPost { kind: kind(headers, &piece), wants_progress }
}

fn kind(headers: &HeaderMap, piece: &Piece<'_>) -> PostKind {
    let (id, method, params) = match piece {
        Piece::Message(Message { body: Body::Request { id, method, params, .. }, .. }) => {
            (Some(id.clone()), Some(&**method), *params)
        }
        Piece::Message(Message { body: Body::Notification { method, params }, .. }) => {
            (None, Some(&**method), *params)
        }
        _ => (None, None, None),
    };
    if let Some(why) = comes_twice(headers, REVISION) {
        return PostKind::Differs(id, why);
    }
    let revision = text(headers, REVISION);
    let named = params.and_then(wire::request_version);
    let session = text(headers, SESSION).map(Cow::into_owned);
    let is_of_session = |name: &str| session.is_some() && Revision::of_handshake(name).is_some();
    let stands_alone = revision.as_deref().is_some_and(|name| Revision::of_request(name).is_some())
        || named.as_deref().is_some_and(|name| !is_of_session(name));
    if stands_alone {
        let (revision, named) = (revision.as_deref(), named.as_deref());
        return match differs(headers, id.is_some(), revision, named, method, params) {
            Some(why) => PostKind::Differs(id, why),
            _ => PostKind::Alone {
                is_introduced: named.is_some() && params.is_some_and(declares_capabilities),
                state: own_state(params),
            },
        };
    }
    if let Some(name) = revision.filter(|name| Revision::of_handshake(name).is_none()) {
        return PostKind::Foreign(id, name.into_owned());
    }
    match (method, session, piece) {
        (Some("initialize"), _, _) => PostKind::Begins,
        (_, Some(session), _) => PostKind::Belongs(session),
        (_, None, Piece::Message(_) | Piece::Batch(_)) => PostKind::Homeless(id),
        // A piece that is not a message belongs nowhere, and is answered for what it is.
        (_, None, Piece::Invalid(_) | Piece::Junk(_)) => PostKind::Alone { is_introduced: true, state: None },
    }
}

/// Returns the kind of a post that should be a message, by its body alone. Returns `None` if it is one message, one array of a sender's messages,
/// or an invalid answer.
pub(super) fn no_message(body: &[u8]) -> Option<PostKind> {
    let mut pieces = read(body);
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Message(_) | Piece::Batch(_)), None) => None,
        // The session knows whether it answers a question.
        (Some(Piece::Invalid(invalid)), None)
            if invalid.id.is_some() && invalid.shape == MessageShape::Response =>
        {
            None
        }
        // The answer to it says what it is instead.
        (Some(Piece::Invalid(_) | Piece::Junk(_)), None) => {
            Some(PostKind::Alone { is_introduced: true, state: None })
        }
        _ => Some(PostKind::Crowd),
    }
}

/// Returns the first difference between the headers and the body. Returns `None` if there is none.
fn differs(
    headers: &HeaderMap,
    is_request: bool,
    revision: Option<&str>,
    named: Option<&str>,
    method: Option<&str>,
    params: Option<Json<'_>>,
) -> Option<String> {
    if let Some(why) = [METHOD, NAME].into_iter().find_map(|name| comes_twice(headers, name)) {
        return Some(why);
    }
    let Some(revision) = revision else { return Some(format!("the header {REVISION} is missing")) };
    if let Some(named) = named.filter(|named| *named != revision) {
        return Some(format!("{REVISION} is `{revision}`, but the body names `{named}`"));
    }
    // The specification requires it of requests alone.
    let method = method.filter(|_| is_request)?;
    // An unknown revision is refused as such, whatever else is wrong.
    Revision::of_request(revision)?;
    let Some(told) = text(headers, METHOD) else { return Some(format!("the header {METHOD} is missing")) };
    if told != method {
        return Some(format!("{METHOD} is `{told}`, but the method is `{}`", method.escape_debug()));
    }
    let member = subject(method)?;
    // Without the member nothing can differ, and the request is refused for lacking it.
    let about = wire::text_member(params?, member)?;
    let Some(told) = text(headers, NAME) else { return Some(format!("the header {NAME} is missing")) };
    match decoded(&told) {
        Some(told) if told == about => None,
        Some(told) => Some(format!("{NAME} is `{}`, but {member} is different", told.escape_debug())),
        None => Some(format!("{NAME} has characters that a header cannot have")),
    }
}

/// Returns what is wrong if there are several headers of this name, even if they say the same.
fn comes_twice(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    values.next()?;
    values.next().map(|_| format!("{name} came more than once"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use unhang_net::serve::axum::http::{HeaderName, HeaderValue};

    use super::*;

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

    fn kind_of(headers: &[(&'static str, &str)], body: &str) -> PostKind {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        };
        asked(&headers.iter().map(header).collect(), body.as_bytes()).kind
    }

    /// A request whose body names this revision.
    fn naming(revision: &str, capabilities: &str, more: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo"{more},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{revision}"{capabilities}}}}}}}"#
        )
    }

    const CAPABILITIES: &str = r#","io.modelcontextprotocol/clientCapabilities":{}"#;
    const NEW: (&str, &str) = (REVISION, "2026-07-28");
    const OLD: (&str, &str) = (REVISION, "2025-11-25");
    const OURS: (&str, &str) = (SESSION, "s");
    const CALL: (&str, &str) = (METHOD, "tools/call");
    const ECHO: (&str, &str) = (NAME, "echo");

    fn alone(is_introduced: bool, state: Option<&str>) -> PostKind {
        PostKind::Alone { is_introduced, state: state.map(str::to_owned) }
    }

    #[test]
    fn a_post_begins_a_session_belongs_to_one_or_stands_alone() {
        let id = || Some(Id::from(1));
        let begins = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let belongs = || PostKind::Belongs("s".to_owned());
        let whole = naming("2026-07-28", CAPABILITIES, "");
        let missing = |header: &str| PostKind::Differs(id(), format!("the header {header} is missing"));
        for (headers, body, expect) in [
            (&[][..], begins, PostKind::Begins),
            (&[OURS], begins, PostKind::Begins),
            (&[OLD], begins, PostKind::Begins),
            (&[OURS], LIST, belongs()),
            (&[OURS, OLD], LIST, belongs()),
            (&[OURS], response, belongs()),
            (&[OURS], "garbage", belongs()),
            (&[], LIST, PostKind::Homeless(id())),
            (&[], notification, PostKind::Homeless(None)),
            (&[], response, PostKind::Homeless(None)),
            (&[], &format!("[{LIST}]"), PostKind::Homeless(None)),
            (&[], "garbage", alone(true, None)),
            (&[], r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, alone(true, None)),
            (&[], "", PostKind::Crowd),
            (&[OURS], &format!("{LIST}{LIST}"), PostKind::Crowd),
            // Some clients name the revision of their session with each request.
            (&[OURS], &naming("2025-11-25", "", ""), belongs()),
            (&[OURS], &naming("2026-07-28", "", ""), missing(REVISION)),
            (&[OURS], &naming("1999-01-01", "", ""), missing(REVISION)),
            (&[], &naming("2025-11-25", "", ""), missing(REVISION)),
            // Which revisions there are is told to whoever names another one.
            (&[OLD], &naming("2025-11-25", CAPABILITIES, ""), alone(true, None)),
            (&[(REVISION, "1999-01-01")], LIST, PostKind::Foreign(id(), "1999-01-01".to_owned())),
            (&[(REVISION, "1999-01-01"), OURS], LIST, PostKind::Foreign(id(), "1999-01-01".to_owned())),
            (&[NEW, CALL, ECHO], &whole, alone(true, None)),
            (&[NEW, CALL, ECHO, OURS], &whole, alone(true, None)),
            (&[NEW, CALL, ECHO], &naming("2026-07-28", "", ""), alone(false, None)),
            (&[NEW, (METHOD, "tools/list")], LIST, alone(false, None)),
            (
                &[NEW, CALL, ECHO],
                &naming("2026-07-28", CAPABILITIES, r#","requestState":"unhang.a.1""#),
                alone(true, Some("unhang.a.1")),
            ),
            (
                &[NEW, CALL, ECHO],
                &naming("2026-07-28", CAPABILITIES, r#","requestState":"a server's""#),
                alone(true, None),
            ),
            // Only a request has to say in its headers what it is about.
            (&[NEW], notification, alone(false, None)),
            (&[NEW], &whole, missing(METHOD)),
            (&[NEW, CALL], &whole, missing(NAME)),
        ] {
            assert_eq!(kind_of(headers, body), expect, "{headers:?} {body}");
        }
    }

    #[test]
    fn a_header_that_says_something_else_than_the_body_is_named() {
        let whole = naming("2026-07-28", CAPABILITIES, "");
        for (headers, why) in [
            (&[OLD, CALL, ECHO][..], "mcp-protocol-version is `2025-11-25`, but the body names `2026-07-28`"),
            (
                &[NEW, (METHOD, "tools/list"), ECHO],
                "mcp-method is `tools/list`, but the method is `tools/call`",
            ),
            (&[NEW, CALL, (NAME, "slow")], "mcp-name is `slow`, but name is different"),
            (&[NEW, CALL, (NAME, "=?base64?c2xvdw==?=")], "mcp-name is `slow`, but name is different"),
            (&[NEW, CALL, (NAME, "a\tb")], r"mcp-name is `a\tb`, but name is different"),
            (&[NEW, CALL, (NAME, "\u{e9}cho")], "mcp-name has characters that a header cannot have"),
            (&[NEW, CALL, (NAME, "=?base64?!?=")], "mcp-name has characters that a header cannot have"),
            (&[NEW, CALL, (NAME, "=?base64?/w==?=")], "mcp-name has characters that a header cannot have"),
        ] {
            let expect = PostKind::Differs(Some(Id::from(1)), why.to_owned());
            assert_eq!(kind_of(headers, &whole), expect, "{headers:?}");
        }
        for name in ["echo", "=?base64?ZWNobw==?="] {
            assert_eq!(kind_of(&[NEW, CALL, (NAME, name)], &whole), alone(true, None), "{name}");
        }
    }

    #[test]
    fn a_header_that_routes_comes_once() {
        let whole = naming("2026-07-28", CAPABILITIES, "");
        for (twice, other) in [(NEW, OLD), (CALL, (METHOD, "tools/list")), (ECHO, (NAME, "slow"))] {
            for second in [twice, other] {
                for order in [[twice, second], [second, twice]] {
                    let rest = [NEW, CALL, ECHO].into_iter().filter(|header| header.0 != twice.0);
                    let headers: Vec<_> = rest.chain(order).collect();
                    let expect =
                        PostKind::Differs(Some(Id::from(1)), format!("{} came more than once", twice.0));
                    assert_eq!(kind_of(&headers, &whole), expect, "{headers:?}");
                }
            }
        }
        // In a session the revision alone has a meaning.
        let twice =
            PostKind::Differs(Some(Id::from(1)), "mcp-protocol-version came more than once".to_owned());
        assert_eq!(kind_of(&[OURS, OLD, NEW], LIST), twice);
        assert_eq!(kind_of(&[OURS, OLD, ECHO, ECHO], LIST), PostKind::Belongs("s".to_owned()));
    }

    #[test]
    fn a_body_is_one_message_or_is_answered_for_what_it_is() {
        for (body, expect) in [
            (LIST.to_owned(), None),
            (format!("[{LIST},{LIST}]"), None),
            (format!("{LIST}\n{LIST}"), Some(PostKind::Crowd)),
            (String::new(), Some(PostKind::Crowd)),
            ("garbage".to_owned(), Some(alone(true, None))),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_owned(), Some(alone(true, None))),
            (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#.to_owned(), None),
            (r#"{"jsonrpc":"2.0","error":"no"}"#.to_owned(), Some(alone(true, None))),
        ] {
            assert_eq!(no_message(body.as_bytes()), expect, "{body}");
        }
    }
}
