//! What happens because time has passed: calls that are over, those that become jobs, and those whose clients hear that they are waited for.
//!
//! Theory of operation. A call is in flight with the first moment at which anything is to be done about it ([`SessionCall::next_moment`]). At that
//! moment what is due is done, and unless the call is over it stays in flight with the next one.
//!
//! # Invariants
//!
//! - The last moment of a call is that of its limit, whatever came before.
//! - A heartbeat is for a call of a tool whose client wants to hear of progress and waits for the answer. What is over, withdrawn, handed
//!   over or parked is not in flight, and has none.

use std::{cmp::min, time::Duration};

use unhang_switches::stands;
use unhang_wire::{Id, progress_token};

use super::{
    mcp_session::{Awaited, McpSession, SessionCall, SessionEffects, SessionEnd, To},
    requests::ClientRequest,
};
use unhang_core::{
    config::VERDICT_SLACK, exit, fault::FaultKind, heartbeat::Heartbeat, queue::Class, refusal::ErrorReport,
    revision::Revision, units::in_words,
};

impl SessionCall {
    /// When it is over, if nothing has come of it by then.
    pub(super) fn last_moment(&self) -> Duration {
        let slack = match self.awaited {
            // Whoever asks the server knows more of why there is no answer, and is given the time to say it.
            Awaited::Server { .. } => VERDICT_SLACK,
            _ => Duration::ZERO,
        };
        self.since.saturating_add(self.limit).saturating_add(slack)
    }

    /// When something is to be done about it.
    pub(super) fn next_moment(&self) -> Duration {
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next());
        self.hand_over.at.into_iter().chain(heartbeat).fold(self.last_moment(), min)
    }
}

impl McpSession {
    /// When [`McpSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let end = match self.end {
            SessionEnd::Draining { until, .. } | SessionEnd::Stopping { until, .. } => Some(until),
            SessionEnd::None | SessionEnd::Over => None,
        };
        let calls = self.calls.next_deadline().filter(|_| stands("tool-deadline"));
        end.into_iter().chain(calls).chain(self.parking.next_tick()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.now = now;
        while let Some((id, call)) = self.next_over(effects) {
            if let Awaited::List(list) = call.awaited {
                // What is known by now has to do.
                self.answer_list(&id, list, &call, effects);
                continue;
            }
            let unanswered = self.unanswered(&call);
            self.abandon(call.key, effects);
            let silent =
                || format!("`{}` did not answer within {}", call.awaited.name(), in_words(call.limit));
            let (happened, hint) = unanswered.unwrap_or_else(|| (silent(), call.awaited.hint_to_wait()));
            let error_report = ErrorReport { kind: FaultKind::Deadline, summary: happened, hint };
            self.answers.tell(self.now, &id, &call, error_report, effects);
        }
        self.unpark(Some(now));
        self.check_drained(effects);
        match self.end {
            SessionEnd::Draining { until, cause } if now >= until => {
                self.stop(now, exit::DONE, cause, effects);
            }
            SessionEnd::Stopping { until, code } if now >= until => self.finish(code),
            _ => {}
        }
    }

    /// The next call that is over, once whatever is due about others has been done.
    fn next_over(&mut self, effects: &mut impl SessionEffects) -> Option<(Id, SessionCall)> {
        while let Some(id) = self.calls.due(self.now).cloned() {
            self.hand_over_where_due(&id);
            self.beat_where_due(&id, effects);
            let next = self.calls.get(&id).map(SessionCall::next_moment).filter(|next| *next > self.now);
            if next.is_none_or(|next| !self.calls.postpone(&id, next)) {
                break;
            }
        }
        self.calls.expire(self.now)
    }

    /// Tells the client of this call that it is still waited for, where that is due.
    fn beat_where_due(&mut self, id: &Id, effects: &mut impl SessionEffects) {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.last_moment() > self.now) else { return };
        let Some(heartbeat) = &mut call.heartbeat else { return };
        if let Some(line) = heartbeat.beat(self.now) {
            let class = Class::Progress(heartbeat.token().clone());
            effects.to_client(To::Beside(call.way.stream), class, line.as_bytes());
        }
    }

    /// What the client of this call of a tool hears while nothing else comes, where it wants to hear of progress.
    pub(super) fn heartbeat(
        &self,
        request: &ClientRequest<'_>,
        revision: Revision,
        tool: &str,
    ) -> Option<Box<Heartbeat>> {
        // A window that asks does this for its own client.
        if self.jobs.are_of_windows || !stands("silent-call-has-a-heartbeat") {
            return None;
        }
        let token = request.params.and_then(progress_token)?;
        Some(Box::new(Heartbeat::new(self.now, token, tool, revision.has_progress_messages())))
    }
}
