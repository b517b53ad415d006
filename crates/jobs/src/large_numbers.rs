//! Whole numbers that JSON can write and a number of 64 bits cannot hold. To read them would change them without a word.
//!
//! Invariants: pure. Digits in a JSON string are not a number. Fractions and exponents are approximations, and are accepted.

/// Returns the first such number in this JSON, or `None`.
#[must_use]
pub fn in_json(json: &[u8]) -> Option<&str> {
    let mut rest = json;
    loop {
        let start = rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
        rest = &rest[start..];
        let length = if rest[0] == b'"' { of_text(rest) } else { of_number(rest) };
        let (token, behind) = rest.split_at(length);
        if rest[0] != b'"'
            && let Ok(number) = std::str::from_utf8(token)
            && is_too_large(number)
        {
            return Some(number);
        }
        rest = behind;
    }
}

/// Checks that JSON in `location` has no such number.
///
/// # Errors
/// Fails with the error text about the first one.
pub fn check(json: &[u8], location: &str) -> Result<(), String> {
    in_json(json).map_or(Ok(()), |number| Err(told(number, location)))
}

/// Returns the error text about such a number in `location`.
#[must_use]
pub fn told(number: &str, location: &str) -> String {
    /// The number of digits that are shown.
    const SHOWN: usize = 60;
    let dots = if number.len() > SHOWN { "…" } else { "" };
    let shown = &number[..number.len().min(SHOWN)];
    format!(
        "the whole number {shown}{dots} in {location} does not fit into 64 bits; give it as a text, in quotes"
    )
}

/// Returns the length of the string at the beginning, with its quotes.
fn of_text(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

/// Returns the length of the number at the beginning.
fn of_number(json: &[u8]) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    json.iter().position(|byte| !is_part(byte)).unwrap_or(json.len())
}

fn is_too_large(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_64_bits_is_found_outside_of_texts() {
        for (json, found) in [
            ("12345678901234567890123", Some("12345678901234567890123")),
            (r#"{"a": [1, -9223372036854775809]}"#, Some("-9223372036854775809")),
            (r#"{"a\"99999999999999999999": 18446744073709551616}"#, Some("18446744073709551616")),
            (r#"{"a": "12345678901234567890123", "b": "\\"}"#, None),
            ("[18446744073709551615, -9223372036854775808, 0, -0]", None),
            ("[12345678901234567890123.0, 1e30, -1E+30]", None),
            ("\"open 99999999999999999999", None),
            ("\"\\", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(in_json(json.as_bytes()), found, "{json}");
        }
        assert!(told(&"9".repeat(5000), "x").len() < 200);
    }
}
