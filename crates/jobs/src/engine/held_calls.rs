//! The calls that this process holds, and those that it let go of without an end.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use super::{
    EngineState,
    call_events::CallEvents,
    journal::{Journal, LogWriter},
    keepers,
};
use crate::{
    error::JobError,
    folder::{CANCEL, DataFolder, STDOUT, presence::AWAY_LIMIT},
    id::JobId,
    judge_call::end_without_holder,
    settle::{settle, write_ending},
    store::{SqliteStore, StoreError},
    submission::LOG_LIMIT,
};

/// A call that its owner let go of without an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LetGoCall {
    pub(super) id: JobId,
    /// Whether the owner had the answer. Then nobody else can have it.
    pub(super) was_answered: bool,
    /// When the owner let go of it.
    pub(super) since: Instant,
}

/// The calls that this engine's owners hold.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The sender that tells each holder to end its call.
    held: Mutex<HashMap<JobId, watch::Sender<bool>>>,
    /// The calls that were let go of without an end.
    let_go: Mutex<Vec<LetGoCall>>,
    journal: OnceLock<Option<Journal>>,
    /// The events of these calls, if the engine rests.
    events: Option<CallEvents>,
}

impl Calls {
    /// Makes the collection without calls, for an engine that rests or not.
    pub(super) fn new(rests: bool) -> Self {
        let events = rests.then(CallEvents::new).transpose().unwrap_or_else(|error| {
            tracing::warn!("unhang looks at the folders of its jobs all the time: {error}");
            None
        });
        Self { events, ..Self::default() }
    }

    /// Returns the events for which the engine rests; `None` if it does not rest.
    pub(super) fn events(&self) -> Option<&CallEvents> {
        self.events.as_ref()
    }

    /// Returns whether calls wait to be settled that nobody holds any more.
    pub(super) fn have_let_go(&self) -> bool {
        !self.let_go().is_empty()
    }

    /// Returns the calls that this process holds.
    pub(super) fn ids(&self) -> Vec<JobId> {
        self.held().keys().copied().collect()
    }

    /// Wakes a resting maintenance thread after a change of the held calls.
    pub(super) fn changed(&self) {
        if let Some(events) = &self.events {
            events.tell();
        }
    }

    pub(super) fn held(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<bool>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn let_go(&self) -> MutexGuard<'_, Vec<LetGoCall>> {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this process holds the call.
    pub(super) fn holds(&self, id: JobId) -> bool {
        self.held().contains_key(&id)
    }

    /// Tells the holder of a call that it is to end. Returns false if this process does not hold the call.
    pub(super) fn tell(&self, id: JobId) -> bool {
        self.held().get(&id).is_some_and(|cancel| {
            cancel.send_replace(true);
            true
        })
    }

    /// Returns the writer of a call's log; `None` if the system has no thread for the journal.
    pub(super) fn pen(&self, data: &DataFolder, id: JobId, logged: u64) -> Option<LogWriter> {
        let journal = self.journal.get_or_init(Journal::start).as_ref()?;
        Some(journal.pen(data.job(id).file(STDOUT), LOG_LIMIT.saturating_sub(logged)))
    }
}

impl EngineState {
    /// Tells the holder of a call in this process of a wish in the folder of the job.
    pub(super) fn pass_wish_on(&self, id: JobId) {
        if self.data.job(id).has(CANCEL) {
            self.calls.tell(id);
        }
    }

    /// Settles the calls that nobody holds any more although this process lives, or leaves them to their keepers.
    pub(super) fn settle_let_go(&self, store: &mut SqliteStore) -> Result<(), JobError> {
        // A guard in the head of the loop would live as long as the loop, and a call that is put back needs the lock.
        let let_go = std::mem::take(&mut *self.calls.let_go());
        for call in let_go {
            let id = call.id;
            if !call.was_answered && keepers::leave(self, id).unwrap_or(false) {
                continue;
            }
            // Somebody has removed the job, or another folder lies in the place of the data folder and may go again.
            let known = self.memory.status(id).filter(|_| self.check_presence(id).is_ok());
            let Some(known) = known else {
                // After this time the job counts as removed, as that of a call whose end is known does.
                if self.lost_sight_of(id).is_some() || call.since.elapsed() < AWAY_LIMIT {
                    self.calls.let_go().push(call);
                }
                continue;
            };
            let ending = end_without_holder(known.record.call.as_ref());
            let settled = write_ending(&self.data, id, &ending)
                .map_err(StoreError::from)
                .and_then(|ending| settle(&self.data, store, id, &ending, &self.admission()));
            if settled.is_err() {
                // The next round tries it again.
                self.calls.let_go().push(call);
            }
            self.tell_trouble(id, settled.map(drop).map_err(JobError::from))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::tests::TestEngine;

    #[test]
    fn a_call_whose_job_was_removed_is_given_up_after_a_while() {
        let mut test = TestEngine::new(|_| {});
        let mut given_up = |since| {
            let call = LetGoCall { id: JobId::random().unwrap(), was_answered: true, since };
            test.inner.calls.let_go().push(call);
            test.inner.settle_let_go(&mut test.store).unwrap();
            std::mem::take(&mut *test.inner.calls.let_go()).is_empty()
        };
        let now = Instant::now();
        assert!(!given_up(now), "another folder may lie in the place of the data folder for a moment");
        assert!(given_up(now.checked_sub(AWAY_LIMIT + Duration::from_secs(1)).unwrap()));
    }
}
