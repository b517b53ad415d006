//! The guard's own look at the server's list of tools, before the guard uses a name that the server may have.
//!
//! Theory of operation. The names of our tools depend on the server's. Most clients list the tools before they call one, and the guard reads
//! along. For a client that calls first, the guard requests the list itself, ahead of that call: a server that works on one request at a
//! time would not answer it later. Requests about jobs wait for the list, and so do calls whose time to become jobs has come.
//!
//! # Invariants
//!
//! - The guard asks each process of the server once at most, and only if the client has not listed the tools.
//! - A server that has answered anything is waited for [`OWN_LIST_PATIENCE`] at most, and one that has gone not at all.
//! - A list that comes later still counts, unless the client has been told names of our tools meanwhile.

use std::time::Duration;

use unhang_core::config::{LIST_PAGES, OWN_LIST_PATIENCE};
use unhang_wire::Id;

/// Whether the guard knows the tools of the server.
#[derive(Debug, Default, PartialEq, Eq)]
enum ListState {
    #[default]
    Unknown,
    /// The guard has asked. Requests wait until this time.
    Asked { until: Duration },
    /// The last page has come, or the server has no list.
    Known,
}

/// The guard's look at the server's list of tools. See the module's text.
#[derive(Debug, Default)]
pub(super) struct ToolList {
    state: ListState,
    pages: usize,
    /// Calls that become jobs when the wait is over, by their ids on the server's side.
    due: Vec<Id>,
}

impl ToolList {
    /// Returns whether nobody has asked for the list.
    pub(super) fn is_unknown(&self) -> bool {
        self.state == ListState::Unknown
    }

    /// Notes that the guard has asked for the first page. A server that is starting has until `start_ends`.
    pub(super) fn asked(&mut self, now: Duration, start_ends: Duration) {
        self.state = ListState::Asked { until: start_ends.max(now + OWN_LIST_PATIENCE) };
        self.pages = 1;
    }

    /// Notes that the server has answered something, so it no longer starts.
    pub(super) fn server_answers(&mut self, now: Duration) {
        if let ListState::Asked { until } = &mut self.state {
            *until = (*until).min(now + OWN_LIST_PATIENCE);
        }
    }

    /// Returns whether the guard may ask for one more page.
    pub(super) fn take_page(&mut self) -> bool {
        self.pages += 1;
        self.pages <= LIST_PAGES
    }

    /// Notes that all names are known, or that the server does not tell them.
    pub(super) fn known(&mut self) {
        self.state = ListState::Known;
    }

    /// Notes that the server has gone. The next process is asked again if somebody needs the list.
    pub(super) fn lost(&mut self) {
        if let ListState::Asked { .. } = self.state {
            self.state = ListState::Unknown;
        }
    }

    /// Returns until when requests wait for the list, or `None` if they do not wait.
    pub(super) fn waits_until(&self, now: Duration) -> Option<Duration> {
        match self.state {
            ListState::Asked { until } if now < until => Some(until),
            _ => None,
        }
    }

    /// Makes a call wait whose time to become a job has come.
    pub(super) fn make_wait(&mut self, wire_id: Id) {
        self.due.push(wire_id);
    }

    /// Takes the calls that waited.
    pub(super) fn take_due(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.due)
    }
}
