//! Calls whose clients hear that they are waited for while the server says nothing, and what the server says of their progress.
//!
//! Theory of operation. A call is in flight with the first moment at which anything is to be done about it ([`GuardedCall::next_moment`]); unless it
//! is over then, it stays in flight with the next one. Which call a token is of is kept in a table beside, in which what is over stays until
//! there are too many of those: it is found to be over by the call that is not there.
//!
//! # Invariants
//!
//! - A call without a token costs one look for it, and nothing else.
//! - Two calls in flight with one token, which a client must not make, have one heartbeat between them, so that what goes out for the token
//!   increases all the same.
//! - With `quiet`, or where nothing becomes a job, there is none.

use std::{cmp::min, collections::HashMap, time::Duration};

use unhang_bridge::Splice;
use unhang_switches::stands;
use unhang_wire::{Id, Json, progress_token, text_member};

use super::{
    effects::WrapEffects,
    wrap_session::{GuardedCall, WrapSession},
};
use unhang_core::{heartbeat::Heartbeat, queue::Class};

/// How many tokens are kept at least before those are looked for whose calls are over.
const FEW: usize = 16;

/// Which call in flight each token is of, by its id on the server's side. Of calls that are over some are left.
#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<Id, Id>);

impl Tokens {
    /// How many are kept.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl GuardedCall {
    /// When something is to be done about it; never, for a subscription.
    pub(super) fn next_moment(&self) -> Option<Duration> {
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next());
        let promotion = self.promotion.as_ref().and_then(|promotion| promotion.at);
        self.deadline.into_iter().chain(heartbeat).chain(promotion).reduce(min)
    }

    fn is_over(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    fn has_heartbeat_under(&self, token: &Id) -> bool {
        self.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.token() == token)
    }
}

impl WrapSession {
    /// Begins the heartbeat of a call that has come in flight, where its client wants to hear of progress.
    pub(super) fn begin_heartbeat(&mut self, wire_id: &Id, method: &str, params: Option<Json<'_>>) {
        let is_wanted = method == "tools/call" && self.limits.promote_after.has_heartbeats();
        if !is_wanted || (self.limits.quiet && stands("quiet-guard-without-heartbeats")) {
            return;
        }
        let Some((params, token)) = params.and_then(|params| Some((params, progress_token(params)?))) else {
            return;
        };
        // Progress of a task goes on after the answer, and is no affair of ours then.
        let is_task = params.member("task").is_some();
        if is_task || self.call_of(&token).is_some() && stands("one-heartbeat-for-a-token") {
            return;
        }
        let has_messages = self.client.has_progress_messages();
        let tool = text_member(params, "name").unwrap_or_default();
        let Some(call) =
            self.calls.get_mut(wire_id).filter(|_| stands("guarded-silent-call-has-a-heartbeat"))
        else {
            return;
        };
        call.heartbeat = Some(Heartbeat::new(self.now, token.clone(), &tool, has_messages).into());
        self.look_at_its_moment(wire_id);
        self.remember(token, wire_id);
    }

    fn remember(&mut self, token: Id, wire_id: &Id) {
        self.tokens.0.insert(token, wire_id.clone());
        // Those that are over are as many as those in flight before they are looked for, so that each is looked at once or twice.
        if self.tokens.0.len() > FEW + 2 * self.calls.len() && stands("tokens-of-heartbeats-bounded") {
            let calls = &self.calls;
            let lives = |token: &Id, wire_id: &Id| {
                calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token))
            };
            self.tokens.0.retain(|token, wire_id| lives(token, wire_id));
        }
    }

    /// The call in flight with a heartbeat whose token this is.
    fn call_of(&self, token: &Id) -> Option<&Id> {
        let wire_id = self.tokens.0.get(token)?;
        self.calls.get(wire_id).is_some_and(|call| call.has_heartbeat_under(token)).then_some(wire_id)
    }

    /// The next call that is over, once whatever is due about others has been done.
    pub(super) fn next_over(&mut self, effects: &mut impl WrapEffects) -> Option<(Id, GuardedCall)> {
        while let Some(wire_id) = self.calls.due(self.now).cloned() {
            let Some(call) = self.calls.get_mut(&wire_id).filter(|call| !call.is_over(self.now)) else {
                break;
            };
            if let Some(heartbeat) = &mut call.heartbeat
                && let Some(line) = heartbeat.beat(self.now)
            {
                effects.to_client(Class::Progress(heartbeat.token().clone()), line.as_bytes());
            }
            let is_due = call.is_due(self.now, !self.questions.is_empty());
            let next = call.next_moment().filter(|next| *next > self.now);
            if is_due {
                self.order(&wire_id);
            }
            if next.is_none_or(|next| !self.calls.postpone(&wire_id, next)) {
                break;
            }
        }
        self.calls.expire(self.now)
    }

    /// The server has told how far the call of this token is, in these `params` of the message `raw`. Gives the message that goes out in
    /// place of it, where its number is no step forward from a heartbeat.
    pub(super) fn raised(&mut self, token: &Id, params: Json<'_>, raw: &[u8]) -> Option<Vec<u8>> {
        let wire_id = self.call_of(token)?.clone();
        let heartbeat = self.calls.get_mut(&wire_id)?.heartbeat.as_mut()?;
        let number = heartbeat.server_said(self.now, params)?;
        let params = Splice::new(params).set("progress", number).apply()?;
        let line = Splice::new(Json::new(raw)?).set("params", params).apply()?;
        Some(line.into_owned().into_bytes())
    }
}
