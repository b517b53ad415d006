//! Tasks that a client of 2026-07-28 follows by `subscriptions/listen` with `taskIds` (SEP-2663).
//!
//! Theory of operation. A task of its own follows each. It looks whenever some job changes, and reports each change, until the followed
//! task or the subscription ends.
//!
//! Invariants
//!
//! - A client hears of its own tasks alone. Of a task that does not exist it hears nothing, as of a task that never changes.
//! - Each notification says the same as `tasks/get` would.

use std::time::Duration;

use tokio::{sync::mpsc, time::sleep};
use unhang_bridge::{
    notification::under,
    tasks::{self, Dialect, declares},
};
use unhang_jobs::id::JobId;
use unhang_wire::{Id, Json};

use super::{
    client_request::capabilities,
    effects::CallKey,
    jobs::SessionJobs,
    tasks::{JobOutcomeWords, TaskTold, TaskView},
};
use unhang_core::queue::Class;
use unhang_tools::service::JobService as _;

/// The most tasks that one subscription may follow.
const MOST: usize = 100;

/// The shortest time between two looks at a task, however often jobs change.
const BREATH: Duration = Duration::from_millis(100);

/// The channel for changes of a task, on the way to the session.
pub(super) type TaskNewsSender = mpsc::Sender<(CallKey, Box<TaskTold>)>;

/// Returns the tasks that a subscription follows. Returns none if its client has not declared that it supports tasks.
pub(super) fn tasks_wanted(params: Option<Json<'_>>) -> Vec<JobId> {
    let mut task_ids = Vec::new();
    let is_declared = params.and_then(capabilities).is_some_and(declares);
    let ids = params.filter(|_| is_declared);
    let ids = ids.and_then(|params| params.member("notifications")?.member("taskIds"));
    if let Some(ids) = ids {
        ids.each_element(|id| {
            let id = id.text().and_then(|id| id.parse::<JobId>().ok());
            task_ids.extend(id.filter(|id| task_ids.len() < MOST && !task_ids.contains(id)));
        });
    }
    task_ids
}

/// Makes the notification about a changed task for the subscription of this id, and its class. A job is kept for `ttl` after its end.
pub(super) fn notification(told: &TaskTold, id: &Id, ttl: Option<Duration>) -> (Class, String) {
    let view = TaskView::of(&told.report, ttl);
    let came = JobOutcomeWords::of(told, Dialect::Extension);
    let (method, params) = tasks::notification(Dialect::Extension, &view.task(), came.outcome());
    let params = under(Json::new(params.as_bytes()), id);
    let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
    // The newest notification replaces the older ones.
    let class = Class::ListChanged(format!("task {} {}", told.report.job_id, id.to_json()).into());
    (class, line)
}

impl SessionJobs {
    /// Reports the current state of a task, then each change, until the task has ended.
    pub(super) async fn follow(&self, id: JobId, key: CallKey, tell: TaskNewsSender) {
        let Some(promoted) = self.promoted() else { return };
        if !matches!(self.service.knows(id).await, Ok(true)) {
            return;
        }
        let (mut jobs, mut inputs) = (promoted.changes(), promoted.input_changes());
        let mut last = None;
        loop {
            jobs.mark_unchanged();
            inputs.mark_unchanged();
            let Ok(told) = self.look(id).await else { return };
            let is_final = told.report.status.is_final();
            let seen = (
                told.report.status,
                told.report.progress_message.clone(),
                told.report.progress.map(f64::to_bits),
                told.inputs.iter().map(|input| input.key.clone()).collect::<Vec<_>>(),
            );
            if last.as_ref() != Some(&seen) && tell.send((key, Box::new(told))).await.is_err() {
                return;
            }
            last = Some(seen);
            if is_final {
                return;
            }
            sleep(BREATH).await;
            tokio::select! {
                changed = jobs.changed() => if changed.is_err() { return },
                () = promoted.inputs_changed(id, &mut inputs) => {}
            }
        }
    }
}
