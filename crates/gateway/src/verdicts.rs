//! The gateway's own errors about a server, for callers: what happened, and what to do.

use std::time::Duration;

use super::{instance_limit::NoInstance, status::ServerRecord};
use unhang_core::{config::RETRY_MOST, fault::FaultKind, units::in_words};
use unhang_upstream::client::{Error, Failure};

/// Tells a caller that its time was over before the server was ready.
pub(super) fn still_starting(server: &str, method: &str, limit: Duration) -> Error {
    let happened = format!("`{server}` was not ready to answer `{method}` within {}", in_words(limit));
    let hint = "unhang is still starting it; ask again, or see its stderr in the log";
    Failure {
        limit: Some(limit),
        elapsed: limit,
        ..failure(server, FaultKind::Deadline, method, happened, hint)
    }
    .into()
}

/// Tells a caller that it answers a question that the server has not asked.
pub(super) fn no_such_question(server: &str, method: &str) -> Error {
    let happened = format!("`{server}` has no open question about this `{method}`");
    let hint = "make the request again, without requestState and inputResponses";
    failure(server, FaultKind::InvalidParams, method, happened, hint).into()
}

/// Tells a caller that the server is left alone for `rest` after so many failures.
pub(super) fn fenced_off(server: &str, failures: u32, rest: Duration, record: &ServerRecord) -> Error {
    let happened = left_alone(server, failures, record, true);
    let hint = format!("ask again in {}", in_words(Duration::from_secs(rest.as_secs() + 1)));
    let failure = failure(server, FaultKind::BreakerOpen, "", happened, &hint);
    let unquoted = Some(left_alone(server, failures, record, false));
    Failure { retry_after: Some(rest), unquoted, ..failure }.into()
}

/// Says that the server is left alone, and why, for a reader who may see what it wrote, or may not.
pub(super) fn left_alone(server: &str, failures: u32, record: &ServerRecord, may_read: bool) -> String {
    let last_failure = record.last_failure();
    let why = last_failure.last(may_read).map(|why| format!("; the last failure: {why}")).unwrap_or_default();
    format!("`{server}` failed {failures} times in a row, and unhang does not use it for a while{why}")
}

/// Tells a caller that its session cannot have an instance of its own.
pub(super) fn no_instance(server: &str, taken: NoInstance) -> Error {
    let (happened, whose) = match taken {
        NoInstance::All(most) => (
            format!("`{server}` cannot be started for this session: the limit of {most} is reached"),
            format!(
                "max-instances = {most} of [gateway] limits the servers that run one process per session"
            ),
        ),
        NoInstance::OfOne(share) => (
            format!("`{server}` cannot be started for this session: its client has {share} instances"),
            "one client has half of max-instances of [gateway] at most".to_owned(),
        ),
    };
    let hint = format!("{whose}; end a session that has one, or ask again in {}", in_words(RETRY_MOST));
    let failure = failure(server, FaultKind::Overloaded, "", happened, &hint);
    Failure { retry_after: Some(RETRY_MOST), ..failure }.into()
}

/// Makes a failure of this kind, without further evidence.
pub(super) fn failure(server: &str, kind: FaultKind, method: &str, happened: String, hint: &str) -> Failure {
    let method = Some(method.to_owned()).filter(|method| !method.is_empty());
    Failure { kind, server: server.to_owned(), method, happened, hint: hint.to_owned(), ..Failure::ended() }
}
