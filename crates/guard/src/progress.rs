//! Tokens of progress: which call each is of, and calls whose clients hear that they are waited for while the server says nothing.
//!
//! Theory of operation. Which call a token is of is kept in tables beside the calls, in which what is over stays until there are too many of
//! those: it is found to be over by the call that is not there. The beats themselves are moments of the call ([`GuardedCall::next_moment`]).
//!
//! # Invariants
//!
//! - A call without a token costs one look for it, and nothing else.
//! - Two calls in flight with one token, which a client must not make, have one heartbeat between them, so that what goes out for the token
//!   increases all the same.
//! - Each table is bounded.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use unhang_bridge::Splice;
use unhang_core::{config::LATE_IDS, heartbeat::Heartbeat};
use unhang_switches::stands;
use unhang_wire::{Id, Json, progress_token, text_member};

use super::calls::{CallTable, GuardedCall};

/// How many tokens are kept at least before those are looked for whose calls are over.
const FEW: usize = 16;

/// Whom progress under a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressAddressee<'a> {
    /// The job that the call of this id on the server's side has become.
    Job(&'a Id),
    /// Nobody any more.
    Nobody,
    Client,
}

/// The tokens. See the module's text.
#[derive(Debug, Default)]
pub(super) struct ProgressTokens {
    /// Those of requests that were cancelled or have expired.
    ended: VecDeque<Id>,
    /// Those of calls with a heartbeat, with the id on the server's side. Of calls that are over some are left.
    heartbeats: HashMap<Id, Id>,
    /// Those of calls that are jobs, with the id on the server's side. Of jobs that are over some are left.
    jobs: HashMap<Id, Id>,
}

impl GuardedCall {
    fn has_heartbeat_under(&self, token: &Id) -> bool {
        self.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.token() == token)
    }
}

impl ProgressTokens {
    /// Notes that progress for this token goes nowhere from now on.
    pub(super) fn end(&mut self, token: Option<Id>) {
        if let Some(token) = token {
            if self.ended.len() >= LATE_IDS && stands("dead-tokens-bounded") {
                self.ended.pop_front();
            }
            self.ended.push_back(token);
        }
    }

    /// Notes that a request is made with this token: one must be unique only among the requests in flight.
    pub(super) fn revive(&mut self, token: Option<&Id>) {
        if let Some(token) = token
            && stands("reused-token-lives")
        {
            self.ended.retain(|ended| ended != token);
            self.jobs.remove(token);
        }
    }

    /// Gives this token to the job that a call has become.
    pub(super) fn give_to_job(&mut self, token: Id, wire_id: &Id, calls: &CallTable) {
        // Tokens of jobs that have ended are as many at most as there are of others.
        if self.jobs.len() > 2 * calls.len() && stands("tokens-of-jobs-bounded") {
            self.jobs.retain(|_, wire_id| calls.get(wire_id).is_some_and(|call| call.is_job));
        }
        self.jobs.insert(token, wire_id.clone());
    }

    /// Tells whom progress under this token is for.
    pub(super) fn addressee(&self, token: &Id) -> ProgressAddressee<'_> {
        match self.jobs.get(token) {
            Some(wire_id) => ProgressAddressee::Job(wire_id),
            None if self.ended.contains(token) && stands("no-progress-after-the-end") => {
                ProgressAddressee::Nobody
            }
            None => ProgressAddressee::Client,
        }
    }

    /// Begins the heartbeat of a call that has come in flight, where its client wants to hear of progress.
    pub(super) fn begin_heartbeat(
        &mut self,
        (wire_id, params): (&Id, Json<'_>),
        calls: &mut CallTable,
        now: Duration,
        has_messages: bool,
    ) {
        let Some(token) = progress_token(params) else { return };
        // Progress of a task goes on after the answer, and is no affair of ours then.
        let is_task = params.member("task").is_some();
        if is_task || self.call_of(&token, calls).is_some() && stands("one-heartbeat-for-a-token") {
            return;
        }
        let tool = text_member(params, "name").unwrap_or_default();
        let Some(call) = calls.get_mut(wire_id).filter(|_| stands("guarded-silent-call-has-a-heartbeat"))
        else {
            return;
        };
        call.heartbeat = Some(Heartbeat::new(now, token.clone(), &tool, has_messages).into());
        calls.note_next_moment(wire_id);
        self.remember_heartbeat(token, wire_id, calls);
    }

    fn remember_heartbeat(&mut self, token: Id, wire_id: &Id, calls: &CallTable) {
        self.heartbeats.insert(token, wire_id.clone());
        // Those that are over are as many as those in flight before they are looked for, so that each is looked at once or twice.
        if self.heartbeats.len() > FEW + 2 * calls.len() && stands("tokens-of-heartbeats-bounded") {
            self.heartbeats.retain(|token, wire_id| {
                calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token))
            });
        }
    }

    /// Returns the call in flight with a heartbeat whose token this is.
    fn call_of(&self, token: &Id, calls: &CallTable) -> Option<&Id> {
        let wire_id = self.heartbeats.get(token)?;
        calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token)).then_some(wire_id)
    }

    /// Notes how far the server says that the call of this token is, in these `params` of the message `raw`. Gives the message that goes out
    /// in place of it, where its number is no step forward from a heartbeat.
    pub(super) fn raised(
        &self,
        token: &Id,
        calls: &mut CallTable,
        now: Duration,
        (params, raw): (Json<'_>, &[u8]),
    ) -> Option<Vec<u8>> {
        let wire_id = self.call_of(token, calls)?;
        let heartbeat = calls.get_mut(wire_id)?.heartbeat.as_mut()?;
        let number = heartbeat.server_said(now, params)?;
        let params = Splice::new(params).set("progress", number).apply()?;
        let line = Splice::new(Json::new(raw)?).set("params", params).apply()?;
        Some(line.into_owned().into_bytes())
    }

    /// Tells how many tokens are kept of ended requests, of heartbeats and of jobs.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn kept(&self) -> (usize, usize, usize) {
        (self.ended.len(), self.heartbeats.len(), self.jobs.len())
    }
}
