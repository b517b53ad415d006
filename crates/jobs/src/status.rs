//! The status of a job: its record, and what is known of it at the moment.

use std::time::Duration;

use crate::{progress::JobProgress, record::JobRecord, timestamp::JobTimestamp};

/// A job and its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Everything that is recorded about the job; `status` is the live one.
    pub record: JobRecord,
    /// The number of jobs that start before a queued job.
    pub queue_position: Option<u32>,
    /// The progress that the job reports.
    pub progress: Option<JobProgress>,
    /// Why a queued job is not started although a slot is free, or the trouble with its folder because of which nobody can look after the
    /// job.
    pub wait_reason: Option<String>,
    /// The worker's part, if the job is in a store of many machines; `None` for a job of this data folder.
    pub shared: Option<SharedSight>,
}

impl JobStatus {
    /// Makes the status of a job of this data folder of which only the record is known.
    #[must_use]
    pub fn of(record: JobRecord) -> Self {
        Self { record, queue_position: None, progress: None, wait_reason: None, shared: None }
    }

    /// Makes the status of a job in a store of many machines of which only the record is known.
    #[must_use]
    pub fn in_store(record: JobRecord) -> Self {
        Self { shared: Some(SharedSight::default()), ..Self::of(record) }
    }

    /// Returns how long the job has been running, or ran; for a queued job, how long it has waited.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let ending = self.record.ending.as_ref();
        let end = ending.map_or_else(JobTimestamp::now, |ending| ending.completed_at);
        end.since(self.record.started_at.unwrap_or(self.record.created_at))
    }

    /// Returns how long the job may still take at this time, by its timeout and its start; `None` if it has no limit. A job that has ended
    /// takes no time any more.
    #[must_use]
    pub fn time_left(&self, now: JobTimestamp) -> Option<Duration> {
        let left = self.record.time_left(now);
        if self.record.status.is_final() { left.map(|_| Duration::ZERO) } else { left }
    }
}

/// The worker's part of the status of a job in the store of many machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSight {
    /// The worker that has the job, if one has it.
    pub worker: Option<String>,
    /// The time since the worker's last heartbeat, if it has missed some.
    pub silent_for: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{EndRecord, JobEnd},
        testing::{before_now, command},
    };

    #[test]
    fn a_job_has_run_until_its_end_since_it_was_started_or_else_accepted() {
        const MINUTE: Duration = Duration::from_secs(60);
        let status = JobStatus::of;
        let mut record = command();
        record.created_at = before_now(10 * MINUTE);
        let is_about = |record: &JobRecord, length: Duration| {
            let elapsed = status(record.clone()).elapsed();
            assert!(elapsed >= length && elapsed < length + MINUTE, "{elapsed:?}");
        };
        is_about(&record, 10 * MINUTE);
        record.started_at = Some(before_now(7 * MINUTE));
        is_about(&record, 7 * MINUTE);
        let completed_at = before_now(3 * MINUTE);
        record.end(&EndRecord { completed_at, ..EndRecord::without_run(JobEnd::Failed) });
        is_about(&record, 4 * MINUTE);
    }

    #[test]
    fn a_job_that_has_ended_takes_no_time_any_more() {
        let status = JobStatus::of;
        let now = JobTimestamp::now();
        let mut record = JobRecord { created_at: now, timeout_ms: Some(5000), ..command() };
        assert_eq!(status(record.clone()).time_left(now), Some(Duration::from_secs(5)));
        record.end(&EndRecord::without_run(JobEnd::Failed));
        assert_eq!(status(record).time_left(now), Some(Duration::ZERO));
        assert_eq!(status(command()).time_left(now), None);
    }
}
