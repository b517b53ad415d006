//! The counters of all sessions together, for operators.
//!
//! Invariants
//!
//! - No text of a client becomes part of a series. Methods are the known ones, tools and servers are the configured ones, and statuses are
//!   unhang's. So no outsider makes the number of series grow.
//! - Counting never waits.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use prometheus_client::metrics::{counter::Counter, family::Family};

/// The methods that clients may ask for, in any revision.
const METHODS: [&str; 15] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
];

/// The label of every other method.
const OTHER: &str = "other";

/// The statuses of answers to requests over HTTP.
const STATUSES: [u16; 16] =
    [200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 415, 429, 500, 503, ANY_OTHER];

/// Stands for every other status.
const ANY_OTHER: u16 = 0;

/// A label and its value.
pub(crate) type Label = (&'static str, Cow<'static, str>);

/// The counters. All sessions share them.
#[derive(Debug, Default)]
pub(crate) struct FrontTally {
    /// Requests of clients, by method.
    pub(crate) requests: Family<[Label; 1], Counter>,
    /// Calls of unhang's own tools, by tool and outcome.
    pub(crate) tool_calls: Family<[Label; 2], Counter>,
    /// Requests that were answered with a result.
    pub(crate) results: AtomicU64,
    /// Lines and requests that were answered with an error.
    pub(crate) errors: AtomicU64,
    /// Requests that clients withdrew.
    pub(crate) withdrawn: AtomicU64,
    /// Notifications that were merged or left out because their client did not read.
    pub(crate) shed: AtomicU64,
    /// Bytes that wait for clients.
    pub(crate) waiting: AtomicUsize,
    /// Sessions that were closed because their client did not read.
    pub(crate) deaf: AtomicU64,
    responses: [AtomicU64; STATUSES.len()],
}

impl FrontTally {
    /// Counts a request of a client.
    pub(crate) fn requested(&self, method: &str) {
        let known = METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER);
        self.requests.get_or_create(&[("method", Cow::Borrowed(known))]).inc();
    }

    /// Counts a request over HTTP that was answered with this status.
    pub(crate) fn responded(&self, status: u16) {
        let index = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        add_one(&self.responses[index]);
    }

    /// Returns the number of requests over HTTP for each status that has occurred.
    pub(crate) fn responses(&self) -> Vec<(String, u64)> {
        let counts = STATUSES.iter().zip(&self.responses);
        let counts = counts.map(|(status, count)| (*status, count.load(Ordering::Relaxed)));
        let name = |status: u16| if status == ANY_OTHER { OTHER.to_owned() } else { status.to_string() };
        counts.filter(|(_, count)| *count > 0).map(|(status, count)| (name(status), count)).collect()
    }
}

/// Counts one more.
pub(crate) fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A call of an own tool that has begun. It is counted with its outcome, which is "cancelled" if it never answers.
pub(super) struct CountedCall {
    tally: Arc<FrontTally>,
    /// The tool's name, one of the listed names.
    tool: String,
    outcome: &'static str,
}

impl CountedCall {
    pub(super) fn begin(tally: Arc<FrontTally>, tool: String) -> Self {
        Self { tally, tool, outcome: "cancelled" }
    }

    /// Notes that the call was answered.
    pub(super) fn ended(mut self, is_error: bool) {
        self.outcome = if is_error { "error" } else { "ok" };
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let tool = std::mem::take(&mut self.tool);
        let labels = [("tool", Cow::Owned(tool)), ("outcome", Cow::Borrowed(self.outcome))];
        self.tally.tool_calls.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(tally: &FrontTally, method: &'static str) -> u64 {
        tally.requests.get_or_create(&[("method", Cow::Borrowed(method))]).get()
    }

    #[test]
    fn statuses_that_have_occurred_are_counted_and_the_unusual_ones_together() {
        let tally = FrontTally::default();
        assert_eq!(tally.responses(), [], "nothing has been answered");
        for status in [404, 200, 200, 503, 418, 0, 599] {
            tally.responded(status);
        }
        let expect = [("200", 2), ("404", 1), ("503", 1), ("other", 3)];
        assert_eq!(tally.responses(), expect.map(|(status, count)| (status.to_owned(), count)));
    }

    #[test]
    fn methods_of_any_revision_are_counted_and_others_together() {
        let tally = FrontTally::default();
        for method in METHODS.into_iter().chain(["strange", "other", ""]) {
            tally.requested(method);
        }
        for method in METHODS {
            assert_eq!(requests(&tally, method), 1, "{method}");
        }
        assert_eq!(requests(&tally, OTHER), 3);
        assert_eq!(requests(&tally, "strange"), 0);
    }

    #[test]
    fn a_call_of_a_tool_is_counted_once_with_its_outcome() {
        let tally = Arc::new(FrontTally::default());
        let begin = || CountedCall::begin(Arc::clone(&tally), "echo".to_owned());
        let counts = || {
            ["ok", "error", "cancelled"].map(|outcome| {
                let labels = [("tool", Cow::Borrowed("echo")), ("outcome", Cow::Borrowed(outcome))];
                tally.tool_calls.get_or_create(&labels).get()
            })
        };
        let open = begin();
        assert_eq!(counts(), [0, 0, 0], "it has no outcome yet");
        begin().ended(false);
        assert_eq!(counts(), [1, 0, 0]);
        begin().ended(true);
        assert_eq!(counts(), [1, 1, 0]);
        drop(open);
        assert_eq!(counts(), [1, 1, 1]);
    }
}
