//! Public URIs of resources: as the server wrote them while only one server has them, `server+uri` if two do.
//!
//! A URI that happens to begin with the name of a server and a plus gets its own server's name in front as well. So a URI with such a
//! beginning always is of that server, listed or not.

use std::collections::HashMap;

/// The character between a server's name and its URI. It may stand in the scheme of a URI, so that the result is a URI.
const PLUS: char = '+';

/// The list of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The server's own URIs, or its templates of them.
    pub uris: Vec<&'a str>,
}

/// All public URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uris {
    servers: Vec<String>,
    owners: HashMap<String, (usize, String)>,
    /// In the order of the servers and of their lists.
    listed: Vec<String>,
}

impl Uris {
    /// Makes the public URIs for the lists of these servers. A URI that a server lists twice is there once.
    #[must_use]
    pub fn new(resources: &[Resources<'_>]) -> Self {
        let servers: Vec<String> = resources.iter().map(|offer| offer.server.to_owned()).collect();
        let mut uris = Uris { servers, ..Uris::default() };
        let mut of: HashMap<&str, Vec<usize>> = HashMap::new();
        for (server, offer) in resources.iter().enumerate() {
            for uri in &offer.uris {
                let servers = of.entry(uri).or_default();
                if servers.last() != Some(&server) {
                    servers.push(server);
                }
            }
        }
        for (server, offer) in resources.iter().enumerate() {
            for uri in &offer.uris {
                let is_shared = of.get(uri).is_some_and(|servers| servers.len() > 1);
                let public = uris.public(server, uri, is_shared);
                if !uris.owners.contains_key(&public) {
                    uris.listed.push(public.clone());
                    uris.owners.insert(public, (server, (*uri).to_owned()));
                }
            }
        }
        uris
    }

    /// Returns the server of a public URI and the server's own URI. The public URI is listed or names its server. Returns `None` otherwise.
    #[must_use]
    pub fn owner<'a>(&'a self, public: &'a str) -> Option<(usize, &'a str)> {
        let listed = self.owners.get(public).map(|(server, uri)| (*server, uri.as_str()));
        listed.or_else(|| self.named_by(public))
    }

    /// Returns the public URI for a URI that a server has just mentioned, in a link or in the result of a call.
    #[must_use]
    pub fn public_of(&self, server: usize, uri: &str) -> String {
        // A URI that is listed under its own name belongs to this server alone, or to another.
        let is_others = self.owners.get(uri).is_some_and(|(owner, _)| *owner != server);
        let name = || format!("{}{PLUS}{uri}", self.servers.get(server).map_or("", String::as_str));
        let is_listed_with_name = || self.owners.contains_key(&name());
        if is_others || is_listed_with_name() || self.named_by(uri).is_some() {
            name()
        } else {
            uri.to_owned()
        }
    }

    /// Returns all public URIs, with their servers and the servers' own URIs.
    pub fn listed(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        self.listed.iter().filter_map(|public| {
            let (server, uri) = self.owners.get(public)?;
            Some((public.as_str(), *server, uri.as_str()))
        })
    }

    fn public(&self, server: usize, uri: &str, is_shared: bool) -> String {
        let needs_name = is_shared || self.named_by(uri).is_some();
        match self.servers.get(server).filter(|_| needs_name) {
            Some(name) => format!("{name}{PLUS}{uri}"),
            None => uri.to_owned(),
        }
    }

    /// Returns the server whose name and a plus begin this URI, and the rest of the URI. Of several names the longest counts.
    fn named_by<'a>(&self, public: &'a str) -> Option<(usize, &'a str)> {
        let rest = |name: &str| public.strip_prefix(name)?.strip_prefix(PLUS);
        let named = self
            .servers
            .iter()
            .enumerate()
            .filter_map(|(server, name)| Some((server, name.len(), rest(name)?)));
        named.max_by_key(|(_, length, _)| *length).map(|(server, _, uri)| (server, uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uris(resources: &[(&'static str, &[&'static str])]) -> Uris {
        let resources: Vec<_> =
            resources.iter().map(|(server, uris)| Resources { server, uris: uris.to_vec() }).collect();
        Uris::new(&resources)
    }

    #[test]
    fn a_uri_stays_as_it_is_while_one_server_has_it() {
        let uris = uris(&[("a", &["file:///x", "file:///y", "file:///y"]), ("b", &["file:///x", "data:z"])]);
        let listed: Vec<&str> = uris.listed().map(|(public, ..)| public).collect();
        assert_eq!(listed, ["a+file:///x", "file:///y", "b+file:///x", "data:z"]);
        assert_eq!(uris.owner("b+file:///x"), Some((1, "file:///x")));
        assert_eq!(uris.owner("file:///y"), Some((0, "file:///y")));
        assert_eq!(uris.owner("file:///x"), None, "nobody can tell whose");
        assert_eq!(uris.owner("b+never:listed"), Some((1, "never:listed")));
        assert_eq!(uris.owner("c+file:///y"), None);
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
            assert_eq!(uris.owner(public), Some((server, own)));
        }
        assert_eq!(uris.owner("a+b+z:1"), Some((2, "z:1")), "the longer name counts");
    }

    #[test]
    fn what_a_server_mentions_is_called_as_it_is_listed() {
        let uris = uris(&[("a", &["x:1", "x:2"]), ("b", &["x:1"])]);
        assert_eq!(uris.public_of(0, "x:1"), "a+x:1");
        assert_eq!(uris.public_of(0, "x:2"), "x:2");
        assert_eq!(uris.public_of(1, "x:2"), "b+x:2", "it is another's under this name");
        assert_eq!(uris.public_of(1, "x:3"), "x:3", "nobody lists it");
        assert_eq!(uris.public_of(1, "a+q:1"), "b+a+q:1");
        for (server, uri) in [(0, "x:1"), (0, "x:2"), (1, "x:2"), (1, "a+q:1")] {
            assert_eq!(uris.owner(&uris.public_of(server, uri)), Some((server, uri)));
        }
    }
}
