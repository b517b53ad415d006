//! News of a call while it is awaited: how far the call is, and the task with which its server goes on with it.
//!
//! ```text
//! TaskPoller ─ TaskNews ─► the keeper of the call: writes down the task, and tells what it is doing
//! TaskPoller ◄─ TaskNews ◄─ we end, and another process is to go on with the task: it is not cancelled
//! ```

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use tokio::sync::Notify;

use super::{server_task::ServerTask, stream_outlook::AnswerOutlook, task_looks::TaskLooks};
use unhang_tools::job_report::CallActivity;
use unhang_upstream::call_stream::CallStream;

/// A task as it is known while it is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTask {
    /// The data that is needed to ask for the task.
    pub task: ServerTask,
    /// The identity of the server that has the task.
    pub kept_by: String,
    /// Whether that server goes on with the task when we have ended in order.
    pub outlives_us: bool,
    /// The task's current activity, in the words of its server.
    pub doing: Option<String>,
}

/// News of the task with which a server goes on with a call, and whether the task is to go on without us. Clones are the same. Every call
/// that may become a job has one, and hardly any has a task, so that it is small.
#[derive(Clone, Debug, Default)]
pub struct TaskNews(Arc<TaskNewsState>);

#[derive(Debug, Default)]
struct TaskNewsState {
    /// The task, with the number of the last news of it.
    known: Mutex<(u64, Option<KnownTask>)>,
    changes: Notify,
    is_left: AtomicBool,
    is_job: AtomicBool,
    /// Rung when the call has become a job.
    job_begins: Notify,
    /// [`CallStage`]
    stage: AtomicU8,
    /// The looks at the task that are wanted, once it has begun here.
    looks: OnceLock<TaskLooks>,
    /// The stream of the answer, once somebody wants to hear of it.
    stream: OnceLock<CallStream>,
    /// The server that is asked over HTTP: its name, and its identity.
    streams_from: OnceLock<(String, Arc<str>)>,
}

/// The stage of a call that may become a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallStage {
    InLine,
    Starting,
    Asked,
    /// The window that leads has the call, and knows whether its server has been asked.
    Elsewhere,
}

impl CallStage {
    /// Returns what a report of the job says about the call at this stage.
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
    /// Makes the news of a call whose server has no task yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn latest(&self) -> MutexGuard<'_, (u64, Option<KnownTask>)> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next news of the task after `seen`. Only one task may wait. Cancel-safe.
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

    /// Returns the looks at the task. They are wanted from those who have asked for it here.
    pub(super) fn looks(&self) -> TaskLooks {
        self.0.looks.get_or_init(TaskLooks::default).clone()
    }

    /// Has the task looked at now, and waits for that. Returns at once if the call has no task that this process looks at. Returns whether
    /// the looks have ended meanwhile, so that the outcome of the call follows.
    pub async fn look(&self) -> bool {
        match self.0.looks.get() {
            Some(looks) => looks.look().await,
            None => false,
        }
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

    /// Notes that the call has become a job.
    pub fn becomes_job(&self) {
        self.0.is_job.store(true, Ordering::Relaxed);
        self.0.job_begins.notify_waiters();
    }

    /// Waits until the call has become a job. Cancel-safe.
    pub(super) async fn until_job(&self) {
        let mut begins = std::pin::pin!(self.0.job_begins.notified());
        // Before the look, so that the bell is not missed.
        begins.as_mut().enable();
        if !self.0.is_job.load(Ordering::Relaxed) {
            begins.await;
        }
    }

    /// Notes that another process goes on with the task: the end of the wait here is not to cancel it.
    pub fn leave(&self) {
        self.0.is_left.store(true, Ordering::Relaxed);
        self.stream().leave();
    }

    fn stream(&self) -> &CallStream {
        self.0.stream.get_or_init(CallStream::default)
    }

    /// Returns the stream of the answer, for a server of this name and identity that is asked over HTTP.
    pub(super) fn watches(&self, name: &str, identity: Arc<str>) -> CallStream {
        self.0.streams_from.get_or_init(|| (name.to_owned(), identity));
        self.stream().clone()
    }

    /// Returns what becomes of the answer if this process ends now. A task of the server is not part of that.
    pub fn outlook(&self) -> AnswerOutlook {
        let Some((name, identity)) = self.0.streams_from.get() else { return AnswerOutlook::Unknown };
        AnswerOutlook::of(self.stream().state(), name, identity)
    }

    /// Waits for the next change of the outlook after `seen`. Only one task may wait. Cancel-safe.
    pub async fn next_outlook(&self, seen: &mut u64) -> AnswerOutlook {
        self.stream().next_change(seen).await;
        self.outlook()
    }

    /// Returns whether another process goes on with the task.
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
