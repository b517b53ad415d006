//! Keeps a thread awake between messages that follow one another closely.
//!
//! A thread that sleeps between two messages costs the second one more than its work: the processor has to come out of its halt, often by
//! way of a hypervisor, and its caches have lost the program. Of a call that comes alone, and is answered in some 200 µs, that is about
//! half (`docs/performance.md`). So while requests and answers come within [`CLOSE`] of one another, the thread looks for the next one
//! instead of sleeping.
//!
//! Invariants
//!
//! - The thread stays awake for at most [`CLOSE`] after the last message, and only after [`ENOUGH`] of them came closely. Servers that take
//!   milliseconds, and clients that think, cost nothing but the look at the clock.
//! - A thread that stays awake takes nothing from other work: between two looks, all other tasks run and the system is asked.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::yield_now, time::Instant};

/// Messages come closely if they come within this time of one another: several times the cost of a wakeup, and less than any server on
/// another machine takes.
const CLOSE: Duration = Duration::from_micros(200);

/// The number of close messages after which the thread awaits the next one awake. A call and its answer alone are not enough.
const ENOUGH: u32 = 8;

/// The time of the last message, and the number of messages before it that came closely.
#[derive(Debug, Default)]
struct MessagePace {
    last: Option<Instant>,
    closely: u32,
}

impl MessagePace {
    fn message_arrived(&mut self, now: Instant) {
        self.closely = if self.is_close(now) { self.closely.saturating_add(1) } else { 0 };
        self.last = Some(now);
    }

    /// Returns whether the thread stays awake for the next message.
    fn is_brisk(&self, now: Instant) -> bool {
        self.closely >= ENOUGH && self.is_close(now)
    }

    fn is_close(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) <= CLOSE)
    }
}

/// Decides when the thread stays awake.
#[derive(Debug, Default)]
pub(super) struct BusyPoller {
    pace: Mutex<MessagePace>,
    brisk: Notify,
}

impl BusyPoller {
    /// Notes that a message has arrived: a request of a client, or an answer of a server.
    pub(super) fn message_arrived(&self) {
        let now = Instant::now();
        let is_brisk = {
            let mut pace = self.pace();
            pace.message_arrived(now);
            pace.is_brisk(now)
        };
        if is_brisk {
            self.brisk.notify_one();
        }
    }

    /// Keeps the thread of this task awake while messages come closely. Never ends.
    pub(super) async fn keep(&self) {
        loop {
            self.brisk.notified().await;
            while self.pace().is_brisk(Instant::now()) {
                yield_now().await;
            }
        }
    }

    fn pace(&self) -> MutexGuard<'_, MessagePace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Wake, Waker},
    };

    use tokio::time::advance;

    use super::*;

    const MOMENT: Duration = Duration::from_micros(1);

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether whoever keeps watch wants to be asked again although nothing more has come.
    async fn is_awake(watch: Pin<&mut impl Future<Output = ()>>) -> bool {
        let wake_counter = Arc::new(WakeCounter::default());
        assert!(watch.poll(&mut Context::from_waker(&Waker::from(Arc::clone(&wake_counter)))).is_pending());
        yield_now().await;
        wake_counter.0.load(Ordering::Relaxed) > 0
    }

    async fn hear(busy_poll: &BusyPoller, messages: u32, apart: Duration) {
        for _ in 0..messages {
            advance(apart).await;
            busy_poll.message_arrived();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_awake_sleeps_soon_after_the_last_message() {
        let busy_poll = BusyPoller::default();
        let mut watch = pin!(busy_poll.keep());
        assert!(!is_awake(watch.as_mut()).await, "before any message");
        hear(&busy_poll, ENOUGH, CLOSE).await;
        assert!(!is_awake(watch.as_mut()).await, "the first of so many came after none");
        hear(&busy_poll, 1, CLOSE).await;
        assert!(is_awake(watch.as_mut()).await);
        advance(CLOSE).await;
        assert!(is_awake(watch.as_mut()).await);
        hear(&busy_poll, 1, Duration::ZERO).await;
        advance(CLOSE).await;
        assert!(is_awake(watch.as_mut()).await, "one more came");
        advance(MOMENT).await;
        assert!(!is_awake(watch.as_mut()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_come_now_and_then_keep_nobody_awake() {
        let busy_poll = BusyPoller::default();
        let mut watch = pin!(busy_poll.keep());
        for _ in 0..ENOUGH {
            hear(&busy_poll, ENOUGH, MOMENT).await;
            hear(&busy_poll, 1, CLOSE + MOMENT).await;
            assert!(!is_awake(watch.as_mut()).await, "a server that takes longer than a client");
        }
    }
}
