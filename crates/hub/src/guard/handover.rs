//! Calls that are handed over as jobs before their clients give them up, while the server goes on with them undisturbed.
//!
//! Theory of operation. A call that may become a job knows the moment ([`HandOver`]). Then the owner is asked to make a job of it
//! ([`Action::Promote`]), which takes a write to the disk, and meanwhile it is a call like any other: whichever comes first is the answer, the
//! server's own or the job ([`Machine::promoted`]). From then on it stays in flight under its id on the server's side, and who keeps the job
//! takes the place of the client ([`Outside::to_job`]).
//!
//! # Invariants
//!
//! - The client gets one answer, and the id of a job only when the owner has said that there is one.
//! - To the server nothing has happened.
//! - What is a job keeps nobody waiting: neither the end of the session nor what a client wants to hear only between calls.
//! - While the client is asked something it may be about the call, which stays one.

use std::time::Duration;

use unhang_switches::stands;
use unhang_wire::{Id, Json};

use super::machine::{Call, Era, Held, JobNews, Link, Machine, Outside, Role};
use crate::revision::Revision;

/// When a call is looked at again while the client is asked something.
const WHILE_ASKED: Duration = Duration::from_secs(1);

/// When a job is made of a call, and of what.
#[derive(Debug)]
pub(super) struct HandOver {
    /// When; not any more, where this says nothing.
    pub at: Option<Duration>,
    params: Box<[u8]>,
}

/// A call that a job is to be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promote {
    /// Its id on the server's side.
    pub call: Id,
    /// Its params, as they came.
    pub params: Box<[u8]>,
    /// For how long its client has waited.
    pub elapsed: Duration,
}

impl Call {
    /// What a job is to be made of, where it is time for that.
    pub(super) fn order_where_due(
        &mut self,
        wire_id: &Id,
        now: Duration,
        client_is_asked: bool,
    ) -> Option<Box<Promote>> {
        let hand_over = self.hand_over.as_mut()?;
        hand_over.at.filter(|at| *at <= now)?;
        let again = now + WHILE_ASKED;
        let is_asked = client_is_asked && stands("guarded-asked-call-stays-a-call");
        hand_over.at =
            Some(again).filter(|again| is_asked && self.deadline.is_none_or(|deadline| *again < deadline));
        if hand_over.at.is_some() {
            return None;
        }
        let params = std::mem::take(&mut hand_over.params);
        let elapsed = now.saturating_sub(self.since);
        Some(Promote { call: wire_id.clone(), params, elapsed }.into())
    }
}

impl Machine {
    /// The same, with somebody who keeps jobs.
    #[must_use]
    pub fn with_jobs(self) -> Machine {
        Machine { makes_jobs: true, ..self }
    }

    /// When a request becomes a job that may take so long as a call; never, for most.
    pub(super) fn hand_over_of(
        &self,
        method: &str,
        params: Option<Json<'_>>,
        limit: Option<Duration>,
    ) -> Option<Box<HandOver>> {
        let params = params.filter(|_| method == "tools/call" && self.makes_jobs)?;
        let after = self.limits.promote_after.moment(self.call_clock)?;
        // A task is between the client and a server that has some.
        let is_task = params.member("task").is_some();
        let is_in_time = limit.is_none_or(|limit| after < limit);
        (is_in_time && !is_task)
            .then(|| HandOver { at: Some(self.now + after), params: params.get().as_bytes().into() }.into())
    }

    /// Enters the first moment at which anything is to be done about a call.
    pub(super) fn look_at_its_moment(&mut self, wire_id: &Id) {
        if let Some(next) = self.calls.get(wire_id).and_then(Call::next_moment) {
            self.calls.postpone(wire_id, next);
        }
    }

    /// A call is a job now, on the disk; `result` is what its client gets in place of the server's. False where nobody waits for that any
    /// more, so that the job is of no use.
    pub fn promoted(
        &mut self,
        now: Duration,
        wire_id: &Id,
        result: &str,
        outside: &mut impl Outside,
    ) -> bool {
        self.now = now;
        let Some(call) = self.calls.get_mut(wire_id).filter(|call| !call.is_job) else { return false };
        call.is_job = true;
        let limit = self.limits.job_timeout;
        (call.limit, call.deadline) = (Some(limit), Some(call.since + limit));
        (call.heartbeat, call.hand_over) = (None, None);
        let client_id = std::mem::replace(&mut call.client_id, wire_id.clone());
        let (batch, token) = (call.batch.take(), call.token.take());
        tracing::info!(
            server = self.name,
            client = self.client_name,
            "`{}` (id {client_id}) goes on as a job",
            call.method
        );
        self.look_at_its_moment(wire_id);
        self.renamed.remove(&client_id);
        if let Some(token) = token {
            self.forget_ended_jobs();
            self.job_tokens.insert(token, wire_id.clone());
        }
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, client_id.to_json());
        self.answer(batch, line.as_bytes(), outside);
        self.after_call(outside);
        true
    }

    /// Nobody wants the result of a call that is a job, or was to become one, any more.
    pub fn job_withdrawn(&mut self, now: Duration, wire_id: &Id, outside: &mut impl Outside) {
        self.now = now;
        if self.calls.get(wire_id).is_some_and(|call| call.is_job)
            && let Some(call) = self.calls.cancel(wire_id)
        {
            self.settle_trial(wire_id);
            if call.sent {
                self.cancel_at_server(wire_id, "the job was cancelled", outside);
            } else {
                let _never_answered = self.calls.complete(wire_id);
            }
        }
    }

    /// Asks the server once more, on behalf of a job, with what it wanted to know first. Gives the id of the request there.
    pub fn ask_for_job(&mut self, now: Duration, params: &str, outside: &mut impl Outside) -> Id {
        self.now = now;
        let wire_id = self.own_id();
        let limit = self.limits.job_timeout;
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{params}}}"#,
            wire_id.to_json()
        );
        let live = self.link == Link::Live;
        let call = Call {
            client_id: wire_id.clone(),
            method: "tools/call".into(),
            role: Role::Other,
            since: now,
            deadline: Some(now + limit),
            limit: Some(limit),
            token: None,
            heartbeat: None,
            batch: None,
            hand_over: None,
            is_job: true,
            line: (!live).then(|| line.clone().into_bytes()),
            sent: live,
            retried: false,
        };
        // The id is free, so this cannot be refused.
        let _registered = self.calls.register(wire_id.clone(), call.deadline, call);
        if live {
            outside.to_server(line.as_bytes());
        } else {
            self.held_bytes += line.len();
            self.held.push_back(Held::Call(wire_id.clone()));
            self.wake();
        }
        wire_id
    }

    /// The revision that the client speaks; the first one, as long as that is not known.
    pub fn revision(&self) -> Revision {
        let modern = self.modern_version.as_deref().and_then(Revision::of_request);
        let legacy = self.negotiated.as_deref().and_then(Revision::of_handshake);
        modern.or(legacy).unwrap_or(Revision::V2024November)
    }

    /// Tells a job what has come of its call.
    pub(super) fn answer_job(&self, wire_id: &Id, line: &[u8], outside: &mut impl Outside) {
        let era =
            if self.era == Era::Modern { unhang_bridge::Era::Modern } else { unhang_bridge::Era::Legacy };
        outside.to_job(wire_id, JobNews::Answer(era, line));
    }

    /// Tokens of jobs that have ended are as many at most as there are of others.
    fn forget_ended_jobs(&mut self) {
        if self.job_tokens.len() > 2 * self.calls.len() && stands("tokens-of-jobs-bounded") {
            let calls = &self.calls;
            self.job_tokens.retain(|_, wire_id| calls.get(wire_id).is_some_and(|call| call.is_job));
        }
    }

    /// Whether this progress is that of a job, which has it then.
    pub(super) fn job_progresses(
        &self,
        token: &Id,
        params: Option<Json<'_>>,
        outside: &mut impl Outside,
    ) -> bool {
        let Some(wire_id) = self.job_tokens.get(token) else { return false };
        if let Some(params) = params
            && self.calls.get(wire_id).is_some_and(|call| call.is_job)
        {
            outside.to_job(wire_id, JobNews::Progress(params.get().as_bytes()));
        }
        true
    }

    /// The server logs something, which can only be about the call that it works on.
    pub(super) fn job_logs(&self, params: Option<Json<'_>>, outside: &mut impl Outside) {
        if let (Some((wire_id, call)), Some(params)) = (self.calls.only(), params)
            && call.is_job
        {
            outside.to_job(wire_id, JobNews::Log(params.get().as_bytes()));
        }
    }
}
