//! Progress tokens: the call of each token, and heartbeats for clients whose server says nothing.
//!
//! Theory of operation. Tables beside the calls keep the call of each token. Entries of calls that are over stay until there are too many.
//! Such an entry is recognised by its missing call. The beats themselves are moments of the call ([`GuardedCall::next_moment`]).
//!
//! # Invariants
//!
//! - A call without a token costs one lookup and nothing else.
//! - Two calls in flight with the same token, which a client must not make, share one heartbeat. So the progress under the token increases
//!   all the same.
//! - Each table is bounded.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use unhang_bridge::Splice;
use unhang_core::{config::LATE_IDS, heartbeat::Heartbeat, limits::Limits};
use unhang_wire::{Id, Json, text_member};

use super::{
    calls::{CallTable, GuardedCall},
    effects::{JobNews, WrapEffects},
};

/// The number of tokens that are always kept. Beyond it, tokens of calls that are over are removed.
const FEW: usize = 16;

/// The addressee of progress under a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressAddressee<'a> {
    /// The job that this call has become. The id is the one on the server's side.
    Job(&'a Id),
    /// Nobody any more.
    Nobody,
    Client,
}

/// The progress tokens. See the module's text.
#[derive(Debug, Default)]
pub(super) struct ProgressTokens {
    /// Tokens of requests that were cancelled or have expired.
    ended: VecDeque<Id>,
    /// Tokens of calls with a heartbeat, with the id on the server's side. Some of these calls are over.
    heartbeats: HashMap<Id, Id>,
    /// Tokens of calls that are jobs, with the id on the server's side. Some of these jobs are over.
    jobs: HashMap<Id, Id>,
}

/// Returns whether requests of this method have heartbeats. There are none with `quiet`, or if calls never become jobs.
pub(super) fn has_heartbeats(limits: &Limits, method: &str) -> bool {
    method == "tools/call" && limits.promote_after.has_heartbeats() && !limits.quiet
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
            if self.ended.len() >= LATE_IDS {
                self.ended.pop_front();
            }
            self.ended.push_back(token);
        }
    }

    /// Notes that a request is made with this token. A token has to be unique only among the requests in flight.
    pub(super) fn revive(&mut self, token: Option<&Id>) {
        if let Some(token) = token {
            self.ended.retain(|ended| ended != token);
            self.jobs.remove(token);
        }
    }

    /// Assigns this token to the job that a call has become.
    pub(super) fn give_to_job(&mut self, token: Id, wire_id: &Id, calls: &CallTable) {
        // There are at most as many tokens of ended jobs as of others.
        if self.jobs.len() > 2 * calls.len() {
            self.jobs.retain(|_, wire_id| calls.get(wire_id).is_some_and(|call| call.is_job));
        }
        self.jobs.insert(token, wire_id.clone());
    }

    fn addressee(&self, token: &Id) -> ProgressAddressee<'_> {
        match self.jobs.get(token) {
            Some(wire_id) => ProgressAddressee::Job(wire_id),
            None if self.ended.contains(token) => ProgressAddressee::Nobody,
            None => ProgressAddressee::Client,
        }
    }

    /// Passes progress under this token to the job that it is about. Returns its addressee; the caller has to tell the client.
    pub(super) fn pass_to_job(
        &self,
        token: &Id,
        params: Option<Json<'_>>,
        calls: &CallTable,
        effects: &mut impl WrapEffects,
    ) -> ProgressAddressee<'_> {
        let addressee = self.addressee(token);
        if let (ProgressAddressee::Job(wire_id), Some(params)) = (addressee, params)
            && calls.get(wire_id).is_some_and(|call| call.is_job)
        {
            effects.to_job(wire_id, JobNews::Progress(params.get().as_bytes()));
        }
        addressee
    }

    /// Begins the heartbeat of a call that has come in flight, whose client wants progress under this token.
    pub(super) fn begin_heartbeat(
        &mut self,
        (wire_id, token, params): (&Id, Id, Json<'_>),
        calls: &mut CallTable,
        now: Duration,
        has_messages: bool,
    ) {
        // Progress of a task goes on after the answer, and is not our affair then.
        let is_task = params.member("task").is_some();
        if is_task || self.call_of(&token, calls).is_some() {
            return;
        }
        let tool = text_member(params, "name").unwrap_or_default();
        let Some(call) = calls.get_mut(wire_id) else {
            return;
        };
        call.heartbeat = Some(Heartbeat::new(now, token.clone(), &tool, has_messages).into());
        calls.note_next_moment(wire_id);
        self.remember_heartbeat(token, wire_id, calls);
    }

    fn remember_heartbeat(&mut self, token: Id, wire_id: &Id, calls: &CallTable) {
        self.heartbeats.insert(token, wire_id.clone());
        // The search begins once as many are over as in flight, so each entry is looked at once or twice.
        if self.heartbeats.len() > FEW + 2 * calls.len() {
            self.heartbeats.retain(|token, wire_id| {
                calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token))
            });
        }
    }

    /// Returns the call in flight that has a heartbeat under this token.
    fn call_of(&self, token: &Id, calls: &CallTable) -> Option<&Id> {
        let wire_id = self.heartbeats.get(token)?;
        calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token)).then_some(wire_id)
    }

    /// Notes the progress that the server reports for the call of this token, in the `params` of the message `raw`. If its number is not
    /// higher than that of a heartbeat, returns the message that replaces it.
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

    /// Returns how many tokens are kept of ended requests, of heartbeats and of jobs.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn kept(&self) -> (usize, usize, usize) {
        (self.ended.len(), self.heartbeats.len(), self.jobs.len())
    }
}
