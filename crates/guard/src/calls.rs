//! The calls: requests of the client that wait for their answers, and which id each has on the server's side.
//!
//! Theory of operation. A call is in flight with the first moment at which anything is to be done about it ([`GuardedCall::next_moment`]); unless
//! it is over then, it stays in flight with the next one.
//!
//! Invariant: a call goes under the client's own id, unless an answer under that could be taken for another's.

use std::{cmp::min, collections::HashMap, time::Duration};

use unhang_core::{
    batch::BatchId,
    config::{LATE_IDS, STRAY_ANSWER_PATIENCE},
    heartbeat::Heartbeat,
    queue::Class,
};
use unhang_switches::stands;
use unhang_wire::{Completion, Id, InFlight, Invalid, RegisterError};

use super::{
    effects::WrapEffects,
    own_requests::OwnRequests,
    promotion::PlannedPromotion,
    stray_answers::{DoubtfulAnswer, StrayAnswer},
};

/// The part a request plays in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Initialize,
    /// `subscriptions/listen`: answered when it ends, so it has no deadline (protocol.md 1.3).
    Listen,
    Other,
}

/// A request of the client that waits for its answer. The table's key is the id on the server's side.
#[derive(Debug)]
pub(super) struct GuardedCall {
    /// What the client calls it; differs from the key only where that would be ambiguous.
    pub client_id: Id,
    pub method: Box<str>,
    pub role: Role,
    pub since: Duration,
    pub deadline: Option<Duration>,
    pub limit: Option<Duration>,
    pub token: Option<Id>,
    /// What its client hears while the server says nothing, where it wants to hear of that.
    pub heartbeat: Option<Box<Heartbeat>>,
    pub batch: Option<BatchId>,
    /// When and of what a job is made, where one may be.
    pub promotion: Option<Box<PlannedPromotion>>,
    /// A list that is shown to a client which copes with tasks.
    pub copes_with_tasks: bool,
    /// Its client has had the id of a job; `client_id` is that on the server's side since.
    pub is_job: bool,
    /// The task that it is to its client, once it is one of 2025-11-25.
    pub task: Option<Box<str>>,
    /// The line as it goes to the server, kept while it has to be sent later or may have to be sent again.
    pub line: Option<Vec<u8>>,
    /// What was probably its answer, unless a better one comes.
    pub doubtful_answer: Option<Box<DoubtfulAnswer>>,
    pub sent: bool,
    pub retried: bool,
    /// Since when it has been held, the last time; and for how long in all, until then.
    pub held_since: Duration,
    pub held_for: Duration,
}

impl GuardedCall {
    /// Makes a call that begins now and was not sent yet.
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

    /// Tells whether a restarted server may be asked this again: it changes nothing, or it is a subscription.
    pub(super) fn may_be_sent_again(&self) -> bool {
        let is_safe = self.method.ends_with("/list")
            || &*self.method == "resources/read"
            || !stands("only-safe-sent-again");
        self.role == Role::Listen || (is_safe && (!self.retried || !stands("sent-again-once")))
    }

    /// Tells when something is to be done about it; never, for a subscription.
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

/// What is due about a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// It is time to make a job of it.
    PromotionDue(Id),
    /// Its deadline has passed, and it is in flight no more.
    Expired(Id, Box<GuardedCall>),
}

/// What becomes of the calls of a server that is gone.
#[derive(Debug, Default)]
pub(super) struct LostCalls {
    /// They get no other answer than that the server is gone.
    pub(super) unanswered: Vec<GuardedCall>,
    /// They are sent again, in this order.
    pub(super) again: Vec<Id>,
    /// The bytes of those.
    pub(super) again_bytes: usize,
}

/// The calls in flight. See the module's text.
#[derive(Debug)]
pub(super) struct CallTable {
    in_flight: InFlight<GuardedCall>,
    /// Client's id to the id on the server's side, where they differ.
    renamed: HashMap<Id, Id>,
}

impl Default for CallTable {
    fn default() -> Self {
        Self { in_flight: InFlight::new(LATE_IDS), renamed: HashMap::new() }
    }
}

impl CallTable {
    /// Enters a call under its own id, or under one of ours where an answer could be taken for another's: its own is still awaited from an
    /// earlier, withdrawn request, or the same id in the other type is (servers change types). Gives the id on the server's side.
    pub(super) fn register(
        &mut self,
        call: GuardedCall,
        own_requests: &mut OwnRequests,
        is_free_elsewhere: impl Fn(&Id) -> bool,
    ) -> Id {
        let own_id = call.client_id.clone();
        let variant = own_id.variant().filter(|_| stands("ids-apart-by-more-than-type"));
        let is_distinct = variant.is_none_or(|variant| self.in_flight.is_free(&variant));
        let is_free = own_requests.is_free(&own_id) || !stands("ids-apart-from-ours");
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

    /// Ends a call; its late answer is awaited, unless [`CallTable::await_nothing`] says otherwise.
    pub(super) fn cancel(&mut self, wire_id: &Id) -> Option<GuardedCall> {
        self.in_flight.cancel(wire_id)
    }

    /// Ends the call that an answer of no use is for.
    pub(super) fn end(&mut self, wire_id: &Id) -> Option<GuardedCall> {
        match self.in_flight.complete(wire_id) {
            Completion::Matched(call) | Completion::Repaired { entry: call, .. } => Some(call),
            Completion::Late | Completion::Unknown => None,
        }
    }

    /// Ends the only call there is. An answer without an id must be for that.
    pub(super) fn end_only(&mut self) -> Option<GuardedCall> {
        let wire_id = self.in_flight.only().map(|(id, _)| id.clone())?;
        self.in_flight.cancel(&wire_id)
    }

    /// Ends the only call there is where an answer without a usable id can be meant for nothing else. Where that is in doubt, its right answer
    /// may come a moment later.
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

    /// Ends the call that the client withdraws by its own id, with the id on the server's side.
    pub(super) fn withdraw(&mut self, client_id: &Id) -> Option<(Id, GuardedCall)> {
        let wire_id = self.renamed.remove(client_id).unwrap_or_else(|| client_id.clone());
        self.in_flight.get(&wire_id).filter(|call| call.client_id == *client_id && !call.is_job)?;
        let call = self.in_flight.cancel(&wire_id)?;
        Some((wire_id, call))
    }

    /// Ends a call, or the wait for its late answer: none comes, since the server never had it or is gone.
    pub(super) fn await_nothing(&mut self, wire_id: &Id) {
        let _never_answered = self.in_flight.complete(wire_id);
    }

    /// Ends the calls that are answered before the server is stopped. A subscription ends when a server hears of the end, and then it is the
    /// server that answers it. What is a job ends with whoever keeps it.
    pub(super) fn cancel_for_stop(&mut self, server_hears: bool) -> Vec<GuardedCall> {
        let is_told_now = |call: &GuardedCall| {
            let is_ended_by_server =
                call.role == Role::Listen && server_hears && stands("subscription-ended-by-server");
            !is_ended_by_server && !call.is_job && stands("told-before-the-stop")
        };
        let told_now = self.iter().filter(|(_, call)| is_told_now(call));
        let told_now: Vec<Id> = told_now.map(|(id, _)| id.clone()).collect();
        told_now.iter().filter_map(|id| self.cancel(id)).collect()
    }

    /// Has no call become a job from now on. Those that wait for a job which the same call has become go on waiting for that. Gives those
    /// of which the server was to hear when they are tasks: it hears of them now.
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

    /// Sorts out the calls of a server that is gone: what is safe to send again stays in flight where there is a restart, and so does what the
    /// server never had.
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

    pub(super) fn get_mut(&mut self, wire_id: &Id) -> Option<&mut GuardedCall> {
        self.in_flight.get_mut(wire_id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Id, &GuardedCall)> {
        self.in_flight.iter()
    }

    /// Returns the only call there is. The server must be talking about that.
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

    /// Tells whether the client waits for an answer under this id of its own.
    pub(super) fn is_awaited(&self, client_id: &Id) -> bool {
        let is_theirs = |call: &GuardedCall| call.client_id == *client_id && !call.is_job;
        self.renamed.contains_key(client_id) || self.in_flight.get(client_id).is_some_and(is_theirs)
    }

    /// Tells whether the client waits for nothing but what ends with the session.
    pub(super) fn is_idle(&self) -> bool {
        let keeps_nobody_waiting = |call: &GuardedCall| call.is_job && stands("jobs-keep-nobody-waiting");
        self.iter().all(|(_, call)| call.role == Role::Listen || keeps_nobody_waiting(call))
    }

    /// Tells whether the server works on nothing.
    pub(super) fn server_is_idle(&self) -> bool {
        self.iter().all(|(_, call)| call.role == Role::Listen)
    }

    /// Tells when something is to be done about a call.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    /// Enters the first moment at which anything is to be done about a call, once that has changed.
    pub(super) fn note_next_moment(&mut self, wire_id: &Id) {
        if let Some(next) = self.get(wire_id).and_then(GuardedCall::next_moment) {
            self.in_flight.postpone(wire_id, next);
        }
    }

    /// Gives what is due next about a call that has to be dealt with outside; heartbeats beat meanwhile.
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

    /// Notes that a call is held from now on. Gives the bytes of its line.
    pub(super) fn note_held(&mut self, wire_id: &Id, now: Duration) -> usize {
        let Some(call) = self.in_flight.get_mut(wire_id) else { return 0 };
        call.held_since = now;
        call.line.as_ref().map_or(0, Vec::len)
    }

    /// Notes that a call is held no longer.
    pub(super) fn note_released(&mut self, wire_id: &Id, now: Duration) {
        if let Some(call) = self.in_flight.get_mut(wire_id) {
            call.held_for += now.saturating_sub(call.held_since);
        }
    }

    /// Marks a held call as sent and gives the line that the server gets, if it is to get one still: the call may have been cancelled or have
    /// expired while it was held.
    pub(super) fn send_held(&mut self, wire_id: &Id) -> Option<Vec<u8>> {
        let call = self.in_flight.get_mut(wire_id).filter(|call| !call.sent || !stands("held-sent-once"))?;
        call.sent = true;
        // Only what may be sent a second time is kept beyond the first.
        if call.may_be_sent_again() { call.line.clone() } else { call.line.take() }
    }

    /// Counts the ids of the client that stand for others.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn renamed(&self) -> usize {
        self.renamed.len()
    }
}
