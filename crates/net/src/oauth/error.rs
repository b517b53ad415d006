//! The failures on the way to a token. Each is one sentence that says who said or did something, and what to do about it.
//!
//! Invariants
//!
//! - No token, code, secret or verifier is ever part of an error.
//! - Text from others is shown without control characters, and no more than [`MAX_TOLD`] characters of it.
//! - No URL is shown with its user, query or fragment, whoever wrote it: names of servers are URLs too if nothing else is known.

use std::time::Duration;

use reqwest::Url;

/// The most characters that are shown of a text from others.
const MAX_TOLD: usize = 300;

/// The reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// A person is needed, and none is there.
    #[error("{server} requires a login: run `unhang login {server}`")]
    LoginNeeded {
        /// The server's name.
        server: String,
    },
    /// The server does not say anywhere who gives tokens for it.
    #[error(
        "{server} does not name an authorization server, because it has no OAuth metadata; give it a \
         token as `headers` in the file, or with `--header` on the command line"
    )]
    NoMetadata {
        /// The server's name.
        server: String,
    },
    /// The metadata of the server or of its authorization server is of no use.
    #[error("the OAuth metadata of {server} is not usable: {why}")]
    Metadata {
        /// The server's name.
        server: String,
        /// The fault in the metadata.
        why: String,
    },
    /// The metadata is that of another server; a token for it could be used there.
    #[error("{server} claims to be {claimed}, which is another server: unhang refuses that")]
    WrongResource {
        /// The server's URL.
        server: String,
        /// The URL that it claims to be.
        claimed: String,
    },
    /// Metadata or an answer comes from another authorization server than it should.
    #[error(
        "an answer from the authorization server {expected} names {received} as its issuer: unhang \
         refuses it"
    )]
    WrongIssuer {
        /// The authorization server that was asked.
        expected: String,
        /// The authorization server that answered.
        received: String,
    },
    /// The answer does not name its authorization server, though it should.
    #[error("an answer from the authorization server {expected} names no issuer: unhang refuses it")]
    MissingIssuer {
        /// The authorization server that was asked.
        expected: String,
    },
    /// The redirect does not answer this login.
    #[error(
        "the browser returned with another `state` than unhang had sent: unhang refuses the login and \
         stores nothing"
    )]
    WrongState,
    /// The redirect has neither a code nor an error.
    #[error("the browser returned from {issuer} with neither a code nor an error")]
    EmptyRedirect {
        /// The authorization server that was asked.
        issuer: String,
    },
    /// The authorization server does not check that the client which asked for a code is the one that uses it.
    #[error(
        "the authorization server {issuer} does not declare that it checks PKCE with S256, which MCP \
         requires: unhang refuses the login"
    )]
    NoPkce {
        /// The authorization server.
        issuer: String,
    },
    /// The authorization server does not know this client.
    #[error(
        "the authorization server {issuer} accepts no unknown client ({why}): register a client there, \
         and give it as `oauth = {{ client-id = \"...\" }}`"
    )]
    NoClient {
        /// The authorization server.
        issuer: String,
        /// The authorization server's words.
        why: String,
    },
    /// The server's authorization server has changed. A client id belongs to one authorization server, and its secret concerns no other.
    #[error(
        "{server} has moved from the authorization server {from} to {to}, and unhang does not show the \
         configured client id there: if the move is right, run `unhang logout {server}` and log in again"
    )]
    Moved {
        /// The server's name.
        server: String,
        /// The authorization server at which the client id was used.
        from: String,
        /// The authorization server that gives the tokens now.
        to: String,
    },
    /// The person or the authorization server said no.
    #[error("the authorization server {issuer} refused: {why}")]
    Refused {
        /// The authorization server.
        issuer: String,
        /// The authorization server's words.
        why: String,
    },
    /// A secret would go to a URL that is not secure.
    #[error("{url} is not https: unhang sends nothing there")]
    Insecure {
        /// The URL.
        url: String,
    },
    /// No answer came in time.
    #[error("{url} did not answer within {}", seconds(*limit))]
    Deadline {
        /// The URL that was asked.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// Nobody came back from the browser.
    #[error("no login came within {}: the browser did not return", seconds(*limit))]
    NobodyCame {
        /// The limit.
        limit: Duration,
    },
    /// The answer is too long.
    #[error("the answer of {url} has more than {limit} bytes: unhang refuses it")]
    TooLarge {
        /// The URL that was asked.
        url: String,
        /// The most bytes that are taken.
        limit: usize,
    },
    /// Nobody answers at the URL.
    #[error("{url} cannot be reached: {why}")]
    Unreachable {
        /// The URL that was asked.
        url: String,
        /// The system's words.
        why: String,
    },
    /// The file of a login cannot be used.
    #[error("the tokens in {path} cannot be used: {why}")]
    Store {
        /// The file.
        path: String,
        /// The system's words.
        why: String,
    },
    /// The text is not the URL of a server.
    #[error("`{url}` is not the URL of a server: it must begin with https:// or http://")]
    NoUrl {
        /// The text that was given.
        url: String,
    },
    /// Something that the login relies on is not there.
    #[error("{what}: {why}")]
    System {
        /// The thing that was wanted.
        what: &'static str,
        /// The system's words.
        why: String,
    },
}

impl AuthorizationError {
    /// Returns a word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::LoginNeeded { .. } => "login_needed",
            Self::NoMetadata { .. } | Self::Metadata { .. } => "no_metadata",
            Self::WrongResource { .. } => "wrong_resource",
            Self::WrongIssuer { .. } | Self::MissingIssuer { .. } => "wrong_issuer",
            Self::WrongState | Self::EmptyRedirect { .. } => "wrong_redirect",
            Self::NoPkce { .. } => "no_pkce",
            Self::NoClient { .. } => "no_client",
            Self::Moved { .. } => "moved",
            Self::Refused { .. } => "refused",
            Self::Insecure { .. } => "insecure",
            Self::Deadline { .. } | Self::NobodyCame { .. } => "deadline",
            Self::TooLarge { .. } => "too_large",
            Self::Unreachable { .. } => "unreachable",
            Self::Store { .. } => "store",
            Self::NoUrl { .. } => "usage",
            Self::System { .. } => "system",
        }
    }
}

/// Shows a URL without its user, query and fragment: the parts before `@` and behind `?` may be secrets.
pub(super) fn told_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _has_none = url.set_password(None).and_then(|()| url.set_username(""));
    told(url.as_str())
}

/// Shows a text from others: without secrets in its URLs, without control characters, and cut short.
pub(super) fn told(text: &str) -> String {
    let text = without_url_secrets(text);
    let mut told: String = text.chars().filter(|character| !character.is_control()).take(MAX_TOLD).collect();
    if text.chars().count() > MAX_TOLD {
        told.push_str("...");
    }
    told
}

/// Shows a text that was given as a URL and may not be one.
pub(super) fn told_as_url(text: &str) -> String {
    told(&url_without_secrets(text))
}

/// Stands for the parts of a URL that are left out.
const LEFT_OUT: char = '…';

/// Removes user, query and fragment of each URL in a text. A mark shows that something is left out.
fn without_url_secrets(text: &str) -> String {
    let (mut cut, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at);
        cut.push_str(before);
        // These characters are in no URL as it is written out.
        let end = url.find(|sign: char| sign.is_whitespace() || "\"'<>".contains(sign)).unwrap_or(url.len());
        // These characters at the end belong to the sentence.
        let length = url[..end].trim_end_matches(['`', '.', ',', ';', ':', ')', ']', '}']).len();
        cut.push_str(&url_without_secrets(&url[..length]));
        rest = &url[length..];
    }
    cut.push_str(rest);
    cut
}

/// Removes user, query and fragment of one URL, which may lack its scheme. A mark shows that something is left out.
fn url_without_secrets(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = url.split_at(start);
    let mark = |text: &str, marks: &[char]| text.find(marks).unwrap_or(text.len());
    let (authority, path) = rest.split_at(mark(rest, &['/', '\\', '?', '#']));
    let mut cut = scheme.to_owned();
    match authority.rsplit_once('@') {
        Some((_, host)) => cut.extend([LEFT_OUT, '@'].into_iter().chain(host.chars())),
        None => cut.push_str(authority),
    }
    let (path, fragment) = path.split_at(mark(path, &['#']));
    let (path, query) = path.split_at(mark(path, &['?']));
    cut.push_str(path);
    // An empty part hides nothing.
    let hidden = |part: &str| if part.is_empty() { String::new() } else { LEFT_OUT.to_string() };
    if let Some(query) = query.strip_prefix('?') {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", hidden(value)),
            None => hidden(pair),
        });
        cut.push('?');
        cut.push_str(&pairs.collect::<Vec<_>>().join("&"));
    }
    if let Some(fragment) = fragment.strip_prefix('#') {
        cut.push('#');
        cut.push_str(&hidden(fragment));
    }
    cut
}

/// Writes a duration as limits are written: `30s`, `5m`.
fn seconds(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{}ms", length.as_millis()),
        whole if whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_told_in_part() {
        assert_eq!(told("no\u{1b}[2J\n such client"), "no[2J such client");
        assert_eq!(told(&"a".repeat(1000)).len(), MAX_TOLD + 3);
        let url = Url::parse("https://me:secret@example.org/mcp?code=secret#secret").expect("a URL");
        assert_eq!(told_url(&url), "https://example.org/mcp");
    }

    #[test]
    fn a_url_is_told_without_what_may_be_secret_wherever_it_stands() {
        for (text, expect) in [
            ("https://h/mcp", "https://h/mcp"),
            ("http://bob:pw@h:1/m?key=s&a=&t#f", "http://…@h:1/m?key=…&a=&…#…"),
            ("http://…@h:1/m?key=…&a=&…#…", "http://…@h:1/m?key=…&a=&…#…"),
            ("rejected: https://h/m?key=s", "rejected: https://h/m?key=…"),
            (
                "`https://h/m?key=s` is none, (http://a@b/#c) neither.",
                "`https://h/m?key=…` is none, (http://…@b/#…) neither.",
            ),
            ("\"https://h?k\" <ws://u@h> x", "\"https://h?…\" <ws://…@h> x"),
            ("https://a@b://c?d", "https://…@b://c?…"),
            ("https://h/@scope/x? and a@b?c://", "https://h/@scope/x? and a@b?c://"),
            ("https://good\\@evil/?k=s", "https://good\\@evil/?k=…"),
        ] {
            assert_eq!(told(text), expect, "{text}");
        }
        assert_eq!(told_as_url("http://bob:p w@h:99999/?a b"), "http://…@h:99999/?…");
        assert_eq!(told_as_url("bob:pw@h?s"), "…@h?…");
    }

    #[test]
    fn lengths_of_time_are_told_as_people_say_them() {
        let said = |limit| AuthorizationError::NobodyCame { limit }.to_string();
        assert_eq!(said(Duration::from_secs(300)), "no login came within 5m: the browser did not return");
        assert!(said(Duration::from_secs(90)).contains("90s"));
        assert!(said(Duration::from_millis(200)).contains("200ms"));
    }
}
