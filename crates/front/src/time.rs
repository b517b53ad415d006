//! The effects of time: calls whose limit is over, calls that become jobs, and heartbeats to waiting clients.
//!
//! Theory of operation. A call is in flight together with the first moment at which it needs attention ([`SessionCall::next_moment`]). At
//! that moment all due work is done. Unless the call is over, it stays in flight with its next moment.
//!
//! # Invariants
//!
//! - The last moment of a call is that of its limit, whatever came before.
//! - A heartbeat belongs to a tool call whose client wants progress and waits for the answer. A call that is over, withdrawn, promoted or
//!   parked is not in flight, and has no heartbeat.

use std::{cmp::min, time::Duration};

use unhang_wire::progress_token;

use super::{
    client_request::ClientRequest,
    effects::{LineTarget, SessionEffects},
    session_calls::{Awaited, SessionCall},
    tasks::JobCapabilities,
};
use unhang_core::{
    config::VERDICT_SLACK, heartbeat::Heartbeat, queue::Class, revision::Revision, units::in_words,
};

/// The hint for a timed-out call of which no job could be made.
const NOT_PROMOTED_HINT: &str = "unhang told the server to stop; run `unhang job list` to see why unhang cannot store jobs, or raise \
    call-timeout in its limits";

impl SessionCall {
    /// Returns the moment at which the call fails if no outcome has come.
    pub(super) fn last_moment(&self) -> Duration {
        let slack = match self.awaited {
            // The task that asks the server knows why there is no answer, and gets some time to report that. If the server has the time of
            // a job, the task reports nothing at the client's limit.
            Awaited::Server { .. } if !self.server_outlasts_client => VERDICT_SLACK,
            _ => Duration::ZERO,
        };
        self.since.saturating_add(self.limit).saturating_add(slack)
    }

    /// Returns the next moment at which the call needs attention.
    pub(super) fn next_moment(&self) -> Duration {
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next());
        self.promotion.at.into_iter().chain(heartbeat).fold(self.last_moment(), min)
    }

    /// Words the timeout of the call, and the hint.
    pub(super) fn silence(&self) -> (String, &'static str) {
        let silent = format!("`{}` did not answer within {}", self.awaited.name(), in_words(self.limit));
        match &self.not_promoted {
            Some(why) => (format!("{silent}, and the call could not become a job: {why}"), NOT_PROMOTED_HINT),
            None => (silent, self.awaited.hint_to_wait()),
        }
    }

    /// Sends a heartbeat to its client if one is due.
    pub(super) fn beat_where_due(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        if self.last_moment() <= now {
            return;
        }
        let Some(heartbeat) = &mut self.heartbeat else { return };
        if let Some(line) = heartbeat.beat(now) {
            let class = Class::Progress(heartbeat.token().clone());
            effects.to_client(LineTarget::Beside(self.route.stream), class, line.as_bytes());
        }
    }
}

/// Makes the heartbeat of a call of this tool. Returns `None` if the client does not want progress, or is a window.
pub(super) fn heartbeat(
    now: Duration,
    request: &ClientRequest<'_>,
    revision: Revision,
    tool: &str,
    jobs: JobCapabilities,
) -> Option<Box<Heartbeat>> {
    // The window does this for its own client.
    if jobs.are_of_windows {
        return None;
    }
    let token = request.params.and_then(progress_token)?;
    Some(Box::new(Heartbeat::new(now, token, tool, revision.has_progress_messages())))
}
