//! What is known of all servers, for those who ask them: what they offer under which names, and how long they are waited for.
//!
//! Invariants
//!
//! - What is known never goes back to what was.
//! - Who is told of a change is told because there is one.
//! - A session knows of the instances that it has itself what they offer, and of no other session's.

use std::{collections::BTreeMap, sync::Arc};

use unhang_switches::stands;

use super::{RequestTimeouts, backend::Backend, roster::Roster};
use crate::route::{
    catalog::{Catalog, CatalogSource, ListedItems},
    names::Owner,
};
use unhang_core::clients::Clocks;

/// What is known of all servers.
#[derive(Clone, Debug, Default)]
pub struct KnownServers {
    /// What they offer.
    pub catalog: Arc<Catalog>,
    /// By the index of the server.
    pub timeouts: Arc<BTreeMap<usize, RequestTimeouts>>,
    /// Those of the clients that ask.
    pub clocks: Clocks,
    /// Every server has been listed, or has failed to be, since it is there.
    pub is_settled: bool,
    /// That was so at some time, whatever servers have come since.
    pub was_settled: bool,
    /// They are those of another gateway, whose clients come back with states of its own.
    pub follows: bool,
    /// The same, or it is known what it offered in the last run, or lists have waited for it long enough.
    pub has_lists: bool,
    /// Servers of which nobody knows what they offer.
    pub absent: Arc<Vec<UnlistedServer>>,
}

/// A server of which nobody knows what it offers, since it has never been listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedServer {
    /// What it is called.
    pub server: String,
    /// What the public names of its tools and prompts begin with; empty where they can be anything.
    pub beginning: String,
    /// Why it could not be listed; it is still awaited where this says nothing.
    pub why: Option<String>,
}

impl KnownServers {
    /// Whose a tool is that is listed, or that whoever leads may have of a server of which it has listed nothing yet. It knows whether
    /// that is still starting, has the call wait for it, and says why there is nothing of the name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<Owner> {
        self.catalog.tool(name).or_else(|| self.unlisted(name))
    }

    /// The same of a prompt.
    #[must_use]
    pub fn prompt(&self, name: &str) -> Option<Owner> {
        self.catalog.prompt(name).or_else(|| self.unlisted(name))
    }

    fn unlisted(&self, name: &str) -> Option<Owner> {
        let mut all = self.timeouts.iter().filter(|(_, timeouts)| timeouts.may_have(name));
        all.next().map(|(server, _)| Owner { server: *server, name: name.to_owned() })
    }
}

impl UnlistedServer {
    /// Whether a tool or a prompt of this name may turn out to be this server's, which is still awaited.
    #[must_use]
    pub fn may_bring(&self, name: &str) -> bool {
        self.why.is_none() && name.starts_with(&self.beginning)
    }

    /// Why there is nothing of this name, where the name says that it would be this server's.
    #[must_use]
    pub fn why_without(&self, name: &str) -> Option<&str> {
        let is_its = !self.beginning.is_empty() && name.starts_with(&self.beginning);
        self.why.as_deref().filter(|_| is_its)
    }
}

impl KnownServers {
    /// What somebody knows for whom each of these servers offers that. It was settled before where this says so.
    pub(super) fn of(
        roster: &Roster,
        listed_backends: &[(&Arc<Backend>, Arc<ListedItems>)],
        was_settled: bool,
    ) -> Self {
        let sources = listed_backends.iter().map(|(backend, offered)| CatalogSource {
            server_index: backend.server_index(),
            name: backend.name(),
            prefix: backend.prefix(),
            offered,
        });
        let sources: Vec<CatalogSource<'_>> = sources.collect();
        let own: Vec<&str> = roster.own.iter().map(String::as_str).collect();
        let catalog = Catalog::new(&roster.style, &own, &sources);
        let all = || listed_backends.iter().map(|(backend, _)| backend);
        let timeouts: BTreeMap<usize, RequestTimeouts> = listed_backends
            .iter()
            .map(|(backend, offered)| (backend.server_index(), backend.timeouts(offered)))
            .collect();
        let is_settled = all().all(|backend| backend.lists.was_listed());
        Self {
            catalog: Arc::new(catalog),
            timeouts: Arc::new(timeouts),
            clocks: roster.clocks.clone(),
            is_settled,
            was_settled: was_settled || is_settled,
            follows: all().any(|backend| backend.is_gateway()),
            has_lists: all().all(|backend| backend.lists.are_settled()),
            absent: Arc::new(all().filter_map(|backend| backend.absent(&roster.style, true)).collect()),
        }
    }

    /// Puts this in its place; whether it is anything else.
    pub(super) fn become_known(&mut self, now: Self) -> bool {
        // A server that tells of changes where there are none wakes nobody.
        if self.flags() == now.flags()
            && (Arc::ptr_eq(&self.timeouts, &now.timeouts) || self.timeouts == now.timeouts)
            && self.clocks == now.clocks
            && self.absent == now.absent
            && (Arc::ptr_eq(&self.catalog, &now.catalog) || self.catalog == now.catalog)
            && stands("unchanged-wakes-nobody")
        {
            return false;
        }
        *self = now;
        true
    }

    fn flags(&self) -> [bool; 3] {
        [self.is_settled, self.was_settled, self.has_lists]
    }
}
