//! The tasks that run for a server as long as it is there. One keeps its lists, one stops it when nobody wants it, and one ends it when the
//! configuration has it no more.
//!
//! Invariants: tasks end with the servers, and the tasks of one server end when they are stopped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;

/// The tasks of each server, by its index. Clones are the same tasks.
#[derive(Clone, Default)]
pub(super) struct ServerTasks(Arc<Mutex<HashMap<usize, JoinSet<()>>>>);

impl ServerTasks {
    /// Starts a task for the server at this index. Must be called in a runtime.
    pub(super) fn spawn(&self, server_index: usize, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().entry(server_index).or_default().spawn(task);
    }

    /// Stops the tasks of the server at this index.
    pub(super) fn stop(&self, server_index: usize) {
        self.tasks().remove(&server_index);
    }

    /// Stops all tasks.
    pub(super) fn stop_all(&self) {
        self.tasks().clear();
    }

    /// Forgets the tasks that have ended.
    pub(super) fn forget_ended(&self) {
        self.tasks().retain(|_, tasks| {
            while tasks.try_join_next().is_some() {}
            !tasks.is_empty()
        });
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<usize, JoinSet<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
