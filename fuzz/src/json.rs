//! JSON as seen by somebody else: the members of an object, found by a walk of its own.
//!
//! Invariants: only `serde_json` decides what is JSON; the walk is made over text that it has accepted.

use serde_json::value::RawValue;

/// White space of JSON at both ends taken away.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| b" \t\r\n".contains(byte);
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// The text of one JSON value that fills `bytes` but for white space.
pub(crate) fn value(bytes: &[u8]) -> Option<&str> {
    serde_json::from_slice::<&RawValue>(bytes).ok().map(RawValue::get)
}

/// Whether a JSON value begins here that is whole, whatever follows it.
pub(crate) fn begins_with_value(bytes: &[u8]) -> bool {
    serde_json::Deserializer::from_slice(bytes)
        .into_iter::<&RawValue>()
        .next()
        .is_some_and(|value| value.is_ok())
}

/// The parts of an object or array at its top level, without the separators: name, value, name, value; or the elements.
pub(crate) fn parts(container: &str) -> Vec<&str> {
    let bytes = container.as_bytes();
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut from = 1;
    let mut parts = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        let outside = !in_string && *byte != b'"';
        let ends = outside && ((depth == 1 && matches!(byte, b',' | b':')) || depth == 0);
        if ends {
            parts.push(container[from..at].trim_matches([' ', '\t', '\r', '\n']));
            from = at + 1;
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The text that a JSON string stands for; `None` for other values and for half a surrogate pair.
pub(crate) fn text(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
}

/// An object's members, names decoded. Those whose names cannot be decoded are left out.
pub(crate) struct JsonObject<'a>(Vec<(String, &'a str)>);

impl<'a> JsonObject<'a> {
    /// `None` if the text is no object.
    pub(crate) fn new(value: &'a str) -> Option<JsonObject<'a>> {
        let members = value.starts_with('{').then(|| parts(value))?;
        let members = members.chunks(2).filter_map(|pair| Some((text(pair[0])?, pair[1])));
        Some(JsonObject(members.collect()))
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&'a str> {
        self.0.iter().filter(|(member, _)| member == name).map(|(_, value)| *value).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    pub(crate) fn only(&self, name: &str) -> Option<&'a str> {
        let all = self.all(name);
        (all.len() == 1).then(|| all[0])
    }

    pub(crate) fn last(&self, name: &str) -> Option<&'a str> {
        self.all(name).pop()
    }
}

/// An id as it would be written back: a string or an integer of at most 1024 bytes.
pub(crate) fn id(value: &str) -> Option<String> {
    if value.len() > 1024 {
        return None;
    }
    if value.starts_with('"') {
        return text(value).and_then(|text| serde_json::to_string(&text).ok());
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_integer = digits.starts_with(|first: char| first.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer
        .then(|| value.parse::<i64>().map_or_else(|_too_long| value.to_owned(), |number| number.to_string()))
}

/// What an object seems meant to be, from which members it has: the table at `unhang_wire::MessageShape`.
pub(crate) fn shape(object: &JsonObject<'_>) -> unhang_wire::MessageShape {
    use unhang_wire::MessageShape;
    let outcome = object.has("result") || object.has("error");
    if object.has("method") || (object.has("id") && object.has("params") && !outcome) {
        MessageShape::Request
    } else if outcome || object.has("id") {
        MessageShape::Response
    } else {
        MessageShape::Unknown
    }
}
