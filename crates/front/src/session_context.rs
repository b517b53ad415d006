//! The context of all sessions of one front: tools, servers, jobs, counters and traces.
//!
//! Invariant: a context holds handles alone. Nothing in it belongs to one session, except for the servers and the caller that
//! [`SessionContext::for_session`] and [`SessionContext::called_by`] set.

use std::sync::Arc;

use super::{jobs::SessionJobs, tally::FrontTally, window_questions::WindowQuestions};
use unhang_core::telemetry::Telemetry;
use unhang_gateway::{FairnessKey, MayRead, Servers};
use unhang_tools::{Toolbox, service::Caller};

/// The context of sessions. Clones share its parts.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub toolbox: Arc<dyn Toolbox>,
    pub servers: Option<Servers>,
    /// The jobs, if there are any.
    pub jobs: Option<SessionJobs>,
    /// The questions to windows, if the clients are windows, which make jobs of calls themselves.
    pub window_questions: Option<Arc<WindowQuestions>>,
    /// The jobs that are made of calls of windows when they order it.
    pub window_jobs: Option<SessionJobs>,
    /// The owner of the jobs that begin here.
    pub caller: Caller,
    pub instructions: Option<Arc<str>>,
    /// The counters of all sessions of this front.
    pub tally: Arc<FrontTally>,
    /// The exporter of traces, if there is one, and the transport that they name.
    pub telemetry: Option<Telemetry>,
    pub transport: &'static str,
}

impl SessionContext {
    pub(super) fn new(
        toolbox: Arc<dyn Toolbox>,
        servers: Option<Servers>,
        instructions: Option<String>,
    ) -> SessionContext {
        let instructions = instructions.map(Into::into);
        let (tally, telemetry) = (Arc::default(), None);
        SessionContext {
            toolbox,
            servers,
            jobs: None,
            window_questions: None,
            window_jobs: None,
            caller: Caller::owner(),
            instructions,
            tally,
            telemetry,
            transport: "tcp",
        }
    }

    /// Returns the context of a session that begins now, with its own instances of servers that are not shared. `owner` is the identity of
    /// its client, if it has one beyond the session.
    pub(super) fn for_session(&self, owner: Option<FairnessKey>, may_read: MayRead) -> SessionContext {
        self.with(self.servers.as_ref().map(|servers| servers.for_session_of(owner, may_read)))
    }

    /// Returns the same context with these servers.
    pub(super) fn with(&self, servers: Option<Servers>) -> SessionContext {
        SessionContext { servers, ..self.clone() }
    }

    /// Adds jobs behind the sessions.
    pub(super) fn with_jobs(self, jobs: Option<SessionJobs>) -> SessionContext {
        SessionContext { jobs, ..self }
    }

    /// Marks the clients as windows. Without `jobs`, no job is made of their calls here.
    pub(super) fn of_windows(self, jobs: Option<SessionJobs>) -> SessionContext {
        SessionContext { window_questions: Some(Arc::default()), window_jobs: jobs, ..self }
    }

    pub(super) fn are_windows(&self) -> bool {
        self.window_questions.is_some()
    }

    /// Sets the caller.
    pub(super) fn called_by(self, caller: Caller) -> SessionContext {
        SessionContext { caller, ..self }
    }

    /// Sets the exporter of traces and the transport that they name.
    pub(super) fn traced_by(self, telemetry: Option<Telemetry>, transport: &'static str) -> SessionContext {
        SessionContext { telemetry, transport, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use unhang_background::EngineService;
    use unhang_jobs::error::JobError;
    use unhang_tools::toolbox::NoTools;

    use super::*;

    #[tokio::test]
    async fn a_context_has_what_it_was_given_and_belongs_to_the_owner_until_a_caller_is_set() {
        let context = SessionContext::new(Arc::new(NoTools), None, Some("Call echo.".to_owned()));
        assert_eq!(context.instructions.as_deref(), Some("Call echo."));
        assert_eq!((context.caller.name(), context.are_windows(), context.transport), (None, false, "tcp"));
        assert!(context.jobs.is_none() && context.servers.is_none() && context.telemetry.is_none());
        let unusable = Err(JobError::NoSuchJob("abcdefgh2345".parse().expect("an id")));
        let service = Arc::new(EngineService::new(unusable, BTreeMap::new()));
        let jobs = SessionJobs { service: Arc::clone(&service), tells_callers_apart: true };
        let context = context.with_jobs(Some(jobs)).called_by(Caller::called("one")).of_windows(None);
        let context = context.traced_by(None, "pipe").for_session(None, MayRead::never());
        let kept = context.jobs.as_ref().expect("jobs");
        assert!(Arc::ptr_eq(&kept.service, &service) && kept.tells_callers_apart);
        assert_eq!((context.caller.name(), context.are_windows()), (Some("one"), true));
        assert_eq!(context.transport, "pipe");
        let servers = Servers::start(Vec::new().into());
        assert!(context.with(Some(servers.clone())).servers.is_some());
        assert!(SessionContext { servers: Some(servers), ..context }.with(None).servers.is_none());
    }
}
