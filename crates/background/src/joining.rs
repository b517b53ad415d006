//! The search for the job that the same call joins: one of this process, or one whose maker has gone.

use std::time::Duration;

use tokio::{sync::OnceCell, time::timeout};
use unhang_jobs::{
    engine::{Engine, JobStatus},
    id::JobId,
    record::{JobRecord, JobState},
    timestamp::JobTimestamp,
};

use crate::{
    SameCall, ToolOfCaller,
    same_call::{KEPT, SameCalls, is_of_tool},
};

/// The time that the disk may take before a call does not wait for it any more.
const DISK_LIMIT: Duration = Duration::from_secs(2);

/// The calls that the same call may join.
pub struct JoinableCalls {
    engine: Engine,
    /// The calls of this process.
    pub(super) own: SameCalls,
    /// Whether the memory of the engine has the calls that ended before it was opened.
    recalled: OnceCell<()>,
}

impl JoinableCalls {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, own: SameCalls::default(), recalled: OnceCell::new() }
    }

    /// Reads, once for this process, which calls ended before it began. Without that, [`Self::find_same`] finds no such call.
    pub async fn recall_ended(&self) {
        let recalled = self.recalled.get_or_try_init(|| self.engine.recall_ended_calls());
        match timeout(DISK_LIMIT, recalled).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("a call may run again that has ended before: {error}"),
            Err(_) => tracing::warn!(
                "a call may run again that has ended before: the disk has not answered within {DISK_LIMIT:?}"
            ),
        }
    }

    /// Returns whether there may be a job that calls of this tool join. If not, callers need not look at the arguments, which may be long.
    #[must_use]
    pub fn may_join(&self, tool: ToolOfCaller) -> bool {
        self.own.has_one_of(tool) || !self.passed_on(|key| is_of_tool(tool, key)).is_empty()
    }

    /// Returns the job that this call joins: the one that the same call has become, as long as nobody has its result.
    #[must_use]
    pub fn find_same(&self, call: &SameCall) -> Option<JobId> {
        if let Some(id) = self.own.find(call) {
            return Some(id);
        }
        let lasting = call.lasting_key()?;
        let newest = self.passed_on(|key| key == lasting).into_iter().max_by_key(|job| job.record.created_at);
        newest.map(|job| job.record.job_id)
    }

    /// Returns the calls with such a key whose maker has gone and that can be joined.
    fn passed_on(&self, fits: impl Fn(&str) -> bool) -> Vec<JobStatus> {
        let now = JobTimestamp::now();
        let mut calls = self.engine.passed_on_calls(fits);
        calls.retain(|job| match (&job.record.ending, job.record.status) {
            (Some(ending), JobState::Completed) => now.since(ending.completed_at) < KEPT,
            (Some(_), _) => false,
            (None, _) => true,
        });
        calls
    }

    /// Notes that a client has read the result of this job: no call joins it any more. Waits for the disk if another process could have a
    /// call join it, but not for long.
    pub async fn was_read(&self, job: &JobRecord) {
        let (id, engine) = (job.job_id, &self.engine);
        self.own.forget(id);
        if engine.passed_on_key(job).is_none() {
            return;
        }
        let why = match timeout(DISK_LIMIT, engine.end_joining(id)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the disk has not answered within {DISK_LIMIT:?}"),
        };
        tracing::warn!(job = id.as_str(), "the same call may get this result once more: {why}");
    }
}
