//! Looks at a server's task that somebody wants before the server's own pause between looks has passed.
//!
//! Invariant: a caller waits for a look only while a poller looks at the task.

use std::sync::Arc;

use tokio::sync::watch;

/// The wanted looks at one task. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct TaskLooks(Arc<watch::Sender<LookCounts>>);

#[derive(Clone, Copy, Debug, Default)]
struct LookCounts {
    wanted: u64,
    /// The number of the last wanted look that has ended.
    taken: u64,
    /// Somebody looks at the task, now and then.
    is_polled: bool,
}

/// The task is looked at, until this is dropped.
pub(super) struct LooksTaken {
    looks: TaskLooks,
    wanted: watch::Receiver<LookCounts>,
    /// The number of the wanted look that is being taken.
    taking: u64,
}

impl Default for TaskLooks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(LookCounts::default())))
    }
}

impl TaskLooks {
    /// Wants a look at the task.
    pub(super) fn want(&self) {
        self.0.send_modify(|counts| counts.wanted += 1);
    }

    /// Wants a look at the task, and waits for it. Returns at once if nobody looks at the task. Returns whether the looks have ended
    /// meanwhile, so that the outcome of the call follows.
    pub(super) async fn look(&self) -> bool {
        let mut counts = self.0.subscribe();
        let was_polled = counts.borrow().is_polled;
        self.want();
        let wanted = self.0.borrow().wanted;
        let is_over = |counts: &LookCounts| counts.taken >= wanted || !counts.is_polled;
        // The sender is `self`, so that the wait ends only with a look.
        let is_taken = counts.wait_for(is_over).await.is_ok_and(|counts| counts.taken >= wanted);
        was_polled && !is_taken
    }

    /// Begins to take the wanted looks.
    pub(super) fn take(&self) -> LooksTaken {
        self.0.send_modify(|counts| counts.is_polled = true);
        LooksTaken { looks: self.clone(), wanted: self.0.subscribe(), taking: 0 }
    }
}

impl LooksTaken {
    /// Waits until a look is wanted. Cancel-safe.
    pub(super) async fn wanted(&mut self) {
        // The sender is `self.looks`.
        let _wanted = self.wanted.wait_for(|counts| counts.wanted > counts.taken).await;
    }

    /// Notes that a look begins.
    pub(super) fn begin(&mut self) {
        self.taking = self.looks.0.borrow().wanted;
    }

    /// Notes that the look has ended, and that the task goes on.
    pub(super) fn end(&mut self) {
        let taken = self.taking;
        self.looks.0.send_modify(|counts| counts.taken = counts.taken.max(taken));
    }
}

impl Drop for LooksTaken {
    fn drop(&mut self) {
        self.looks.0.send_modify(|counts| counts.is_polled = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wanted_look_ends_with_a_look_that_began_later() {
        let looks = TaskLooks::default();
        assert!(!looks.look().await, "nobody looks");
        let mut taken = looks.take();
        taken.wanted().await;
        taken.begin();
        let waits = tokio::spawn({
            let looks = looks.clone();
            async move { looks.look().await }
        });
        tokio::task::yield_now().await;
        taken.end();
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "that look began before");
        taken.wanted().await;
        taken.begin();
        taken.end();
        assert!(!waits.await.expect("it ends"));
        let waits = tokio::spawn(async move { looks.look().await });
        tokio::task::yield_now().await;
        drop(taken);
        assert!(waits.await.expect("it ends"), "nobody looks any more");
    }
}
