//! Records that this unhang cannot read.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, PoisonError},
};

use rusqlite::Row;

/// The most records that are reported.
const MOST_TOLD: usize = 1000;

/// Reports a record that was passed over, once in the life of this process.
pub(super) fn passed_over(row: &Row<'_>, error: &rusqlite::Error) {
    static TOLD: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let id: String = row.get("id").unwrap_or_default();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST_TOLD && told.insert(id.clone()) {
        tracing::warn!(
            "unhang leaves out job {id}: it cannot read the record ({error}); if a newer unhang wrote \
             it, use the newer unhang"
        );
    }
}
