//! The requests on stdio whose answers are still to come, each with a thread, and who withdraws them.
//!
//! # Invariants
//!
//! - A request that was withdrawn is answered with nothing.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;
use unhang_demo_servers::bounded_waits::lock;

/// Those that are open, by id, and who waits for one to be withdrawn.
#[derive(Default)]
pub(crate) struct OpenTasks {
    ids: Mutex<HashSet<String>>,
    changed: Condvar,
}

impl OpenTasks {
    /// Waits for so long; false as soon as the request is withdrawn.
    pub(crate) fn rest(&self, id: &str, length: Duration) -> bool {
        let waits = |ids: &mut HashSet<String>| ids.contains(id);
        let waited = self.changed.wait_timeout_while(lock(&self.ids), length, waits);
        waited.is_ok_and(|(_, timeout)| timeout.timed_out())
    }

    /// Withdraws a request; one that is not open is none of its business.
    pub(crate) fn withdraw(&self, id: &Value) {
        lock(&self.ids).remove(&id.to_string());
        self.changed.notify_all();
    }

    /// Does something beside all other requests, for as long as its own is open.
    pub(crate) fn beside(
        self: &Arc<Self>,
        id: &Value,
        work: impl FnOnce(&Self, &str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (open, id) = (Arc::clone(self), id.to_string());
        // Entered before the thread runs, so that a cancellation right behind the request finds it.
        lock(&self.ids).insert(id.clone());
        std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            // A client that has gone is noticed at the next read.
            let _ = work(&open, &id);
            lock(&open.ids).remove(&id);
        })?;
        Ok(())
    }
}
