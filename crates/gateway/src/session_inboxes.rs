//! The inboxes of sessions: the way of a server's messages that belong to no call.
//!
//! Theory of operation. Nothing in such a message says whom it is for. The instance of a session speaks to that session. A shared server
//! speaks to the only open session. A client of 2026-07-28 has no inbox, since that revision has no requests to clients. The requests of
//! windows count as a session too: behind them are other clients. Servers ask as soon as they are greeted, which may be before the client
//! has ended its own handshake. So a question waits a moment for that. A question may also be about a call that a session has cancelled and
//! that the server has not answered. Such a question is for that session alone, which the key of its calls tells from every other.
//!
//! Invariants
//!
//! - A message goes to one session at most, and to none while several could be meant.
//! - The wait for an inbox is bounded.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use unhang_bridge::Era;

use super::{SessionKey, open_sessions::OpenSessions};
use unhang_core::config::INBOX_PATIENCE;
use unhang_upstream::question::SideMessage;

/// The sessions that a server's messages outside calls can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InboxScope {
    /// The server is shared: the session that is open alone.
    OnlySession,
    /// The server is the instance of the session of this number.
    OwnSession(u64),
}

/// The inboxes of the open sessions.
#[derive(Debug, Default)]
pub(super) struct SessionInboxes(watch::Sender<OpenInboxes>);

#[derive(Debug, Default)]
struct OpenInboxes {
    /// By the number of the session.
    by_session: BTreeMap<u64, InboxPhase>,
    /// The requests of windows.
    windows: usize,
}

/// Whether the client of a session can be told something outside calls.
#[derive(Clone, Debug)]
enum InboxPhase {
    /// Not before it has ended its handshake, and listens.
    Shaking,
    /// It can, by this way. Calls of the session have this key.
    Open(mpsc::Sender<SideMessage>, SessionKey),
    /// It never can.
    Absent,
}

/// A request of a window, until it is dropped.
pub struct OpenWindow(pub(super) Arc<OpenSessions>);

impl SessionInboxes {
    /// Adds a session whose client has begun to speak.
    pub(super) fn enter(&self, session: u64, era: Era) {
        let phase = match era {
            Era::Legacy => InboxPhase::Shaking,
            Era::Modern => InboxPhase::Absent,
        };
        self.0.send_modify(|open| drop(open.by_session.insert(session, phase)));
    }

    /// Opens the inbox of a session whose calls have this key, unless its client can be told nothing.
    pub(super) fn open(&self, session: u64, way: mpsc::Sender<SideMessage>, key: SessionKey) {
        self.0.send_modify(|open| {
            if let Some(phase @ InboxPhase::Shaking) = open.by_session.get_mut(&session) {
                *phase = InboxPhase::Open(way, key);
            }
        });
    }

    /// Removes a session.
    pub(super) fn leave(&self, session: u64) {
        self.0.send_modify(|open| drop(open.by_session.remove(&session)));
    }

    /// Counts a request of a window.
    pub(super) fn window_comes(&self) {
        self.0.send_modify(|open| open.windows += 1);
    }

    /// Returns whether this session is the only one that is open.
    pub(super) fn is_only(&self, session: u64) -> bool {
        let open = self.0.borrow();
        open.windows == 0 && open.by_session.len() == 1 && open.by_session.contains_key(&session)
    }

    /// Returns the way to the session that a message is for, if it can be told now.
    pub(super) fn now(&self, scope: InboxScope) -> Option<mpsc::Sender<SideMessage>> {
        self.0.borrow().of(scope).way()
    }

    /// Returns the way to the session whose calls have this key, if the message can be for that session alone.
    pub(super) fn now_of(&self, scope: InboxScope, session: SessionKey) -> Option<mpsc::Sender<SideMessage>> {
        match self.0.borrow().of(scope) {
            InboxPhase::Open(way, key) if key == session => Some(way),
            _ => None,
        }
    }

    /// Returns the way to the session that a message is for. Waits for the end of its handshake, but for [`INBOX_PATIENCE`] at most.
    pub(super) async fn until_open(&self, scope: InboxScope) -> Option<mpsc::Sender<SideMessage>> {
        let mut inboxes = self.0.subscribe();
        let is_known = |open: &OpenInboxes| !matches!(open.of(scope), InboxPhase::Shaking);
        let known = timeout(INBOX_PATIENCE, inboxes.wait_for(is_known)).await.ok()?.ok()?;
        known.of(scope).way()
    }
}

impl OpenInboxes {
    fn of(&self, scope: InboxScope) -> InboxPhase {
        let mut sessions = self.by_session.values();
        let found = match scope {
            InboxScope::OwnSession(session) => self.by_session.get(&session),
            InboxScope::OnlySession if self.windows > 0 => return InboxPhase::Absent,
            InboxScope::OnlySession => match (sessions.next(), sessions.next()) {
                (_, Some(_)) => return InboxPhase::Absent,
                (only, None) => only,
            },
        };
        found.cloned().unwrap_or(InboxPhase::Shaking)
    }
}

impl InboxPhase {
    fn way(self) -> Option<mpsc::Sender<SideMessage>> {
        match self {
            Self::Open(way, _) => Some(way),
            Self::Shaking | Self::Absent => None,
        }
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        self.0.inboxes.0.send_modify(|open| open.windows -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const OWN: InboxScope = InboxScope::OwnSession(1);

    /// Whether a message finds its session, for an instance of session 1 and for a shared server.
    fn found(sessions: &OpenSessions) -> [bool; 2] {
        [OWN, InboxScope::OnlySession].map(|scope| sessions.inboxes.now(scope).is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_outside_calls_is_for_the_one_session_that_it_can_be_for() {
        let sessions = Arc::new(OpenSessions::default());
        let ((way, _inbox), key) = (mpsc::channel(1), SessionKey::drawn());
        let begun = Instant::now();
        assert!(sessions.inboxes.until_open(InboxScope::OnlySession).await.is_none(), "nobody is there");
        assert_eq!(begun.elapsed(), INBOX_PATIENCE);
        let _one = sessions.enter(Era::Legacy, 1);
        assert_eq!(found(&sessions), [false, false], "its handshake has not ended");
        let waits = async {
            tokio::join!(sessions.inboxes.until_open(OWN), async {
                sessions.inboxes.open(1, way.clone(), key);
            })
            .0
        };
        assert!(waits.await.is_some());
        assert_eq!(found(&sessions), [true, true]);
        for era in [Era::Legacy, Era::Modern] {
            let _other = sessions.enter(era, 2);
            sessions.inboxes.open(2, way.clone(), SessionKey::drawn());
            assert_eq!((found(&sessions), sessions.inboxes.is_only(1)), ([true, false], false), "{era:?}");
        }
        sessions.inboxes.window_comes();
        let window = OpenWindow(Arc::clone(&sessions));
        assert_eq!((found(&sessions), sessions.inboxes.is_only(1)), ([true, false], false), "a window");
        drop(window);
        assert_eq!((found(&sessions), sessions.inboxes.is_only(1)), ([true, true], true));
    }

    #[test]
    fn a_message_that_may_be_about_a_call_of_one_session_is_for_no_other() {
        let sessions = Arc::new(OpenSessions::default());
        let [one, other] = [SessionKey::drawn(), SessionKey::drawn()];
        let found = |scope| [one, other].map(|key| sessions.inboxes.now_of(scope, key).is_some());
        let _one = sessions.enter(Era::Legacy, 1);
        assert_eq!(found(InboxScope::OnlySession), [false, false], "its handshake has not ended");
        sessions.inboxes.open(1, mpsc::channel(1).0, one);
        assert_eq!((found(InboxScope::OnlySession), found(OWN)), ([true, false], [true, false]));
        let second = sessions.enter(Era::Legacy, 2);
        sessions.inboxes.open(2, mpsc::channel(1).0, other);
        assert_eq!((found(InboxScope::OnlySession), found(OWN)), ([false, false], [true, false]));
        drop(second);
        sessions.inboxes.window_comes();
        assert_eq!(found(InboxScope::OnlySession), [false, false], "a window is another client");
    }

    #[tokio::test]
    async fn a_client_that_knows_no_requests_to_clients_has_no_inbox() {
        let sessions = Arc::new(OpenSessions::default());
        let _one = sessions.enter(Era::Modern, 1);
        sessions.inboxes.open(1, mpsc::channel(1).0, SessionKey::drawn());
        assert_eq!(found(&sessions), [false, false]);
        assert!(sessions.inboxes.until_open(InboxScope::OnlySession).await.is_none(), "without a wait");
    }
}
