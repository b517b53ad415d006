//! What can go wrong on the way to a token, each as one sentence that says who said or did what, and what to do.
//!
//! Invariants
//!
//! - No token, code, secret or verifier is ever part of an error.
//! - What others wrote is told without control characters, and no more than [`MAX_TOLD`] characters of it.
//! - No URL is told with its user, query or fragment, whoever wrote it: names of servers are URLs too where nothing else is known.

use std::time::Duration;

use reqwest::Url;

/// Of what somebody else wrote.
const MAX_TOLD: usize = 300;

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// A person is needed, and none is there.
    #[error("{server} wants you to be logged in: run `unhang login {server}`")]
    LoginNeeded {
        /// What the server is called.
        server: String,
    },
    /// It says nowhere who gives tokens for it.
    #[error(
        "{server} does not say who gives tokens for it: it has no OAuth metadata; give it a token as `headers` in the file, or with `--header` on the command line"
    )]
    NoMetadata {
        /// What the server is called.
        server: String,
    },
    /// The metadata of the server or of its authorization server is of no use.
    #[error("the OAuth metadata of {server} is of no use: {why}")]
    Metadata {
        /// What the server is called.
        server: String,
        /// What is wrong with it.
        why: String,
    },
    /// The metadata is that of another server; a token for it could be used there.
    #[error(
        "{server} says that tokens for it are tokens for {claimed}: refused, since that is another server"
    )]
    WrongResource {
        /// The server's URL.
        server: String,
        /// The one it claims to be.
        claimed: String,
    },
    /// Metadata or an answer comes from another authorization server than it should.
    #[error(
        "what claims to come from the authorization server {expected} names {received} as its issuer: refused"
    )]
    WrongIssuer {
        /// Who was asked.
        expected: String,
        /// Who answered.
        received: String,
    },
    /// The answer does not say from whom it is, though it should.
    #[error("what claims to come from the authorization server {expected} names no issuer: refused")]
    MissingIssuer {
        /// Who was asked.
        expected: String,
    },
    /// The redirect is no answer to what was asked.
    #[error(
        "the browser came back with another `state` than it was sent with: refused, and nothing was stored"
    )]
    WrongState,
    /// The redirect has neither a code nor an error.
    #[error("the browser came back from {issuer} with neither a code nor an error")]
    EmptyRedirect {
        /// Who was asked.
        issuer: String,
    },
    /// It cannot be shown that the code is used by who asked for it.
    #[error(
        "the authorization server {issuer} does not say that it checks PKCE with S256: refused, as MCP demands"
    )]
    NoPkce {
        /// Who gives the tokens.
        issuer: String,
    },
    /// We are nobody to this authorization server.
    #[error(
        "the authorization server {issuer} takes no client that it does not know ({why}): register one there, and give it as `oauth = {{ client-id = \"...\" }}`"
    )]
    NoClient {
        /// Who gives the tokens.
        issuer: String,
        /// What it said.
        why: String,
    },
    /// A client id is the client's at one authorization server, and its secret is nobody else's business.
    #[error(
        "{server} has moved from the authorization server {from} to {to}, where the configured client id is not shown: if that is right, run `unhang logout {server}` and log in anew"
    )]
    Moved {
        /// What the server is called.
        server: String,
        /// Where the client id was used.
        from: String,
        /// Who gives the tokens now.
        to: String,
    },
    /// The person or the authorization server said no.
    #[error("the authorization server {issuer} refused: {why}")]
    Refused {
        /// Who gives the tokens.
        issuer: String,
        /// What it said.
        why: String,
    },
    /// Where something secret would go is no place for it.
    #[error("{url} is not https: nothing is sent there")]
    Insecure {
        /// Where it would go.
        url: String,
    },
    /// Nothing came in time.
    #[error("{url} did not answer within {}", seconds(*limit))]
    Deadline {
        /// Who was asked.
        url: String,
        /// For how long.
        limit: Duration,
    },
    /// Nobody came back from the browser.
    #[error("nobody logged in within {}: the browser did not come back", seconds(*limit))]
    NobodyCame {
        /// For how long it was waited.
        limit: Duration,
    },
    /// It answers without end.
    #[error("the answer of {url} has more than {limit} bytes: refused")]
    TooLarge {
        /// Who was asked.
        url: String,
        /// How much is taken.
        limit: usize,
    },
    /// There is nobody.
    #[error("{url} cannot be reached: {why}")]
    Unreachable {
        /// Who was asked.
        url: String,
        /// What the system said.
        why: String,
    },
    /// The disk does not do what it should.
    #[error("the tokens in {path} cannot be used: {why}")]
    Store {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// This is no URL of a server.
    #[error("`{url}` is no URL of a server: it must begin with https:// or http://")]
    NoUrl {
        /// What was given.
        url: String,
    },
    /// Something that others rely on is not there.
    #[error("{what}: {why}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        why: String,
    },
}

impl AuthorizationError {
    /// A word for programs.
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

/// A URL as it is told: what stands behind `?` may be a secret, and so may what stands before `@`.
pub(super) fn told_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _has_none = url.set_password(None).and_then(|()| url.set_username(""));
    told(url.as_str())
}

/// What somebody else wrote, as it is told.
pub(super) fn told(text: &str) -> String {
    let text = without_url_secrets(text);
    let mut told: String = text.chars().filter(|character| !character.is_control()).take(MAX_TOLD).collect();
    if text.chars().count() > MAX_TOLD {
        told.push_str("...");
    }
    told
}

/// What was given as a URL and may be none, as it is told.
pub(super) fn told_as_url(text: &str) -> String {
    told(&url_without_secrets(text))
}

/// Stands for what is left out of a URL.
const LEFT_OUT: char = '…';

/// The text, and of each URL in it no user, no query and no fragment. That something is left out is seen.
fn without_url_secrets(text: &str) -> String {
    let (mut cut, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at);
        cut.push_str(before);
        // These are in no URL as it is written out.
        let end = url.find(|sign: char| sign.is_whitespace() || "\"'<>".contains(sign)).unwrap_or(url.len());
        // And these are the sentence's at its end.
        let length = url[..end].trim_end_matches(['`', '.', ',', ';', ':', ')', ']', '}']).len();
        cut.push_str(&url_without_secrets(&url[..length]));
        rest = &url[length..];
    }
    cut.push_str(rest);
    cut
}

/// The same for one URL, which may begin behind its scheme.
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
    // What is empty hides nothing.
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

/// `30s`, `5m`, as limits are written.
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
        assert_eq!(
            said(Duration::from_secs(300)),
            "nobody logged in within 5m: the browser did not come back"
        );
        assert!(said(Duration::from_secs(90)).contains("90s"));
        assert!(said(Duration::from_millis(200)).contains("200ms"));
    }
}
