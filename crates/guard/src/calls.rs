//! The calls: requests of the client that wait for their answers, and the id of each on the server's side.
//!
//! Theory of operation. A call is in flight with the first moment at which something has to be done about it
//! ([`GuardedCall::next_moment`]). Unless the call is over at that moment, it stays in flight with its next moment.
//!
//! Invariant: a call keeps the client's own id, unless its answer could then be taken for another's.

use std::{cmp::min, collections::HashMap, time::Duration};

use unhang_core::{
    batch::BatchId,
    clients,
    config::{LATE_IDS, STRAY_ANSWER_PATIENCE},
    heartbeat::Heartbeat,
    limits::Limits,
    queue::Class,
};
use unhang_wire::{Completion, Id, InFlight, Invalid, RegisterError};

use super::{
    effects::WrapEffects,
    own_requests::OwnRequests,
    promotion::{PlannedPromotion, WrapPromotionOrder},
    stray_answers::{DoubtfulAnswer, StrayAnswer},
};

/// The part that a request plays in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Initialize,
    /// `subscriptions/listen`. It is answered when it ends, so it has no deadline (protocol.md 1.3).
    Listen,
    Other,
}

impl Role {
    /// Returns how long a request may take that a running server answers, or `None` if it has no limit. The client's own timeout for a call
    /// is `clock`.
    pub(super) fn limit(self, method: &str, limits: &Limits, clock: Option<Duration>) -> Option<Duration> {
        match (method, self) {
            (_, Role::Listen) => None,
            (_, Role::Initialize) => Some(limits.start_timeout),
            // `tasks/result` blocks until the task ends, so it counts as a call (protocol.md 2.1).
            ("tools/call" | "tasks/result", _) => Some(clients::call_limit(clock, limits.call_timeout)),
            _ => Some(limits.request_timeout),
        }
    }
}

/// A request of the client that waits for its answer. The key of the table is the id on the server's side.
#[derive(Debug)]
pub(super) struct GuardedCall {
    /// The client's id. It differs from the key only if the client's id would be ambiguous.
    pub client_id: Id,
    pub method: Box<str>,
    pub role: Role,
    pub since: Duration,
    pub deadline: Option<Duration>,
    pub limit: Option<Duration>,
    pub token: Option<Id>,
    /// The notifications for a client that wants progress while the server says nothing.
    pub heartbeat: Option<Box<Heartbeat>>,
    pub batch: Option<BatchId>,
    /// When and how the call becomes a job, if it may become one.
    pub promotion: Option<Box<PlannedPromotion>>,
    /// Whether this is a list of tools for a client that copes with tasks.
    pub copes_with_tasks: bool,
    /// Whether the client has got the id of a job. From then on `client_id` is the id on the server's side.
    pub is_job: bool,
    /// The task that the call is to its client, if it is one of 2025-11-25.
    pub task: Option<Box<str>>,
    /// The line for the server. It is kept while it has to be sent later or may have to be sent again.
    pub line: Option<Vec<u8>>,
    /// An unusable answer that was probably meant for this call. A better one may still come.
    pub doubtful_answer: Option<Box<DoubtfulAnswer>>,
    pub sent: bool,
    pub retried: bool,
    /// The last time since which the call is held. The next field is the time that it was held in all before that.
    pub held_since: Duration,
    pub held_for: Duration,
}

impl GuardedCall {
    /// Makes a call that begins now and is not sent yet.
    pub(super) fn new(
        client_id: Id,
        method: &str,
        role: Role,
        now: Duration,
        limit: Option<Duration>,
    ) -> Self {
        GuardedCall {
            client_id,
            method: method.into(),
            role,
            since: now,
            deadline: limit.map(|limit| now + limit),
            limit,
            token: None,
            heartbeat: None,
            batch: None,
            promotion: None,
            copes_with_tasks: false,
            is_job: false,
            task: None,
            line: None,
            doubtful_answer: None,
            sent: false,
            retried: false,
            held_since: now,
            held_for: Duration::ZERO,
        }
    }

    /// Returns whether a restarted server may get this call again: it changes nothing, or it is a subscription.
    pub(super) fn may_be_sent_again(&self) -> bool {
        let is_safe = self.method.ends_with("/list") || &*self.method == "resources/read";
        self.role == Role::Listen || (is_safe && !self.retried)
    }

    /// Returns when something has to be done about the call, or `None` for a subscription.
    pub(super) fn next_moment(&self) -> Option<Duration> {
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next());
        let promotion = self.promotion.as_ref().and_then(|promotion| promotion.at);
        let doubt = self.doubtful_answer.as_ref().map(|answer| answer.until);
        self.deadline.into_iter().chain(heartbeat).chain(promotion).chain(doubt).reduce(min)
    }

    fn is_over(&self, now: Duration) -> bool {
        let doubt = self.doubtful_answer.as_ref().map(|answer| answer.until);
        self.deadline.into_iter().chain(doubt).any(|end| end <= now)
    }
}

/// The next thing to do about a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// The call should become a job now.
    PromotionDue(Id),
    /// The deadline of the call has passed. It is no longer in flight.
    Expired(Id, Box<GuardedCall>),
}

/// The calls of a server that is gone, sorted by what happens to them.
#[derive(Debug, Default)]
pub(super) struct LostCalls {
    /// Calls that are answered with the loss of the server.
    pub(super) unanswered: Vec<GuardedCall>,
    /// Calls that are sent again, in this order.
    pub(super) again: Vec<Id>,
    /// The bytes of the calls that are sent again.
    pub(super) again_bytes: usize,
}

/// The calls in flight. See the module's text.
#[derive(Debug)]
pub(super) struct CallTable {
    in_flight: InFlight<GuardedCall>,
    /// Maps the client's id to the id on the server's side, if they differ.
    renamed: HashMap<Id, Id>,
}

impl Default for CallTable {
    fn default() -> Self {
        Self { in_flight: InFlight::new(LATE_IDS), renamed: HashMap::new() }
    }
}

impl CallTable {
    /// Enters a call under its own id, or under one of ours if its answer could be taken for another's. There are two such cases: an
    /// earlier, withdrawn request still awaits an answer under this id, or the same id in the other type does (servers change types).
    /// Returns the id on the server's side.
    pub(super) fn register(
        &mut self,
        call: GuardedCall,
        own_requests: &mut OwnRequests,
        is_free_elsewhere: impl Fn(&Id) -> bool,
    ) -> Id {
        let own_id = call.client_id.clone();
        let variant = own_id.variant();
        let is_distinct = variant.is_none_or(|variant| self.in_flight.is_free(&variant));
        let is_free = own_requests.is_free(&own_id);
        let call = if is_distinct && is_free {
            match self.in_flight.register(own_id.clone(), call.next_moment(), call) {
                Ok(()) => return own_id,
                Err(RegisterError::InFlight(call) | RegisterError::AwaitsLate(call)) => call,
            }
        } else {
            call
        };
        let wire_id = own_requests.next_id(|id| self.in_flight.is_free(id) && is_free_elsewhere(id));
        self.renamed.insert(own_id, wire_id.clone());
        self.register_as(wire_id.clone(), call);
        wire_id
    }

    /// Enters a call under an id that is free: one of ours, or its own from before a restart.
    pub(super) fn register_as(&mut self, wire_id: Id, call: GuardedCall) {
        let _registered = self.in_flight.register(wire_id, call.next_moment(), call);
    }

    /// Ends the call that an answer is for.
    pub(super) fn complete(&mut self, wire_id: &Id) -> Completion<GuardedCall> {
        self.in_flight.complete(wire_id)
    }

    /// Ends a call. Its late answer is awaited, unless [`CallTable::await_nothing`] says otherwise.
    pub(super) fn cancel(&mut self, wire_id: &Id) -> Option<GuardedCall> {
        self.in_flight.cancel(wire_id)
    }

    /// Ends the call that an unusable answer is for. Returns `None` if no call waits for it.
    pub(super) fn end(&mut self, wire_id: &Id) -> Option<GuardedCall> {
        self.in_flight.complete(wire_id).entry()
    }

    /// Ends the call if it is the only one. An answer without an id must be for that call.
    pub(super) fn end_only(&mut self) -> Option<GuardedCall> {
        let wire_id = self.in_flight.only().map(|(id, _)| id.clone())?;
        self.in_flight.cancel(&wire_id)
    }

    /// Ends the only call if an answer without a usable id can be meant for nothing else. If that is in doubt, the call waits a moment
    /// longer for its right answer.
    pub(super) fn end_by_stray(&mut self, invalid: &Invalid<'_>, now: Duration) -> Option<GuardedCall> {
        let (wire_id, call) = self.in_flight.only()?;
        let (wire_id, stray_answer) = (wire_id.clone(), StrayAnswer::of(invalid, call));
        match stray_answer {
            StrayAnswer::Foreign => None,
            StrayAnswer::Certain => self.in_flight.cancel(&wire_id),
            StrayAnswer::Doubtful => {
                let (why, until) = (invalid.reason.to_string(), now + STRAY_ANSWER_PATIENCE);
                let call = self.in_flight.get_mut(&wire_id)?;
                call.doubtful_answer.get_or_insert(DoubtfulAnswer { why, until }.into());
                self.note_next_moment(&wire_id);
                None
            }
        }
    }

    /// Ends the call that the client withdraws by its own id. Returns it with its id on the server's side.
    pub(super) fn withdraw(&mut self, client_id: &Id) -> Option<(Id, GuardedCall)> {
        let wire_id = self.renamed.remove(client_id).unwrap_or_else(|| client_id.clone());
        self.in_flight.get(&wire_id).filter(|call| call.client_id == *client_id && !call.is_job)?;
        let call = self.in_flight.cancel(&wire_id)?;
        Some((wire_id, call))
    }

    /// Ends a call, or the wait for its late answer. No answer comes, because the server never had the call or is gone.
    pub(super) fn await_nothing(&mut self, wire_id: &Id) {
        let _never_answered = self.in_flight.complete(wire_id);
    }

    /// Ends the calls that are answered before the server is stopped. A subscription stays if the server hears of the end: the server then
    /// answers it. A job ends with the job bridge. Returns the calls with their ids on the server's side.
    pub(super) fn cancel_for_stop(&mut self, server_hears: bool) -> Vec<(Id, GuardedCall)> {
        let is_told_now = |call: &GuardedCall| {
            let is_ended_by_server = call.role == Role::Listen && server_hears;
            !is_ended_by_server && !call.is_job
        };
        let told_now = self.iter().filter(|(_, call)| is_told_now(call));
        let told_now: Vec<Id> = told_now.map(|(id, _)| id.clone()).collect();
        told_now.into_iter().filter_map(|id| Some((id.clone(), self.cancel(&id)?))).collect()
    }

    /// Keeps all calls from becoming jobs from now on. Calls that wait for a job of the same call go on waiting for it. Returns the calls
    /// that the server was to get once they were tasks: it gets them now.
    pub(super) fn keep_as_calls(&mut self) -> Vec<Id> {
        let mut unsent = Vec::new();
        let wire_ids: Vec<Id> = self.iter().map(|(wire_id, _)| wire_id.clone()).collect();
        for wire_id in wire_ids {
            if let Some(call) = self.in_flight.get_mut(&wire_id)
                && call.keep_as_call()
            {
                unsent.push(wire_id);
            }
        }
        unsent
    }

    /// Ends all calls.
    pub(super) fn take_all(&mut self) -> Vec<(Id, GuardedCall)> {
        self.in_flight.take_all()
    }

    /// Sorts the calls of a server that is gone. If there is a restart, calls that are safe to send again stay in flight, and so do calls
    /// that the server never got.
    pub(super) fn sort_out_lost(&mut self, now: Duration, may_restart: bool) -> LostCalls {
        let mut lost = LostCalls::default();
        for (wire_id, mut call) in self.take_all() {
            let resend = call.sent && call.line.is_some() && call.may_be_sent_again();
            if !may_restart || (call.sent && !resend) {
                lost.unanswered.push(call);
                continue;
            }
            if call.sent {
                call.retried = true;
                (call.sent, call.doubtful_answer) = (false, None);
                call.held_since = now;
                lost.again_bytes += call.line.as_ref().map_or(0, Vec::len);
                lost.again.push(wire_id.clone());
            }
            self.register_as(wire_id, call);
        }
        lost
    }

    /// Forgets that the client's id stands for another.
    pub(super) fn forget_name(&mut self, client_id: &Id) {
        self.renamed.remove(client_id);
    }

    pub(super) fn get(&self, wire_id: &Id) -> Option<&GuardedCall> {
        self.in_flight.get(wire_id)
    }

    /// Returns the call that this order was about, if it is still a call. Another call may have its id by now.
    pub(super) fn ordered(&self, wire_id: &Id, order: WrapPromotionOrder) -> Option<&GuardedCall> {
        self.get(wire_id).filter(|call| call.is_of(order) && !call.is_job)
    }

    pub(super) fn get_mut(&mut self, wire_id: &Id) -> Option<&mut GuardedCall> {
        self.in_flight.get_mut(wire_id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Id, &GuardedCall)> {
        self.in_flight.iter()
    }

    /// Returns the only call, if there is exactly one. The server must be talking about that call.
    pub(super) fn only(&self) -> Option<(&Id, &GuardedCall)> {
        self.in_flight.only()
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn contains(&self, wire_id: &Id) -> bool {
        self.in_flight.contains(wire_id)
    }

    pub(super) fn is_free(&self, wire_id: &Id) -> bool {
        self.in_flight.is_free(wire_id)
    }

    /// Returns whether the client waits for an answer under this id of its own.
    pub(super) fn is_awaited(&self, client_id: &Id) -> bool {
        let is_theirs = |call: &GuardedCall| call.client_id == *client_id && !call.is_job;
        self.renamed.contains_key(client_id) || self.in_flight.get(client_id).is_some_and(is_theirs)
    }

    /// Returns whether the client waits only for answers that come with the end of the session.
    pub(super) fn is_idle(&self) -> bool {
        let keeps_nobody_waiting = |call: &GuardedCall| call.is_job;
        self.iter().all(|(_, call)| call.role == Role::Listen || keeps_nobody_waiting(call))
    }

    /// Returns whether the server works on nothing.
    pub(super) fn server_is_idle(&self) -> bool {
        self.iter().all(|(_, call)| call.role == Role::Listen)
    }

    /// Returns when something has to be done about a call.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    /// Enters the first moment at which something has to be done about a call, after that has changed.
    pub(super) fn note_next_moment(&mut self, wire_id: &Id) {
        if let Some(next) = self.get(wire_id).and_then(GuardedCall::next_moment) {
            self.in_flight.postpone(wire_id, next);
        }
    }

    /// Returns the next event of a call that the session has to handle. Sends heartbeats that are due meanwhile.
    pub(super) fn next_event(
        &mut self,
        now: Duration,
        client_is_asked: bool,
        effects: &mut impl WrapEffects,
    ) -> Option<CallEvent> {
        while let Some(wire_id) = self.in_flight.due(now).cloned() {
            let Some(call) = self.in_flight.get_mut(&wire_id).filter(|call| !call.is_over(now)) else {
                break;
            };
            if let Some(heartbeat) = &mut call.heartbeat
                && let Some(line) = heartbeat.beat(now)
            {
                effects.to_client(Class::Progress(heartbeat.token().clone()), line.as_bytes());
            }
            let is_due = call.is_due(now, client_is_asked);
            let next = call.next_moment().filter(|next| *next > now);
            let is_postponed = next.is_some_and(|next| self.in_flight.postpone(&wire_id, next));
            if is_due {
                return Some(CallEvent::PromotionDue(wire_id));
            }
            if !is_postponed {
                break;
            }
        }
        self.in_flight.expire(now).map(|(wire_id, call)| CallEvent::Expired(wire_id, call.into()))
    }

    /// Notes that a call is held from now on. Returns the bytes of its line.
    pub(super) fn note_held(&mut self, wire_id: &Id, now: Duration) -> usize {
        let Some(call) = self.in_flight.get_mut(wire_id) else { return 0 };
        call.held_since = now;
        call.line.as_ref().map_or(0, Vec::len)
    }

    /// Notes that a call is no longer held.
    pub(super) fn note_released(&mut self, wire_id: &Id, now: Duration) {
        if let Some(call) = self.in_flight.get_mut(wire_id) {
            call.held_for += now.saturating_sub(call.held_since);
        }
    }

    /// Marks a held call as sent and returns its line for the server. Returns `None` if the call was sent already, or if it was cancelled
    /// or has expired while it was held.
    pub(super) fn send_held(&mut self, wire_id: &Id) -> Option<Vec<u8>> {
        let call = self.in_flight.get_mut(wire_id).filter(|call| !call.sent)?;
        call.sent = true;
        // The line is kept only if it may have to be sent a second time.
        if call.may_be_sent_again() { call.line.clone() } else { call.line.take() }
    }

    /// Counts the ids of the client that stand for others.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn renamed(&self) -> usize {
        self.renamed.len()
    }
}
