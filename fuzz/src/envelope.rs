//! Envelope: what is taken from a line as a message is one, by somebody else's judgement, and nothing is lost.

use unhang_wire::{
    self as wire, Body, Id, Invalid, InvalidReason, Json, MAX_BATCH, Message, Piece, ResponseOutcome,
    one_line, read, replace_id,
};

use crate::json::{self, JsonObject};

/// The members of an envelope; each may occur once.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The bytes are one line.
///
/// # Panics
/// When an invariant is broken.
pub fn envelope(line: &[u8]) {
    assert_eq!(Json::new(line).map(Json::get), json::value(line), "what is JSON, and what is not");
    let pieces: Vec<_> = read(line).collect();
    let mut covered = 0;
    for piece in &pieces {
        loses_nothing(line, piece, &mut covered);
        judge(piece);
    }
    assert!(json::trim(&line[covered..]).is_empty(), "lost behind the last piece");
    judge_line(line, &pieces);
}

/// Every byte is in one piece, in order; between them is white space.
fn loses_nothing(line: &[u8], piece: &Piece<'_>, covered: &mut usize) {
    let raws = match piece {
        Piece::Batch(elements) => elements.iter().map(raw).collect(),
        piece => vec![raw(piece)],
    };
    let syntax: &[u8] = if matches!(piece, Piece::Batch(_)) { b" \t\r\n[,]" } else { b" \t\r\n" };
    for raw in raws {
        let start = raw.as_ptr().addr() - line.as_ptr().addr();
        assert!(start >= *covered && start + raw.len() <= line.len(), "a piece is a part of the line");
        assert!(line[*covered..start].iter().all(|byte| syntax.contains(byte)), "lost before {start}");
        assert!(!json::trim(raw).is_empty(), "no piece is empty");
        *covered = start + raw.len();
    }
    if matches!(piece, Piece::Batch(_)) {
        let end = line[*covered..].iter().position(|byte| *byte == b']');
        *covered += end.expect("a batch has an end") + 1;
    }
}

fn raw<'a>(piece: &Piece<'a>) -> &'a [u8] {
    match piece {
        Piece::Message(message) => message.raw,
        Piece::Invalid(invalid) => invalid.raw,
        Piece::Junk(junk) => junk,
        Piece::Batch(_) => panic!("batches are never nested"),
    }
}

fn judge(piece: &Piece<'_>) {
    match piece {
        Piece::Message(message) => judge_message(message),
        Piece::Invalid(invalid) => judge_invalid(invalid),
        Piece::Junk(_) => {}
        Piece::Batch(elements) => {
            assert!(!elements.is_empty() && elements.len() <= MAX_BATCH);
            elements.iter().for_each(judge);
        }
    }
}

/// What a whole JSON value is, by the table at [`unhang_wire::read`].
#[derive(Debug, PartialEq)]
enum ValueKind {
    Message,
    Invalid,
    Junk,
}

fn verdict(object: &JsonObject<'_>) -> ValueKind {
    let has = |name| object.has(name);
    let outcome = has("result") || has("error");
    let is_ours = has("jsonrpc") || (has("id") && (has("method") || outcome));
    match (is_ours, is_message(object)) {
        (false, _) => ValueKind::Junk,
        (true, Some(())) => ValueKind::Message,
        (true, None) => ValueKind::Invalid,
    }
}

/// JSON-RPC 2.0, sections 4 and 5, and MCP's rule that an id is a string or an integer.
fn is_message(object: &JsonObject<'_>) -> Option<()> {
    let holds = |condition: bool| condition.then_some(());
    holds(MEMBERS.iter().all(|name| object.all(name).len() <= 1))?;
    holds(json::text(object.only("jsonrpc")?)? == "2.0")?;
    let id = object.only("id");
    holds(id.is_none_or(|id| json::id(id).is_some()))?;
    if let Some(method) = object.only("method") {
        json::text(method)?;
        holds(!object.has("result") && !object.has("error"))?;
        // An absent member may be written as null.
        return holds(
            object.only("params").is_none_or(|params| params == "null" || params.starts_with(['{', '['])),
        );
    }
    holds(id.is_some() && object.has("result") != object.has("error"))?;
    let Some(error) = object.only("error") else { return Some(()) };
    let error = JsonObject::new(error)?;
    // Only the envelope's own members are looked at twice.
    let code = error.last("code")?;
    json::text(error.last("message")?)?;
    holds(!code.starts_with('"') && is_integer(code))
}

fn is_integer(number: &str) -> bool {
    number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
}

fn judge_message(message: &Message<'_>) {
    let value = json::value(message.raw).expect("a message is JSON");
    let object = JsonObject::new(value).expect("a message is an object");
    assert_eq!(verdict(&object), ValueKind::Message, "{value}");
    let same = |name: &str, raw: Option<Json<'_>>| {
        let expected = object.only(name).filter(|value| name != "params" || *value != "null");
        assert_eq!(raw.map(Json::get), expected, "`{name}` as it came");
    };
    let method = object.only("method").and_then(json::text);
    match &message.body {
        Body::Request { id, id_span, method: found, params } => {
            assert_eq!(Some(&**found), method.as_deref());
            same("params", *params);
            params.iter().for_each(|params| peek(*params));
            judge_id(message, &object, id, id_span);
        }
        Body::Notification { method: found, params } => {
            assert_eq!(Some(&**found), method.as_deref());
            assert!(!object.has("id"));
            same("params", *params);
            params.iter().for_each(|params| peek(*params));
        }
        Body::Response { id, id_span, outcome } => {
            assert_eq!(method, None);
            match outcome {
                ResponseOutcome::Result(result) => same("result", Some(*result)),
                ResponseOutcome::Error(error) => same("error", Some(*error)),
            }
            judge_id(message, &object, id, id_span);
        }
    }
    let line = one_line(message.raw);
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "one line for every reader");
    assert!(matches!(read(&line).next(), Some(Piece::Message(_))), "still a message");
    let is_blank =
        |(before, after): (&u8, &u8)| before == after || (b"\r\n".contains(before) && *after == b' ');
    assert!(line.len() == message.raw.len() && message.raw.iter().zip(&*line).all(is_blank));
}

/// The id stands where it is said to, and can be replaced without anything else being touched.
fn judge_id(message: &Message<'_>, object: &JsonObject<'_>, id: &Id, span: &std::ops::Range<usize>) {
    let text = object.only("id").expect("it has an id");
    assert_eq!(&message.raw[span.clone()], text.as_bytes(), "the id stands there");
    assert_eq!(Some(id.to_json()), json::id(text));
    assert_eq!(Id::from_json(&id.to_json()).as_ref(), Some(id), "an id reads back");
    if let Some(variant) = id.variant() {
        assert_eq!(variant.variant().as_ref(), Some(id), "the other type and back");
    }
    for other in [Id::Integer(-42), Id::from("\"\\\n")] {
        let replaced = replace_id(message.raw, span.clone(), &other);
        let Some(Piece::Message(again)) = read(&replaced).next() else {
            panic!("no message with another id")
        };
        let (Body::Request { id: found, id_span, .. } | Body::Response { id: found, id_span, .. }) =
            &again.body
        else {
            panic!("another kind of message with another id")
        };
        assert_eq!((found, again.raw.len()), (&other, replaced.len()));
        assert_eq!(
            replace_id(again.raw, id_span.clone(), id).len() + text.len(),
            message.raw.len() + id.to_json().len()
        );
        assert_eq!(&replaced[..span.start], &message.raw[..span.start]);
        assert_eq!(&replaced[id_span.end..], &message.raw[span.end..]);
    }
}

fn judge_invalid(invalid: &Invalid<'_>) {
    let whole = json::value(invalid.raw);
    let broken = matches!(invalid.reason, InvalidReason::NotJson | InvalidReason::InvalidUtf8);
    assert_eq!(whole.is_none(), broken, "{invalid:?}");
    let Some(object) = whole.and_then(JsonObject::new) else { return };
    assert_eq!(verdict(&object), ValueKind::Invalid, "{invalid:?}");
    assert_eq!(invalid.shape, json::shape(&object), "{invalid:?}");
    let text = object.only("id");
    assert_eq!(invalid.id.as_ref().map(Id::to_json), text.and_then(json::id), "{invalid:?}");
    assert_eq!(invalid.raw_id, text.filter(|text| text.len() <= Id::MAX_JSON), "{invalid:?}");
}

/// A line that is one JSON value is judged as that, and one that begins as an object and breaks is given up whole.
fn judge_line(line: &[u8], pieces: &[Piece<'_>]) {
    let trimmed = json::trim(line);
    let Some(value) = json::value(line) else {
        let inside = trimmed.strip_prefix(b"{").map(json::trim);
        if inside.is_some_and(|inside| inside.starts_with(b"\"")) && !json::begins_with_value(trimmed) {
            assert!(
                matches!(pieces, [Piece::Invalid(_)]),
                "nothing is recovered from what is broken: {pieces:?}"
            );
        }
        return;
    };
    let [piece] = pieces else { panic!("one value, one piece: {pieces:?}") };
    match (value.as_bytes()[0], piece) {
        (b'{', piece) => {
            let object = JsonObject::new(value).expect("it begins as one");
            assert_eq!(kind(piece), verdict(&object), "{value}");
        }
        (b'[', Piece::Batch(elements)) => {
            let parts = json::parts(value);
            assert_eq!(parts.len(), elements.len());
            for (part, element) in parts.iter().zip(elements) {
                let expected = JsonObject::new(part).map_or(ValueKind::Invalid, |object| verdict(&object));
                assert_eq!(kind(element), expected, "{part}");
            }
        }
        (b'[', Piece::Invalid(invalid)) => {
            let count = json::parts(value).len();
            assert!(count == 0 || count > MAX_BATCH, "{invalid:?}");
        }
        (_, piece) => assert_eq!(kind(piece), ValueKind::Junk, "{value}"),
    }
}

fn kind(piece: &Piece<'_>) -> ValueKind {
    match piece {
        Piece::Message(_) => ValueKind::Message,
        Piece::Invalid(_) => ValueKind::Invalid,
        Piece::Junk(_) => ValueKind::Junk,
        Piece::Batch(_) => panic!("a batch is an array, and alone"),
    }
}

/// The looks into `params` see what is there.
fn peek(params: Json<'_>) {
    let object = JsonObject::new(params.get());
    let member = |name: &str| object.as_ref().and_then(|object| object.last(name));
    let inner = |value: Option<&str>, name: &str| {
        value.and_then(JsonObject::new).and_then(|object| object.last(name).map(str::to_owned))
    };
    let meta = |name: &str| inner(member("_meta"), name);
    let id = |value: Option<&str>| value.and_then(json::id);
    let text = |value: Option<String>| value.as_deref().and_then(json::text);
    let written = |id: Option<Id>| id.map(|id| id.to_json());

    assert_eq!(written(wire::notified_token(params)), id(member("progressToken")));
    assert_eq!(written(wire::cancelled_request(params)), id(member("requestId")));
    assert_eq!(wire::text_member(params, "uri"), member("uri").and_then(json::text));
    // Names that are written with escapes are not looked for there.
    if params.get().contains("progressToken") {
        assert_eq!(written(wire::progress_token(params)), id(meta("progressToken").as_deref()));
    }
    if params.get().contains("protocolVersion") {
        assert_eq!(wire::request_version(params), text(meta("io.modelcontextprotocol/protocolVersion")));
    }
    if params.get().contains("clientInfo") {
        let stateless = meta("io.modelcontextprotocol/clientInfo");
        let name =
            text(inner(member("clientInfo"), "name")).or_else(|| text(inner(stateless.as_deref(), "name")));
        assert_eq!(wire::client_name(params), name);
    }
}
