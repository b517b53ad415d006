//! Turns of sessions at a server that has calls of one session at a time.
//!
//! Theory of operation. Calls of one session form a group, and a group has one permit. The first call of a group waits for the permit, and
//! the others wait for that call. If it stops waiting, the next of them takes its part. A call joins the newest group of its session,
//! unless that group has the permit and somebody else waits. In that case the call begins another group, which waits in its turn. A call of
//! no session is a group of its own.
//!
//! Before a server was seen to ask, nobody has turns at it. If its first question is for a session, the earlier calls of that session count
//! as a group that has the permit: calls of other sessions, which come later, wait for them. If the question was for nobody, since several
//! sessions had calls, those calls are left to end as they may.
//!
//! Invariants
//!
//! - At no time two groups have the permit. It is given back when the last call of its group has ended.
//! - A session that goes on calling keeps no other from its turn.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, OnceCell};

use super::{
    SessionKey,
    permits::{Permit, PermitQueue, QueueFull},
};
use unhang_core::fair::{Bounds, FairnessKey};

/// The turns of sessions at one server.
pub(super) struct SessionTurns {
    permits: Arc<PermitQueue>,
    /// The newest group of each session that has one.
    groups: Mutex<HashMap<SessionKey, Weak<Group>>>,
    /// The number of calls that wait.
    waiting: AtomicUsize,
    /// The number of calls of each session that came before there were turns.
    early: Mutex<HashMap<Option<SessionKey>, usize>>,
    /// Rung when one of the early calls has ended.
    one_less: Notify,
}

/// Calls that are with the server together, or wait for that.
type Group = OnceCell<Permit>;

/// The turn of a call, until it is dropped.
pub(super) enum SessionTurn {
    /// The call has its turn with the others of its session.
    #[expect(dead_code, reason = "held, and given back when it is dropped")]
    Turn(Arc<Group>),
    /// The call came before there were turns.
    Early(#[expect(dead_code, reason = "held, and counted until it is dropped")] EarlyCall),
}

impl SessionTurn {
    /// Returns whether the call came before there were turns.
    pub(super) fn is_early(&self) -> bool {
        matches!(self, Self::Early(_))
    }
}

/// A call that came before there were turns.
pub(super) struct EarlyCall {
    turns: Arc<SessionTurns>,
    session: Option<SessionKey>,
}

impl Drop for EarlyCall {
    fn drop(&mut self) {
        let mut early = self.turns.early_ones();
        if let Some(calls) = early.get_mut(&self.session) {
            *calls -= 1;
            if *calls == 0 {
                early.remove(&self.session);
            }
        }
        drop(early);
        self.turns.one_less.notify_waiters();
    }
}

/// A call that waits.
struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionTurns {
    /// Makes the turns of a server, with room for `room` groups that wait.
    pub(super) fn new(room: usize) -> Arc<Self> {
        let permits = PermitQueue::new(Bounds { permits: 1, room });
        let (groups, early) = (Mutex::default(), Mutex::default());
        Arc::new(Self { permits, groups, waiting: AtomicUsize::new(0), early, one_less: Notify::new() })
    }

    /// Returns how many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for the turn of this session or, for a call of no session, of this call alone. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`QueueFull`] if there is no room to wait, or if the call has to give way to a client that waits for less.
    pub(super) async fn take(
        &self,
        session: Option<SessionKey>,
        fairness_key: &FairnessKey,
        early_ones_count: bool,
    ) -> Result<SessionTurn, QueueFull> {
        let group = session.map_or_else(Arc::default, |session| self.group(session));
        if !group.initialized() {
            let _waiting = WaitingCount::begin(&self.waiting);
            let turn = || async {
                let permit = self.permits.take(fairness_key).await?;
                if early_ones_count {
                    self.until_early_ones_are_of(session).await;
                }
                Ok(permit)
            };
            group.get_or_try_init(turn).await?;
        }
        Ok(SessionTurn::Turn(group))
    }

    /// Counts a call of this session that comes while there are no turns.
    pub(super) fn early(self: &Arc<Self>, session: Option<SessionKey>) -> SessionTurn {
        *self.early_ones().entry(session).or_default() += 1;
        SessionTurn::Early(EarlyCall { turns: Arc::clone(self), session })
    }

    /// Waits until all calls that came before there were turns have ended, except for those of this session.
    async fn until_early_ones_are_of(&self, session: Option<SessionKey>) {
        loop {
            // Before the look, so that no end is missed.
            let one_less = self.one_less.notified();
            if self.early_ones().keys().all(|whose| whose.is_some() && *whose == session) {
                return;
            }
            one_less.await;
        }
    }

    fn early_ones(&self) -> MutexGuard<'_, HashMap<Option<SessionKey>, usize>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the group that a call of this session joins.
    fn group(&self, session: SessionKey) -> Arc<Group> {
        let mut groups = self.groups();
        let newest = groups.get(&session).and_then(Weak::upgrade);
        if let Some(group) = newest.filter(|group| !group.initialized() || self.permits.waiting() == 0) {
            return group;
        }
        groups.retain(|_, group| group.strong_count() > 0);
        let group = Arc::default();
        groups.insert(session, Arc::downgrade(&group));
        group
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<SessionKey, Weak<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        task::{JoinHandle, yield_now},
        time::timeout,
    };

    use super::*;

    fn turns() -> Arc<SessionTurns> {
        SessionTurns::new(10)
    }

    /// Has its turn at once.
    async fn has(turns: &Arc<SessionTurns>, session: Option<SessionKey>) -> SessionTurn {
        let taken = timeout(Duration::ZERO, turns.take(session, &FairnessKey::new("one"), true)).await;
        taken.expect("it need not wait").unwrap_or_else(|full| panic!("there is room: {full:?}"))
    }

    /// Has to wait.
    async fn waits(turns: &Arc<SessionTurns>, session: Option<SessionKey>) -> JoinHandle<SessionTurn> {
        let turns = Arc::clone(turns);
        let waiting = tokio::spawn(async move {
            let taken = turns.take(session, &FairnessKey::new("one"), true).await;
            taken.unwrap_or_else(|full| panic!("there is room: {full:?}"))
        });
        yield_now().await;
        assert!(!waiting.is_finished(), "it is not its turn");
        waiting
    }

    #[tokio::test]
    async fn f_54_calls_of_one_session_have_their_turn_together_and_those_of_others_wait() {
        let (turns, [one, other]) = (turns(), [SessionKey::drawn(), SessionKey::drawn()].map(Some));
        let first = has(&turns, one).await;
        let second = has(&turns, one).await;
        let others = [waits(&turns, other).await, waits(&turns, other).await];
        assert_eq!(turns.waiting(), 2);
        drop(first);
        yield_now().await;
        assert!(others.iter().all(|other| !other.is_finished()), "one of them is there still");
        drop(second);
        for other in others {
            other.await.expect("no panic");
        }
        assert_eq!(turns.waiting(), 0);
    }

    #[tokio::test]
    async fn calls_that_came_before_there_were_turns_have_theirs_until_they_end() {
        let (turns, [one, other]) = (turns(), [SessionKey::drawn(), SessionKey::drawn()].map(Some));
        let early = [turns.early(one), turns.early(one)];
        let same = has(&turns, one).await;
        let others = [waits(&turns, other).await, waits(&turns, None).await];
        drop(same);
        for early in early {
            yield_now().await;
            assert!(others.iter().all(|other| !other.is_finished()), "one of them is there still");
            drop(early);
        }
        for other in others {
            drop(other.await.expect("no panic"));
        }
        let nobodys = turns.early(None);
        let waits = [waits(&turns, None).await, waits(&turns, one).await];
        drop(nobodys);
        for one in waits {
            drop(one.await.expect("no panic"));
        }
        let _left = turns.early(other);
        let taken = timeout(Duration::ZERO, turns.take(one, &FairnessKey::new("one"), false)).await;
        assert!(taken.is_ok_and(|taken| taken.is_ok()), "where nobody was asked nobody waits for them");
        assert_eq!((turns.early_ones().len(), turns.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn who_goes_on_calling_keeps_nobody_from_their_turn() {
        let (turns, [one, other]) = (turns(), [SessionKey::drawn(), SessionKey::drawn()].map(Some));
        let first = has(&turns, one).await;
        let others = waits(&turns, other).await;
        let later = [waits(&turns, one).await, waits(&turns, one).await];
        drop(first);
        let others = others.await.expect("no panic");
        yield_now().await;
        assert!(later.iter().all(|later| !later.is_finished()), "they came later");
        drop(others);
        for later in later {
            later.await.expect("no panic");
        }
    }

    #[tokio::test]
    async fn calls_of_no_session_have_their_turn_one_by_one() {
        let turns = turns();
        let first = has(&turns, None).await;
        let second = waits(&turns, None).await;
        drop(first);
        let second = second.await.expect("no panic");
        let session = waits(&turns, Some(SessionKey::drawn())).await;
        drop(second);
        session.await.expect("no panic");
    }

    #[tokio::test]
    async fn who_stops_waiting_leaves_the_others_of_the_session_in_line() {
        let (turns, [one, other]) = (turns(), [SessionKey::drawn(), SessionKey::drawn()].map(Some));
        let first = has(&turns, one).await;
        let [leaves, stays] = [waits(&turns, other).await, waits(&turns, other).await];
        leaves.abort();
        assert!(leaves.await.is_err(), "it was withdrawn");
        assert_eq!(turns.waiting(), 1);
        let later = waits(&turns, one).await;
        drop(first);
        let stays = stays.await.expect("no panic");
        drop(stays);
        later.await.expect("no panic");
        let sessions = turns.groups().len();
        assert!(sessions <= 2, "nothing is kept of those who are gone: {sessions}");
    }
}
