//! The audience of a server's messages and questions beside its answers: the session that made all calls that they can be about.
//!
//! Theory of operation. Over a pipe nothing says which call a question is about. If all calls are of one session, that session is the right
//! one whichever call it is. The question is put beside the newest of them, since older ones may be jobs already. It says that it may be
//! about another of them, so that it stays when that one ends. A client of 2026-07-28 gets a question as the answer to a call. Any of its
//! calls can carry the question, because the reply names the question and not the call. So the newest call that carries no question gets it,
//! or the newest of all if each carries one. A call whose client is not known for certain carries only questions about itself. Over HTTP, a
//! message on the stream of a request is about that request.
//!
//! Invariants
//!
//! - A message that may be about calls of several sessions is for none of them.
//! - While no call runs, a question may be about an abandoned call or about none. If all abandoned calls are of one session, the question is
//!   for that session or for nobody, which the listener decides.
//! - A call that its caller has given up counts until the server has answered it, for the server may still be working on it. It counts no
//!   longer than a call may take at all (`job-timeout`), because servers need not answer a withdrawn call.
//! - The memory for such calls is bounded. If there are too many, nobody hears anything until the last of them cannot run any more.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use unhang_wire::Id;

use super::RequestOrigin;
use crate::{
    question::{OfSession, SessionKey, SideMessageSender},
    request_table::{PendingRequest, RequestTable},
};

/// The most abandoned calls that are told from one another.
const MOST: usize = 4096;

/// The audience of a message beside an answer.
pub(super) enum Audience<'a> {
    Nobody,
    /// The caller of the call that the server continues as the task of this name.
    Task(String),
    /// The caller of the request on whose stream the message came.
    Call {
        asides: &'a SideMessageSender,
    },
    /// One session, beside this call of it; the message may be about another one that waits as well.
    One {
        asides: &'a SideMessageSender,
        is_of_several: bool,
        /// The number of the call.
        number: i64,
        /// The number of the newest call that it may be about.
        newest: i64,
        /// The session, if any of its calls can carry the message.
        session: Option<SessionKey>,
    },
    /// No call runs, and this session alone has abandoned calls that count.
    AfterCallsOf(SessionKey),
    Several,
}

/// Calls that nobody waits for any more and that the server may still be working on.
#[derive(Debug, Default)]
pub(super) struct AbandonedCalls {
    /// By id, which is a number: the session of each call, and the time until which it counts.
    calls: BTreeMap<i64, (Option<SessionKey>, Duration)>,
    /// The time until which the calls count for which there was no room.
    crowded_until: Duration,
}

impl AbandonedCalls {
    /// Keeps a call that nobody waits for any more, and that the server has not answered.
    pub(super) fn give_up(
        &mut self,
        now: Duration,
        call: &PendingRequest<RequestOrigin>,
        job_timeout: Duration,
    ) {
        if let RequestOrigin::Caller { asides: Some(_), session, .. } = &call.whose {
            let until = call.since.saturating_add(job_timeout.max(call.limit));
            self.add(now, &call.id, session.map(|session| session.key), until);
        }
    }

    /// Finds the audience of a message beside an answer: the caller of the request on whose stream the message came. If the stream is of
    /// all requests, it is the caller of the only call, or the session that waits for all of them. `carrying` has the numbers of the calls
    /// that carry a question.
    pub(super) fn audience<'a>(
        &self,
        now: Duration,
        calls: &'a RequestTable<RequestOrigin>,
        request: Option<&Id>,
        carrying: &HashSet<i64>,
    ) -> Audience<'a> {
        if let Some(request) = request {
            return match calls.whose(request) {
                Some(RequestOrigin::Caller { asides: Some(asides), .. }) => Audience::Call { asides },
                _ => Audience::Nobody,
            };
        }
        let listening = || calls.calls().filter_map(ListeningCall::of);
        let Some(newest) = listening().map(|call| call.number).max() else {
            return self.audience_without_calls(now);
        };
        let Some(chosen) = listening().max_by_key(|call| call.preference(carrying)) else {
            return Audience::Nobody;
        };
        let ListeningCall { asides, session, number, .. } = chosen;
        let is_of_several = listening().nth(1).is_some();
        let is_theirs = match session {
            Some(session) => self.are_all_of(now, session.key),
            None => self.is_empty(now),
        };
        let client = session.filter(|session| session.is_one_client);
        let are_all_theirs = || client.is_some() && listening().all(|call| call.session == client);
        match is_theirs && (!is_of_several || are_all_theirs()) {
            true => {
                let session = client.map(|session| session.key);
                Audience::One { asides, is_of_several, number, newest, session }
            }
            false => Audience::Several,
        }
    }

    /// Finds the audience while no call runs whose caller hears anything.
    fn audience_without_calls(&self, now: Duration) -> Audience<'static> {
        let mut counting = self.calls.values().filter(|(_, until)| *until > now).map(|(whose, _)| *whose);
        match counting.next() {
            _ if self.crowded_until > now => Audience::Several,
            None => Audience::Nobody,
            Some(Some(session)) if counting.all(|whose| whose == Some(session)) => {
                Audience::AfterCallsOf(session)
            }
            Some(_) => Audience::Several,
        }
    }

    fn add(&mut self, now: Duration, id: &Id, session: Option<SessionKey>, until: Duration) {
        if self.calls.len() >= MOST {
            self.calls.retain(|_, (_, until)| *until > now);
        }
        match number(id) {
            Some(number) if self.calls.len() < MOST => {
                self.calls.insert(number, (session, until));
            }
            _ => self.crowded_until = self.crowded_until.max(until),
        }
    }

    /// Forgets a call that the server has answered.
    pub(super) fn answered(&mut self, id: &Id) {
        if let Some(number) = number(id) {
            self.calls.remove(&number);
        }
    }

    /// Returns whether no abandoned call counts now.
    fn is_empty(&self, now: Duration) -> bool {
        self.crowded_until <= now && self.calls.values().all(|(_, until)| *until <= now)
    }

    /// Returns whether all abandoned calls that count now are this session's.
    fn are_all_of(&self, now: Duration, session: SessionKey) -> bool {
        self.crowded_until <= now
            && self.calls.values().all(|(whose, until)| *until <= now || *whose == Some(session))
    }
}

/// Finds the call to which a question moves when the call ends beside which it was put. That is a call of the session whose caller waits,
/// and which has not `left` the question. Calls after the `newest` came after the question.
pub(super) fn next_call<'a>(
    calls: &'a RequestTable<RequestOrigin>,
    session: SessionKey,
    (newest, left): (i64, &[i64]),
    carrying: &HashSet<i64>,
) -> Option<(i64, &'a SideMessageSender)> {
    let can_be_meant = |call: &ListeningCall<'_>| {
        call.waits
            && call.number <= newest
            && !left.contains(&call.number)
            && call.session.is_some_and(|of| of.key == session)
    };
    let others = calls.calls().filter_map(ListeningCall::of).filter(can_be_meant);
    others.max_by_key(|call| call.preference(carrying)).map(|call| (call.number, call.asides))
}

/// Reads the number in an id. Unhang's ids are numbers; some servers give them back as text. Returns `None` for other ids.
fn number(id: &Id) -> Option<i64> {
    match id {
        Id::Integer(number) => Some(*number),
        Id::Text(text) => text.parse().ok(),
        Id::BigInteger(_) => None,
    }
}

/// A call whose caller hears the messages beside its answer.
struct ListeningCall<'a> {
    number: i64,
    asides: &'a SideMessageSender,
    session: Option<OfSession>,
    /// The caller has not gone.
    waits: bool,
}

impl<'a> ListeningCall<'a> {
    fn of(call: &'a PendingRequest<RequestOrigin>) -> Option<Self> {
        let RequestOrigin::Caller { asides: Some(asides), session, reply, .. } = &call.whose else {
            return None;
        };
        let number = number(&call.id).unwrap_or_default();
        Some(Self { number, asides, session: *session, waits: !reply.is_closed() })
    }

    /// Ranks the calls of a session for its next question; the greatest gets it.
    fn preference(&self, carrying: &HashSet<i64>) -> (bool, bool, i64) {
        let is_asked_beside = self.session.is_some_and(|session| session.is_asked_beside);
        (self.waits, is_asked_beside || !carrying.contains(&self.number), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_abandoned_counts_until_it_is_answered_or_cannot_run_any_more() {
        let [one, other] = [SessionKey::drawn(), SessionKey::drawn()];
        assert_ne!(one, other);
        let at = Duration::from_secs;
        let mut abandoned = AbandonedCalls::default();
        abandoned.add(at(0), &Id::Integer(7), Some(one), at(10));
        abandoned.add(at(0), &Id::Integer(8), Some(other), at(20));
        assert!(!abandoned.are_all_of(at(1), one) && !abandoned.is_empty(at(1)));
        assert!(matches!(abandoned.audience_without_calls(at(1)), Audience::Several));
        abandoned.answered(&Id::Text("8".into()));
        assert!(abandoned.are_all_of(at(1), one) && !abandoned.are_all_of(at(1), other));
        assert!(matches!(abandoned.audience_without_calls(at(1)), Audience::AfterCallsOf(of) if of == one));
        assert!(abandoned.is_empty(at(10)), "it cannot run any more");
        assert!(matches!(abandoned.audience_without_calls(at(10)), Audience::Nobody));
        abandoned.add(at(0), &Id::Integer(9), None, at(30));
        assert!(
            matches!(abandoned.audience_without_calls(at(11)), Audience::Several),
            "whose it is is unknown"
        );
    }

    #[test]
    fn those_that_there_is_no_room_for_count_as_somebody_elses() {
        let (one, at) = (SessionKey::drawn(), Duration::from_secs);
        let mut abandoned = AbandonedCalls::default();
        for number in 0..=MOST {
            abandoned.add(at(0), &Id::Integer(number.try_into().expect("small")), Some(one), at(10));
        }
        assert_eq!(abandoned.calls.len(), MOST);
        assert!(!abandoned.are_all_of(at(9), one) && abandoned.are_all_of(at(10), one));
        assert!(matches!(abandoned.audience_without_calls(at(9)), Audience::Several));
    }
}
