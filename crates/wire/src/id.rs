//! The id of a JSON-RPC request, compared by its meaning and not by its spelling.
//!
//! Invariants
//!
//! - `"\u0031"` equals `"1"`, and `1` does not. Integers are exact at any size.
//! - A fraction, an exponent, `null`, a boolean, an array and an object are not ids (protocol.md 1.1).

use std::fmt;

/// The id of a request and of the response to it.
///
/// `Display` and [`Id::to_json`] write it as JSON text, so people see the difference between `1` and `"1"` as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// An integer that fits 64 bits, the usual case.
    Integer(i64),
    /// An integer beyond 64 bits, as its JSON text.
    BigInteger(Box<str>),
    /// A string, decoded.
    Text(Box<str>),
}

impl Id {
    /// The longest JSON text of an id that is read, in bytes. Real ids are counters and UUIDs. The bound keeps each remembered request
    /// small, whatever its sender does.
    pub const MAX_JSON: usize = 1024;

    /// Reads an id from the text of one JSON value. Returns `None` if it is neither a string nor an integer, or if it is too long.
    pub fn from_json(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        if text.len() > Self::MAX_JSON {
            return None;
        }
        if let Some(content) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
            && content.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
        {
            return Some(Self::Text(content.into()));
        }
        if text.starts_with('"') {
            return serde_json::from_str::<String>(text).ok().map(|decoded| Self::Text(decoded.into()));
        }
        (is_integer(text)).then(|| match text.parse() {
            Ok(number) => Self::Integer(number),
            Err(_) => Self::BigInteger(text.into()),
        })
    }

    /// Returns the id as JSON text, to be put into a message.
    pub fn to_json(&self) -> String {
        self.to_string()
    }

    /// Returns the same id in the other type: `1` for `"1"` and `"1"` for `1`. Returns `None` for a text that is not an integer as JSON
    /// would write it. Some servers turn one into the other in their answers (protocol.md 3.2).
    pub fn variant(&self) -> Option<Self> {
        match self {
            Self::Integer(number) => Some(Self::Text(number.to_string().into())),
            Self::BigInteger(digits) => Some(Self::Text(digits.clone())),
            Self::Text(text) if is_integer(text) && &**text != "-0" => Self::from_json(text),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::BigInteger(digits) => formatter.write_str(digits),
            Self::Text(text) => {
                formatter.write_str(&serde_json::to_string(&**text).map_err(|_unwritable| fmt::Error)?)
            }
        }
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Returns whether `text` is an integer in JSON's grammar: no plus sign, no leading zero, no fraction, no exponent.
pub(crate) fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_integers_are_ids_and_nothing_else_is() {
        let big = "123456789012345678901234567890";
        let cases: &[(&str, Option<Id>)] = &[
            ("1", Some(Id::Integer(1))),
            ("-1", Some(Id::Integer(-1))),
            ("0", Some(Id::Integer(0))),
            ("-0", Some(Id::Integer(0))),
            (" 7\t", Some(Id::Integer(7))),
            ("9223372036854775807", Some(Id::Integer(i64::MAX))),
            ("-9223372036854775808", Some(Id::Integer(i64::MIN))),
            ("9223372036854775808", Some(Id::BigInteger("9223372036854775808".into()))),
            (big, Some(Id::BigInteger(big.into()))),
            (r#""1""#, Some(Id::from("1"))),
            (r#""\u0031""#, Some(Id::from("1"))),
            (r#""""#, Some(Id::from(""))),
            (r#""a\"b\né😀""#, Some(Id::from("a\"b\né😀"))),
            (r#""\ud800""#, None),
            ("\"\n\"", None),
            (r#""a"b""#, None),
            (r#"""#, None),
            (r#"""""#, None),
            (r#""\""#, None),
            ("1.0", None),
            ("1e3", None),
            ("01", None),
            ("+1", None),
            ("-", None),
            ("", None),
            ("null", None),
            ("true", None),
            ("[1]", None),
            (r#"{"a":1}"#, None),
        ];
        for (text, expected) in cases {
            assert_eq!(Id::from_json(text), *expected, "{text}");
        }
    }

    #[test]
    fn an_id_is_bounded() {
        let longest = format!("\"{}\"", "x".repeat(Id::MAX_JSON - 2));
        assert!(Id::from_json(&longest).is_some());
        assert_eq!(Id::from_json(&format!("\"{}\"", "x".repeat(Id::MAX_JSON - 1))), None);
        assert_eq!(Id::from_json(&"1".repeat(Id::MAX_JSON + 1)), None);
    }

    #[test]
    fn the_variant_is_the_other_type_and_back() {
        let cases: &[(Id, Option<Id>)] = &[
            (Id::Integer(1), Some(Id::from("1"))),
            (Id::Integer(-5), Some(Id::from("-5"))),
            (Id::from("1"), Some(Id::Integer(1))),
            (Id::from("9223372036854775808"), Some(Id::BigInteger("9223372036854775808".into()))),
            (Id::BigInteger("9223372036854775808".into()), Some(Id::from("9223372036854775808"))),
            (Id::from("01"), None),
            (Id::from("-0"), None),
            (Id::from(" 1"), None),
            (Id::from("1.0"), None),
            (Id::from("x"), None),
            (Id::from(""), None),
        ];
        for (id, expected) in cases {
            assert_eq!(id.variant(), *expected, "{id}");
            if let Some(variant) = id.variant() {
                assert_eq!(variant.variant().as_ref(), Some(id));
            }
        }
    }

    #[test]
    fn json_text_reads_back() {
        for id in [Id::Integer(-3), Id::from("a\"\\\n\u{1}é"), Id::BigInteger("99999999999999999999".into())]
        {
            assert_eq!(Id::from_json(&id.to_json()), Some(id));
        }
    }
}
