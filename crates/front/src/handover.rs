//! A call that is handed over as a job before its client gives it up: when, and what the client gets in place of the answer.
//!
//! Theory of operation. A call that may become a job knows the moment of its hand-over. Then the owner is asked to
//! make a job of it ([`Action::Promote`]), which takes a write to the disk, and the call is in flight until its real limit, as it would be
//! if nothing had happened: where no job comes of it the client is none the worse. Whichever comes first is the answer: the server's own,
//! or the job ([`Machine::promoted`]). A client that has asked for a task (2025-11-25) may get nothing else: its call is a job before the
//! server is asked, and refused where none comes of it.
//!
//! Invariants
//!
//! - The client gets one answer, and the id of a job only when it is durable.
//! - To the server nothing has happened.
//! - While the client is asked something about the call it stays a call: somebody is at it. About a call that is a task from the first
//!   on the client is asked nothing before that.

use std::{borrow::Cow, time::Duration};

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_switches::stands;
use unhang_wire::{Id, Json};

use super::{
    answers::{implementation, own_result},
    machine::{Action, Call, CallKey, Machine, Outside},
    requests::{Request, capabilities},
    tasks::{POLL_INTERVAL, TaskView},
};
use unhang_background::WhoIsAsked;
use unhang_core::{promotion::Promotion, revision::Revision};
use unhang_tools::{handed_over, job_report::JobReport};

/// When a call that somebody is asked about is looked at again.
const WHILE_ASKED: Duration = Duration::from_secs(1);

/// How a call becomes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandOver {
    /// When; never, where this says nothing.
    pub at: Option<Duration>,
    /// What its client gets.
    pub skin: Skin,
}

/// What a client gets in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skin {
    /// A result for its model, in plain words, with the same for programs.
    Words,
    /// A task.
    Task(Dialect),
}

impl Skin {
    /// What the client of a call with these params can cope with.
    pub fn of(params: Json<'_>, revision: Revision) -> Skin {
        let dialect = match revision {
            Revision::V2025November => tasks::wanted(params).map(|_| Dialect::Core),
            _ if revision.is_stateless() => {
                capabilities(params).filter(|offered| tasks::declares(*offered)).map(|_| Dialect::Extension)
            }
            _ => None,
        };
        dialect.map_or(Skin::Words, Skin::Task)
    }

    /// The result of a call of this tool, as a client of this revision has it, which goes on as a job that is kept for so long after its
    /// end.
    pub fn result(self, report: &JobReport, tool: &str, revision: Revision, ttl: Option<Duration>) -> String {
        match self {
            Skin::Words => own_result(handed_over(report, tool).to_json(revision), revision),
            Skin::Task(dialect) => {
                let view = TaskView::of(report, ttl, POLL_INTERVAL);
                let said = format!(
                    "`{tool}` goes on in the background as task {}; its result comes when it is done.",
                    report.job_id
                );
                let server = implementation().to_string();
                tasks::created(dialect, &view.task(), Some(&said), Some(&server))
            }
        }
    }

    /// The params of a call as its server is to have them: whether it becomes a task is between the client and us.
    pub fn without_task(self, params: Json<'_>) -> Option<String> {
        if self != Skin::Task(Dialect::Core) {
            return None;
        }
        Splice::new(params).remove("task").apply().map(Cow::into_owned)
    }
}

impl HandOver {
    /// It does not.
    pub(super) fn never() -> Self {
        Self { at: None, skin: Skin::Words }
    }

    /// Its client wants a task of what becomes none.
    pub(super) fn is_refused(self) -> bool {
        self.at.is_none() && self.skin == Skin::Task(Dialect::Core)
    }

    /// What the server is asked: whether it becomes a task is between the client and us.
    pub(super) fn asked(self, params: String) -> String {
        let json = Json::new(params.as_bytes()).filter(|_| self.at.is_some());
        let without = json.and_then(|params| self.skin.without_task(params));
        without.unwrap_or(params)
    }
}

impl Machine {
    /// What the client of this call can cope with.
    pub(super) fn skin(&self, request: &Request<'_>, revision: Revision) -> Skin {
        let params = request.params.filter(|_| self.jobs.are_there);
        params.map_or(Skin::Words, |params| Skin::of(params, revision))
    }

    /// How a call of a server's tool becomes a job that may take so long as a call.
    pub(super) fn hand_over(
        &self,
        request: &Request<'_>,
        revision: Revision,
        promotion: Promotion,
        limit: Duration,
    ) -> HandOver {
        let skin = self.skin(request, revision);
        let promotion = if self.jobs.promotes { promotion } else { Promotion::Off };
        let after = promotion.moment(self.clock(request, revision));
        let after = match skin {
            // It is what its client has asked for, which waits for that alone.
            Skin::Task(Dialect::Core) => after.map(|_| Duration::ZERO),
            _ => after.map(|after| after.saturating_sub(request.waited)).filter(|after| *after < limit),
        };
        HandOver { at: after.map(|after| self.now + after), skin }
    }

    /// Whether the client of this call has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(&self, key: CallKey) -> bool {
        let call = self.running.get(&key).and_then(Option::as_ref).and_then(|id| self.calls.get(id));
        call.is_some_and(|call| call.hand_over.skin == Skin::Task(Dialect::Core))
    }

    /// A job is to be made of this call, where it is time for that.
    pub(super) fn hand_over_where_due(&mut self, id: &Id) {
        let is_due = |call: &&Call| call.hand_over.at.is_some_and(|at| at <= self.now);
        let Some(call) = self.calls.get(id).filter(is_due) else { return };
        let is_asked = self.is_asked_about(call) && stands("asked-call-stays-a-call");
        let Some(call) = self.calls.get_mut(id) else { return };
        let again = self.now + WHILE_ASKED;
        call.hand_over.at = Some(again).filter(|again| is_asked && *again < call.last_moment());
        if call.hand_over.at.is_none() {
            let (key, name) = (call.key, call.awaited.name().to_owned());
            let elapsed = self.now.saturating_sub(call.since);
            self.actions.push_back(Action::Promote { key, name, elapsed });
        }
    }

    /// Whether the client of this call is being asked something about it, beside it or by its answer.
    pub(super) fn is_asked(&self, key: CallKey) -> bool {
        let call = self.running.get(&key).and_then(Option::as_ref).and_then(|id| self.calls.get(id));
        let is_asked = call.is_some_and(|call| self.is_asked_about(call)) || self.parking.call(key).is_some();
        is_asked && stands("asked-call-stays-a-call")
    }

    /// A call is a job now, on the disk. Says who can be asked about it from now on; nothing where its client waits for nothing any more.
    pub fn promoted(
        &mut self,
        now: Duration,
        key: CallKey,
        report: &JobReport,
        outside: &mut impl Outside,
    ) -> Option<WhoIsAsked> {
        self.now = now;
        let id = self.over(key, outside);
        let call = id.as_ref().and_then(|id| self.calls.cancel(id));
        if let (Some(id), Some(call)) = (&id, &call) {
            tracing::info!(
                session = self.session_name.as_deref(),
                client = self.client.as_deref(),
                job = report.job_id.as_str(),
                "`{}` goes on as a job",
                call.awaited.name()
            );
            self.hand_over_as(id, call, report, outside);
        }
        self.check_drained(outside);
        self.check_stopped();
        call.map(|call| self.who_is_asked(&call))
    }

    fn who_is_asked(&self, call: &Call) -> WhoIsAsked {
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let said = session.map(|signature| signature.client_capabilities.as_str());
        let said = said.or_else(|| call.awaited.introduced().map(|introduced| &*introduced.offers));
        match call.hand_over.skin {
            Skin::Words => WhoIsAsked::Nobody,
            Skin::Task(_) => WhoIsAsked::Followers(said.unwrap_or("{}").into()),
        }
    }

    /// Answers a call with the job that it has become.
    pub(super) fn hand_over_as(
        &mut self,
        id: &Id,
        call: &Call,
        report: &JobReport,
        outside: &mut impl Outside,
    ) {
        let result = call.hand_over.skin.result(report, call.awaited.name(), call.revision, self.jobs.ttl);
        self.answer_raw(id, call.way, &result, outside);
    }
}
