//! Records that this unhang cannot read.

use std::{
    collections::HashSet,
    fmt::Display,
    sync::{LazyLock, Mutex, PoisonError},
};

/// The most records that are reported.
const MOST_TOLD: usize = 1000;

/// Reports a job that a list leaves out because its record cannot be read: once in the life of this process.
pub fn report_unreadable(id: &str, error: &impl Display) {
    static TOLD: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST_TOLD && told.insert(id.to_owned()) {
        tracing::warn!(
            "unhang leaves out job {id}: it cannot read the record ({error}); if a newer unhang wrote \
             it, use the newer unhang"
        );
    }
}
