//! Rust closures as tools in this very process: for code of our own that is trusted, quick and looks at its own deadline (G-17, X-03). All
//! other work belongs in a [job](unhang_jobs).
//!
//! A thread cannot be killed. If a closure is late, its caller is answered all the same, and the thread is *lost* until the closure ends by
//! itself. A tool that has lost too many threads is refused, so that one bad closure cannot fill the process with threads. A closure that
//! overflows its stack or aborts still takes the process down.
//!
//! Invariants
//!
//! - A caller gets an answer by the deadline, whatever the closure does: also if it panics, and if all slots are taken.
//! - At any time there are at most as many threads as slots, and for each tool as many more as it may lose.
//! - Nothing waits for a lost thread, the end of the program included.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

use unhang_proc::deadline::Deadline;

/// The number of closures that run at the same time.
pub const SLOTS: usize = 4;

/// The number of threads that one tool may lose before it is refused.
pub const LOST_LIMIT: usize = 2;

/// Why a closure gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// The closure did not end in time; nobody waits for it any more.
    #[error("the tool `{tool}` did not end within {}; make it a job", humantime::format_duration(*.limit))]
    Late {
        /// The tool.
        tool: String,
        /// The time that the closure had.
        limit: Duration,
    },
    /// No slot was free in time.
    #[error("the tool `{tool}` waited {} for other tools to end, and got no turn", humantime::format_duration(*.limit))]
    Busy {
        /// The tool.
        tool: String,
        /// The time of the wait.
        limit: Duration,
    },
    /// The closure panicked.
    #[error("the tool `{tool}` failed: {message}")]
    Panicked {
        /// The tool.
        tool: String,
        /// The text of the panic.
        message: String,
    },
    /// Too many calls of the tool were late and still run.
    #[error(
        "unhang switched off the tool `{tool}`: {lost} of its calls were late and still run; make it a job"
    )]
    Refused {
        /// The tool.
        tool: String,
        /// The number of such calls.
        lost: usize,
    },
    /// The system has no thread for the closure.
    #[error("the tool `{tool}` could not be started: {message}")]
    NoThread {
        /// The tool.
        tool: String,
        /// The text of the system's error.
        message: String,
    },
}

/// Tells a closure that nobody waits for it any more. Long loops look at it.
#[derive(Clone, Debug, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// Returns whether nobody waits for the closure any more.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs closures on threads of its own. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct ThreadPool {
    slots: Arc<Semaphore>,
    lost: Arc<AbandonedThreads>,
    lost_limit: usize,
}

/// The number of threads that nobody waits for any more, by tool.
type AbandonedThreads = Mutex<HashMap<String, usize>>;

impl Default for ThreadPool {
    fn default() -> Self {
        Self::new(SLOTS, LOST_LIMIT)
    }
}

impl ThreadPool {
    /// Makes a pool with so many slots, in which a tool may lose so many threads.
    #[must_use]
    pub fn new(slots: usize, lost_limit: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), lost: Arc::default(), lost_limit }
    }

    /// Returns how many threads a tool has lost at the moment.
    #[must_use]
    pub fn lost(&self, tool: &str) -> usize {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get(tool).copied().unwrap_or(0)
    }

    /// Runs a closure. Dropping the future abandons the closure, as the deadline does.
    ///
    /// # Errors
    /// Fails with the variant of [`DirectError`] that says why there is no result.
    pub async fn run<T: Send + 'static>(
        &self,
        tool: &str,
        limit: Duration,
        work: impl FnOnce(&Abandoned) -> T + Send + 'static,
    ) -> Result<T, DirectError> {
        let lost = self.lost(tool);
        if lost >= self.lost_limit {
            return Err(DirectError::Refused { tool: tool.to_owned(), lost });
        }
        let deadline = Deadline::after(limit);
        let busy = |_| DirectError::Busy { tool: tool.to_owned(), limit };
        // The semaphore is never closed.
        let Ok(_slot) = deadline.timeout(self.slots.acquire()).await.map_err(busy)? else {
            return Err(DirectError::Busy { tool: tool.to_owned(), limit });
        };
        let (answer, outcome) = oneshot::channel();
        let call = Arc::new(PoolCall::new(tool, self.lost.clone()));
        let waiting = PoolWaiter(call.clone());
        let run = move || {
            // A panic may break data that the closure had borrowed; that data is not used again.
            let result = catch_unwind(AssertUnwindSafe(|| work(&call.abandoned)));
            call.end();
            // The caller may have gone.
            drop(answer.send(result));
        };
        if let Err(error) = thread::Builder::new().name(format!("direct-{tool}")).spawn(run) {
            waiting.0.end();
            return Err(DirectError::NoThread { tool: tool.to_owned(), message: error.to_string() });
        }
        match deadline.timeout(outcome).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(panic))) => {
                Err(DirectError::Panicked { tool: tool.to_owned(), message: message_of(panic.as_ref()) })
            }
            Ok(Err(_)) | Err(_) => Err(DirectError::Late { tool: tool.to_owned(), limit }),
        }
    }
}

/// One call, as the caller and the thread share it.
#[derive(Debug)]
struct PoolCall {
    tool: String,
    abandoned: Abandoned,
    has_ended: AtomicBool,
    lost: Arc<AbandonedThreads>,
}

impl PoolCall {
    fn new(tool: &str, lost: Arc<AbandonedThreads>) -> Self {
        Self {
            tool: tool.to_owned(),
            abandoned: Abandoned::default(),
            has_ended: AtomicBool::new(false),
            lost,
        }
    }

    /// Notes that the closure has ended. If nobody waits any more, its thread is not lost any longer.
    fn end(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(count) = lost.get_mut(&self.tool).filter(|_| self.abandoned.is_set()) {
            *count -= 1;
        }
        lost.retain(|_, count| *count > 0);
    }

    /// Notes that nobody waits for the closure any more. If it has not ended, its thread is lost.
    fn abandon(&self) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_ended.load(Ordering::Relaxed) {
            self.abandoned.0.store(true, Ordering::Relaxed);
            *lost.entry(self.tool.clone()).or_default() += 1;
        }
    }
}

/// Stands for the caller that waits for a call. Dropping it abandons the call.
struct PoolWaiter(Arc<PoolCall>);

impl Drop for PoolWaiter {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(30);

    /// A closure that goes on until it is told to end, whatever its caller does.
    fn stubborn() -> (SyncSender<()>, impl FnOnce(&Abandoned) + Send + 'static) {
        let (end, told): (SyncSender<()>, Receiver<()>) = sync_channel(1);
        (end, move |_: &Abandoned| told.recv().unwrap_or_default())
    }

    #[tokio::test]
    async fn g_17_a_closure_answers_with_its_value() {
        assert_eq!(ThreadPool::default().run("add", LONG, |_| 2 + 3).await, Ok(5));
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = ThreadPool::default();
        let error = pool.run("broken", LONG, |_| panic!("on purpose")).await.map(|()| 0).unwrap_err();
        assert_eq!(error.to_string(), "the tool `broken` failed: on purpose");
        assert_eq!(pool.run("broken", LONG, |_| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn a_late_closure_is_answered_for_counted_and_refused_until_it_ends() {
        let pool = ThreadPool::new(1, 2);
        let mut ends = Vec::new();
        for lost in 1..=2 {
            let (end, work) = stubborn();
            ends.push(end);
            assert!(matches!(pool.run("slow", SHORT, work).await, Err(DirectError::Late { .. })));
            assert_eq!(pool.lost("slow"), lost);
        }
        assert_eq!(
            pool.run("slow", LONG, |_| 1).await,
            Err(DirectError::Refused { tool: "slow".into(), lost: 2 })
        );
        // Others still have the slot.
        assert_eq!(pool.run("quick", LONG, |_| 1).await, Ok(1));
        drop(ends);
        while pool.lost("slow") > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run("slow", LONG, |_| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn a_closure_can_see_that_nobody_waits_for_it() {
        let pool = ThreadPool::default();
        let (told, seen) = oneshot::channel();
        let work = move |abandoned: &Abandoned| {
            while !abandoned.is_set() {
                thread::yield_now();
            }
            told.send(()).ok();
        };
        assert!(matches!(pool.run("polite", SHORT, work).await, Err(DirectError::Late { .. })));
        assert_eq!(tokio::time::timeout(LONG, seen).await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn who_finds_no_slot_is_told_by_the_deadline() {
        let pool = ThreadPool::new(1, 2);
        let (end, work) = stubborn();
        let first = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run("first", LONG, work).await }
        });
        while pool.slots.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let error = pool.run("second", SHORT, |_| ()).await.unwrap_err();
        assert!(matches!(error, DirectError::Busy { .. }), "{error}");
        drop(end);
        assert_eq!(first.await.unwrap(), Ok(()));
    }
}
