//! Our own verdicts about a server, for whoever asked it something: what happened, and what to do.

use std::time::Duration;

use super::{backend::Backend, instance_limit::NoInstance};
use unhang_core::{config::RETRY_MOST, fault::FaultKind, units::in_words};
use unhang_upstream::client::{Error, Failure};

impl Backend {
    /// Our verdict for a caller whose time was over before the server was ready.
    pub(super) fn still_starting(&self, method: &str, limit: Duration) -> Error {
        let happened =
            format!("`{}` was not ready to answer `{method}` within {}", self.name(), in_words(limit));
        let hint = "it is still being started; ask again, or look at its stderr in the log";
        Failure {
            limit: Some(limit),
            elapsed: limit,
            ..self.failure(FaultKind::Deadline, method, happened, hint)
        }
        .into()
    }

    /// Our verdict for a caller who answers what was not asked.
    pub(super) fn no_such_question(&self, method: &str) -> Error {
        let happened = format!("`{}` was not asking anything about this `{method}`", self.name());
        let hint = "make the request anew, without requestState and inputResponses";
        self.failure(FaultKind::InvalidParams, method, happened, hint).into()
    }

    /// Our verdict for a caller while it is left alone.
    pub(super) fn fenced_off(&self, rest: Duration) -> Error {
        let failures = self.state().breaker.failures();
        let happened = self.left_alone(failures, true);
        let hint = format!("ask again in {}", in_words(Duration::from_secs(rest.as_secs() + 1)));
        let failure = self.failure(FaultKind::BreakerOpen, "", happened, &hint);
        let unquoted = Some(self.left_alone(failures, false));
        Failure { retry_after: Some(rest), unquoted, ..failure }.into()
    }

    /// That it is left alone, and why, for whom may read what it wrote or may not.
    pub(super) fn left_alone(&self, failures: u32, may_read: bool) -> String {
        let trouble = self.record.trouble();
        let why = trouble.last(may_read).map(|why| format!("; at last {why}")).unwrap_or_default();
        format!("`{}` failed {failures} times in a row and is left alone{why}", self.name())
    }

    /// Our verdict for a caller whose session cannot have one of its own.
    pub(super) fn no_seat(&self, taken: NoInstance) -> Error {
        let (happened, whose) = match taken {
            NoInstance::All(most) => (
                format!("`{}` cannot be started for this session: {most} instances run already", self.name()),
                format!(
                    "max-instances = {most} of [gateway] bounds the servers that run once for each session"
                ),
            ),
            NoInstance::OfOne(share) => (
                format!(
                    "`{}` cannot be started for this session: its client has {share} instances",
                    self.name()
                ),
                "one client has half of max-instances of [gateway] at most".to_owned(),
            ),
        };
        let hint = format!("{whose}; end a session that has one, or ask again in {}", in_words(RETRY_MOST));
        let failure = self.failure(FaultKind::Overloaded, "", happened, &hint);
        Failure { retry_after: Some(RETRY_MOST), ..failure }.into()
    }

    pub(super) fn failure(&self, kind: FaultKind, method: &str, happened: String, hint: &str) -> Failure {
        let method = Some(method.to_owned()).filter(|method| !method.is_empty());
        Failure {
            kind,
            server: self.name().to_owned(),
            method,
            happened,
            hint: hint.to_owned(),
            ..Failure::ended()
        }
    }
}
