//! Public URIs of resources: as the server wrote them while only one server has them, `server+uri` if two do.
//!
//! A URI that happens to begin with the name of a server and a plus gets its own server's name in front as well. So a URI with such a
//! beginning always is of that server, listed or not. Clients know the views of MCP Apps by their scheme `ui://`, which therefore stays: the
//! name stands after it, `ui://server+rest`. A scheme has small letters, digits, `+`, `-` and `.`, and no difference of case, so that a
//! server whose name has other characters is named by a label.

use std::{borrow::Cow, collections::HashMap};

/// The character between a server's name and its URI. It may stand in the scheme of a URI, so that the result is a URI.
const PLUS: char = '+';

/// The beginning of the URIs of views (MCP Apps).
pub(super) const VIEW: &str = "ui://";

/// The list of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The server's own URIs, or its templates of them.
    pub uris: Vec<&'a str>,
    /// URIs that its other lists name. They are the server's too, but no part of this list.
    pub mentioned: Vec<String>,
}

/// All public URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uris {
    /// The names of the servers as they stand in URIs.
    labels: Vec<String>,
    owners: HashMap<String, (usize, String)>,
    /// In the order of the servers and of their lists.
    listed: Vec<String>,
}

impl Uris {
    /// Makes the public URIs for the lists of these servers. A URI that a server lists twice is there once.
    #[must_use]
    pub fn new(resources: &[Resources<'_>]) -> Self {
        let mut uris = Uris { labels: labels(resources), ..Uris::default() };
        let mut of: HashMap<&str, Vec<usize>> = HashMap::new();
        for (server, offer) in resources.iter().enumerate() {
            for uri in offer.uris.iter().copied().chain(offer.mentioned.iter().map(String::as_str)) {
                let servers = of.entry(uri).or_default();
                if servers.last() != Some(&server) {
                    servers.push(server);
                }
            }
        }
        for (server, offer) in resources.iter().enumerate() {
            let is_shared = |uri: &str| of.get(uri).is_some_and(|servers| servers.len() > 1);
            for uri in &offer.uris {
                let public = uris.public(server, uri, is_shared(uri));
                if !uris.owners.contains_key(&public) {
                    uris.listed.push(public.clone());
                    uris.owners.insert(public, (server, (*uri).to_owned()));
                }
            }
            for uri in &offer.mentioned {
                let public = uris.public(server, uri, is_shared(uri));
                uris.owners.entry(public).or_insert_with(|| (server, uri.clone()));
            }
        }
        uris
    }

    /// Returns the server of a public URI and the server's own URI. The public URI is listed or names its server. Returns `None` otherwise.
    #[must_use]
    pub fn owner<'a>(&'a self, public: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let listed = self.owners.get(public).map(|(server, uri)| (*server, Cow::Borrowed(uri.as_str())));
        listed.or_else(|| self.named_by(public))
    }

    /// Returns whether a server lists or mentions this URI and no other does, so that it is public as it stands.
    #[must_use]
    pub fn is_public(&self, uri: &str) -> bool {
        self.owners.contains_key(uri)
    }

    /// Returns the URI with the name of its server.
    #[must_use]
    pub fn with_name(&self, server: usize, uri: &str) -> String {
        let name = self.labels.get(server).map_or("", String::as_str);
        match uri.strip_prefix(VIEW) {
            Some(rest) => format!("{VIEW}{name}{PLUS}{rest}"),
            None => format!("{name}{PLUS}{uri}"),
        }
    }

    /// Returns whether one of the servers could be named by a URI within this text.
    #[must_use]
    pub fn may_name(&self, text: &str) -> bool {
        self.labels.iter().any(|name| {
            let mut found = text.match_indices(PLUS);
            found.any(|(plus, _)| {
                let start = plus.checked_sub(name.len());
                start
                    .and_then(|start| text.get(start..plus))
                    .is_some_and(|text| text.eq_ignore_ascii_case(name))
            })
        })
    }

    /// Returns all public URIs, with their servers and the servers' own URIs.
    pub fn listed(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        self.listed.iter().filter_map(|public| {
            let (server, uri) = self.owners.get(public)?;
            Some((public.as_str(), *server, uri.as_str()))
        })
    }

    fn public(&self, server: usize, uri: &str, is_shared: bool) -> String {
        match is_shared || self.named_by(uri).is_some() {
            true => self.with_name(server, uri),
            false => uri.to_owned(),
        }
    }

    /// Returns the server whose name and a plus begin this URI, and the rest of the URI. Of several names the longest counts.
    fn named_by<'a>(&self, public: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let (scheme, begun) = match public.strip_prefix(VIEW) {
            Some(rest) => (VIEW, rest),
            None => ("", public),
        };
        let rest = |name: &str| {
            let (label, rest) = begun.split_at_checked(name.len())?;
            rest.strip_prefix(PLUS).filter(|_| label.eq_ignore_ascii_case(name))
        };
        let named = self
            .labels
            .iter()
            .enumerate()
            .filter_map(|(server, name)| Some((server, name.len(), rest(name)?)));
        let (server, _, uri) = named.max_by_key(|(_, length, _)| *length)?;
        Some((server, if scheme.is_empty() { uri.into() } else { format!("{scheme}{uri}").into() }))
    }
}

/// Returns the label of each server: its name where that can stand in a scheme, and otherwise one that no other server has.
fn labels(resources: &[Resources<'_>]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for offer in resources {
        let plain = |byte: u8| match byte.to_ascii_lowercase() {
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.') => char::from(byte),
            _ => '-',
        };
        let name: String = offer.server.bytes().map(plain).collect();
        let label = if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            name
        } else {
            format!("s{name}")
        };
        let numbered = (2..).map(|number| format!("{label}-{number}"));
        let free = std::iter::once(label.clone()).chain(numbered).find(|label| !labels.contains(label));
        labels.push(free.unwrap_or(label));
    }
    labels
}

/// Returns whether this is a URI with a scheme, and not a relative reference, which no name can stand before.
pub(super) fn has_scheme(uri: &str) -> bool {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    uri.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_of_scheme)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(resources: &[(&'static str, &[&'static str])]) -> Uris {
        let resources = resources.iter().map(|(server, uris)| Resources {
            server,
            uris: uris.to_vec(),
            mentioned: vec![],
        });
        Uris::new(&resources.collect::<Vec<_>>())
    }

    fn owner(uris: &Uris, public: &str) -> Option<(usize, String)> {
        uris.owner(public).map(|(server, own)| (server, own.into_owned()))
    }

    fn of(server: usize, uri: &str) -> Option<(usize, String)> {
        Some((server, uri.to_owned()))
    }

    #[test]
    fn a_uri_stays_as_it_is_while_one_server_has_it() {
        let uris = uris(&[("a", &["file:///x", "file:///y", "file:///y"]), ("b", &["file:///x", "data:z"])]);
        let listed: Vec<&str> = uris.listed().map(|(public, ..)| public).collect();
        assert_eq!(listed, ["a+file:///x", "file:///y", "b+file:///x", "data:z"]);
        assert_eq!(owner(&uris, "b+file:///x"), of(1, "file:///x"));
        assert_eq!(owner(&uris, "file:///y"), of(0, "file:///y"));
        assert_eq!(owner(&uris, "file:///x"), None, "nobody can tell whose");
        assert_eq!(owner(&uris, "b+never:listed"), of(1, "never:listed"));
        assert_eq!(owner(&uris, "c+file:///y"), None);
    }

    #[test]
    fn what_looks_as_if_it_named_a_server_is_named_too() {
        let uris = uris(&[("a", &["x:1"]), ("b", &["a+x:1", "x:1"]), ("a+b", &["y:1"])]);
        let listed: Vec<(&str, usize, &str)> = uris.listed().collect();
        assert_eq!(
            listed,
            [("a+x:1", 0, "x:1"), ("b+a+x:1", 1, "a+x:1"), ("b+x:1", 1, "x:1"), ("y:1", 2, "y:1")]
        );
        for (public, server, own) in listed {
            assert_eq!(owner(&uris, public), of(server, own));
        }
        assert_eq!(owner(&uris, "a+b+z:1"), of(2, "z:1"), "the longer name counts");
        for (text, may) in [(r#""uri":"b+x:1""#, true), ("a + b", false), ("1 b b+", true), ("", false)] {
            assert_eq!(uris.may_name(text), may, "{text}");
        }
    }

    #[test]
    fn a_server_whose_name_cannot_stand_in_a_scheme_has_a_label_of_its_own() {
        let uris =
            uris(&[("my_server", &["x:1"]), ("My-Server", &["x:1"]), ("7up", &["x:1"]), ("ä", &["x:1"])]);
        let listed: Vec<(&str, usize, &str)> = uris.listed().collect();
        assert_eq!(
            listed,
            [
                ("my-server+x:1", 0, "x:1"),
                ("my-server-2+x:1", 1, "x:1"),
                ("s7up+x:1", 2, "x:1"),
                ("s--+x:1", 3, "x:1")
            ]
        );
        for (public, server, own) in listed {
            assert_eq!(owner(&uris, public), of(server, own));
            assert!(has_scheme(public), "{public}");
        }
        // Clients write schemes in small letters, or as they came.
        assert_eq!(owner(&uris, "MY-SERVER+x:2"), of(0, "x:2"));
        for (uri, expect) in
            [("a:", true), ("a+b-c.d:x", true), ("", false), ("a/b:c", false), (":x", false), ("1a:x", false)]
        {
            assert_eq!(has_scheme(uri), expect, "{uri}");
        }
    }

    #[test]
    fn a_view_keeps_its_scheme_and_is_found_though_only_a_tool_mentions_it() {
        let of_server = |server, uris: &[&'static str], mentioned: &[&str]| Resources {
            server,
            uris: uris.to_vec(),
            mentioned: mentioned.iter().map(|uri| (*uri).to_owned()).collect(),
        };
        let uris = Uris::new(&[
            of_server("a", &["ui://clock/view", "ui://a"], &["ui://clock/view", "ui://hidden"]),
            of_server("b", &[], &["ui://clock/view", "ui://a+x"]),
        ]);
        let listed: Vec<&str> = uris.listed().map(|(public, ..)| public).collect();
        assert_eq!(listed, ["ui://a+clock/view", "ui://a"]);
        for (public, expect) in [
            ("ui://a+clock/view", of(0, "ui://clock/view")),
            ("ui://b+clock/view", of(1, "ui://clock/view")),
            ("ui://hidden", of(0, "ui://hidden")),
            ("ui://b+a+x", of(1, "ui://a+x")),
            ("ui://b+never/listed", of(1, "ui://never/listed")),
            ("ui://clock/view", None),
        ] {
            assert_eq!(owner(&uris, public), expect, "{public}");
        }
    }
}
