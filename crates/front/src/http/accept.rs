//! Reads the `Accept` header of a request: which types of answers its client takes, and which one it prefers. Pure.
//!
//! Invariants
//!
//! - The most specific range decides about a type, as in RFC 9110 (section 12.5.1). A weight of zero excludes the type.
//! - The header that nearly all clients send is recognised by one comparison. Reading another one allocates nothing.

use unhang_net::serve::axum::http::{HeaderMap, HeaderValue, header};

use super::reply_streams::ReplyForm;

/// The type of a stream of events.
pub(super) const EVENTS: &str = "text/event-stream";
/// The type of a single message.
pub(super) const JSON: &str = "application/json";

/// The header as the specification names the types, and as nearly all clients send it.
const USUAL: &[u8] = b"application/json, text/event-stream";

/// The specificity of a range that is the type itself.
const EXACT: usize = 3;

/// The weight of a range that names none, in thousandths.
const FULL_WEIGHT: u16 = 1000;

/// The types of answers that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptHeader {
    pub(super) json: bool,
    pub(super) events: bool,
    /// Whether the client prefers events to JSON, or takes nothing but events.
    pub(super) prefers_events: bool,
}

/// The weight that an `Accept` header gives to one type.
#[derive(Clone, Copy, Default)]
struct AcceptedType {
    /// The weight in thousandths. Zero if the type is not accepted.
    weight: u16,
    /// How much of the type the deciding range names: [`EXACT`], less for a wildcard, and zero if no range matches.
    specificity: usize,
    /// The number of the deciding range in the header.
    place: usize,
}

impl AcceptHeader {
    /// Both types, and JSON as soon as it is there.
    pub(super) const ALL: AcceptHeader = AcceptHeader { json: true, events: true, prefers_events: false };

    pub(super) fn by(headers: &HeaderMap) -> AcceptHeader {
        let mut lines = headers.get_all(header::ACCEPT).iter();
        match (lines.next(), lines.next()) {
            // A client that sends no `Accept` takes everything (RFC 9110).
            (None, _) => AcceptHeader::ALL,
            (Some(line), None) if line.as_bytes() == USUAL => AcceptHeader::ALL,
            _ => AcceptHeader::read(headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes)),
        }
    }

    /// Returns the form of the reply to a request.
    pub(super) fn form(self, wants_progress: bool) -> ReplyForm {
        match self {
            AcceptHeader { events: false, .. } => ReplyForm::Whole,
            AcceptHeader { prefers_events: false, .. } if !wants_progress => ReplyForm::WholeOrEvents,
            AcceptHeader { .. } => ReplyForm::EventsAtOnce,
        }
    }

    fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> AcceptHeader {
        let (mut json, mut events) = (AcceptedType::default(), AcceptedType::default());
        let ranges = lines.flat_map(|line| line.split(|byte| *byte == b','));
        for (place, range) in ranges.enumerate() {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(weight).unwrap_or(FULL_WEIGHT);
            let types = [(&mut json, [JSON, "application/*"]), (&mut events, [EVENTS, "text/*"])];
            for (accepted, [exact, family]) in types {
                let is_named = |range: &str| name.eq_ignore_ascii_case(range.as_bytes());
                let found = [is_named(exact), is_named(family), name == b"*/*"].iter().position(|is| *is);
                let specificity = found.map_or(0, |found| EXACT - found);
                if specificity > accepted.specificity {
                    *accepted = AcceptedType { weight, specificity, place };
                }
            }
        }
        let is_first = events.specificity == EXACT && events.place < json.place;
        let prefers_events = events.weight > json.weight || events.weight == json.weight && is_first;
        AcceptHeader { json: json.weight > 0, events: events.weight > 0, prefers_events }
    }
}

/// Reads the weight from a parameter of a range. Returns `None` if it is another parameter, or no weight.
fn weight(parameter: &[u8]) -> Option<u16> {
    let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
    if !name.trim_end().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, fraction) = value.trim_start().split_once('.').unwrap_or((value.trim_start(), ""));
    if fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain([b'0'; 3]).take(3);
    match whole {
        "0" => Some(digits.fold(0, |weight, digit| weight * 10 + u16::from(digit - b'0'))),
        "1" => Some(FULL_WEIGHT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> AcceptHeader {
        let line = |line: &&str| (header::ACCEPT, HeaderValue::from_str(line).expect("a value"));
        AcceptHeader::by(&lines.iter().map(line).collect())
    }

    fn accepts(json: bool, events: bool, prefers_events: bool) -> AcceptHeader {
        AcceptHeader { json, events, prefers_events }
    }

    #[test]
    fn the_higher_weight_is_preferred_and_else_the_type_that_is_named_first() {
        let (json_first, events_first) = (accepts(true, true, false), accepts(true, true, true));
        for (lines, expect) in [
            (&[][..], json_first),
            (&["application/json, text/event-stream"], json_first),
            (&["application/json", "text/event-stream"], json_first),
            (&["text/event-stream, application/json"], events_first),
            (&["Text/Event-Stream,Application/JSON"], events_first),
            (&["text/event-stream", "application/json"], events_first),
            (&["text/html, text/event-stream; charset=utf-8, application/json"], events_first),
            (&["text/event-stream;q=0.5, application/json"], json_first),
            (&["application/json;q=0.9, text/event-stream"], events_first),
            (&["application/json; Q=0.25, text/event-stream; q=0.251"], events_first),
            (&["text/event-stream;q=1.000, application/json;q=1"], events_first),
            // A weight that is none counts as if it were not there.
            (&["application/json;q=0.1234, text/event-stream"], json_first),
            (&["text/event-stream;q=two, application/json"], events_first),
            // A client that names only a wildcard prefers neither type.
            (&["*/*"], json_first),
            (&["text/*, application/*"], json_first),
            (&["*/*, text/event-stream"], json_first),
            (&["text/event-stream, */*"], events_first),
            (&["*/*;q=0.1, text/event-stream"], events_first),
            // The most specific range decides, wherever it stands.
            (&["*/*, text/event-stream;q=0.5"], json_first),
            (&["text/event-stream;q=0.5, text/*, application/json;q=0.7"], json_first),
        ] {
            assert_eq!(read(lines), expect, "{lines:?}");
        }
    }

    #[test]
    fn a_type_that_is_not_named_or_has_no_weight_is_not_accepted() {
        for (line, expect) in [
            ("text/event-stream", accepts(false, true, true)),
            ("text/*", accepts(false, true, true)),
            ("application/json", accepts(true, false, false)),
            ("application/*, text/event-stream;q=0", accepts(true, false, false)),
            ("text/event-stream, application/json;q=0.0", accepts(false, true, true)),
            ("*/*, application/json;q=0", accepts(false, true, true)),
            ("text/html", accepts(false, false, false)),
            ("", accepts(false, false, false)),
        ] {
            assert_eq!(read(&[line]), expect, "{line}");
        }
    }
}
