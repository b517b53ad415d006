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

/// What to do about a call of which no job could be made.
const NOT_PROMOTED_HINT: &str = "the server was told; see why jobs cannot be kept (`unhang job list` says it), or raise call-timeout in its limits";

impl SessionCall {
    /// When it is over, if nothing has come of it by then.
    pub(super) fn last_moment(&self) -> Duration {
        let slack = match self.awaited {
            // The task that asks the server knows why there is no answer, and gets the time to say it. It says nothing at the
            // client's limit if the server has the time of a job.
            Awaited::Server { .. } if !self.server_outlasts_client => VERDICT_SLACK,
            _ => Duration::ZERO,
        };
        self.since.saturating_add(self.limit).saturating_add(slack)
    }

    /// When something is to be done about it.
    pub(super) fn next_moment(&self) -> Duration {
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next());
        self.promotion.at.into_iter().chain(heartbeat).fold(self.last_moment(), min)
    }

    /// Says that nothing came of the call within its limit, and what to do about it.
    pub(super) fn silence(&self) -> (String, &'static str) {
        let silent = format!("`{}` did not answer within {}", self.awaited.name(), in_words(self.limit));
        match &self.not_promoted {
            Some(why) => {
                (format!("{silent}, and no job could be made of the call: {why}"), NOT_PROMOTED_HINT)
            }
            None => (silent, self.awaited.hint_to_wait()),
        }
    }

    /// Tells its client that it is still waited for, where that is due.
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

/// What the client of a call of this tool hears while nothing else comes, where it wants to hear of progress.
pub(super) fn heartbeat(
    now: Duration,
    request: &ClientRequest<'_>,
    revision: Revision,
    tool: &str,
    jobs: JobCapabilities,
) -> Option<Box<Heartbeat>> {
    // A window that asks does this for its own client.
    if jobs.are_of_windows || !stands("silent-call-has-a-heartbeat") {
        return None;
    }
    let token = request.params.and_then(progress_token)?;
    Some(Box::new(Heartbeat::new(now, token, tool, revision.has_progress_messages())))
}
