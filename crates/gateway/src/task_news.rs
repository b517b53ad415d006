//! What is heard of a call while it is waited for: how far it is, and the task with which its server goes on with it.
//!
//! ```text
//! TaskPoller ─ TaskNews ─► whoever keeps the call: writes down the task, and tells what it is doing
//! TaskPoller ◄─ TaskNews ◄─ we end, and somebody else is to go on with it: it is not cancelled
//! ```

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use tokio::sync::Notify;

use super::server_task::ServerTask;
use unhang_tools::job_report::CallActivity;

/// A task as it is known while it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTask {
    /// What is needed to ask for it.
    pub task: ServerTask,
    /// Which server has it.
    pub kept_by: String,
    /// Whether that server goes on with it when we have ended in order.
    pub outlives_us: bool,
    /// What it is doing, in the words of its server.
    pub doing: Option<String>,
}

/// What is heard of the task with which a server goes on with a call, and whether it is to go on without us. Clones are the same. Every call
/// that may become a job has one, and hardly any of them a task, so that it is small.
#[derive(Clone, Debug, Default)]
pub struct TaskNews(Arc<TaskNewsState>);

#[derive(Debug, Default)]
struct TaskNewsState {
    /// With the number of what was said of it.
    known: Mutex<(u64, Option<KnownTask>)>,
    changes: Notify,
    is_left: AtomicBool,
    /// [`CallStage`]
    stage: AtomicU8,
}

/// How far a call is that may become a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallStage {
    InLine,
    Starting,
    Asked,
    /// Whoever leads has it, and knows whether its server has been asked.
    Elsewhere,
}

impl CallStage {
    /// Returns what a report of the job says of it.
    pub fn does(self) -> CallActivity {
        match self {
            CallStage::InLine => CallActivity::Waits("for its turn behind other calls"),
            CallStage::Starting => CallActivity::Waits("for its server to start"),
            CallStage::Asked => CallActivity::Works,
            CallStage::Elsewhere => CallActivity::Either,
        }
    }
}

impl TaskNews {
    /// Makes that of a call whose server has no task yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn latest(&self) -> MutexGuard<'_, (u64, Option<KnownTask>)> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what is said next of the task, behind what this one, the only one who waits, has heard. Cancel-safe.
    pub async fn next_known(&self, seen: &mut u64) -> KnownTask {
        loop {
            if let (number, Some(known)) = &*self.latest()
                && number > seen
            {
                *seen = *number;
                return known.clone();
            }
            self.0.changes.notified().await;
        }
    }

    /// Returns what is known of the task now.
    pub fn known(&self) -> Option<KnownTask> {
        self.latest().1.clone()
    }

    /// Notes how far the call is now.
    pub(super) fn comes_to(&self, stage: CallStage) {
        self.0.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Returns how far the call is.
    pub fn stage(&self) -> CallStage {
        let stages = [CallStage::InLine, CallStage::Starting, CallStage::Asked, CallStage::Elsewhere];
        let now = self.0.stage.load(Ordering::Relaxed);
        stages.into_iter().find(|stage| *stage as u8 == now).unwrap_or(CallStage::Asked)
    }

    /// Notes that somebody else goes on with it: whoever stops waiting for it here does not want it to end.
    pub fn leave(&self) {
        self.0.is_left.store(true, Ordering::Relaxed);
    }

    /// Returns whether somebody else goes on with it.
    pub fn is_left(&self) -> bool {
        self.0.is_left.load(Ordering::Relaxed)
    }

    /// Notes that the server goes on with this task.
    pub fn begun(&self, known: KnownTask) {
        let mut latest = self.latest();
        *latest = (latest.0 + 1, Some(known));
        drop(latest);
        self.0.changes.notify_one();
    }

    /// Notes what the task is doing now.
    pub(super) fn doing(&self, doing: Option<&str>) {
        let mut latest = self.latest();
        let (number, known) = &mut *latest;
        if let Some(known) = known.as_mut().filter(|known| known.doing.as_deref() != doing) {
            known.doing = doing.map(str::to_owned);
            *number += 1;
            drop(latest);
            self.0.changes.notify_one();
        }
    }
}
