//! The callers of calls that one server continues as tasks, by the names of the tasks: for questions and news about a task that come by
//! themselves.
//!
//! Invariants
//!
//! - A task is known while its call is waited for, and no longer.
//! - The wait for a caller is bounded. A server may ask before the caller has read the name of its task.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use unhang_core::config::TASK_LOOK_PATIENCE;
use unhang_upstream::question::SideMessage;

use super::task_looks::TaskLooks;

/// The callers of the tasks of one server. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskCallers(Arc<watch::Sender<HashMap<String, TaskCaller>>>);

/// The caller of one task.
#[derive(Clone, Debug)]
struct TaskCaller {
    asides: mpsc::Sender<SideMessage>,
    looks: TaskLooks,
    /// The server has asked its caller something while nobody waited for the result of the task.
    asks_by_itself: Arc<AtomicBool>,
}

/// A task whose caller is known, until it is dropped.
pub(super) struct KnownCaller {
    callers: TaskCallers,
    task: String,
    before: Option<TaskCaller>,
}

impl TaskCallers {
    /// Notes the caller of a task.
    pub(super) fn note(
        &self,
        task: &str,
        asides: mpsc::Sender<SideMessage>,
        looks: TaskLooks,
    ) -> KnownCaller {
        let caller = TaskCaller { asides, looks, asks_by_itself: Arc::default() };
        self.put(task, caller)
    }

    /// Notes that somebody waits for the result of a task, and gets its questions from now on. Returns `None` if the server asks by itself,
    /// so that its questions still go to the caller at once.
    pub(super) fn waits_for_result(
        &self,
        task: &str,
        asides: mpsc::Sender<SideMessage>,
    ) -> Option<KnownCaller> {
        let caller = self.0.borrow().get(task).cloned()?;
        let asks_by_itself = caller.asks_by_itself.load(Ordering::Relaxed);
        (!asks_by_itself).then(|| self.put(task, TaskCaller { asides, ..caller }))
    }

    fn put(&self, task: &str, caller: TaskCaller) -> KnownCaller {
        let (mut before, task) = (None, task.to_owned());
        self.0.send_modify(|known| before = known.insert(task.clone(), caller));
        KnownCaller { callers: self.clone(), task, before }
    }

    /// Finds the way to the caller of a task. Waits a moment for a task that nobody knows yet.
    pub(super) async fn find(&self, task: &str) -> Option<mpsc::Sender<SideMessage>> {
        let mut known = self.0.subscribe();
        let known = timeout(TASK_LOOK_PATIENCE, known.wait_for(|known| known.contains_key(task))).await;
        let known = known.ok()?.ok()?;
        let caller = known.get(task)?;
        caller.asks_by_itself.store(true, Ordering::Relaxed);
        Some(caller.asides.clone())
    }

    /// Notes that the server says something about a task, so that the task is looked at.
    pub(super) fn has_changed(&self, task: &str) {
        if let Some(caller) = self.0.borrow().get(task) {
            caller.looks.want();
        }
    }
}

impl Drop for KnownCaller {
    fn drop(&mut self) {
        let (task, before) = (std::mem::take(&mut self.task), self.before.take());
        self.callers.0.send_modify(|known| {
            match before {
                Some(before) => known.insert(task, before),
                None => known.remove(&task),
            };
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_has_a_caller_while_it_is_waited_for() {
        let callers = TaskCallers::default();
        let begun = Instant::now();
        assert!(callers.find("t").await.is_none(), "nobody waits");
        assert_eq!(begun.elapsed(), TASK_LOOK_PATIENCE);
        let ((caller, _one), (waits, _other)) = (mpsc::channel(1), mpsc::channel(1));
        let note = || callers.note("t", caller.clone(), TaskLooks::default());
        let (found, known) = tokio::join!(callers.find("t"), async { note() });
        assert!(found.expect("it comes").same_channel(&caller), "the server was faster");
        assert!(callers.waits_for_result("t", waits.clone()).is_none(), "the server asks by itself");
        drop(known);
        let known = note();
        let result = callers.waits_for_result("t", waits.clone()).expect("it may wait to be asked");
        assert!(callers.find("t").await.expect("there").same_channel(&waits));
        drop(result);
        assert!(callers.find("t").await.expect("there").same_channel(&caller));
        drop(known);
        assert!(callers.find("t").await.is_none());
    }
}
