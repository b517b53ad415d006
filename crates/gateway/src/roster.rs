//! The servers that a gateway has: those of the current configuration, and those of earlier ones that still have something to answer.
//!
//! Invariants
//!
//! - An index names one server for as long as we live, and is never given to another.
//! - A server whose entry stays the same goes on as if nothing had happened.
//! - A server that leaves takes no answer with it: it may answer the requests that it has, within their limits.
//! - A server that replaces another of its name starts when that one has gone, unless that one still has something to answer.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::OwnedMutexGuard;
use unhang_proc::deadline::Deadline;

use super::{
    Scope, ServerEntry, ServerSet, Servers, backend::Backend, gateway_core::GatewayCore,
    list_keeper::keep_lists,
};
use crate::route::names::Style;
use unhang_core::{clients::Clocks, config::DISPOSE_LIMIT};

/// The servers of one gateway.
#[derive(Default)]
pub(super) struct Roster {
    /// The servers of the configuration, in its order.
    pub(super) current: Vec<Arc<Backend>>,
    /// The servers of earlier configurations, until they have gone.
    leaving: Vec<Arc<Backend>>,
    /// The instances that sessions have, each with the index of its server, until they have gone.
    pub(super) instances: Vec<Arc<Backend>>,
    pub(super) style: Style,
    /// The names of tools of ours, which no server's tool can have.
    pub(super) own: Vec<String>,
    /// The clocks of the clients that ask.
    pub(super) clocks: Clocks,
    next_server_index: usize,
    is_closed: bool,
}

/// The changes of a new configuration, by the names of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RosterChange {
    /// Servers that were not there before.
    pub added: Vec<String>,
    /// Servers that are started anew.
    pub changed: Vec<String>,
    /// Servers that are there no more.
    pub removed: Vec<String>,
}

impl RosterChange {
    /// Returns whether everything is as it was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    /// Returns the change without the server of this name.
    pub fn without(mut self, name: &str) -> Self {
        for names in [&mut self.added, &mut self.changed, &mut self.removed] {
            names.retain(|other| other != name);
        }
        self
    }

    /// Returns this change together with that of other servers.
    pub fn and(mut self, other: Self) -> Self {
        self.added.extend(other.added);
        self.changed.extend(other.changed);
        self.removed.extend(other.removed);
        self
    }
}

/// A server that leaves, and the lock that keeps its successor from starting until it has gone.
struct LeavingServer {
    backend: Arc<Backend>,
    successor: Option<OwnedMutexGuard<()>>,
}

impl Roster {
    /// Returns the server at this index, also one that is about to go.
    pub(super) fn at(&self, server_index: usize) -> Option<Arc<Backend>> {
        let mut all = self.current.iter().chain(&self.leaving);
        all.find(|backend| backend.server_index() == server_index).map(Arc::clone)
    }

    /// Closes the roster, and returns all servers that have not gone. No server comes after this.
    pub(super) fn close(&mut self) -> Vec<Arc<Backend>> {
        self.is_closed = true;
        self.current.iter().chain(&self.leaving).chain(&self.instances).map(Arc::clone).collect()
    }

    /// Returns whether the roster is closed, so that no server comes any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Puts servers for these entries in the place of the current ones. Returns the change, the new servers and the servers that leave.
    fn replace(
        &mut self,
        entries: Vec<ServerEntry>,
        core: &GatewayCore,
    ) -> (RosterChange, Vec<Arc<Backend>>, Vec<LeavingServer>) {
        let (mut change, mut new) = (RosterChange::default(), Vec::new());
        let before = std::mem::take(&mut self.current);
        let mut before: HashMap<String, Arc<Backend>> =
            before.into_iter().map(|backend| (backend.name().to_owned(), backend)).collect();
        let mut leaving = Vec::new();
        for entry in entries {
            let known = before.remove(&entry.spec.name);
            if let Some(backend) = known.as_ref().filter(|backend| backend.is_made_from(&entry)) {
                self.current.push(Arc::clone(backend));
                continue;
            }
            let server_index = self.next_server_index;
            self.next_server_index += 1;
            let name = entry.spec.name.clone();
            let backend = Arc::new(Backend::new(
                entry,
                server_index,
                core.updates.clone(),
                Arc::clone(&core.open_sessions),
                known.as_deref(),
            ));
            if let Some(level) = core.level.get() {
                backend.level.lower_to(level);
            }
            match known {
                Some(known) => {
                    change.changed.push(name);
                    let successor = Arc::clone(&backend.stop_lock).try_lock_owned().ok();
                    leaving.push(LeavingServer { backend: known, successor });
                }
                None => change.added.push(name),
            }
            new.push(Arc::clone(&backend));
            self.current.push(backend);
        }
        change.removed = before.keys().cloned().collect();
        change.removed.sort_unstable();
        leaving.extend(before.into_values().map(|backend| LeavingServer { backend, successor: None }));
        self.leaving.extend(leaving.iter().map(|leaving| Arc::clone(&leaving.backend)));
        (change, new, leaving)
    }
}

impl Servers {
    /// Replaces the servers. Servers whose entry stays the same go on as they are, with their requests. Servers that leave may still answer
    /// the requests that they have. Permits and instances stay, even if there is less room. Returns the change. Must be called in a
    /// runtime.
    pub fn replace(&self, lineup: ServerSet) -> RosterChange {
        let ServerSet { entries, style, own, capacity, clocks, notices: _, awaits_client } = lineup;
        self.core.bound(capacity);
        let (change, new, leaving) = {
            let mut roster = self.core.roster();
            if roster.is_closed {
                return RosterChange::default();
            }
            roster.style = style;
            roster.own = own;
            roster.clocks = clocks;
            roster.replace(entries, &self.core)
        };
        for backend in &new {
            backend.lists.recall();
        }
        self.core.publish();
        let gone: Vec<usize> = leaving.iter().map(|leaving| leaving.backend.server_index()).collect();
        for session_servers in self.core.sessions.all() {
            session_servers.part_with(&gone);
        }
        for leaving in leaving {
            // Nobody asks for its lists any more.
            self.tasks.stop(leaving.backend.server_index());
            let (core, server_index) = (Arc::downgrade(&self.core), leaving.backend.server_index());
            self.tasks.spawn(server_index, async move {
                leaving.gone().await;
                if let Some(core) = core.upgrade() {
                    core.roster().leaving.retain(|backend| backend.server_index() != server_index);
                }
            });
        }
        for backend in new {
            let server_index = backend.server_index();
            self.tasks
                .spawn(server_index, keep_lists(Arc::clone(&self.core), Arc::clone(&backend), awaits_client));
            if let Some(idle) = backend.idle_timeout().filter(|_| backend.scope() != Scope::Session) {
                self.tasks.spawn(server_index, backend.rest_after(idle));
            }
        }
        // Tasks of servers that have gone need not be kept.
        self.tasks.forget_ended();
        change
    }
}

impl LeavingServer {
    /// Waits until nobody wants anything of the server any more, and ends it.
    async fn gone(self) {
        let LeavingServer { backend, mut successor } = self;
        let counterpart = backend.eras.counterpart();
        if backend.is_wanted() || counterpart.is_some_and(|other| other.is_wanted()) {
            // Each caller has a limit. The successor must not be late for that.
            drop(successor.take());
            backend.until_unwanted().await;
            if let Some(counterpart) = counterpart {
                counterpart.until_unwanted().await;
            }
        }
        backend.close(Deadline::after(DISPOSE_LIMIT)).await;
        drop(successor);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{
        super::testing::{call, mute},
        *,
    };
    use unhang_core::fault::FaultKind;
    use unhang_upstream::client::Error;

    const SOON: Duration = Duration::from_secs(10);

    fn named(name: &str, made_from: &str, entry: &ServerEntry) -> ServerEntry {
        let mut entry = entry.clone();
        entry.spec.name = name.to_owned();
        entry.prefix = name.to_owned();
        entry.made_from = made_from.to_owned();
        entry
    }

    #[tokio::test]
    async fn what_stays_as_it_was_keeps_its_place_and_no_place_is_given_twice() {
        let (_mute, entry) = mute();
        let servers = Servers::start(
            vec![named("a", "1", &entry), named("b", "1", &entry), named("c", "1", &entry)].into(),
        );
        let server_indexes =
            || servers.core.roster().current.iter().map(|backend| backend.server_index()).collect::<Vec<_>>();
        assert_eq!(server_indexes(), [0, 1, 2]);
        let entries = || vec![named("d", "1", &entry), named("c", "1", &entry), named("a", "2", &entry)];
        let change = servers.replace(entries().into());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expect = RosterChange { added: names(&["d"]), changed: names(&["a"]), removed: names(&["b"]) };
        assert_eq!((change, server_indexes()), (expect, vec![3, 2, 4]));
        let known = servers.known().borrow().clone();
        assert_eq!(known.timeouts.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert!(servers.replace(entries().into()).is_empty(), "it is the same");
        servers.close().await;
        assert!(servers.replace(ServerSet::default()).is_empty(), "nothing comes after the end");
        assert_eq!(server_indexes(), [3, 2, 4]);
    }

    #[tokio::test]
    async fn what_a_server_that_goes_was_asked_it_may_still_answer() {
        let (_mute, entry) = mute();
        let servers = Servers::start(vec![named("a", "1", &entry)].into());
        let limit = Duration::from_millis(300);
        let asked = tokio::spawn(servers.ask(call("slow", limit), None, None));
        tokio::task::yield_now().await;
        let was = servers.core.roster().at(0).expect("it is there");
        servers.replace(vec![named("a", "2", &entry)].into());
        assert!(servers.core.roster().at(0).is_some(), "somebody waits for it");
        match asked.await.expect("no panic").outcome {
            // It was waited for as long as it was allowed, and not cut off.
            Err(Error::Failure(failure)) => assert_eq!(failure.kind, FaultKind::Deadline),
            other => panic!("it never answers: {other:?}"),
        }
        let gone = async {
            while servers.core.roster().at(0).is_some() {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, gone).await.expect("nobody waits for it any more");
        assert!(!was.is_wanted());
        servers.close().await;
    }
}
