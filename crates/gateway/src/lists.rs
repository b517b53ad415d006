//! What a server offers: it is asked for its lists, and again when they may have changed.
//!
//! Invariants
//!
//! - What was listed stays until there is something newer.
//! - What the rules of a server do not allow is listed nowhere.
//! - What is known from the last run counts until the server has been listed, under the rules of today.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::value::RawValue;

use super::{Scope, ServerEntry, list_store::RecalledLists, owners};
use crate::route::catalog::{ListedItems, Owners};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::{Client, Error, RequestOptions, ServerInfo, ServerList};

/// What one server offers, as far as that is known.
pub(super) struct ServerLists {
    entry: Arc<ServerEntry>,
    /// Whether it is the instance of one session.
    is_own: bool,
    known: Mutex<KnownLists>,
}

struct KnownLists {
    offered: Arc<ListedItems>,
    /// It has been listed, or has failed to be.
    was_listed: bool,
    /// It has been listed since we began.
    has_lists: bool,
    /// Lists have waited for it for as long as they may.
    is_late: bool,
    /// What is known from the last time that it was listed.
    recalled: RecalledLists,
    /// What the log has said once: rules without effect, and lists that are cut.
    reported: HashSet<String>,
}

impl ServerLists {
    /// Makes those of this server, which offers what the one before it did as far as its own rules allow that.
    pub(super) fn new(
        entry: Arc<ServerEntry>,
        is_own: bool,
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
        };
        Self { entry, is_own, known: Mutex::new(known) }
    }

    /// Returns what it offered when it was last listed.
    pub(super) fn offered(&self) -> Arc<ListedItems> {
        Arc::clone(&self.known().offered)
    }

    /// Returns whether it has been listed, or has failed to be.
    pub(super) fn was_listed(&self) -> bool {
        self.known().was_listed
    }

    /// Returns whether it is known what it offers, or what it offered in the last run; or it has failed to be listed, or takes too long
    /// for that.
    pub(super) fn are_settled(&self) -> bool {
        let known = self.known();
        known.was_listed || known.recalled.has_lists || known.is_late
    }

    /// Returns whether it has been listed since we began.
    pub(super) fn has_been_listed(&self) -> bool {
        self.known().has_lists
    }

    /// Where it has not been listed since we began: returns whether it has failed to be, and is not just awaited.
    pub(super) fn failure_to_list(&self) -> Option<bool> {
        let known = self.known();
        (!known.has_lists).then_some(known.was_listed)
    }

    /// Returns whether it is known what it offered before.
    pub(super) fn are_recalled(&self) -> bool {
        let known = self.known();
        known.recalled.has_lists || !known.offered.tools.is_empty()
    }

    /// Notes that lists have waited for it for as long as they may.
    pub(super) fn note_late(&self) {
        self.known().is_late = true;
    }

    /// Notes that it has just been listed, and offers this.
    pub(super) fn accept(&self, offered: ListedItems) {
        let mut known = self.known();
        (known.offered, known.was_listed, known.has_lists) = (Arc::new(offered), true, true);
    }

    /// Notes that it could not be listed.
    pub(super) fn note_failed(&self) {
        self.known().was_listed = true;
    }

    /// Takes what is known from the last run, as far as that has been read.
    pub(super) fn recall(&self) {
        let Some((listed, recalled)) = self.entry.memory.as_ref().and_then(|store| store.take_read_ahead())
        else {
            return;
        };
        // What the rules say in vain is told when it is seen what the server has now.
        let tools = self.entry.tool_rules.offered(listed.tools);
        let mut known = self.known();
        (known.offered, known.recalled) = (Arc::new(ListedItems { tools, ..listed }), recalled);
    }

    /// Returns what another instance of the same server begins with.
    pub(super) fn recalled_for_another(&self) -> RecalledLists {
        self.known().recalled.for_another()
    }

    /// Notes that a client is started now, and returns whether the server is taken to know handshakes alone.
    pub(super) fn expect_legacy(&self) -> bool {
        self.known().recalled.started()
    }

    /// Notes what a start has come to. Where it was made on a guess that is the last one.
    pub(super) fn doubt(&self, error: &Error) {
        // It was we who stopped it.
        if matches!(error, Error::Failure(failure) if failure.kind == FaultKind::ShuttingDown) {
            return;
        }
        let was_guessed = self.known().recalled.doubt();
        if was_guessed && let Some(store) = &self.entry.memory {
            store.forget_revision();
        }
    }

    /// Asks a server that is ready for all its lists, and remembers them for the next run. Returns what clients may have of them.
    pub(super) async fn fetch(&self, client: &Client, session: &ServerInfo) -> Result<ListedItems, Error> {
        let options = RequestOptions::default();
        let (tools, prompts, resources, templates) = tokio::join!(
            client.list(ServerList::Tools, &options),
            client.list(ServerList::Prompts, &options),
            client.list(ServerList::Resources, &options),
            // Nobody declares them by themselves, and many have none.
            client.list(ServerList::ResourceTemplates, &options),
        );
        let (tools, owners) = match self.entry.behind.is_some() {
            true => owners::read(tools?),
            false => (tools?, Owners::new()),
        };
        let listed = ListedItems {
            tools,
            prompts: self.or_none(ServerList::Prompts, prompts),
            resources: self.or_none(ServerList::Resources, resources),
            templates: self.or_none(ServerList::ResourceTemplates, templates),
            owners,
        };
        self.remember(session, &listed);
        Ok(ListedItems { tools: self.allowed(listed.tools), ..listed })
    }

    /// Remembers what the server has just said.
    fn remember(&self, session: &ServerInfo, listed: &ListedItems) {
        let is_legacy = !session.revision.is_stateless();
        let (is_reliable, has_lists) = {
            let mut known = self.known();
            (known.recalled.learn(is_legacy, session.server_info.as_ref()), known.has_lists)
        };
        // What is one client's is remembered as it was before that client made anything of it.
        let is_fresh = self.entry.scope == Scope::Everybody || !has_lists;
        if let Some(store) = self.entry.memory.as_ref().filter(|_| is_fresh) {
            store.remember(session, is_reliable, listed.clone());
        }
    }

    /// Leaves out the tools that clients may not have. What the rules say in vain is told once.
    fn allowed(&self, listed: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let rules = &self.entry.tool_rules;
        // Of an instance it has been told already.
        let in_vain = if self.is_own { Vec::new() } else { rules.without_effect(&listed) };
        for (rule, why) in in_vain {
            if self.known().reported.insert(rule.clone()) {
                tracing::warn!("{rule} of `{}` has no effect: {why}", self.entry.spec.name);
            }
        }
        rules.offered(listed)
    }

    /// Returns what a server that has tools gives besides; nothing where that goes wrong.
    fn or_none(&self, list: ServerList, listed: Result<Vec<Box<RawValue>>, Error>) -> Vec<Box<RawValue>> {
        listed.unwrap_or_else(|error| {
            let why = error.to_string();
            let is_cut = matches!(&error, Error::Failure(failure) if failure.kind == FaultKind::TooLarge);
            if is_cut && self.known().reported.insert(list.method().to_owned()) {
                tracing::warn!("{why}; it is taken to have none of these");
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
