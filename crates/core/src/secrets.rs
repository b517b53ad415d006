//! The secrets of the configured servers, and texts without them: the output of servers, which is shown and logged.
//!
//! Invariants
//!
//! - A configured value that opens a server, and is long enough to be a secret, stands in no text that went through [`Secrets::hide`].
//!   Neither does a value after `Bearer` or `Authorization:`, even if nobody configured it.
//! - The type that holds the values never prints one, not even for debugging.
//!
//! If a server writes its secret in another form, or in two pieces, the secret is shown all the same.

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

use memchr::memmem;

/// The text in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// The bytes of the shortest value that is taken for a secret. Shorter values are words, numbers and switches, which stand in any text.
const SHORTEST: usize = 8;

/// [`Secrets::hide`] leaves this value of a header as it is: our own hints show it in the place of a token.
const PLACEHOLDER: &str = "Bearer TOKEN";

/// Values that must not be shown. Clones are the same.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// Joins the secrets of several servers.
    #[must_use]
    pub fn of_all<'a>(several: impl IntoIterator<Item = &'a Secrets>) -> Secrets {
        several.into_iter().flat_map(|one| one.0.iter().cloned()).collect()
    }

    /// Returns the text without the secrets, and without what looks like one.
    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &*self.0 {
            if memmem::find(text.as_bytes(), secret.as_bytes()).is_some() {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        match without_credentials(&text) {
            Some(hidden) => Cow::Owned(hidden),
            None => text,
        }
    }
}

/// Takes those values that are long enough. Each line of a value with several lines counts too, because texts are looked at line by line.
impl FromIterator<String> for Secrets {
    fn from_iter<T: IntoIterator<Item = String>>(values: T) -> Self {
        let mut secrets: Vec<String> = values
            .into_iter()
            .flat_map(|value| {
                let lines: Vec<String> = value.lines().map(|line| line.trim().to_owned()).collect();
                [value].into_iter().chain(lines)
            })
            .filter(|value| value.len() >= SHORTEST)
            .collect();
        // A longer secret may contain a shorter one, and has to be replaced first.
        secrets.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        secrets.dedup();
        Secrets(secrets.into())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} secrets", self.0.len())
    }
}

/// Hides the values after `Bearer` or `Authorization:`. Returns `None` if the text has none.
fn without_credentials(text: &str) -> Option<String> {
    // Positions are the same in both texts.
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<Range<usize>> = memmem::find_iter(lower.as_bytes(), "authorization")
        .filter_map(|at| header_value(text, at, at + "authorization".len()))
        .chain(memmem::find_iter(lower.as_bytes(), "bearer").filter_map(|at| bearer(text, at)))
        .collect();
    if found.is_empty() {
        return None;
    }
    found.sort_unstable_by_key(|range| range.start);
    let (mut hidden, mut done) = (String::with_capacity(text.len()), 0);
    for range in found {
        // A token in a header is found twice.
        if range.start >= done {
            hidden.push_str(&text[done..range.start]);
            hidden.push_str(REDACTED);
        }
        done = done.max(range.end);
    }
    hidden.push_str(&text[done..]);
    Some(hidden)
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '\\')
}

/// Finds the value of a header by its name. The value goes up to the end of its quotes, or of the code in backticks that begins with the
/// name. Without either it goes to the end of the line.
fn header_value(text: &str, name: usize, end_of_name: usize) -> Option<Range<usize>> {
    let is_between = |letter: char| is_quote(letter) || letter == ' ' || letter == '\t';
    let behind = text[end_of_name..].trim_start_matches(is_between).strip_prefix([':', '='])?;
    let value = behind.trim_start_matches(is_between);
    let is_quoted = behind[..behind.len() - value.len()].contains(is_quote);
    let is_code = text[..name].ends_with('`');
    let ends = |letter: char| {
        matches!(letter, '\n' | '\r') || (is_quoted && is_quote(letter)) || (is_code && letter == '`')
    };
    let length = value.find(ends).unwrap_or(value.len());
    let start = text.len() - value.len();
    let ends_here =
        |rest: &str| rest.is_empty() || rest.starts_with(|letter| is_quote(letter) || letter == '`');
    let is_placeholder = value.strip_prefix(PLACEHOLDER).is_some_and(ends_here);
    (length > 0 && !is_placeholder).then_some(start..start + length)
}

/// Finds the token that this `Bearer` announces.
fn bearer(text: &str, at: usize) -> Option<Range<usize>> {
    if text[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric()) {
        return None;
    }
    let behind = &text[at + "bearer".len()..];
    let token = behind.trim_start_matches([' ', '\t']);
    let ends = |letter: char| !letter.is_ascii_graphic() || is_quote(letter) || ",;<>()[]{}".contains(letter);
    let length = token.find(ends).unwrap_or(token.len());
    let start = text.len() - token.len();
    (token.len() < behind.len() && length >= SHORTEST).then_some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn a_configured_value_is_hidden_wherever_it_stands() {
        let secrets = secrets(&["hunter2-hunter2", "hunter2-hunter2-and-more", "short"]);
        for (text, expect) in [
            ("the key is hunter2-hunter2!", "the key is [redacted]!"),
            ("hunter2-hunter2hunter2-hunter2", "[redacted][redacted]"),
            ("x=hunter2-hunter2-and-more", "x=[redacted]"),
            ("short and hunter2", "short and hunter2"),
        ] {
            assert_eq!(secrets.hide(text), expect);
        }
        assert_eq!(format!("{secrets:?}"), "2 secrets");
        let both = Secrets::of_all([&secrets, &self::secrets(&["of another server"])]);
        assert_eq!(both.hide("of another server: hunter2-hunter2"), "[redacted]: [redacted]");
    }

    #[test]
    fn each_line_of_a_long_secret_is_one() {
        let key = secrets(&["-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"]);
        assert_eq!(key.hide("it was MIIEvQIBADANBg"), "it was [redacted]");
    }

    #[test]
    fn what_looks_like_a_token_is_hidden_whoever_configured_it() {
        for (text, expect) in [
            ("sent Bearer eyJhbGciOi.J9, got 401", "sent Bearer [redacted], got 401"),
            ("--header 'Authorization: Bearer TOKEN'", "--header 'Authorization: Bearer TOKEN'"),
            ("send `Authorization: Bearer TOKEN` with", "send `Authorization: Bearer TOKEN` with"),
            ("--header 'Authorization: Bearer TOKEN2'", "--header 'Authorization: [redacted]"),
            ("Authorization: Bearer TOKEN-abcdefgh", "Authorization: [redacted]"),
            ("Authorization: Bearer TOKEN abcdefgh", "Authorization: [redacted]"),
            ("BEARER  eyJhbGciOi", "BEARER  [redacted]"),
            ("Authorization: Basic dXNlcjpwYXNz\nnext", "Authorization: [redacted]\nnext"),
            (r#"{"authorization":"Bearer eyJhbGciOi","a":1}"#, r#"{"authorization":"[redacted]","a":1}"#),
            (r#"{\"Authorization\": \"k3y\"}"#, r#"{\"Authorization\": \"[redacted]\"}"#),
            ("proxy-authorization=k3y", "proxy-authorization=[redacted]"),
            ("send `Authorization: k3y`; try again", "send `Authorization: [redacted]`; try again"),
            ("übel: Bearer ünïcodé-token", "übel: Bearer ünïcodé-token"),
        ] {
            assert_eq!(Secrets::default().hide(text), expect);
        }
        for plain in ["a bearer of news", "no authorization was given", "forbearer eyJhbGciOi", "bearer", ""]
        {
            assert!(matches!(Secrets::default().hide(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn what_is_too_short_or_hidden_by_nothing_stays() {
        // The shortest secret has eight bytes, and so has the shortest token.
        let short = secrets(&["1234567", "12345678\nabcdefg"]);
        for (text, expect) in [
            ("1234567 of 12345678", "1234567 of [redacted]"),
            ("abcdefg", "abcdefg"),
            ("Bearer abcdefg", "Bearer abcdefg"),
            ("Bearer abcdefgh", "Bearer [redacted]"),
            ("Bearer\tabcdefgh", "Bearer\t[redacted]"),
            ("Bearerabcdefgh", "Bearerabcdefgh"),
            ("Bearer=abcdefgh", "Bearer=abcdefgh"),
            ("-bearer abcdefgh", "-bearer [redacted]"),
            ("2bearer abcdefgh", "2bearer abcdefgh"),
            ("Bearer abcdefgh>; x", "Bearer [redacted]>; x"),
            ("Bearer abcdefgh'", "Bearer [redacted]'"),
            ("Authorization: ", "Authorization: "),
            ("Authorization: \nnext", "Authorization: \nnext"),
            ("Authorization k3y", "Authorization k3y"),
            ("Authorization: x", "Authorization: [redacted]"),
            ("Authorization:\t'k3y' and \"more\"", "Authorization:\t'[redacted]' and \"more\""),
            ("Authorization: it's `k3y`", "Authorization: [redacted]"),
            ("`Authorization: it's` so", "`Authorization: [redacted]` so"),
            (
                "Authorization: one\r\nAuthorization: two",
                "Authorization: [redacted]\r\nAuthorization: [redacted]",
            ),
            (
                "Authorization: Bearer abcdefgh then\nBearer ijklmnop",
                "Authorization: [redacted]\nBearer [redacted]",
            ),
            ("Bearer abcdefgh, Bearer ijklmnop.", "Bearer [redacted], Bearer [redacted]"),
        ] {
            assert_eq!(short.hide(text), expect);
        }
    }
}
