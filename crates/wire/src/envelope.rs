//! The top-level members of one JSON object, and what kind of message they make.
//!
//! Invariants
//!
//! - Members are kept as raw text; nothing below the top level is built, and skipping never recurses.
//! - Names are compared decoded (`"\u0069d"` is `id`), as every reader behind us will do.
//! - Members of the envelope that occur twice are noticed; unknown members are ignored, twice or not.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use unhang_switches::stands;

use crate::Id;
use crate::id::is_integer;
use crate::message::{Body, Invalid, Message, Outcome, Piece, Reason, Shape};

/// The members of an object that matter to JSON-RPC, as they stand in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    duplicate: Option<&'static str>,
    duplicate_id: bool,
}

impl<'a> Envelope<'a> {
    /// What the object is; `raw` are its bytes, of which the members are parts.
    pub(crate) fn classify(self, raw: &'a [u8]) -> Piece<'a> {
        if !self.is_ours() && stands("log-record-is-no-message") {
            return Piece::Junk(raw);
        }
        match self.body(raw) {
            Ok(body) => Piece::Message(Message { raw, body }),
            Err(reason) => Piece::Invalid(self.invalid(raw, reason)),
        }
    }

    /// Whether the object was meant as JSON-RPC at all; the table in [`crate::read`].
    fn is_ours(&self) -> bool {
        self.jsonrpc.is_some() || (self.id.is_some() && (self.method.is_some() || self.has_outcome()))
    }

    fn has_outcome(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }

    fn body(&self, raw: &'a [u8]) -> Result<Body<'a>, Reason> {
        if let Some(member) = self.duplicate
            && stands("member-once")
        {
            return Err(Reason::DuplicateMember { member });
        }
        if stands("json-rpc-version") {
            let version = self.jsonrpc.ok_or(Reason::MissingVersion)?;
            if decode(version).is_none_or(|version| version != "2.0") {
                return Err(Reason::WrongVersion);
            }
        }
        let id = self.id.map(|text| read_id(text).map(|id| (id, span(text, raw)))).transpose()?;
        match self.method {
            Some(_) if self.has_outcome() && stands("method-or-outcome") => Err(Reason::ResultAndMethod),
            Some(method) => self.call(id, method),
            None => self.response(id),
        }
    }

    fn call(&self, id: Option<(Id, Range<usize>)>, method: &'a RawValue) -> Result<Body<'a>, Reason> {
        let method = decode(method).ok_or(Reason::BadMethod)?;
        // Some clients write an absent member as null; to refuse what servers take would break them.
        let params = self.params.filter(|params| params.get() != "null");
        let structured = params.is_none_or(|params| params.get().starts_with(['{', '[']));
        if !structured && stands("params-structured") {
            return Err(Reason::BadParams);
        }
        Ok(match id {
            Some((id, id_span)) => Body::Request { id, id_span, method, params },
            None => Body::Notification { method, params },
        })
    }

    fn response(&self, id: Option<(Id, Range<usize>)>) -> Result<Body<'a>, Reason> {
        let outcome = match (self.result, self.error) {
            (Some(_), Some(_)) if stands("one-outcome") => return Err(Reason::BothOutcomes),
            (Some(result), _) => Outcome::Result(result),
            (None, Some(error)) if is_error(error) || !stands("error-shape") => Outcome::Error(error),
            (None, Some(_)) => return Err(Reason::BadError),
            (None, None) if id.is_some() && self.params.is_none() => return Err(Reason::MissingOutcome),
            (None, None) => return Err(Reason::MissingMethod),
        };
        let (id, id_span) = id.ok_or(Reason::MissingId)?;
        Ok(Body::Response { id, id_span, outcome })
    }

    fn invalid(&self, raw: &'a [u8], reason: Reason) -> Invalid<'a> {
        let shape =
            Shape::of(self.method.is_some(), self.has_outcome(), self.id.is_some(), self.params.is_some());
        // Two ids: whoever sent it, nobody can tell which one is awaited.
        let text = self.id.filter(|_| !self.duplicate_id || !stands("id-of-doubt"));
        let id = text.and_then(|text| read_id(text).ok());
        let raw_id = text.map(RawValue::get).filter(|text| text.len() <= Id::MAX_JSON);
        Invalid { raw, id, raw_id, shape, reason }
    }

    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<&'a RawValue>)> {
        Some(match name {
            "jsonrpc" => ("jsonrpc", &mut self.jsonrpc),
            "id" => ("id", &mut self.id),
            "method" => ("method", &mut self.method),
            "params" => ("params", &mut self.params),
            "result" => ("result", &mut self.result),
            "error" => ("error", &mut self.error),
            _ => return None,
        })
    }

    fn set(&mut self, name: &str, value: &'a RawValue) {
        let Some((member, slot)) = self.slot(name) else { return };
        if slot.replace(value).is_some() {
            self.duplicate.get_or_insert(member);
            self.duplicate_id |= member == "id";
        }
    }
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        // Raw names and raw values, even of members that are ignored: this is what checks that all of it is UTF-8,
        // and a name with half a surrogate pair in it does not spoil the message.
        while let Some(name) = members.next_key::<&RawValue>()? {
            let value = members.next_value::<&RawValue>()?;
            if let Some(name) = decode(name) {
                envelope.set(&name, value);
            }
        }
        Ok(envelope)
    }
}

/// The text of a JSON string, borrowed where it has no escapes; `None` for other values and for half a surrogate pair.
pub(crate) fn decode(value: &RawValue) -> Option<Cow<'_, str>> {
    let quoted = value.get();
    let text = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', text.as_bytes()).is_none() || !stands("names-decoded") {
        return Some(Cow::Borrowed(text));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}

fn read_id(text: &RawValue) -> Result<Id, Reason> {
    if text.get().len() > Id::MAX_JSON && stands("id-bounded") {
        return Err(Reason::LongId);
    }
    Id::from_json(text.get()).ok_or(Reason::BadId)
}

/// Where `part` stands in `whole`, of which it is a sub-slice.
fn span(part: &RawValue, whole: &[u8]) -> Range<usize> {
    let start = part.get().as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.get().len()
}

/// Whether `error` is an object with an integer code and a string message.
fn is_error(error: &RawValue) -> bool {
    serde_json::from_str::<ErrorShape>(error.get()).is_ok_and(|shape| shape.code && shape.message)
}

/// Whether the members of an error are there and of the right type.
#[derive(Default)]
struct ErrorShape {
    code: bool,
    message: bool,
}

impl<'de> Deserialize<'de> for ErrorShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ErrorVisitor)
    }
}

struct ErrorVisitor;

impl<'de> Visitor<'de> for ErrorVisitor {
    type Value = ErrorShape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an error object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut shape = ErrorShape::default();
        while let Some(name) = members.next_key::<&RawValue>()? {
            match decode(name).as_deref() {
                Some("code") => shape.code = is_integer(members.next_value::<&RawValue>()?.get()),
                Some("message") => shape.message = decode(members.next_value::<&RawValue>()?).is_some(),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(shape)
    }
}
