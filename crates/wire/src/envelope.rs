//! The top-level members of one JSON object, and the kind of message that they make.
//!
//! Invariants
//!
//! - Members are kept as raw text. Nothing below the top level is built, and skipping never recurses.
//! - Names are compared decoded (`"\u0069d"` is `id`), as every later reader compares them.
//! - Members of the envelope that occur twice are noticed. Unknown members are ignored, even if they occur twice.

use std::ops::Range;

use crate::id::is_integer;
use crate::json::object;
use crate::message::{Body, Invalid, InvalidReason, Message, MessageShape, Piece, ResponseOutcome};
use crate::{Id, Json};

/// The members of an object that matter to JSON-RPC, as they stand in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Envelope<'a> {
    jsonrpc: Option<Json<'a>>,
    id: Option<Json<'a>>,
    method: Option<Json<'a>>,
    params: Option<Json<'a>>,
    result: Option<Json<'a>>,
    error: Option<Json<'a>>,
    duplicate: Option<&'static str>,
    duplicate_id: bool,
}

impl<'a> Envelope<'a> {
    /// Reads the object at the beginning of `text`, and returns it with its length. Returns `None` if it is broken or not in UTF-8.
    pub(crate) fn read(text: &'a [u8]) -> Option<(Self, usize)> {
        let mut envelope = Self::default();
        let length = object(text, |name, value| {
            // Ignored members are looked at too: this checks that the whole object is UTF-8. A name with half a surrogate pair does not
            // make the message invalid.
            let (name, value) = (Json::in_utf8(name)?, Json::in_utf8(value)?);
            if let Some(name) = name.text() {
                envelope.set(&name, value);
            }
            Some(())
        })?;
        Some((envelope, length))
    }

    /// Sorts the object into valid, invalid and junk. `raw` are its bytes, of which the members are parts.
    pub(crate) fn classify(self, raw: &'a [u8]) -> Piece<'a> {
        if !self.is_ours() {
            return Piece::Junk(raw);
        }
        match self.body(raw) {
            Ok(body) => Piece::Message(Message { raw, body }),
            Err(reason) => Piece::Invalid(self.invalid(raw, reason)),
        }
    }

    /// Returns whether the object was meant as JSON-RPC at all; see the table in [`crate::read`].
    fn is_ours(&self) -> bool {
        self.jsonrpc.is_some() || (self.id.is_some() && (self.method.is_some() || self.has_outcome()))
    }

    fn has_outcome(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }

    fn body(&self, raw: &'a [u8]) -> Result<Body<'a>, InvalidReason> {
        if let Some(member) = self.duplicate {
            return Err(InvalidReason::DuplicateMember { member });
        }
        let version = self.jsonrpc.ok_or(InvalidReason::MissingVersion)?;
        if version.text().is_none_or(|version| version != "2.0") {
            return Err(InvalidReason::WrongVersion);
        }
        let id = self.id.map(|text| read_id(text).map(|id| (id, span(text, raw)))).transpose()?;
        match self.method {
            Some(_) if self.has_outcome() => Err(InvalidReason::ResultAndMethod),
            Some(method) => self.call(id, method),
            None => self.response(id),
        }
    }

    fn call(&self, id: Option<(Id, Range<usize>)>, method: Json<'a>) -> Result<Body<'a>, InvalidReason> {
        let method = method.text().ok_or(InvalidReason::BadMethod)?;
        // Some clients write an absent member as null. Servers take that, so a refusal here would break those clients.
        let params = self.params.filter(|params| params.get() != "null");
        let structured = params.is_none_or(|params| params.get().starts_with(['{', '[']));
        if !structured {
            return Err(InvalidReason::BadParams);
        }
        Ok(match id {
            Some((id, id_span)) => Body::Request { id, id_span, method, params },
            None => Body::Notification { method, params },
        })
    }

    fn response(&self, id: Option<(Id, Range<usize>)>) -> Result<Body<'a>, InvalidReason> {
        let outcome = match (self.result, self.error) {
            (Some(_), Some(_)) => return Err(InvalidReason::BothOutcomes),
            (Some(result), _) => ResponseOutcome::Result(result),
            (None, Some(error)) if is_error(error) => ResponseOutcome::Error(error),
            (None, Some(_)) => return Err(InvalidReason::BadError),
            (None, None) if id.is_some() && self.params.is_none() => {
                return Err(InvalidReason::MissingOutcome);
            }
            (None, None) => return Err(InvalidReason::MissingMethod),
        };
        let (id, id_span) = id.ok_or(InvalidReason::MissingId)?;
        Ok(Body::Response { id, id_span, outcome })
    }

    fn invalid(&self, raw: &'a [u8], reason: InvalidReason) -> Invalid<'a> {
        let shape = MessageShape::of(
            self.method.is_some(),
            self.has_outcome(),
            self.id.is_some(),
            self.params.is_some(),
        );
        // With two ids, nobody can tell which one the sender waits for.
        let text = self.id.filter(|_| !self.duplicate_id);
        let id = text.and_then(|text| read_id(text).ok());
        let raw_id = text.map(Json::get).filter(|text| text.len() <= Id::MAX_JSON);
        Invalid { raw, id, raw_id, shape, reason }
    }

    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<Json<'a>>)> {
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

    fn set(&mut self, name: &str, value: Json<'a>) {
        let Some((member, slot)) = self.slot(name) else { return };
        if slot.replace(value).is_some() {
            self.duplicate.get_or_insert(member);
            self.duplicate_id |= member == "id";
        }
    }
}

fn read_id(text: Json<'_>) -> Result<Id, InvalidReason> {
    if text.get().len() > Id::MAX_JSON {
        return Err(InvalidReason::LongId);
    }
    Id::from_json(text.get()).ok_or(InvalidReason::BadId)
}

/// Returns the place of `part` in `whole`, of which it is a sub-slice.
fn span(part: Json<'_>, whole: &[u8]) -> Range<usize> {
    let start = part.get().as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.get().len()
}

/// Returns whether `error` is an object with an integer code and a string message.
fn is_error(error: Json<'_>) -> bool {
    let is_code = |code: Json<'_>| is_integer(code.get());
    error.member("code").is_some_and(is_code) && error.member("message").and_then(Json::text).is_some()
}
