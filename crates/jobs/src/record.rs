//! The records of a job: the plain JSON files of its folder, and the facts that people and programs read in them.
//!
//! | file | written by | when | holds |
//! |---|---|---|---|
//! | `job.json` | the process that accepts, begins or settles it | by rename | a readable copy of the whole [`JobRecord`] |
//! | `launch.json` | the accepting process | once; removed when the work runs | the record, the command and its environment, which may be secret; the database has a copy until the end |
//! | `run.json` | the supervisor | before and after the work is spawned | the processes of the job: [`RunRecord`] |
//! | `exit.json` | the holder of the lock | once | the end of the job: [`EndRecord`], which is the truth |
//!
//! Invariants
//!
//! - Every file carries [`FORMAT`]; a file with a higher number is refused, not guessed at.
//! - The format of the record says where the work's files lie ([`JobFolder::work`](crate::folder::JobFolder::work)): in format 1 beside
//!   unhang's, from format 2 on in a folder of their own.
//! - Secrets are in no file but `launch.json` and its copy: records have no environment, and no words of the command that look like
//!   secrets.
//! - A state that is final never changes.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::call::{CallKeeper, CallRecord, CallTicket, Holder, repeat_advice};
use crate::{
    document::{Field, Pointer},
    id::JobId,
    room::Rules,
    timestamp::JobTimestamp,
};

mod call;

/// The version of the files' format.
pub const FORMAT: u32 = 2;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job waits for its turn.
    Queued,
    /// The job has a slot, and its supervisor is coming up.
    Starting,
    /// The job's work runs.
    Running,
    /// The job ended well.
    Completed,
    /// The job ended badly, or could not be started.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// Nobody knows how the job ended: its supervisor was killed, or the machine went down.
    Lost,
}

impl JobState {
    /// Every state, in the order of a job's life.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Lost,
    ];

    /// Returns the name that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }

    /// Returns whether the job has ended, for good.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Lost)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The error for a text that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a state of a job; the states are queued, starting, running, completed, failed, \
     cancelled and lost"
)]
pub struct NotAState(String);

impl FromStr for JobState {
    type Err = NotAState;

    fn from_str(text: &str) -> Result<Self, NotAState> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| NotAState(text.to_owned()))
    }
}

/// The reason why a job ended as it did, if its exit code does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The job ran longer than it may.
    Timeout,
    /// The job ended with code 0 and without the result file that was agreed on.
    ResultsMissing,
    /// The job's result is not JSON, or unhang cannot store it.
    ResultsInvalid,
    /// The job's command could not be started.
    StartFailed,
    /// The job's supervisor was killed, so that nobody saw the end.
    ShimKilled,
    /// The machine was started anew.
    Reboot,
    /// The job's records cannot be read.
    RecordDamaged,
    /// The client of the call has gone, and unhang ended with it.
    ClientGone,
    /// The server that worked on the call ended.
    ServerExited,
    /// The server answered with an error of the protocol.
    ServerError,
    /// The tool itself said that it failed.
    ToolError,
    /// The unhang process that waited for the answer ended.
    UnhangEnded,
    /// The stream on which the answer was to come broke off with the end of unhang, and cannot be resumed.
    StreamNotResumable,
    /// The worker that ran the job could not prolong its lease, so that another worker may have the job now.
    LeaseOver,
    /// The worker that ran the job was silent for too long.
    WorkerLost,
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Timeout => "timeout",
            Self::ResultsMissing => "results_missing",
            Self::ResultsInvalid => "results_invalid",
            Self::StartFailed => "start_failed",
            Self::ShimKilled => "shim_killed",
            Self::Reboot => "reboot",
            Self::RecordDamaged => "record_damaged",
            Self::ClientGone => "client_gone",
            Self::ServerExited => "server_exited",
            Self::ServerError => "server_error",
            Self::ToolError => "tool_error",
            Self::UnhangEnded => "unhang_ended",
            Self::StreamNotResumable => "stream_not_resumable",
            Self::LeaseOver => "lease_over",
            Self::WorkerLost => "worker_lost",
        })
    }
}

/// The change of the named state by a completed job's result (J-42).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The document that is replaced.
    pub field: Field,
    /// The part of the result that becomes the document; absent if it is the whole result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<Pointer>,
    /// Whether the document is shared by all, instead of belonging to the job's owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
}

impl JobRecord {
    /// Returns the owner of the document that the result goes to; `None` if it is shared or belongs to the data folder's owner.
    #[must_use]
    pub fn patched(&self) -> Option<&str> {
        let is_shared = self.patch.as_ref().is_some_and(|patch| patch.is_shared);
        self.owner.as_deref().filter(|_| !is_shared)
    }

    /// Takes the new value of the document that the job changes from its result, which `read` returns for the name of its file.
    ///
    /// # Errors
    /// Fails with the reason why the document stays as it is: the job changes none, the result is missing, or the pointer finds nothing.
    pub fn patched_value(
        &self,
        read: impl FnOnce(&str) -> Result<Option<Value>, String>,
    ) -> Result<Value, String> {
        let patch = self.patch.as_ref().ok_or("the job has no state field")?;
        let name = self.results.as_deref().ok_or("the job has no result file")?;
        let result = read(name)?.ok_or_else(|| format!("{name} no longer exists"))?;
        match &patch.pointer {
            None => Ok(result),
            Some(pointer) => {
                let found = pointer.find(&result).cloned();
                found.ok_or_else(|| format!("the pointer `{pointer}` matches nothing in {name}"))
            }
        }
    }
}

/// `job.json`, and the row in the database: everything about a job that may be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The job's id.
    pub job_id: JobId,
    /// The name that people see.
    pub name: String,
    /// The configured tool that made the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The job's owner, if those who start jobs are told from one another; absent for the data folder's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The facts of a call, if the job is a call of a server's tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallRecord>,
    /// The command without words that look like secrets. A call has none.
    pub command: Vec<String>,
    /// The working folder.
    pub folder: PathBuf,
    /// The names of the variables that the job got besides the plain ones. Their values are not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The result file in the work's folder, if one was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// The change of the named state by the job's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// The time that the job may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The time between SIGTERM and SIGKILL when the job has to end.
    pub stop_grace_ms: u64,
    /// The bytes on the disk for each of the two logs.
    pub log_limit: u64,
    /// The conditions under which the job may start.
    pub rules: Rules,
    /// The job's state.
    pub status: JobState,
    /// The time when the job was accepted.
    pub created_at: JobTimestamp,
    /// The time when the job's supervisor took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// The end of the job, as in `exit.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<EndRecord>,
    /// Whether the result has reached the named state; absent if no change was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_applied: Option<bool>,
    /// The reason why the result has not reached the named state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
}

impl JobRecord {
    /// Returns the time that the job may run; `None` if it has no limit.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Returns how long the job may still take at this time; `None` if it has no limit.
    #[must_use]
    pub fn time_left(&self, now: JobTimestamp) -> Option<Duration> {
        let since = now.since(self.started_at.unwrap_or(self.created_at));
        Some(self.timeout()?.saturating_sub(since))
    }

    /// Returns whether this record and the other one belong to one submission, however far the job has come.
    #[must_use]
    pub fn is_same_submission(&self, other: &Self) -> bool {
        fn identity(record: &JobRecord) -> impl PartialEq + '_ {
            (record.job_id, record.created_at, &record.command, &record.folder, &record.name, &record.owner)
        }
        identity(self) == identity(other)
    }

    /// Returns the time between SIGTERM and SIGKILL when the job has to end.
    #[must_use]
    pub fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    /// Notes how the job ended.
    pub fn end(&mut self, ending: &EndRecord) {
        self.status = ending.outcome.into();
        self.started_at = ending.started_at.or(self.started_at);
        self.ending = Some(ending.clone());
        // The answer cannot be asked for any more.
        if let Some(call) = &mut self.call {
            (call.ticket, call.keeper, call.lost_with_holder) = (None, None, None);
        }
    }
}

/// The four ways in which a job can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobEnd {
    /// The job ended well.
    Completed,
    /// The job ended badly, or could not be started.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// Nobody knows how the job ended.
    Lost,
}

impl From<JobEnd> for JobState {
    fn from(outcome: JobEnd) -> Self {
        match outcome {
            JobEnd::Completed => Self::Completed,
            JobEnd::Failed => Self::Failed,
            JobEnd::Cancelled => Self::Cancelled,
            JobEnd::Lost => Self::Lost,
        }
    }
}

/// `exit.json`: the end of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The way in which the job ended.
    pub outcome: JobEnd,
    /// The exit code of the work, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The reason, if the exit code does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The reason in words for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The time when the supervisor took the job; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// The time when the job ended, or was found to have ended.
    pub completed_at: JobTimestamp,
    /// The number of processes that the job left behind, and that were ended.
    #[serde(default)]
    pub leaked: u32,
    /// The number of processes that could not be ended in time.
    #[serde(default)]
    pub unkilled: u32,
}

impl EndRecord {
    /// Makes the ending of a job that never ran.
    #[must_use]
    pub fn without_run(outcome: JobEnd) -> Self {
        Self {
            format: FORMAT,
            outcome,
            exit_code: None,
            signal: None,
            reason: None,
            detail: None,
            started_at: None,
            completed_at: JobTimestamp::now(),
            leaked: 0,
            unkilled: 0,
        }
    }

    /// Makes the ending of a call that its server has answered.
    pub(crate) fn of_answer(is_error: bool) -> Self {
        match is_error {
            false => Self::without_run(JobEnd::Completed),
            true => Self::without_run(JobEnd::Failed)
                .because(EndReason::ToolError, "the tool answered with an error; its answer has the reason"),
        }
    }

    /// Returns the ending with this reason.
    #[must_use]
    pub fn because(self, reason: EndReason, detail: impl Into<String>) -> Self {
        Self { reason: Some(reason), detail: Some(detail.into()), ..self }
    }
}

/// The identity of a process, which no other process shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The process id.
    pub pid: u32,
    /// The start time, in the system's unit since boot; only equality means anything.
    pub start: u64,
}

/// `run.json`: the supervisor has taken the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The boot in which the identities mean something.
    pub boot_id: String,
    /// The supervisor.
    pub shim: ProcessRecord,
    /// The work; absent until it was spawned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<ProcessRecord>,
    /// The control group that holds the work, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_group: Option<PathBuf>,
    /// The lifeline of the server below which the supervisor was started, if there is one. Processes below it end with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifeline: Option<ProcessRecord>,
    /// The time when the supervisor took the job.
    pub started_at: JobTimestamp,
}

impl RunRecord {
    /// Returns whether the server below which the supervisor was started has been ended, with everything that it had started.
    pub(crate) fn has_ended_with_its_server(&self, boot_id: &str) -> bool {
        self.boot_id == boot_id
            && self
                .lifeline
                .is_some_and(|lifeline| !unhang_proc::identity::Identity::from(lifeline).is_alive())
    }
}

impl From<unhang_proc::identity::Identity> for ProcessRecord {
    fn from(identity: unhang_proc::identity::Identity) -> Self {
        Self { pid: identity.pid, start: identity.start }
    }
}

impl From<ProcessRecord> for unhang_proc::identity::Identity {
    fn from(identity: ProcessRecord) -> Self {
        Self { pid: identity.pid, start: identity.start }
    }
}

#[cfg(test)]
mod tests {
    use unhang_proc::identity::Identity;

    use super::*;
    use crate::testing::{NOBODY, call, command, ticket};

    #[test]
    fn every_state_has_a_name_that_is_read_back_and_four_states_are_final() {
        let states = [
            (JobState::Queued, "queued", false),
            (JobState::Starting, "starting", false),
            (JobState::Running, "running", false),
            (JobState::Completed, "completed", true),
            (JobState::Failed, "failed", true),
            (JobState::Cancelled, "cancelled", true),
            (JobState::Lost, "lost", true),
        ];
        assert_eq!(states.map(|(state, ..)| state), JobState::ALL);
        for (state, name, is_final) in states {
            assert_eq!((state.as_str(), state.is_final()), (name, is_final));
            assert_eq!(name.parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), name);
            assert_eq!(format!("{state:>9}|"), format!("{name:>9}|"), "a column of a table");
        }
        for text in ["", "Queued", "done"] {
            let refusal = text.parse::<JobState>().unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("`{text}` is not a state of a job")), "{refusal}");
        }
    }

    #[test]
    fn a_reason_is_called_the_same_in_a_text_and_in_a_file() {
        for (reason, name) in [
            (EndReason::Timeout, "timeout"),
            (EndReason::ResultsMissing, "results_missing"),
            (EndReason::ResultsInvalid, "results_invalid"),
            (EndReason::StartFailed, "start_failed"),
            (EndReason::ShimKilled, "shim_killed"),
            (EndReason::Reboot, "reboot"),
            (EndReason::RecordDamaged, "record_damaged"),
            (EndReason::ClientGone, "client_gone"),
            (EndReason::ServerExited, "server_exited"),
            (EndReason::ServerError, "server_error"),
            (EndReason::ToolError, "tool_error"),
            (EndReason::UnhangEnded, "unhang_ended"),
            (EndReason::StreamNotResumable, "stream_not_resumable"),
        ] {
            assert_eq!(reason.to_string(), name);
            assert_eq!(serde_json::to_value(reason).unwrap(), name);
        }
    }

    #[test]
    fn a_result_goes_to_the_document_of_the_owner_unless_it_is_shared() {
        let patch = |is_shared| Patch { field: "mesh".parse().unwrap(), pointer: None, is_shared };
        for (owner, patch, whose) in [
            (None, Some(patch(false)), None),
            (Some("ann"), Some(patch(false)), Some("ann")),
            (Some("ann"), Some(patch(true)), None),
            (Some("ann"), None, Some("ann")),
        ] {
            let record = JobRecord { owner: owner.map(Into::into), patch, ..command() };
            assert_eq!(record.patched(), whose, "{:?}", record.patch);
        }
    }

    #[test]
    fn the_times_of_a_job_are_milliseconds() {
        let record = JobRecord { timeout_ms: Some(1500), stop_grace_ms: 250, ..command() };
        assert_eq!(record.timeout(), Some(Duration::from_millis(1500)));
        assert_eq!(record.stop_grace(), Duration::from_millis(250));
        assert_eq!(command().timeout(), None);
    }

    #[test]
    fn the_time_that_is_left_counts_from_the_start() {
        let at = JobTimestamp::from_millis;
        for (started_at, timeout_ms, left) in [
            (None, Some(1000), Some(700)),
            (Some(at(200)), Some(1000), Some(900)),
            (Some(at(200)), Some(50), Some(0)),
            (Some(at(900)), Some(50), Some(50)),
            (None, None, None),
        ] {
            let record = JobRecord { created_at: at(0), started_at, timeout_ms, ..command() };
            assert_eq!(record.time_left(at(300)), left.map(Duration::from_millis), "{record:?}");
        }
    }

    #[test]
    fn an_end_sets_the_state_and_takes_ticket_and_keeper_away() {
        let [seen, told] = [5, 7].map(JobTimestamp::from_millis);
        for (outcome, status) in [
            (JobEnd::Completed, JobState::Completed),
            (JobEnd::Failed, JobState::Failed),
            (JobEnd::Cancelled, JobState::Cancelled),
            (JobEnd::Lost, JobState::Lost),
        ] {
            for (started_at, known) in [(None, seen), (Some(told), told)] {
                let mut record = call("boot", NOBODY, Some(ticket(true)));
                let identity = Holder { boot_id: "boot".to_owned(), process: NOBODY };
                record.call.as_mut().unwrap().keeper = Some(CallKeeper { identity, is_free: false });
                record.call.as_mut().unwrap().lost_with_holder = Some("the server has no ids".to_owned());
                record.started_at = Some(seen);
                let ending = EndRecord { started_at, ..EndRecord::without_run(outcome) };
                record.end(&ending);
                assert_eq!((record.status, record.started_at), (status, Some(known)));
                let call = record.call.unwrap();
                assert_eq!((record.ending, call.ticket, call.keeper), (Some(ending), None, None));
                assert_eq!(call.lost_with_holder, None);
            }
        }
        let ending = EndRecord { exit_code: Some(3), ..EndRecord::without_run(JobEnd::Failed) };
        let ending = ending.because(EndReason::Timeout, "too long");
        assert_eq!(
            (ending.outcome, ending.exit_code, ending.reason, ending.detail.as_deref()),
            (JobEnd::Failed, Some(3), Some(EndReason::Timeout), Some("too long"))
        );
    }

    #[test]
    fn a_supervisor_has_ended_with_its_server_if_the_lifeline_of_this_boot_is_dead() {
        let own = Identity::own().unwrap();
        assert_eq!(Identity::from(ProcessRecord::from(own)), own);
        for (boot_id, lifeline, has_ended) in [
            ("boot", None, false),
            ("boot", Some(own.into()), false),
            ("boot", Some(NOBODY), true),
            ("another", Some(NOBODY), false),
            ("another", Some(own.into()), false),
        ] {
            let run = RunRecord {
                format: FORMAT,
                boot_id: boot_id.to_owned(),
                shim: NOBODY,
                work: None,
                control_group: None,
                lifeline,
                started_at: JobTimestamp::now(),
            };
            assert_eq!(run.has_ended_with_its_server("boot"), has_ended, "{run:?}");
        }
    }
}
