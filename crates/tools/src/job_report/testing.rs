//! Jobs as the engine keeps them, for tests, those of other crates too.

use serde_json::json;
use unhang_jobs::record::{EndRecord, JobEnd};

use super::*;

/// Makes the status of a queued job, after `change`.
pub fn status(change: impl FnOnce(&mut JobRecord)) -> JobStatus {
    let mut record: JobRecord = serde_json::from_value(json!({
        "format": 1, "job_id": "abcdefgh2345", "name": "simulate", "command": ["true"], "folder": "/",
        "stop_grace_ms": 5000, "log_limit": 1, "status": "queued", "created_at": "2026-03-30T12:00:00.000Z",
        "rules": {"max_concurrent": 2, "memory_limit": 90.0, "disk_reserve": 0},
    }))
    .expect("a record");
    change(&mut record);
    JobStatus::of(record)
}

/// Makes the status of a job that ended after a second and a half.
pub fn ended(outcome: JobEnd, change: impl FnOnce(&mut EndRecord)) -> JobStatus {
    status(|record| {
        record.started_at = Some(record.created_at);
        let completed_at = JobTimestamp::from_millis(record.created_at.millis() + 1500);
        let mut ending = EndRecord { completed_at, ..EndRecord::without_run(outcome) };
        change(&mut ending);
        record.end(&ending);
    })
}
