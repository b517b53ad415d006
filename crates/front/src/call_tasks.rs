//! The tasks that work on the calls of one session, each known by the key of its call.
//!
//! Invariants
//!
//! - A call has at most one task at a time. The outcome of a task belongs to the call that it was started for.
//! - Dropping [`CallTasks`] ends all of them.

use std::collections::HashMap;

use tokio::{
    sync::{oneshot, watch},
    task::{Id as TaskId, JoinError, JoinSet},
};
use unhang_background::{Promoted, RunningCall};

use super::{
    asking::PromotionOrder,
    effects::{CallKey, Resource},
    tasks::TasksTold,
};
use unhang_gateway::{ServerAnswer, Watch, route::names::Owner};
use unhang_tools::{Cancellation, ToolAnswer, job_report::JobReport};
use unhang_upstream::client::Error;

/// The outcome of a task.
pub(super) enum CallTaskEnd {
    Tool(ToolAnswer),
    Server(Box<ServerAnswer>),
    /// Servers were asked whether they have changed a list. The owner is that of the name that nobody lists, if one server may have it.
    Refreshed(Option<Owner>),
    /// A resource is watched, or the watch has failed.
    Watched(Resource, Result<Watch, Error>),
    /// A call has become a job.
    Promoted(Box<(Promoted, RunningCall)>),
    /// No job could be made of a call, which goes on without one.
    NotPromoted(Box<(String, RunningCall)>),
    /// The call of a window is refused with this error, since no job can be made of it before its server gets it.
    NoJobForWindow(String),
    /// The leading window has made a job of a call.
    OfLeader(Box<JobReport>),
    /// The same call was a job already, and still is.
    Joined(Box<JobReport>),
    /// The answer to a request about tasks.
    Task(Box<TasksTold>),
    /// The call needs no answer any more.
    Nothing,
}

/// A task that has ended or panicked.
pub(super) type FinishedTask = Result<(TaskId, CallTaskEnd), JoinError>;

/// All tasks of one session; see the module's text.
#[derive(Default)]
pub(super) struct CallTasks {
    tasks: JoinSet<CallTaskEnd>,
    keys: HashMap<TaskId, CallKey>,
    cancels: HashMap<CallKey, watch::Sender<bool>>,
    /// Calls of which a job may be made.
    orders: HashMap<CallKey, oneshot::Sender<PromotionOrder>>,
}

impl CallTasks {
    /// Starts the task of this call.
    pub(super) fn spawn(&mut self, key: CallKey, work: impl Future<Output = CallTaskEnd> + Send + 'static) {
        let task = self.tasks.spawn(work);
        self.keys.insert(task.id(), key);
    }

    /// Makes the signal by which the task of this call hears that its answer is not needed any more.
    pub(super) fn cancellation(&mut self, key: CallKey) -> Cancellation {
        let (cancel, cancellation) = Cancellation::new();
        self.cancels.insert(key, cancel);
        cancellation
    }

    /// Tells the task of this call that its answer is not needed any more.
    pub(super) fn cancel(&self, key: CallKey) {
        if let Some(cancel) = self.cancels.get(&key) {
            cancel.send_replace(true);
        }
    }

    /// Makes the channel by which the task of this call hears that it becomes a job.
    pub(super) fn promotion_orders(&mut self, key: CallKey) -> oneshot::Receiver<PromotionOrder> {
        let (order, orders) = oneshot::channel();
        self.orders.insert(key, order);
        orders
    }

    /// Orders that a job be made of this call. Returns false if no job can be made of it any more.
    pub(super) fn promote(&mut self, key: CallKey, order: PromotionOrder) -> bool {
        // The task may have been answered a moment ago.
        self.orders.remove(&key).is_some_and(|orders| orders.send(order).is_ok())
    }

    /// Waits for the next task that ends. Returns `None` if there is no task. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<FinishedTask> {
        self.tasks.join_next_with_id().await
    }

    /// Forgets a task that has ended. Returns its call and its outcome.
    pub(super) fn settle(&mut self, finished: FinishedTask) -> Option<(CallKey, CallTaskEnd)> {
        let (task, ended) = finished.unwrap_or_else(|error| {
            let text = "this tool failed because of a bug in unhang; unhang continues, and its stderr and log \
                have the details";
            (error.id(), CallTaskEnd::Tool(ToolAnswer::error(text)))
        });
        let key = self.keys.remove(&task)?;
        self.cancels.remove(&key);
        self.orders.remove(&key);
        Some((key, ended))
    }
}
