//! Errors for calls that get no answer of their server: the fault and its wording (design 4).
//!
//! Invariant: each sentence names the server, the awaited answer and the time, and says what to do.

use std::{borrow::Cow, time::Duration};

use unhang_core::{
    clients,
    fault::{BAD_RESPONSE_HINT, Evidence, Fault, FaultKind, RESTART_HINT, after_request, of_which_starting},
    refusal::{ErrorReport, unhang_ends},
    units::in_words,
};

use super::{
    calls::{GuardedCall, Role},
    client_profile::ClientProfile,
    questions::ServerQuestion,
    supervision::StartFault,
};

/// The hint about a server that cannot be started.
const START_HINT: &str = "check the command after `unhang wrap --` by running it in a terminal";

/// A call of a server at a moment, as the subject of an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallReport<'a> {
    pub(super) server: &'a str,
    pub(super) call: &'a GuardedCall,
    pub(super) now: Duration,
}

impl CallReport<'_> {
    fn elapsed(&self) -> Duration {
        self.now.saturating_sub(self.call.since)
    }

    /// Returns the line that answers the call with this error.
    pub(super) fn line(
        &self,
        error_report: ErrorReport<'_>,
        exit: Option<String>,
        retry_after: Option<Duration>,
        evidence: Evidence,
    ) -> Vec<u8> {
        let fault = Fault {
            limit: (error_report.kind == FaultKind::Deadline).then_some(self.call.limit).flatten(),
            elapsed: self.elapsed(),
            retry_after,
            exit,
            evidence,
            ..error_report.into_fault(self.server, Some(&self.call.method))
        };
        fault.response(Some(&self.call.client_id))
    }

    /// Words the error of a call whose deadline has passed: the sentence and the hint. `question` is a request of the server that has been
    /// open since the call was made.
    pub(super) fn deadline(
        &self,
        client: &ClientProfile,
        call_timeout: Duration,
        has_started: bool,
        question: Option<&ServerQuestion>,
    ) -> (String, Cow<'static, str>) {
        let (server, call) = (self.server, self.call);
        let limit = call.limit.unwrap_or_else(|| self.elapsed());
        // A server that asks something while it has one call asks about that call.
        let question = question.filter(|_| call.sent && &*call.method == "tools/call");
        let mut happened = if let Some(question) = question {
            format!(
                "`{server}` needs the client's answer to `{}`, which did not come within {}",
                question.method,
                in_words(limit)
            )
        } else {
            let awaiting = if call.sent { "did not answer" } else { "was not ready again to answer" };
            format!("`{server}` {awaiting} `{}` within {}", call.method, in_words(limit))
        };
        if call.sent {
            happened.push_str(&of_which_starting(call.held_for));
        }
        let client_clock =
            client.call_clock().filter(|_| call.limit.is_some_and(|limit| limit < call_timeout));
        let hint = if call.is_job {
            "unhang cancelled the call; raise --job-timeout if it needs longer"
        } else if question.is_some() {
            "unhang cancelled the call; answer the question in time, or raise --call-timeout"
        } else if !has_started {
            "it has not answered anything since its start; raise --start-timeout if it needs longer to \
             start, or see its log"
        } else if let (Some(clock), "tools/call") = (client_clock, &*call.method) {
            return (happened, clients::cut_short(client.name(), clock).into());
        } else if &*call.method == "tools/call" {
            "unhang cancelled the call; raise --call-timeout if it needs longer"
        } else {
            "unhang cancelled the request; raise --request-timeout if it needs longer"
        };
        (happened, hint.into())
    }

    /// Words the error of a call whose process has ended, as `told` says.
    pub(super) fn exited(&self, told: &str, restarts: bool) -> ErrorReport<'static> {
        let happened = after_request(told, self.elapsed(), &self.call.method);
        let hint = if restarts { RESTART_HINT } else { "see its stderr" };
        ErrorReport { kind: FaultKind::ServerExited, summary: happened, hint }
    }

    /// Words the error of a call at the end of the session.
    pub(super) fn shutting_down(&self, cause: &str) -> ErrorReport<'static> {
        let happened = format!(
            "{}; `{}` had not answered `{}` after {}",
            unhang_ends(cause),
            self.server,
            self.call.method,
            in_words(self.elapsed())
        );
        let hint = match self.call.role {
            Role::Listen => "subscribe again with the next session",
            _ => "send the request again in the next session if it is safe to repeat",
        };
        ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint }
    }

    /// Words the error of a call whose answer is not a valid response.
    pub(super) fn bad_response(&self, why: &str) -> ErrorReport<'static> {
        let happened =
            format!("`{}` answered `{}` with an invalid response: {why}", self.server, self.call.method);
        ErrorReport { kind: FaultKind::BadResponse, summary: happened, hint: BAD_RESPONSE_HINT }
    }

    /// Words the error of a call whose answer is over the limit.
    pub(super) fn too_large(&self, length: u64, limit: usize) -> ErrorReport<'static> {
        let happened = format!(
            "the answer of `{}` to `{}` is {length} bytes long, over the limit of {limit}",
            self.server, self.call.method
        );
        let hint = "ask for less, or raise --max-message";
        ErrorReport { kind: FaultKind::TooLarge, summary: happened, hint }
    }
}

impl StartFault {
    /// Words the error for a server that never came up.
    pub(super) fn report(&self) -> ErrorReport<'static> {
        ErrorReport { kind: FaultKind::StartFailed, summary: self.happened.clone(), hint: START_HINT }
    }
}
