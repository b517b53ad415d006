//! Who hears what a server says and asks beside its answers: the session that made all calls that it can be about.
//!
//! Theory of operation. Over a pipe nothing says which call a question is about. Where all calls are of one session, that session is the
//! right one whichever call it is. The question is put beside the newest of them, since older ones may be jobs already; and it says that it
//! may be about another of them, so that it stays when that one ends. A client that is asked by the answer to a call (2026-07-28) has to be
//! asked by that very call, and hears nothing while several of its calls are there.
//!
//! Invariants
//!
//! - What may be about calls of several sessions is for none of them.
//! - A call that its caller has given up counts until the server has answered it, for the server may be at it still; but no longer than a
//!   call may take at all (`job-timeout`), for servers need not answer what was withdrawn.
//! - What is kept of such calls is bounded. Where there are too many, nobody hears anything until the last of them cannot run any more.

use std::{collections::BTreeMap, time::Duration};

use unhang_wire::Id;

use super::{PendingRequest, RequestOrigin, UpstreamSession};
use crate::question::{Asides, OfSession, SessionKey};

/// How many calls that were given up are told from one another.
const MOST: usize = 4096;

/// Who hears what a server says beside its answers.
pub(super) enum Hears<'a> {
    Nobody,
    /// One session, beside this call of it; it may be about another one that waits as well.
    One {
        asides: &'a Asides,
        is_of_several: bool,
        /// Which one, where it is asked beside its calls.
        session: Option<SessionKey>,
    },
    Several,
}

/// Calls that nobody waits for any more and that the server may be at still.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// By their ids, which are numbers: whose each was, and until when it counts.
    calls: BTreeMap<i64, (Option<SessionKey>, Duration)>,
    /// Until when those count for which there was no room.
    crowded_until: Duration,
}

impl GivenUp {
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

    /// The server has answered this one.
    pub(super) fn answered(&mut self, id: &Id) {
        if let Some(number) = number(id) {
            self.calls.remove(&number);
        }
    }

    /// Whether there is none now.
    fn is_empty(&self, now: Duration) -> bool {
        self.crowded_until <= now && self.calls.values().all(|(_, until)| *until <= now)
    }

    /// Whether all of them were this session's.
    fn are_all_of(&self, now: Duration, session: SessionKey) -> bool {
        self.crowded_until <= now
            && self.calls.values().all(|(whose, until)| *until <= now || *whose == Some(session))
    }
}

/// Ids of ours are numbers; some servers give them back as text.
fn number(id: &Id) -> Option<i64> {
    match id {
        Id::Integer(number) => Some(*number),
        Id::Text(text) => text.parse().ok(),
        Id::BigInteger(_) => None,
    }
}

impl UpstreamSession {
    /// Nobody waits for this call any more, which the server has not answered.
    pub(super) fn give_up(&mut self, call: &PendingRequest<RequestOrigin>) {
        if let RequestOrigin::Caller { asides: Some(_), session, .. } = &call.whose {
            let until = call.since.saturating_add(self.limits.job_timeout.max(call.limit));
            self.given_up.add(self.now(), &call.id, session.map(|session| session.key), until);
        }
    }

    /// Who hears what is said beside an answer: whoever waits for the only one, or the session that waits for all of them.
    pub(super) fn asides(&self) -> Hears<'_> {
        let now = self.now();
        let hearing = || self.request_table.calls().filter_map(Hearing::of);
        let Some(newest) = hearing().max_by_key(|hearing| (hearing.waits, hearing.number)) else {
            return if self.given_up.is_empty(now) { Hears::Nobody } else { Hears::Several };
        };
        let Hearing { asides, session, .. } = newest;
        let is_of_several = hearing().nth(1).is_some();
        let is_theirs = match session {
            Some(session) => self.given_up.are_all_of(now, session.key),
            None => self.given_up.is_empty(now),
        };
        let beside = session.filter(|session| session.is_asked_beside);
        let are_all_theirs = || beside.is_some() && hearing().all(|hearing| hearing.session == beside);
        match is_theirs && (!is_of_several || are_all_theirs()) {
            true => Hears::One { asides, is_of_several, session: beside.map(|session| session.key) },
            false => Hears::Several,
        }
    }
}

/// A call whose caller hears what is said beside its answer.
struct Hearing<'a> {
    number: i64,
    asides: &'a Asides,
    session: Option<OfSession>,
    /// Its caller has not gone.
    waits: bool,
}

impl<'a> Hearing<'a> {
    fn of(call: &'a PendingRequest<RequestOrigin>) -> Option<Self> {
        let RequestOrigin::Caller { asides: Some(asides), session, reply, .. } = &call.whose else {
            return None;
        };
        let number = number(&call.id).unwrap_or_default();
        Some(Self { number, asides, session: *session, waits: !reply.is_closed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_counts_until_it_is_answered_or_cannot_run_any_more() {
        let [one, other] = [SessionKey::drawn(), SessionKey::drawn()];
        assert_ne!(one, other);
        let at = Duration::from_secs;
        let mut given_up = GivenUp::default();
        given_up.add(at(0), &Id::Integer(7), Some(one), at(10));
        given_up.add(at(0), &Id::Integer(8), Some(other), at(20));
        assert!(!given_up.are_all_of(at(1), one) && !given_up.is_empty(at(1)));
        given_up.answered(&Id::Text("8".into()));
        assert!(given_up.are_all_of(at(1), one) && !given_up.are_all_of(at(1), other));
        assert!(given_up.is_empty(at(10)), "it cannot run any more");
    }

    #[test]
    fn those_that_there_is_no_room_for_count_as_somebody_elses() {
        let (one, at) = (SessionKey::drawn(), Duration::from_secs);
        let mut given_up = GivenUp::default();
        for number in 0..=MOST {
            given_up.add(at(0), &Id::Integer(number.try_into().expect("small")), Some(one), at(10));
        }
        assert_eq!(given_up.calls.len(), MOST);
        assert!(!given_up.are_all_of(at(9), one) && given_up.are_all_of(at(10), one));
    }
}
