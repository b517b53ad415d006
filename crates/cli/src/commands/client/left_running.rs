//! Calls that go on in the background after a command has stopped waiting: whether each lives on, and which command fetches its result.
//!
//! Invariant: a message says that a call lives on only if that is certain. Either its server does not end with this command, or the data
//! folder says that the job runs.

use std::time::Duration;

use serde_json::Value;
use tokio::{task::spawn_blocking, time::timeout};
use unhang::{
    client::{Background, Error, UnfinishedCall},
    guard::Stop,
    jobs::{
        engine::{Engine, EngineOptions, JobStatus},
        id::JobId,
        record::JobState,
    },
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::ClientContext;
use crate::commands::engine;

/// The time that the data folder may take to tell the state of a job.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// A call that goes on in the background.
pub(super) struct BackgroundCall {
    unfinished: UnfinishedCall,
    /// Whether this command did not start its server, which then does not end with the command.
    is_remote: bool,
    /// The signal that ended the wait; `None` if the wait took too long.
    stop: Option<Stop>,
}

/// The fate of the call.
enum BackgroundFate {
    /// The call goes on, and this command line fetches its result.
    GoesOn(String),
    /// The call has completed since.
    Completed,
    /// The call is over, or will be when its server ends, for this reason.
    Ends(&'static str),
    /// The server ends with this command, and this command line shows whether the call does too. It depends on the machine whether jobs
    /// outlive their server.
    Uncertain(String),
}

impl ClientContext<'_> {
    /// Makes a failure of an error. A call that goes on in the background is kept until its fate is known.
    pub(super) fn failed(&self, error: Error) -> CommandFailure {
        if let Error::Unfinished(unfinished) = &error {
            self.left.replace(BackgroundCall::behind(&error, self.is_remote(&unfinished.server)));
        }
        CommandFailure::from(error)
    }
}

impl BackgroundCall {
    /// Returns the call that this error leaves behind at a server, which may be remote. Returns `None` for any other error.
    pub(super) fn behind(error: &Error, is_remote: bool) -> Option<Self> {
        let Error::Unfinished(unfinished) = error else { return None };
        Some(BackgroundCall { unfinished: UnfinishedCall::clone(unfinished), is_remote, stop: None })
    }

    /// Makes the call that is left behind because the command has to end.
    pub(super) fn broken_off(unfinished: UnfinishedCall, is_remote: bool, stop: Stop) -> Self {
        BackgroundCall { unfinished, is_remote, stop: Some(stop) }
    }

    /// Makes the failure to print after the servers that were started have ended.
    pub(super) async fn told(self) -> CommandFailure {
        let fate = match self.found().await {
            Some(status) if status.record.status == JobState::Completed => BackgroundFate::Completed,
            Some(status) if status.record.status.is_final() => {
                BackgroundFate::Ends("it ended with the server, which this command had started")
            }
            Some(_) => BackgroundFate::GoesOn(self.command_here()),
            None => self.foreseen("it ended with the server, which this command had started"),
        };
        self.with(fate)
    }

    /// Makes the failure to print while the servers still run.
    pub(super) async fn told_beforehand(self) -> CommandFailure {
        let ends = "it ends with the server, which this command has started";
        let fate = match self.found().await {
            Some(status) if status.record.call.is_none() => BackgroundFate::Uncertain(self.look_here()),
            _ => self.foreseen(ends),
        };
        self.with(fate)
    }

    /// Finds the job in the data folder of this command. Returns `None` if its server is elsewhere.
    async fn found(&self) -> Option<JobStatus> {
        if self.is_remote || matches!(self.unfinished.what, Background::CancelledTask) {
            return None;
        }
        let id: JobId = self.unfinished.job.parse().ok()?;
        let options = EngineOptions { keeps_recorded_limits: true, ..engine::options(&[]).ok()? };
        let opened = spawn_blocking(move || {
            // If no job folder exists, the command must not make one.
            let is_there = options.folder.join("jobs").join(id.as_str()).is_dir();
            is_there.then(|| Engine::open(options).ok()).flatten().map(|(engine, _)| engine)
        });
        let engine = timeout(LOOK_LIMIT, opened).await.ok()?.ok()??;
        let status = engine.status(id).await.ok();
        if let Ok(Err(error)) = timeout(LOOK_LIMIT, engine.close()).await {
            tracing::warn!("{error}");
        }
        status
    }

    fn foreseen(&self, ends: &'static str) -> BackgroundFate {
        let UnfinishedCall { server, job, what, .. } = &self.unfinished;
        match what {
            Background::CancelledTask => {
                BackgroundFate::Ends("unhang told the server that no client waits for it any more")
            }
            Background::Call(tool) | Background::Command(tool) if self.is_remote => BackgroundFate::GoesOn(
                format!("unhang call {} {} job_id={job}", escaped(server), escaped(tool)),
            ),
            _ if self.is_remote => {
                BackgroundFate::GoesOn(format!("unhang read {} job://{job}", escaped(server)))
            }
            Background::Command(_) => BackgroundFate::Uncertain(format!(
                "{}, with UNHANG_HOME as the server has it,",
                self.look_here()
            )),
            _ => BackgroundFate::Ends(ends),
        }
    }

    fn command_here(&self) -> String {
        let job = &self.unfinished.job;
        format!("unhang job wait {job}, then unhang job result {job},")
    }

    fn look_here(&self) -> String {
        format!("unhang job show {}", self.unfinished.job)
    }

    fn with(&self, fate: BackgroundFate) -> CommandFailure {
        let base = CommandFailure::from(Error::Unfinished(Box::new(self.unfinished.clone())));
        let base = match self.stop {
            Some(stop) => CommandFailure {
                code: stop.exit_code(),
                kind: "interrupted",
                message: self.unfinished.running(),
                ..base
            },
            None => base,
        };
        let mut data = base.data.unwrap_or_default();
        if self.stop.is_some() {
            data["kind"] = Value::from(base.kind);
        }
        let (message, hint) = match fate {
            BackgroundFate::GoesOn(command) => {
                data["goes_on"] = Value::from(true);
                (format!("{}; it continues", base.message), format!("{command} fetches its result"))
            }
            BackgroundFate::Completed => (
                format!("{}; it has completed since", base.message),
                format!("unhang job result {} prints its result", self.unfinished.job),
            ),
            BackgroundFate::Uncertain(command) => (
                format!("{}; its server ends with this command", base.message),
                format!("{command} says whether the job continues"),
            ),
            BackgroundFate::Ends(how) => {
                data["goes_on"] = Value::from(false);
                let outlive = "calls of a server that keeps running, such as one behind `unhang serve --http`, \
                    outlive the command that makes them";
                let raise = if self.stop.is_none() { "raise --call-timeout; " } else { "" };
                (format!("{}; {how}", base.message), format!("{raise}{outlive}"))
            }
        };
        data["hint"] = Value::from(hint.as_str());
        CommandFailure {
            code: base.code,
            kind: base.kind,
            message: escaped(&message),
            hint: Some(hint),
            data: Some(data),
        }
    }
}
