//! Knowledge about all servers for the sessions that ask them: the offered items under their public names, and the timeouts.
//!
//! Invariants
//!
//! - Knowledge of the servers never goes back to an older state.
//! - A session is told of a change only if there is one, or if a server announces one.
//! - A session knows the lists of its own instances, and of no other session's.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    RequestTimeouts, ServerRequest, backend::Backend, list_announcements::KnownAnnouncements,
    lists::ListSnapshot, roster::Roster,
};
use crate::route::{
    catalog::{Catalog, CatalogSource},
    names::Owner,
};
use unhang_core::{clients::Clocks, insertion::InsertEach};

/// Knowledge about all servers.
#[derive(Clone, Debug, Default)]
pub struct KnownServers {
    /// Everything that the servers offer.
    pub catalog: Arc<Catalog>,
    /// The changes of lists that the servers have announced, whether or not the catalog is another since then.
    pub announced: KnownAnnouncements,
    /// Timeouts, by the index of the server.
    pub timeouts: Arc<BTreeMap<usize, RequestTimeouts>>,
    /// The clocks of the clients that ask.
    pub clocks: Clocks,
    /// Every server has been listed since it is there, or has failed to be.
    pub is_settled: bool,
    /// Every server was listed, or had failed to be, at some time, whatever servers have come since.
    pub was_settled: bool,
    /// The servers are those of another gateway, whose clients come back with states of its own.
    pub follows: bool,
    /// For every server one of these holds: it was listed or failed to be, its lists of the last run are known, or lists have waited for it
    /// long enough.
    pub has_lists: bool,
    /// Servers whose lists nobody knows.
    pub absent: Arc<Vec<UnlistedServer>>,
}

/// A server whose lists nobody knows, since it has never been listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedServer {
    /// The server's name.
    pub server: String,
    /// The beginning of the public names of the server's tools and prompts; empty if they can be anything.
    pub beginning: String,
    /// Why the server could not be listed; `None` while it is still awaited.
    pub why: Option<String>,
}

impl KnownServers {
    /// Returns the owner of a tool: the server that lists it, or the leader. The leader owns a name if the name may belong to a server of
    /// which the leader has listed nothing yet. The leader knows whether that server is still starting, lets the call wait for it, and says
    /// why there is no such tool.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<Owner> {
        self.catalog.tool(name).or_else(|| self.unlisted(name))
    }

    /// Returns the server behind the leading window that has the tool of this request; `None` for every other request.
    #[must_use]
    pub fn behind(&self, asked: &ServerRequest) -> Option<&str> {
        self.catalog.behind(asked.server, asked.tool.as_deref()?)
    }

    /// Returns the owner of a prompt, by the same rules as [`tool`](Self::tool).
    #[must_use]
    pub fn prompt(&self, name: &str) -> Option<Owner> {
        self.catalog.prompt(name).or_else(|| self.unlisted(name))
    }

    /// Returns the server that a tool or a prompt of this name belongs to and that could not be listed, and why. Returns `None` if there is
    /// no such server.
    #[must_use]
    pub fn failed_owner(&self, name: &str) -> Option<(&UnlistedServer, &str)> {
        let is_only_server = self.timeouts.len() == 1;
        self.absent.iter().find_map(|absent| Some((absent, absent.why_without(name, is_only_server)?)))
    }

    fn unlisted(&self, name: &str) -> Option<Owner> {
        let mut all = self.timeouts.iter().filter(|(_, timeouts)| timeouts.may_have(name));
        all.next().map(|(server, _)| Owner { server: *server, name: name.to_owned() })
    }
}

impl UnlistedServer {
    /// Returns whether a tool or a prompt of this name may turn out to be of this server, which is still awaited.
    #[must_use]
    pub fn may_bring(&self, name: &str) -> bool {
        self.why.is_none() && name.starts_with(&self.beginning)
    }

    /// Returns why the server could not be listed, if the name says that it belongs to this server. Returns `None` otherwise.
    fn why_without(&self, name: &str, is_only_server: bool) -> Option<&str> {
        // Without a beginning, a name of another server looks the same.
        let is_its = name.starts_with(&self.beginning) && (is_only_server || !self.beginning.is_empty());
        self.why.as_deref().filter(|_| is_its)
    }
}

impl KnownServers {
    /// Returns the knowledge of somebody for whom each of these servers offers these lists. `was_settled` says whether everything was
    /// settled before.
    pub(super) fn of(
        roster: &Roster,
        listed_backends: &[(&Arc<Backend>, ListSnapshot)],
        was_settled: bool,
    ) -> Self {
        let sources = listed_backends.iter().map(|(backend, snapshot)| CatalogSource {
            server_index: backend.server_index(),
            name: backend.name(),
            prefix: backend.prefix(),
            offered: &snapshot.offered,
            is_awaited: !backend.lists.was_listed() && !backend.lists.are_recalled(),
        });
        let sources: Vec<CatalogSource<'_>> = sources.collect();
        let own: Vec<&str> = roster.own.iter().map(String::as_str).collect();
        let catalog = Catalog::new(&roster.style, &own, &sources);
        let all = || listed_backends.iter().map(|(backend, _)| backend);
        let timeouts: BTreeMap<usize, RequestTimeouts> = listed_backends
            .iter()
            .map(|(backend, snapshot)| (backend.server_index(), backend.timeouts(&snapshot.offered)))
            .insert_each();
        let mut announced = KnownAnnouncements::default();
        for (backend, snapshot) in listed_backends {
            announced.add(backend.server_index(), snapshot.origin, snapshot.announced);
        }
        let is_settled = all().all(|backend| backend.lists.was_listed());
        Self {
            catalog: Arc::new(catalog),
            announced,
            timeouts: Arc::new(timeouts),
            clocks: roster.clocks.clone(),
            is_settled,
            was_settled: was_settled || is_settled,
            follows: all().any(|backend| backend.is_gateway()),
            has_lists: all().all(|backend| backend.lists.are_settled()),
            absent: Arc::new(all().filter_map(|backend| backend.absent(&roster.style, true)).collect()),
        }
    }

    /// Puts `now` in the place of the old knowledge, and returns whether it differs.
    pub(super) fn become_known(&mut self, now: Self) -> bool {
        // A server that is listed anew, and is the same, wakes nobody.
        if !now.announced.are_news(&self.announced)
            && self.flags() == now.flags()
            && (Arc::ptr_eq(&self.timeouts, &now.timeouts) || self.timeouts == now.timeouts)
            && self.clocks == now.clocks
            && self.absent == now.absent
            && (Arc::ptr_eq(&self.catalog, &now.catalog) || self.catalog == now.catalog)
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
