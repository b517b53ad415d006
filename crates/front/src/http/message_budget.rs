//! Room for messages on their way: one budget, in bytes, for the bodies of all requests and for all replies that are sent whole.
//!
//! Theory of operation. A message takes room as it grows, and leaves some free behind it: sixteen times its own length, but no more than
//! an eighth of the budget, and no less than a quarter of its length. So however many large ones there are, smaller ones still find room,
//! and it takes hundreds of small ones to fill the rest. What finds no room waits for a while. Messages over [`LARGE_MESSAGE`] that wait stand
//! in a queue: the first of them has the turn, and others get only what it will not need, so that those that each have a part of what
//! they need do not keep one another from the rest. Whoever waits too long is refused, and gives back what it had.
//!
//! A body that waits is not read on. A reply that waits is in memory already, so replies that wait have a budget of their own, the overdraft:
//! half as much, or one of the longest. What is over that is refused at once, and its bytes are free again.
//!
//! Invariants
//!
//! - Rooms never come to more than the budget, which has room for the longest message that there may be; and replies that wait for theirs
//!   never to more than the overdraft, which has that too.
//! - Messages up to [`SMALL_MESSAGE`] need no room: connections bound them, and nobody makes them wait.
//! - All the waits of a message have one end, also of the one that has the turn. Dropping a room gives back all of it.
//! - Where nobody waits, taking room is one exchange of an atomic, and giving it back two operations.

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

/// The part of a message that is left free behind it at least: room for shorter ones beside the longest.
const FREE_OF_MESSAGE: usize = 4;

/// The part of the budget that is left free behind it at most, beyond that.
const FREE_OF_ALL: usize = 8;

/// The part of the budget that replies may come to, besides, while they wait for their room.
const OVERDRAFT_OF_ALL: usize = 2;

/// How many as long as itself a message leaves room for, up to that.
const FREE_TIMES: usize = 16;

/// The budget. Clones are the same.
#[derive(Clone)]
pub(super) struct Budget(Arc<BudgetState>);

struct BudgetState {
    bytes: usize,
    used: AtomicUsize,
    /// How many wait.
    waiting: AtomicUsize,
    /// The bytes of the replies among them.
    overdrawn: AtomicUsize,
    /// What those may come to.
    overdraft: usize,
    turn: Arc<Semaphore>,
    /// What the message that has the turn may still need.
    rest: AtomicUsize,
    /// Told to all who wait, when there may be more room.
    freed: Notify,
}

/// What a message has of the budget, until it is dropped.
pub(super) struct MessageBudget {
    budget: Budget,
    bytes: usize,
    /// What it may come to.
    most: usize,
    /// How long it may still wait, in all.
    wait_limit: Duration,
    turn: Option<OwnedSemaphorePermit>,
}

/// There was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Budget {
    /// One of so many bytes, or as many as the longest message needs; where nothing is said, room for two of those, or
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

    /// Room for a reply of this length, which is there already; nothing where it needs none. It may be waited for within the overdraft.
    pub(super) async fn room_for(&self, length: usize) -> Result<Option<MessageBudget>, NoRoom> {
        if length <= SMALL_MESSAGE {
            return Ok(None);
        }
        let mut room = self.room(length);
        room.grow(length, length).await?;
        room.is_whole();
        Ok(Some(room))
    }

    /// Room for a body that has come to this length, and may grow to `most`. Cancel-safe: what was taken is in `room`.
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

    /// Bytes that are taken.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.0.used.load(SeqCst)
    }
}

impl BudgetState {
    /// The longest message that there is ever room for.
    fn longest(&self) -> usize {
        self.bytes - self.bytes.div_ceil(FREE_OF_MESSAGE + 1)
    }

    /// Takes so much more for a message of this length, if there is room beside what others will need.
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
    /// Grows to this length. While that is waited for, so many bytes are there without room.
    async fn grow(&mut self, length: usize, without: usize) -> Result<(), NoRoom> {
        // A reply that is longer than any message may be counts as the longest.
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
            // Whatever is freed from here on is heard of.
            freed.as_mut().enable();
            if self.took(more, length) {
                // Little by little it waits for no longer than at once.
                self.wait_limit = until.saturating_duration_since(Instant::now());
                return Ok(());
            }
            tokio::select! {
                biased;
                () = freed => {}
                permit = &mut turn, if self.turn.is_none() && length > LARGE_MESSAGE => {
                    // It is never closed.
                    self.turn = permit.ok();
                    self.tell_rest();
                    until = Instant::now() + TURN_PATIENCE;
                }
                () = sleep_until(until) => return Err(NoRoom),
            }
        }
    }

    /// Takes so much more, if there is room.
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

    /// Says what it may still need, where it has the turn.
    fn tell_rest(&self) {
        if self.turn.is_some() {
            self.budget.0.rest.store(self.most.saturating_sub(self.bytes), SeqCst);
        }
    }

    /// The message grows no more: the turn is the next one's.
    pub(super) fn is_whole(&mut self) {
        if let Some(turn) = self.turn.take() {
            // Before the next one says what it needs.
            self.budget.0.rest.store(0, SeqCst);
            drop(turn);
            self.budget.0.wake();
        }
    }

    /// These bytes, with which the room goes.
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

/// Bytes that have their room with them.
struct BudgetedBytes {
    bytes: Vec<u8>,
    _room: MessageBudget,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One who waits, until this is dropped, with what it has in memory without room.
struct BudgetWait<'a>(&'a BudgetState, usize);

impl<'a> BudgetWait<'a> {
    /// Nothing where too many wait already, or too much.
    fn begin(shared: &'a BudgetState, bytes: usize) -> Option<Self> {
        let one_more = |waiting: usize| (waiting < MESSAGES_WAITING).then_some(waiting + 1);
        shared.waiting.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        // Dropped, it gives back its place.
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
