//! The status of a server for the operator, and its last failure.
//!
//! Invariants: a server's status holds none of its secrets. The output that is kept of a server is bounded. Counts of an instance stay when
//! the instance has gone.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use unhang_jobs::timestamp::JobTimestamp;

use unhang_core::{breaker::BreakerPhase, config::TAIL_LINES, fault::FaultKind, secrets::Secrets};
use unhang_upstream::client::{Error, Failure};

/// The status of a server, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's name.
    pub name: String,
    /// The state of the server; if each session has an instance of its own, the state of the best instance.
    pub state: ServerState,
    /// The number of running instances: several, if each session has an instance of its own.
    pub instances: usize,
    /// The eras that its running processes or connections speak: `legacy`, `modern`, or both. Each era has a process or connection of its own.
    pub eras: Vec<&'static str>,
    /// The number of starts.
    pub starts: u64,
    /// The number of starts after the first.
    pub restarts: u64,
    /// Requests that the server has not answered.
    pub in_flight: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Failures in a row since the last answer, of the instance that has most.
    pub failures: u32,
    /// Failures since the beginning: ends and failed starts, each counted when it happens.
    pub failures_total: u64,
    /// Whether the server, or an instance of it, is left alone, and until when.
    pub breaker: BreakerStatus,
    /// Lines on its stdout that were not messages.
    pub junk_lines: u64,
    /// Tools that it offers.
    pub tools: usize,
    /// Prompts that it offers.
    pub prompts: usize,
    /// Resources that it offers.
    pub resources: usize,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The time of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<JobTimestamp>,
    /// The last end of its process, if the process ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// The last lines on its stderr when it last failed or ended, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr_tail: Vec<String>,
}

impl ServerStatus {
    /// Removes the texts that the server wrote, and those that say what went wrong with it.
    pub fn leave_out_words(&mut self) {
        (self.last_error, self.last_error_at, self.last_exit) = (None, None, None);
        self.stderr_tail.clear();
    }
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerState {
    /// The server is there, or is starting.
    Running,
    /// The server is not there, and starts when it is asked.
    Ended,
    /// The server failed too often, and is left alone for a while.
    FencedOff,
}

impl ServerState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Running, Self::Ended, Self::FencedOff];

    /// Returns the word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::FencedOff => "fenced_off",
        }
    }
}

/// Whether a server that kept failing is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct BreakerStatus {
    /// The state of the breaker.
    pub state: BreakerState,
    /// The end of the time for which the server is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<JobTimestamp>,
}

/// Whether a server that kept failing is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakerState {
    /// The server may be asked.
    Closed,
    /// The server is left alone.
    Open,
    /// One request may try, or is trying.
    Trial,
}

impl From<BreakerPhase> for BreakerStatus {
    fn from(phase: BreakerPhase) -> Self {
        match phase {
            BreakerPhase::Closed => Self { state: BreakerState::Closed, until: None },
            BreakerPhase::Open(rest) => {
                let rest = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
                let until = JobTimestamp::from_millis(JobTimestamp::now().millis().saturating_add(rest));
                Self { state: BreakerState::Open, until: Some(until) }
            }
            BreakerPhase::Trial => Self { state: BreakerState::Trial, until: None },
        }
    }
}

/// The status of one process or connection of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceStatus {
    pub is_running: bool,
    /// The server failed too often, and has not been tried since.
    pub is_fenced_off: bool,
    pub in_flight: usize,
    pub waiting: usize,
    pub failures: u32,
    pub breaker: BreakerPhase,
}

impl InstanceStatus {
    /// Returns the status of two instances of the same server as one.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            is_running: self.is_running || other.is_running,
            is_fenced_off: self.is_fenced_off || other.is_fenced_off,
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
            failures: self.failures.max(other.failures),
            breaker: worse(self.breaker, other.breaker),
        }
    }

    pub(super) fn state(&self) -> ServerState {
        match self.is_running {
            true => ServerState::Running,
            false if self.is_fenced_off => ServerState::FencedOff,
            false => ServerState::Ended,
        }
    }
}

/// Returns the breaker that is open for longest, or nearest to that.
fn worse(one: BreakerPhase, other: BreakerPhase) -> BreakerPhase {
    match (one, other) {
        (BreakerPhase::Open(one), BreakerPhase::Open(other)) => BreakerPhase::Open(one.max(other)),
        (BreakerPhase::Open(rest), _) | (_, BreakerPhase::Open(rest)) => BreakerPhase::Open(rest),
        (BreakerPhase::Trial, _) | (_, BreakerPhase::Trial) => BreakerPhase::Trial,
        (BreakerPhase::Closed, BreakerPhase::Closed) => BreakerPhase::Closed,
    }
}

/// The counts and the last failure of a server and of every instance of it that there ever was.
#[derive(Debug, Default)]
pub(super) struct ServerRecord {
    counts: Arc<ServerCounts>,
    last_failure: Mutex<LastFailure>,
    /// The log says that the server works on one call at a time.
    is_told_of_serial_work: AtomicBool,
}

/// The counts of all servers of one name, whatever the configuration said of them at the time.
#[derive(Debug, Default)]
struct ServerCounts {
    starts: AtomicU64,
    restarts: AtomicU64,
    failures: AtomicU64,
    junk_lines: AtomicU64,
}

impl ServerRecord {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { last_failure: Mutex::new(LastFailure::new(secrets)), ..Self::default() }
    }

    /// Makes the record of the server that replaces this one in a new configuration: the counts stay.
    pub(super) fn of_successor(&self, secrets: Secrets) -> Self {
        Self { counts: Arc::clone(&self.counts), ..Self::new(secrets) }
    }

    /// Returns whether the log says that the server works on one call at a time.
    pub(super) fn is_told_of_serial_work(&self) -> bool {
        self.is_told_of_serial_work.load(Ordering::Relaxed)
    }

    /// Notes that the log says so. Returns whether it did not before.
    pub(super) fn tell_of_serial_work(&self) -> bool {
        !self.is_told_of_serial_work.swap(true, Ordering::Relaxed)
    }

    /// Notes a start. `again` says that it is not the first.
    pub(super) fn started(&self, again: bool) {
        self.counts.starts.fetch_add(1, Ordering::Relaxed);
        self.counts.restarts.fetch_add(again.into(), Ordering::Relaxed);
    }

    /// Notes a failure.
    pub(super) fn failed(&self) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the server wrote `lines` lines to its stdout that were not messages.
    pub(super) fn wrote_junk(&self, lines: u64) {
        self.counts.junk_lines.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn last_failure(&self) -> MutexGuard<'_, LastFailure> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the status of the server `name`, of which `instances` instances run.
    pub(super) fn status(&self, name: &str, now: InstanceStatus, instances: usize) -> ServerStatus {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let status = ServerStatus {
            name: name.to_owned(),
            state: now.state(),
            instances,
            starts: count(&self.counts.starts),
            restarts: count(&self.counts.restarts),
            in_flight: now.in_flight,
            waiting: now.waiting,
            failures: now.failures,
            failures_total: count(&self.counts.failures),
            breaker: now.breaker.into(),
            eras: Vec::new(),
            junk_lines: count(&self.counts.junk_lines),
            tools: 0,
            prompts: 0,
            resources: 0,
            last_error: None,
            last_error_at: None,
            last_exit: None,
            stderr_tail: Vec::new(),
        };
        self.last_failure().tell(status)
    }
}

/// The last failure of a server.
#[derive(Debug, Default)]
pub(super) struct LastFailure {
    secrets: Secrets,
    error: Option<(FailureTexts, JobTimestamp)>,
    exit: Option<String>,
    stderr_tail: Vec<String>,
}

/// A failure, in words for different readers.
#[derive(Clone, Debug)]
struct FailureTexts {
    /// What happened, and what to do.
    whole: String,
    /// What happened alone.
    cause: String,
    /// The same for a reader who may not see what the server wrote.
    unquoted: String,
}

impl LastFailure {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// Notes a failure that has just happened.
    pub(super) fn note(&mut self, error: &Error) {
        match error {
            Error::Failure(failure) => self.note_failure(failure, JobTimestamp::now()),
            error => {
                let whole = self.secrets.hide(&error.to_string()).into_owned();
                let (cause, unquoted) = (whole.clone(), whole.clone());
                self.error = Some((FailureTexts { whole, cause, unquoted }, JobTimestamp::now()));
            }
        }
    }

    /// Notes the end of the process or connection that began at `started`. The failure says how long after that the end came.
    pub(super) fn note_end(&mut self, failure: &Failure, started: JobTimestamp) {
        let after = u64::try_from(failure.elapsed.as_millis()).unwrap_or(u64::MAX);
        let at = JobTimestamp::from_millis(started.millis().saturating_add(after));
        // A caller that was waiting has told of the end already, and knows for which request.
        if self.error.as_ref().is_none_or(|(_, known)| at.since(*known) > Duration::ZERO) {
            self.note_failure(failure, at);
        }
    }

    fn note_failure(&mut self, failure: &Failure, at: JobTimestamp) {
        if matches!(failure.kind, FaultKind::BreakerOpen | FaultKind::Cancelled | FaultKind::ShuttingDown) {
            // Such an error says nothing new about the server.
            return;
        }
        let hidden = |text: &String| self.secrets.hide(text).into_owned();
        let exit = failure.exit.as_ref().map(hidden);
        let tail = &failure.evidence.stderr_tail;
        let tail: Vec<String> = tail[tail.len().saturating_sub(TAIL_LINES)..].iter().map(hidden).collect();
        let told = FailureTexts {
            whole: hidden(&failure.to_string()),
            cause: hidden(&failure.fault().cause()),
            unquoted: hidden(&failure.clone().unquoted().fault().cause()),
        };
        self.error = Some((told, at));
        if exit.is_some() {
            self.exit = exit;
        }
        // A verdict of ours that has no evidence takes none away.
        if !tail.is_empty() || failure.kind == FaultKind::ServerExited {
            self.stderr_tail = tail;
        }
    }

    /// Returns the last failure, for a reader who may see what the server wrote, or may not.
    pub(super) fn last(&self, may_read: bool) -> Option<&str> {
        let last = self.error.as_ref().map(|(told, _)| told);
        last.map(|told| if may_read { &*told.cause } else { &*told.unquoted })
    }

    /// Adds the last failure to a status.
    pub(super) fn tell(&self, status: ServerStatus) -> ServerStatus {
        let (last_error, last_error_at) =
            self.error.as_ref().map(|(told, at)| (told.whole.clone(), *at)).unzip();
        let (last_exit, stderr_tail) = (self.exit.clone(), self.stderr_tail.clone());
        ServerStatus { last_error, last_error_at, last_exit, stderr_tail, ..status }
    }
}
