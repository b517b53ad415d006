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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use unhang_wire::Id;

    use super::{super::questions::Asker, *};

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// A call that was sent at second 10 and may take 20 s.
    fn call(method: &str) -> GuardedCall {
        let call = GuardedCall::new(Id::from(7), method, Role::Other, seconds(10), Some(seconds(20)));
        GuardedCall { sent: true, ..call }
    }

    fn report(call: &GuardedCall) -> CallReport<'_> {
        CallReport { server: "srv", call, now: seconds(25) }
    }

    #[test]
    fn the_line_of_an_error_tells_the_call_the_time_and_what_is_known_besides() {
        let call = call("tools/call");
        let evidence = Evidence { junk: vec!["noise".to_owned()], ..Evidence::default() };
        for (kind, limit) in [(FaultKind::Deadline, json!(20_000)), (FaultKind::ServerExited, Value::Null)] {
            let error_report = ErrorReport { kind, summary: "it happened".to_owned(), hint: "go on" };
            let (exit, retry_after) = (Some("exit code 3".to_owned()), Some(seconds(4)));
            let line = report(&call).line(error_report, exit, retry_after, evidence.clone());
            let line: Value = serde_json::from_slice(&line).expect("JSON");
            let data = &line["error"]["data"];
            assert_eq!((&line["id"], &line["error"]["code"]), (&json!(7), &json!(kind.code())));
            assert_eq!(line["error"]["message"], "it happened; go on");
            assert_eq!((&data["server"], &data["method"]), (&json!("srv"), &json!("tools/call")));
            assert_eq!((&data["elapsedMs"], &data["limitMs"]), (&json!(15_000), &limit));
            assert_eq!((&data["exit"], &data["retryAfterMs"]), (&json!("exit code 3"), &json!(4000)));
            assert_eq!(data["junk"], json!(["noise"]));
        }
    }

    #[test]
    fn a_deadline_tells_who_was_waited_for_and_which_limit_to_raise() {
        let tool = || call("tools/call");
        let mut clocked = ClientProfile::default();
        clocked.set_call_clock(seconds(22));
        let unclocked = ClientProfile::default();
        let question = ServerQuestion {
            asker: Asker::Server,
            server_id: Id::from(1),
            is_of_a_task: false,
            method: "roots/list".into(),
            since: seconds(11),
        };
        let asked = Some(&question);
        let answer = "`srv` did not answer `tools/call` within 20s";
        let job = "unhang cancelled the call; raise --job-timeout if it needs longer";
        let raise = "unhang cancelled the call; raise --call-timeout if it needs longer";
        let raise_request = "unhang cancelled the request; raise --request-timeout if it needs longer";
        let start = "it has not answered anything since its start; raise --start-timeout if it needs longer to \
                     start, or see its log";
        let clock = "unhang cancelled the call just before the timeout of the client (22s)";
        for (call, client, call_timeout, has_started, question, happened, hint) in [
            (tool(), &unclocked, 20, true, None, answer, raise),
            (tool(), &unclocked, 20, false, None, answer, start),
            // The clock of the client counts only if it made the limit shorter than the configured one.
            (tool(), &clocked, 20, true, None, answer, raise),
            (tool(), &clocked, 21, true, None, answer, clock),
            (tool(), &clocked, 21, false, None, answer, start),
            (GuardedCall { is_job: true, ..tool() }, &clocked, 21, false, None, answer, job),
            (
                GuardedCall { limit: None, ..tool() },
                &clocked,
                21,
                true,
                None,
                "`srv` did not answer `tools/call` within 15s",
                raise,
            ),
            (
                GuardedCall { sent: false, held_for: seconds(5), ..tool() },
                &unclocked,
                20,
                true,
                asked,
                "`srv` was not ready again to answer `tools/call` within 20s",
                raise,
            ),
            (
                GuardedCall { held_for: seconds(5), ..tool() },
                &unclocked,
                20,
                true,
                None,
                "`srv` did not answer `tools/call` within 20s, 5s of which it took to start",
                raise,
            ),
            (
                tool(),
                &clocked,
                21,
                false,
                asked,
                "`srv` needs the client's answer to `roots/list`, which did not come within 20s",
                "unhang cancelled the call; answer the question in time, or raise --call-timeout",
            ),
            (
                call("prompts/get"),
                &clocked,
                21,
                true,
                asked,
                "`srv` did not answer `prompts/get` within 20s",
                raise_request,
            ),
        ] {
            let told = report(&call).deadline(client, seconds(call_timeout), has_started, question);
            assert_eq!((told.0.as_str(), &*told.1), (happened, hint));
        }
    }

    #[test]
    fn every_other_end_of_a_call_is_worded_with_its_server_and_method() {
        let call = call("tools/call");
        let listen = GuardedCall { role: Role::Listen, ..self::call("subscriptions/listen") };
        let start = StartFault { happened: "no program".to_owned(), exit: None };
        let ended = "`srv` ended 15s after `tools/call` was sent";
        for (error_report, kind, summary, hint) in [
            (report(&call).exited("`srv` ended", true), FaultKind::ServerExited, ended, RESTART_HINT),
            (report(&call).exited("`srv` ended", false), FaultKind::ServerExited, ended, "see its stderr"),
            (
                report(&call).bad_response("why"),
                FaultKind::BadResponse,
                "`srv` answered `tools/call` with an invalid response: why",
                BAD_RESPONSE_HINT,
            ),
            (
                report(&call).too_large(2000, 1000),
                FaultKind::TooLarge,
                "the answer of `srv` to `tools/call` is 2000 bytes long, over the limit of 1000",
                "ask for less, or raise --max-message",
            ),
            (start.report(), FaultKind::StartFailed, "no program", START_HINT),
        ] {
            assert_eq!(
                (error_report.kind, error_report.summary.as_str(), error_report.hint),
                (kind, summary, hint)
            );
        }
        for (call, told, hint) in [
            (
                &call,
                "`srv` had not answered `tools/call` after 15s",
                "send the request again in the next session if it is safe to repeat",
            ),
            (
                &listen,
                "`srv` had not answered `subscriptions/listen` after 15s",
                "subscribe again with the next session",
            ),
        ] {
            let error_report = report(call).shutting_down("the client closed its stream");
            assert_eq!((error_report.kind, error_report.hint), (FaultKind::ShuttingDown, hint));
            assert!(
                error_report.summary.contains("the client closed its stream"),
                "{}",
                error_report.summary
            );
            assert!(error_report.summary.ends_with(told), "{}", error_report.summary);
        }
    }
}
