//! The lists of a server: it is asked for them, and again when they may have changed.
//!
//! Invariants
//!
//! - Lists stay until there are newer ones.
//! - Items that the rules of a server do not allow are listed nowhere.
//! - What a server has announced counts together with the lists that it gave after that.
//! - The lists of the last run count until the server has been listed, under the rules of today.
//! - A list that takes long holds back no other. Until it has come, the one before counts.

use std::{
    collections::HashSet,
    future::{self, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};
use unhang_bridge::Era;

use super::{
    Scope, ServerEntry,
    list_announcements::{AnnouncementCounts, AnnouncementPace, ListKinds, ListOrigin, are_same},
    list_fetch::{FetchedLists, LateLists},
    list_rounds::ListRounds,
    list_store::RecalledLists,
    owners,
};
use crate::route::{
    catalog::{ListedItems, Owners},
    extensions,
};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::{Error, ServerInfo, ServerList};

/// The lists of one server, as far as they are known.
pub(super) struct ServerLists {
    entry: Arc<ServerEntry>,
    origin: ListOrigin,
    known: Mutex<KnownLists>,
    /// Lists that have not come yet, and those that came with the same round, before any rule.
    late: Mutex<Option<(LateLists, ListedItems)>>,
    /// The rounds in which the server is asked for all its lists.
    pub(super) rounds: ListRounds,
}

struct KnownLists {
    offered: Arc<ListedItems>,
    /// The server has been listed, or has failed to be.
    was_listed: bool,
    /// The server has been listed since we began.
    has_lists: bool,
    /// Lists have waited for the server for as long as they may.
    is_late: bool,
    /// The memory of the last time that the server was listed.
    recalled: RecalledLists,
    /// Messages that the log has had once: rules without effect, and lists that are cut.
    reported: HashSet<String>,
    /// Counts the announcements of the server.
    announcements: AnnouncementPace,
    /// The lists that did not come with the tools the last time.
    slow: Vec<ServerList>,
}

/// The lists of a server at one moment, and what it had announced before it gave them.
#[derive(Clone)]
pub(super) struct ListSnapshot {
    pub offered: Arc<ListedItems>,
    pub origin: ListOrigin,
    pub announced: AnnouncementCounts,
}

impl ServerLists {
    /// Makes the lists of this server. It offers the lists of its predecessor as far as its own rules allow.
    pub(super) fn new(
        entry: Arc<ServerEntry>,
        origin: ListOrigin,
        mut offered: ListedItems,
        recalled: RecalledLists,
    ) -> Self {
        offered.tools = entry.tool_rules.offered(offered.tools);
        let known = KnownLists {
            offered: Arc::new(offered),
            was_listed: false,
            has_lists: false,
            is_late: false,
            recalled,
            reported: HashSet::new(),
            announcements: AnnouncementPace::default(),
            slow: Vec::new(),
        };
        let (late, rounds) = (Mutex::default(), ListRounds::default());
        Self { entry, origin, known: Mutex::new(known), late, rounds }
    }

    /// Returns the lists that the server gave last.
    pub(super) fn offered(&self) -> Arc<ListedItems> {
        Arc::clone(&self.known().offered)
    }

    /// Returns the same, with what the server had announced before.
    pub(super) fn snapshot(&self) -> ListSnapshot {
        let known = self.known();
        let (offered, announced) = (Arc::clone(&known.offered), known.announcements.counts());
        ListSnapshot { offered, origin: self.origin, announced }
    }

    /// Returns whether the server has been listed, or has failed to be.
    pub(super) fn was_listed(&self) -> bool {
        self.known().was_listed
    }

    /// Returns whether nobody has to wait for the lists: they are known, are known from the last run, could not be fetched, or take too
    /// long.
    pub(super) fn are_settled(&self) -> bool {
        let known = self.known();
        known.was_listed || known.recalled.has_lists || known.is_late
    }

    /// Returns whether the server has been listed since we began.
    pub(super) fn has_been_listed(&self) -> bool {
        self.known().has_lists
    }

    /// Returns whether listing has failed, if the server has not been listed since we began; `false` means that it is still awaited.
    /// Returns `None` if it has been listed.
    pub(super) fn failure_to_list(&self) -> Option<bool> {
        let known = self.known();
        (!known.has_lists).then_some(known.was_listed)
    }

    /// Returns whether lists from before are known.
    pub(super) fn are_recalled(&self) -> bool {
        let known = self.known();
        known.recalled.has_lists || !known.offered.tools.is_empty()
    }

    /// Notes that lists have waited for the server for as long as they may.
    pub(super) fn note_late(&self) {
        self.known().is_late = true;
    }

    /// Offers these lists from now on, as far as the rules allow, after the server had announced these kinds.
    pub(super) fn accept(&self, listed: ListedItems, announced: ListKinds) {
        let offered = ListedItems { tools: self.allowed(listed.tools), ..listed };
        let mut known = self.known();
        let before = Arc::clone(&known.offered);
        known.announcements.listed(announced, &before, &offered, Instant::now());
        (known.offered, known.was_listed, known.has_lists) = (Arc::new(offered), true, true);
    }

    /// Waits until an announcement counts that had to wait. Never ends if there is none. Cancel-safe.
    pub(super) async fn until_announcement_counts(&self) {
        let due = self.known().announcements.next_due();
        match due {
            Some(due) => sleep_until(due).await,
            None => future::pending().await,
        }
        self.known().announcements.count_due(Instant::now());
    }

    /// Notes that the server could not be listed.
    pub(super) fn note_failed(&self) {
        self.known().was_listed = true;
    }

    /// Takes the lists of the last run, as far as they have been read.
    pub(super) fn recall(&self) {
        let Some((listed, recalled)) = self.entry.memory.as_ref().and_then(|store| store.take_read_ahead())
        else {
            return;
        };
        // Rules without effect are reported once the lists of today are there.
        let tools = self.entry.tool_rules.offered(listed.tools);
        let mut known = self.known();
        (known.offered, known.recalled) = (Arc::new(ListedItems { tools, ..listed }), recalled);
    }

    /// Returns the memory with which another instance of the same server begins.
    pub(super) fn recalled_for_another(&self) -> RecalledLists {
        self.known().recalled.for_another()
    }

    /// Returns whether the server was found to know handshakes alone.
    pub(super) fn is_known_to_speak_handshakes_alone(&self) -> bool {
        self.known().recalled.is_legacy()
    }

    /// Notes that a client is started now, and returns whether the server is taken to know handshakes alone.
    pub(super) fn expect_legacy(&self) -> bool {
        self.known().recalled.started()
    }

    /// Notes the error of a start. If the start was made on a guess, the guess is forgotten.
    pub(super) fn doubt(&self, error: &Error) {
        // We have stopped it ourselves.
        if matches!(error, Error::Failure(failure) if failure.kind == FaultKind::ShuttingDown) {
            return;
        }
        let was_guessed = self.known().recalled.doubt();
        if was_guessed && let Some(store) = &self.entry.memory {
            store.forget_revision();
        }
    }

    /// Takes the lists that the server has just given, after it had announced these kinds. Remembers them for the next run.
    ///
    /// # Errors
    /// Fails with the server's error if it refuses to list its tools; its other lists are taken all the same.
    pub(super) fn take(&self, fetched: FetchedLists, announced: ListKinds) -> Result<(), Error> {
        let FetchedLists { tools, others, late } = fetched;
        let capabilities = &late.greeted.0.capabilities;
        let mut listed = ListedItems {
            extensions: extensions::of_capabilities(capabilities),
            declares_resources: ServerList::Resources.is_declared(capabilities),
            ..ListedItems::clone(&self.offered())
        };
        for (list, items) in others {
            *listed.items_mut(list) = self.or_none(list, items);
        }
        match tools {
            Ok(tools) => (listed.tools, listed.owners) = self.with_owners(tools),
            Err(refusal) => {
                self.known().offered = Arc::new(listed);
                return Err(refusal);
            }
        }
        self.remember(&late.greeted, &listed);
        self.accept(listed.clone(), announced);
        self.known().slow = late.awaited().to_vec();
        *self.late() = Some((late, listed)).filter(|(late, _)| !late.awaited().is_empty());
        Ok(())
    }

    /// Waits until a list has come that took long, and takes it. Never ends if there is none. Cancel-safe.
    pub(super) async fn until_late_list(&self) {
        let (list, items) = poll_fn(|context| match self.late().as_mut() {
            Some((late, _)) => late.poll_next(context).map(|next| next.unzip()),
            None => Poll::Pending,
        })
        .await;
        let Some((late, mut listed)) = self.late().take() else { return };
        if let Some((list, items)) = list.zip(items) {
            *listed.items_mut(list) = self.or_none(list, items);
            self.remember(&late.greeted, &listed);
            self.accept(listed.clone(), ListKinds::default());
        }
        *self.late() = Some((late, listed)).filter(|(late, _)| !late.awaited().is_empty());
    }

    /// Returns the lists that did not come with the tools the last time.
    pub(super) fn slow(&self) -> Vec<ServerList> {
        self.known().slow.clone()
    }

    fn late(&self) -> MutexGuard<'_, Option<(LateLists, ListedItems)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether clients may have a tool of this name, if the server has one.
    pub(super) fn may_offer(&self, tool: &str) -> bool {
        self.entry.tool_rules.allows(tool)
    }

    /// Takes this list, which the server has just given by itself. Returns whether it differs from the one before.
    pub(super) fn refresh(&self, list: ServerList, items: Vec<Box<RawValue>>) -> bool {
        let (items, owners) = match list {
            ServerList::Tools => {
                let (tools, owners) = self.with_owners(items);
                (self.allowed(tools), Some(owners))
            }
            _ => (items, None),
        };
        let mut known = self.known();
        let before = Arc::clone(&known.offered);
        let mut now = ListedItems::clone(&before);
        *now.items_mut(list) = items;
        now.owners = owners.unwrap_or(now.owners);
        if are_same(before.items(list), now.items(list)) && before.owners == now.owners {
            return false;
        }
        known.announcements.listed(ListKinds::default(), &before, &now, Instant::now());
        known.offered = Arc::new(now);
        true
    }

    /// Reads the owners of tools, if the server is a gateway that names them.
    fn with_owners(&self, tools: Vec<Box<RawValue>>) -> (Vec<Box<RawValue>>, Owners) {
        match self.entry.behind.is_some() {
            true => owners::read(tools),
            false => (tools, Owners::new()),
        }
    }

    /// Remembers the lists that the server has just given.
    fn remember(&self, (session, greeting): &(Arc<ServerInfo>, Era), listed: &ListedItems) {
        let is_legacy = !session.revision.is_stateless();
        let (is_reliable, has_lists) = {
            let mut known = self.known();
            // A server that was greeted with a handshake has not been asked whether it knows anything else.
            let is_sure = !is_legacy || *greeting == Era::Modern || known.recalled.is_legacy();
            let is_reliable = known.recalled.learn(is_legacy && is_sure, session.server_info.as_ref());
            (is_reliable && is_sure, known.has_lists)
        };
        // An instance of one client is remembered as it was before that client changed anything in it.
        let is_fresh = self.entry.scope == Scope::Everybody || !has_lists;
        if let Some(store) = self.entry.memory.as_ref().filter(|_| is_fresh) {
            store.remember(session, is_reliable, listed.clone());
        }
    }

    /// Leaves out the tools that clients may not have. Reports each rule without effect once.
    fn allowed(&self, listed: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let rules = &self.entry.tool_rules;
        // Rules of an instance or a counterpart have been reported already.
        let is_first = self.origin == ListOrigin::Roster;
        let in_vain = if is_first { rules.without_effect(&listed) } else { Vec::new() };
        for (rule, why) in in_vain {
            if self.known().reported.insert(rule.clone()) {
                tracing::warn!("{rule} of `{}` has no effect: {why}", self.entry.spec.name);
            }
        }
        rules.offered(listed)
    }

    /// Returns a list that is not the list of tools, or an empty one if it could not be fetched.
    fn or_none(&self, list: ServerList, listed: Result<Vec<Box<RawValue>>, Error>) -> Vec<Box<RawValue>> {
        listed.unwrap_or_else(|error| {
            let why = error.to_string();
            let kind = match &error {
                Error::Failure(failure) => Some(failure.kind),
                _ => None,
            };
            let (is_cut, is_slow) = (kind == Some(FaultKind::TooLarge), kind == Some(FaultKind::Deadline));
            if is_cut && self.known().reported.insert(list.method().to_owned()) {
                tracing::warn!("{why}; unhang takes this list as empty");
            } else if is_slow && self.known().reported.insert(list.method().to_owned()) {
                tracing::warn!("{why}; unhang lists `{}` without that", self.entry.spec.name);
            } else {
                tracing::debug!("`{}`: {why}", self.entry.spec.name);
            }
            Vec::new()
        })
    }

    fn known(&self) -> MutexGuard<'_, KnownLists> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
