//! Room for messages on their way: one budget, in bytes, for the bodies of all requests and for all replies that are sent whole.
//!
//! Theory of operation. A message takes room as it grows, and must leave some room free: sixteen times its own length. That is limited to
//! an eighth of the budget, but is never less than a quarter of the message's length. So smaller messages still find room beside any number
//! of large ones, and only hundreds of small ones fill the rest. A message without room waits for a while. Waiting messages over
//! [`LARGE_MESSAGE`] stand in a queue. The first of them has the turn, and others get only the room that it will not need. Otherwise
//! several messages that each hold a part of their room would keep one another from the rest. A message that waits too long is refused, and
//! gives its room back.
//!
//! A waiting body is not read on. A waiting reply is in memory already, so waiting replies have a budget of their own, the overdraft. It is
//! half of the budget, or the longest message if that is more. A reply beyond that is refused at once, and its bytes are free again.
//!
//! Invariants
//!
//! - All rooms together never exceed the budget, which has room for the longest possible message. Waiting replies never exceed the
//!   overdraft, which has that room, too.
//! - Messages up to [`SMALL_MESSAGE`] need no room and never wait: the limits on connections bound them.
//! - All the waits of a message together have one end, also with the turn. Dropping a room gives all of it back.
//! - If no message waits, taking room is one exchange of an atomic, and giving it back two operations.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use unhang_net::serve::axum::body::Bytes;

use unhang_core::config::{
    LARGE_MESSAGE, MESSAGE_MEMORY, MESSAGES_WAITING, ROOM_PATIENCE, SMALL_MESSAGE, TURN_PATIENCE,
};

/// A message leaves at least its own length, divided by this, free: room for shorter ones beside the longest.
const FREE_OF_MESSAGE: usize = 4;

/// A message leaves at most the budget, divided by this, free beyond that.
const FREE_OF_ALL: usize = 8;

/// Waiting replies may take the budget, divided by this, in addition.
const OVERDRAFT_OF_ALL: usize = 2;

/// A message leaves room for this many messages of its own length, up to that limit.
const FREE_TIMES: usize = 16;

/// The budget. Clones share one budget.
#[derive(Clone)]
pub(super) struct Budget(Arc<BudgetState>);

struct BudgetState {
    bytes: usize,
    used: AtomicUsize,
    /// The number of waiting messages.
    waiting: AtomicUsize,
    /// The bytes of the waiting replies.
    overdrawn: AtomicUsize,
    /// The most bytes of waiting replies.
    overdraft: usize,
    turn: Arc<Semaphore>,
    /// The room that the message with the turn may still need.
    rest: AtomicUsize,
    /// Notified, for all waiting messages, when there may be more room.
    freed: Notify,
}

/// The room of one message in the budget, until it is dropped.
pub(super) struct MessageBudget {
    budget: Budget,
    bytes: usize,
    /// The most room that the message may need.
    most: usize,
    /// How long the message may still wait, in all.
    wait_limit: Duration,
    turn: Option<OwnedSemaphorePermit>,
}

/// There was no room in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Budget {
    /// Makes a budget of this size, or of the room that the longest message needs. Without a size it has room for two such messages, or
    /// [`MESSAGE_MEMORY`].
    pub(super) fn new(bytes: Option<usize>, longest: usize) -> Budget {
        let bytes = bytes.unwrap_or(MESSAGE_MEMORY.max(longest.saturating_mul(2)));
        let bytes = bytes.max(longest.saturating_add(longest / FREE_OF_MESSAGE));
        Budget(Arc::new(BudgetState {
            bytes,
            overdrawn: AtomicUsize::new(0),
            overdraft: longest.max(bytes / OVERDRAFT_OF_ALL),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turn: Arc::new(Semaphore::new(1)),
            rest: AtomicUsize::new(0),
            freed: Notify::new(),
        }))
    }

    /// Takes room for a complete reply of this length. Returns `None` if it needs none. The reply may wait within the overdraft.
    pub(super) async fn room_for(&self, length: usize) -> Result<Option<MessageBudget>, NoRoom> {
        if length <= SMALL_MESSAGE {
            return Ok(None);
        }
        let mut room = self.room(length);
        room.grow(length, length).await?;
        room.is_whole();
        Ok(Some(room))
    }

    /// Takes room for a body of this length, which may grow to `most`. Cancel-safe: the taken room is in `room`.
    pub(super) async fn grown(
        &self,
        room: &mut Option<MessageBudget>,
        length: usize,
        most: usize,
    ) -> Result<(), NoRoom> {
        if length <= SMALL_MESSAGE {
            return Ok(());
        }
        room.get_or_insert_with(|| self.room(most)).grow(length, 0).await
    }

    fn room(&self, most: usize) -> MessageBudget {
        MessageBudget { budget: self.clone(), bytes: 0, most, wait_limit: ROOM_PATIENCE, turn: None }
    }

    /// Returns the bytes that are taken.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.0.used.load(SeqCst)
    }
}

impl BudgetState {
    /// Returns the length of the longest message that can ever find room.
    fn longest(&self) -> usize {
        self.bytes - self.bytes.div_ceil(FREE_OF_MESSAGE + 1)
    }

    /// Takes `more` bytes for a message of this length, if there is room beside the bytes that others will need.
    fn take(&self, more: usize, length: usize, others: usize) -> bool {
        let times = length.saturating_mul(FREE_TIMES).min(self.bytes / FREE_OF_ALL);
        let free = times.max(length / FREE_OF_MESSAGE);
        let taken = |used: usize| {
            let used = used.checked_add(more)?;
            (used.saturating_add(free).saturating_add(others) <= self.bytes).then_some(used)
        };
        self.used.fetch_update(SeqCst, SeqCst, taken).is_ok()
    }

    fn wake(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl MessageBudget {
    /// Grows to this length, and waits for the room. Meanwhile `without` bytes are in memory without room.
    async fn grow(&mut self, length: usize, without: usize) -> Result<(), NoRoom> {
        // A reply that is longer than any allowed message counts as the longest.
        let length = length.min(self.budget.0.longest());
        let more = length.saturating_sub(self.bytes);
        if more == 0 || self.took(more, length) {
            return Ok(());
        }
        let shared = Arc::clone(&self.budget.0);
        let _waiting = BudgetWait::begin(&shared, without).ok_or(NoRoom)?;
        let mut turn = pin!(Arc::clone(&shared.turn).acquire_owned());
        let mut until = Instant::now() + self.wait_limit;
        loop {
            let mut freed = pin!(shared.freed.notified());
            // From here on, no notification is missed.
            freed.as_mut().enable();
            if self.took(more, length) {
                // A message that grows in steps waits no longer than one that grows at once.
                self.wait_limit = until.saturating_duration_since(Instant::now());
                return Ok(());
            }
            tokio::select! {
                biased;
                () = freed => {}
                permit = &mut turn, if self.turn.is_none() && length > LARGE_MESSAGE => {
                    // The semaphore is never closed.
                    self.turn = permit.ok();
                    self.tell_rest();
                    until = Instant::now() + TURN_PATIENCE;
                }
                () = sleep_until(until) => return Err(NoRoom),
            }
        }
    }

    /// Takes `more` bytes, if there is room.
    fn took(&mut self, more: usize, length: usize) -> bool {
        let shared = &self.budget.0;
        let is_next = self.turn.is_some() || length <= LARGE_MESSAGE;
        let others = if is_next { 0 } else { shared.rest.load(SeqCst) };
        let has_taken = shared.take(more, length, others);
        if has_taken {
            self.bytes += more;
            self.tell_rest();
        }
        has_taken
    }

    /// Publishes the room that the message may still need, if it has the turn.
    fn tell_rest(&self) {
        if self.turn.is_some() {
            self.budget.0.rest.store(self.most.saturating_sub(self.bytes), SeqCst);
        }
    }

    /// Notes that the message grows no more, and passes the turn to the next.
    pub(super) fn is_whole(&mut self) {
        if let Some(turn) = self.turn.take() {
            // This comes before the next message publishes its need.
            self.budget.0.rest.store(0, SeqCst);
            drop(turn);
            self.budget.0.wake();
        }
    }

    /// Joins these bytes with the room, which is given back with them.
    pub(super) fn keep(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(BudgetedBytes { bytes, _room: self })
    }
}

impl Drop for MessageBudget {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, SeqCst);
        self.is_whole();
        self.budget.0.wake();
    }
}

/// Bytes together with their room.
struct BudgetedBytes {
    bytes: Vec<u8>,
    _room: MessageBudget,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A waiting message, until this is dropped. The number is its bytes in memory without room.
struct BudgetWait<'a>(&'a BudgetState, usize);

impl<'a> BudgetWait<'a> {
    /// Starts a wait. Returns `None` if too many messages, or too many bytes, wait already.
    fn begin(shared: &'a BudgetState, bytes: usize) -> Option<Self> {
        let one_more = |waiting: usize| (waiting < MESSAGES_WAITING).then_some(waiting + 1);
        shared.waiting.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        // Dropping it gives the place back.
        let mut one = Self(shared, 0);
        let more = |overdrawn: usize| {
            overdrawn.checked_add(bytes).filter(|all| bytes == 0 || *all <= shared.overdraft)
        };
        shared.overdrawn.fetch_update(SeqCst, SeqCst, more).ok()?;
        one.1 = bytes;
        Some(one)
    }
}

impl Drop for BudgetWait<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
        self.0.overdrawn.fetch_sub(self.1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    // The clock is paused in each test that sleeps: the runtime moves it on as soon as every task waits.
    use tokio::{task::JoinHandle, time::timeout};

    use super::*;

    const MIB: usize = 1 << 20;

    fn budget() -> Budget {
        Budget::new(Some(128 * MIB), 64 * MIB)
    }

    /// What a message gets that grows by this until it finds no more room.
    async fn greedy(budget: &Budget, step: usize) -> Option<MessageBudget> {
        let (mut room, mut length) = (None, 0);
        loop {
            length += step;
            if length > 64 * MIB || budget.grown(&mut room, length, 64 * MIB).await.is_err() {
                return room;
            }
        }
    }

    #[test]
    fn f_32_the_longest_message_fits_whatever_is_said() {
        for (said, longest, bytes) in [
            (None, 64 * MIB, 128 * MIB),
            (None, MIB, MESSAGE_MEMORY),
            (None, 256 * MIB, 512 * MIB),
            (Some(MIB), 64 * MIB, 80 * MIB),
            (Some(MIB), 1000, MIB),
        ] {
            let budget = Budget::new(said, longest);
            assert_eq!(budget.0.bytes, bytes, "{said:?} {longest}");
            assert!(budget.0.longest() >= longest && budget.0.take(longest, longest, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_however_many_large_ones_there_are_a_smaller_one_finds_room() {
        let budget = budget();
        let mut rooms = Vec::new();
        for _ in 0..32 {
            rooms.extend(greedy(&budget, 64 << 10).await);
            assert!(budget.used() <= 128 * MIB);
        }
        assert!(budget.used() > 100 * MIB);
        let before = Instant::now();
        assert!(budget.room_for(64 << 10).await.is_ok_and(|room| room.is_some()));
        assert!(budget.room_for(SMALL_MESSAGE).await.is_ok_and(|room| room.is_none()), "it needs none");
        assert_eq!(before.elapsed().as_nanos(), 0, "nobody has waited");
        drop(rooms);
        assert_eq!(budget.used(), 0);
        assert!(budget.room_for(64 * MIB).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_room_is_given_back_with_the_bytes_of_its_message() {
        let budget = budget();
        let room = budget.room_for(MIB).await.expect("there is room").expect("it needs room");
        let bytes = room.keep(b"{}".to_vec());
        assert_eq!((&bytes[..], budget.used()), (&b"{}"[..], MIB));
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!((&copy[..], budget.used()), (&b"{}"[..], MIB), "they are the same bytes");
        drop(copy);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_who_waits_gets_what_is_freed_or_is_refused_after_a_while() {
        let budget = budget();
        let first = budget.room_for(64 * MIB).await.expect("there is room");
        let before = Instant::now();
        assert_eq!(budget.room_for(64 * MIB).await.err(), Some(NoRoom));
        assert_eq!(before.elapsed().as_secs(), TURN_PATIENCE.as_secs(), "it had the turn");
        let other = budget.clone();
        let waiting = tokio::spawn(async move { other.room_for(64 * MIB).await.map(drop) });
        // The clock is paused.
        tokio::time::sleep(ROOM_PATIENCE / 2).await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), Ok(()));
        assert_eq!((budget.used(), budget.0.waiting.load(SeqCst)), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_of_many_that_grow_at_the_same_time_one_comes_to_its_end() {
        let (budget, reached) = (budget(), Arc::new(AtomicUsize::new(0)));
        let growing: Vec<JoinHandle<Option<MessageBudget>>> = (0..8)
            .map(|_| {
                let (budget, reached) = (budget.clone(), Arc::clone(&reached));
                tokio::spawn(async move {
                    let (mut room, mut length) = (None, 0);
                    while length < 59 * MIB {
                        length += 64 << 10;
                        // So that they all come equally far.
                        tokio::task::yield_now().await;
                        budget.grown(&mut room, length, 59 * MIB).await.ok()?;
                        reached.fetch_max(length, SeqCst);
                    }
                    room
                })
            })
            .collect();
        // As soon as the others have given up; the clock is paused.
        tokio::time::sleep(ROOM_PATIENCE + ROOM_PATIENCE / 5).await;
        assert_eq!(reached.load(SeqCst), 59 * MIB);
        let mut whole = Vec::new();
        for one in growing {
            whole.extend(timeout(TURN_PATIENCE * 2, one).await.expect("in time").expect("no panic"));
        }
        assert!(!whole.is_empty(), "none came to its end");
        drop(whole);
        assert_eq!((budget.used(), budget.0.turn.available_permits()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_there_are_at_most_so_many_who_wait() {
        let budget = budget();
        let _taken = budget.room_for(64 * MIB).await.expect("there is room");
        let waits = || {
            let budget = budget.clone();
            tokio::spawn(async move { budget.grown(&mut None, 64 * MIB, 64 * MIB).await.err() })
        };
        let waiting: Vec<_> = (0..MESSAGES_WAITING).map(|_| waits()).collect();
        // The clock is paused.
        tokio::time::sleep(ROOM_PATIENCE / 5).await;
        assert_eq!(budget.0.waiting.load(SeqCst), MESSAGES_WAITING);
        let before = Instant::now();
        assert_eq!(budget.grown(&mut None, 64 * MIB, 64 * MIB).await.err(), Some(NoRoom));
        assert_eq!(before.elapsed().as_nanos(), 0, "it has not waited");
        for one in waiting {
            assert_eq!(one.await.expect("no panic"), Some(NoRoom));
        }
        assert_eq!(budget.0.waiting.load(SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn f_32_replies_that_wait_have_an_overdraft_and_what_is_over_it_is_refused_at_once() {
        let budget = budget();
        let taken = budget.room_for(64 * MIB).await.expect("there is room");
        let waits = |length| {
            let budget = budget.clone();
            tokio::spawn(async move { budget.room_for(length).await.map(drop) })
        };
        let mut waiting: Vec<_> = (0..2).map(|_| waits(60 * MIB)).collect();
        waiting.extend((0..40).map(|_| waits(24 * MIB)));
        // The clock is paused.
        tokio::time::sleep(ROOM_PATIENCE / 5).await;
        let refused = waiting.extract_if(.., |one| one.is_finished());
        let refused: Vec<_> = refused.collect();
        let held = budget.used() + budget.0.overdrawn.load(SeqCst);
        assert!(held <= (128 + 64) * MIB && held > 100 * MIB, "{held}");
        assert!(refused.len() >= 38, "{}", refused.len());
        for one in refused {
            assert_eq!(one.await.expect("no panic"), Err(NoRoom));
        }
        // Bodies have nothing of it: what waits of them is not there yet.
        let body = budget.clone();
        let body = tokio::spawn(async move { body.grown(&mut None, 60 * MIB, 60 * MIB).await });
        drop(taken);
        for one in waiting {
            assert_eq!(one.await.expect("no panic"), Ok(()), "it waits for what is freed");
        }
        assert_eq!(body.await.expect("no panic"), Ok(()));
        assert_eq!(
            (budget.used(), budget.0.overdrawn.load(SeqCst), budget.0.waiting.load(SeqCst)),
            (0, 0, 0)
        );
    }
}
