//! What stands behind the sessions of one front: tools, servers, jobs, and where their requests are counted and traced.
//!
//! Invariant: a context holds handles alone. Nothing in it is of one session, but for the servers and the caller that
//! [`SessionContext::for_session`] and [`SessionContext::called_by`] put in.

use std::sync::Arc;

use super::{jobs::SessionJobs, tally::FrontTally};
use unhang_core::telemetry::Telemetry;
use unhang_gateway::{FairnessKey, MayRead, Servers};
use unhang_tools::{Toolbox, service::Caller};

/// What stands behind sessions. Clones are the same.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub toolbox: Arc<dyn Toolbox>,
    pub servers: Option<Servers>,
    /// What there is of jobs.
    pub jobs: Option<SessionJobs>,
    /// Those who come are windows, which make jobs of calls themselves.
    are_windows: bool,
    /// Whose jobs those are that begin here.
    pub caller: Caller,
    pub instructions: Option<Arc<str>>,
    /// What is counted of all sessions in front of it.
    pub tally: Arc<FrontTally>,
    /// Where its requests are told, where somebody wants to see them, and what carries them there.
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
            are_windows: false,
            caller: Caller::owner(),
            instructions,
            tally,
            telemetry,
            transport: "tcp",
        }
    }

    /// The same for somebody who begins now, with instances of their own of servers that are not shared. `owner` is who that is, where
    /// they are told from others by more than their session.
    pub(super) fn for_session(&self, owner: Option<FairnessKey>, may_read: MayRead) -> SessionContext {
        self.with(self.servers.as_ref().map(|servers| servers.for_session_of(owner, may_read)))
    }

    /// The same with these servers.
    pub(super) fn with(&self, servers: Option<Servers>) -> SessionContext {
        SessionContext { servers, ..self.clone() }
    }

    /// The same with jobs behind it.
    pub(super) fn with_jobs(self, jobs: Option<SessionJobs>) -> SessionContext {
        SessionContext { jobs, ..self }
    }

    /// The same for windows.
    pub(super) fn of_windows(self) -> SessionContext {
        SessionContext { are_windows: true, ..self }
    }

    pub(super) fn are_windows(&self) -> bool {
        self.are_windows
    }

    /// The same for this caller.
    pub(super) fn called_by(self, caller: Caller) -> SessionContext {
        SessionContext { caller, ..self }
    }

    /// The same, told there.
    pub(super) fn traced_by(self, telemetry: Option<Telemetry>, transport: &'static str) -> SessionContext {
        SessionContext { telemetry, transport, ..self }
    }
}
