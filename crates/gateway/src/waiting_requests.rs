//! Requests that wait for a server, as far as they bound how long a client may take to answer the server's question.
//!
//! Invariants
//!
//! - A client that is asked has the whole patience: from the question on, and from when another session began to wait for the server.
//! - After that the client has no more time, whatever came first and whatever has become of the others. While no other session waits, it
//!   has all the time of the call.
//! - Calls of the session that is asked wait for their own session alone, and hurry nobody.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::SessionKey;

/// The requests that wait for one server.
#[derive(Default)]
pub(super) struct WaitingRequests {
    state: Mutex<WaitingState>,
    /// Rung when a request comes or goes.
    changed: Notify,
}

#[derive(Default)]
struct WaitingState {
    /// The session of each request, and the time since which it waits.
    waiting: HashMap<u64, (Option<SessionKey>, Instant)>,
    next: u64,
}

/// A request that waits, until this is dropped.
pub(super) struct WaitingRequest<'a> {
    requests: &'a WaitingRequests,
    number: u64,
}

impl WaitingRequests {
    /// Notes that a request of this session waits, and since when. Requests of no session count as requests of different callers.
    pub(super) fn enter(&self, session: Option<SessionKey>, since: Instant) -> WaitingRequest<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, (session, since));
        drop(state);
        self.changed.notify_waiters();
        WaitingRequest { requests: self, number }
    }

    /// Waits until two things hold. Another session than `asked` has waited for `limit`, and the question, which was put at `put`, has been
    /// open for `limit`. Cancel-safe.
    pub(super) async fn until_crowded(&self, asked: Option<SessionKey>, put: Instant, limit: Duration) {
        loop {
            // Before the look, so that nobody is missed.
            let changed = self.changed.notified();
            let Some(since) = self.others_since(asked) else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = sleep_until(since.max(put) + limit) => return,
                () = changed => {}
            }
        }
    }

    /// Returns the time since which another session waits, or `None` if none does.
    fn others_since(&self, asked: Option<SessionKey>) -> Option<Instant> {
        let state = self.state();
        let others = state.waiting.values().filter(|(whose, _)| whose.is_none() || *whose != asked);
        others.map(|(_, since)| *since).min()
    }

    fn state(&self) -> MutexGuard<'_, WaitingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.requests.state().waiting.remove(&self.number);
        self.requests.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const LONG: Duration = Duration::from_hours(1);

    /// After how long nobody waits for this session's answer any more.
    async fn crowded_after(requests: &WaitingRequests, asked: Option<SessionKey>) -> Option<Duration> {
        let put = Instant::now();
        timeout(LONG, requests.until_crowded(asked, put, PATIENCE)).await.ok().map(|()| put.elapsed())
    }

    fn rounded(after: Option<Duration>) -> Option<u64> {
        after.map(|after| after.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_its_time_from_the_question_and_from_when_another_began_to_wait() {
        let (one, other) = (Some(SessionKey::drawn()), Some(SessionKey::drawn()));
        let requests = WaitingRequests::default();
        assert_eq!(crowded_after(&requests, one).await, None, "nobody waits");
        let own = requests.enter(one, Instant::now());
        assert_eq!(crowded_after(&requests, one).await, None, "it waits for itself");
        let waits = requests.enter(other, Instant::now());
        sleep(LONG).await;
        for _ in 0..2 {
            assert_eq!(rounded(crowded_after(&requests, one).await), Some(30), "also where it waited before");
        }
        drop(waits);
        assert_eq!(crowded_after(&requests, one).await, None, "it waits no more");
        let comes = async {
            sleep(Duration::from_secs(100)).await;
            let _waits = requests.enter(other, Instant::now());
            sleep(LONG).await;
        };
        tokio::select! {
            after = crowded_after(&requests, one) => assert_eq!(rounded(after), Some(130)),
            () = comes => panic!("it had enough time"),
        }
        drop(own);
        let _nobodys = requests.enter(None, Instant::now());
        assert_eq!(
            rounded(crowded_after(&requests, None).await),
            Some(30),
            "who is of no session is another one"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_and_goes_hurries_nobody() {
        let (one, other) = (Some(SessionKey::drawn()), Some(SessionKey::drawn()));
        let requests = WaitingRequests::default();
        let come_and_go = async {
            loop {
                let waits = requests.enter(other, Instant::now());
                sleep(PATIENCE - Duration::from_secs(1)).await;
                drop(waits);
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            after = crowded_after(&requests, one) => assert_eq!(after, None),
            () = come_and_go => {}
        }
    }
}
