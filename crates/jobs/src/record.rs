//! What is written about a job: the plain JSON files of its folder, and what people and programs read in them.
//!
//! | file | written by | when | holds |
//! |---|---|---|---|
//! | `job.json` | whoever accepts, begins or settles it | by rename | a readable copy of the whole [`JobRecord`] |
//! | `launch.json` | whoever accepts it | once; removed when the work runs | the record, the command and its environment, which may be secret; the database has a copy until the end |
//! | `run.json` | the shim | before and after the work is spawned | who runs it: [`RunRecord`] |
//! | `exit.json` | the holder of the lock | once | how it ended: [`EndRecord`], which is the truth |
//!
//! Invariants
//!
//! - Every file carries [`FORMAT`]; one with a higher number is refused, not guessed at.
//! - The format of the record says where the work's files lie ([`JobFolder::work`](crate::folder::JobFolder::work)): in format 1
//!   beside ours, from format 2 on in a folder of their own.
//! - Nothing secret is in any file but `launch.json` and its copy: no environment, and of the command what looks like a secret is
//!   left out.
//! - A state that is final never changes.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    document::{Field, Pointer},
    id::JobId,
    room::Rules,
    timestamp::JobTimestamp,
};

/// The version of the files' format.
pub const FORMAT: u32 = 2;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for its turn.
    Queued,
    /// It has a slot, and its shim is coming up.
    Starting,
    /// Its work runs.
    Running,
    /// It ended well.
    Completed,
    /// It ended badly, or could not be started.
    Failed,
    /// Somebody wanted it to end.
    Cancelled,
    /// Nobody knows how it ended: its shim was killed, or the machine went down.
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

    /// The name that users see.
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

    /// Whether the job has ended, for good.
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

/// A text that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no state of a job; there are queued, starting, running, completed, failed, cancelled and lost"
)]
pub struct NotAState(String);

impl FromStr for JobState {
    type Err = NotAState;

    fn from_str(text: &str) -> Result<Self, NotAState> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| NotAState(text.to_owned()))
    }
}

/// Why a job ended as it did, where its exit code does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// It ran longer than it may.
    Timeout,
    /// It ended with code 0 and without the result file that was agreed on.
    ResultsMissing,
    /// Its result file is not JSON.
    ResultsInvalid,
    /// Its command could not be started.
    StartFailed,
    /// Its shim was killed, so that nobody saw the end.
    ShimKilled,
    /// The machine was started anew.
    Reboot,
    /// Its records cannot be read.
    RecordDamaged,
    /// The client that it was for has gone, and we went with it.
    ClientGone,
    /// The server that worked on it ended.
    ServerExited,
    /// The server answered with an error of the protocol.
    ServerError,
    /// The tool itself said that it failed.
    ToolError,
    /// The unhang process that waited for the answer ended.
    UnhangEnded,
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
        })
    }
}

/// What a completed job's result does to the named state (J-42).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The document that is replaced.
    pub field: Field,
    /// Which part of the result it becomes; all of it where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<Pointer>,
    /// Whether it is a document that all have, and not the one of the job's owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
}

impl JobRecord {
    /// Whose document the result goes to.
    pub(crate) fn patched(&self) -> Option<&str> {
        let is_shared = self.patch.as_ref().is_some_and(|patch| patch.is_shared);
        self.owner.as_deref().filter(|_| !is_shared)
    }
}

/// What a job is that no command of ours works on: a tool of a server was called, and somebody waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The server, as the configuration calls it.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Whether the tool may be called once more without doing anything twice, as its server says.
    pub is_repeatable: bool,
    /// Who waits for the answer. Without a ticket nobody else will ever have it.
    pub holder: Holder,
    /// What somebody else can still have the answer with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<CallTicket>,
}

/// What the answer of a call can be had with when whoever waited for it has gone: its server keeps it, under a name of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallTicket {
    /// Which server keeps it, told from others of the same name.
    pub kept_by: String,
    /// What that server is asked with. Nobody here reads it, and nothing in it is secret.
    pub details: Value,
    /// Whoever waited has let go of it, and may live on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_free: bool,
}

/// A process of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The boot in which the identity means something.
    pub boot_id: String,
    /// The process.
    pub process: ProcessRecord,
}

/// `job.json`, and the row in the database: everything about a job that may be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its id.
    pub job_id: JobId,
    /// What people call it.
    pub name: String,
    /// The configured tool that it was made by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Whose it is, where those who start jobs are told from one another; otherwise whoever has the data folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where it is a call of a server's tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallRecord>,
    /// Its command as it may be shown: what looks like a secret is left out. A call has none.
    pub command: Vec<String>,
    /// The folder that it works in.
    pub folder: PathBuf,
    /// The names of variables that it was given besides the plain ones. Their values are not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The result file in the work's folder, where one was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// What its result does to the named state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The time between SIGTERM and SIGKILL when it has to end.
    pub stop_grace_ms: u64,
    /// Bytes on the disk for each of its two logs.
    pub log_limit: u64,
    /// When it may start.
    pub rules: Rules,
    /// Where it is.
    pub status: JobState,
    /// When it was accepted.
    pub created_at: JobTimestamp,
    /// When its shim took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// How it ended, as in `exit.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<EndRecord>,
    /// Whether its result has reached the named state; absent where nothing was agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_applied: Option<bool>,
    /// Why it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
}

impl JobRecord {
    /// How long it may run.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// The time between SIGTERM and SIGKILL when it has to end.
    #[must_use]
    pub fn stop_grace(&self) -> Duration {
        Duration::from_millis(self.stop_grace_ms)
    }

    /// Notes how the job ended.
    pub fn end(&mut self, ending: &EndRecord) {
        self.status = ending.outcome.into();
        self.started_at = ending.started_at.or(self.started_at);
        self.ending = Some(ending.clone());
        // There is nothing to be had with it any more.
        if let Some(call) = &mut self.call {
            call.ticket = None;
        }
    }
}

/// The four ways in which a job can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobEnd {
    /// It ended well.
    Completed,
    /// It ended badly, or could not be started.
    Failed,
    /// Somebody wanted it to end.
    Cancelled,
    /// Nobody knows.
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

/// `exit.json`: how a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// In which of the four ways.
    pub outcome: JobEnd,
    /// The exit code of the work, where it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that the work died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why, where the exit code does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The same for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When the shim took the job; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// When it ended, or when it was found to have ended.
    pub completed_at: JobTimestamp,
    /// Processes that it left behind, and that were ended.
    #[serde(default)]
    pub leaked: u32,
    /// Processes that could not be ended in time.
    #[serde(default)]
    pub unkilled: u32,
}

impl EndRecord {
    /// An ending of a job that never ran.
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

    /// The same, for this reason.
    #[must_use]
    pub fn because(self, reason: EndReason, detail: impl Into<String>) -> Self {
        Self { reason: Some(reason), detail: Some(detail.into()), ..self }
    }
}

/// A process, named so that no other can be taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Its number.
    pub pid: u32,
    /// When it was started, in the system's unit since boot; only equality means anything.
    pub start: u64,
}

/// `run.json`: a shim has taken the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The boot in which the identities mean something.
    pub boot_id: String,
    /// The shim.
    pub shim: ProcessRecord,
    /// The work; absent until it was spawned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<ProcessRecord>,
    /// The control group that holds the work, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_group: Option<PathBuf>,
    /// The lifeline of the server that the shim was started below, where there is one: what is below it ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifeline: Option<ProcessRecord>,
    /// When the shim took the job.
    pub started_at: JobTimestamp,
}

impl RunRecord {
    /// Whether the server that the shim was started below has been ended, with everything that it had started.
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
