//! Counts of the requests of clients to one server, for the operator.
//!
//! Invariants
//!
//! - Every request that began is counted once, with its outcome: also a request that nobody waited for any more.
//! - The amount of data depends on nothing that a client sends: there are so many methods and so many outcomes.
//! - Counting takes no lock but that of the histogram, which nobody holds for longer than an addition.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::metrics::histogram::Histogram;
use serde_json::value::RawValue;
use tokio::time::Instant;

use unhang_core::fault::FaultKind;
use unhang_upstream::client::Error;

/// The methods that servers are asked for clients.
const METHODS: [&str; 5] = ["tools/call", "prompts/get", "resources/read", "completion/complete", "other"];

/// The outcomes: an answer, and all our reasons why there is none.
const OUTCOMES: [&str; 16] = [
    "ok",
    "error",
    FaultKind::Deadline.word(),
    FaultKind::ServerExited.word(),
    FaultKind::StartFailed.word(),
    FaultKind::BreakerOpen.word(),
    FaultKind::Overloaded.word(),
    FaultKind::TooLarge.word(),
    FaultKind::BadResponse.word(),
    FaultKind::ShuttingDown.word(),
    CANCELLED,
    FaultKind::InvalidRequest.word(),
    FaultKind::MethodNotFound.word(),
    FaultKind::InvalidParams.word(),
    FaultKind::HeaderMismatch.word(),
    "other",
];

const CANCELLED: &str = FaultKind::Cancelled.word();

/// The buckets in seconds, from the time of a server on this machine up to the longest default limit.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The counts of one server.
#[derive(Debug)]
pub struct RequestMetrics {
    requests: [[AtomicU64; OUTCOMES.len()]; METHODS.len()],
    /// The durations of requests, in seconds.
    pub durations: Histogram,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            requests: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
            durations: Histogram::new(BUCKETS),
        }
    }
}

impl RequestMetrics {
    /// Returns the method, the outcome and the count of requests, for each count that is not zero.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<'_> {
        let outcomes = |row: &'static str, counts: &'_ [AtomicU64; OUTCOMES.len()]| {
            let counts =
                array::from_fn::<_, { OUTCOMES.len() }, _>(|index| counts[index].load(Ordering::Relaxed));
            OUTCOMES.into_iter().zip(counts).map(move |(outcome, count)| (row, outcome, count))
        };
        let rows = METHODS.into_iter().zip(&self.requests);
        rows.flat_map(move |(method, counts)| outcomes(method, counts)).filter(|(.., count)| *count > 0)
    }

    fn add(&self, method: &str, outcome: &str, since: Instant) {
        self.requests[index_of(&METHODS, method)][index_of(&OUTCOMES, outcome)]
            .fetch_add(1, Ordering::Relaxed);
        self.durations.observe(since.elapsed().as_secs_f64());
    }
}

/// Returns the index of a name. Other names have the index of the last one.
fn index_of(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or(names.len() - 1)
}

/// A request that has begun.
pub(crate) struct CountedRequest {
    metrics: Arc<RequestMetrics>,
    method: &'static str,
    since: Instant,
    /// The outcome, unless the request is dropped before.
    outcome: &'static str,
}

impl CountedRequest {
    pub(crate) fn begin(metrics: Arc<RequestMetrics>, method: &'static str) -> Self {
        Self { metrics, method, since: Instant::now(), outcome: CANCELLED }
    }

    /// Notes the outcome of the request, and counts it.
    pub(crate) fn ended(mut self, outcome: &Result<Box<RawValue>, Error>) {
        self.outcome = match outcome {
            Ok(_) => "ok",
            Err(Error::Server(_)) => "error",
            Err(Error::Failure(failure)) => failure.kind.word(),
            Err(Error::Disposed) => FaultKind::ShuttingDown.word(),
            Err(_) => "other",
        };
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.metrics.add(self.method, self.outcome, self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_upstream::client::Failure;

    #[test]
    fn each_request_is_counted_once_with_what_came_of_it() {
        let metrics = Arc::new(RequestMetrics::default());
        let begin = |method| CountedRequest::begin(Arc::clone(&metrics), method);
        begin("tools/call").ended(&Ok(RawValue::NULL.to_owned()));
        begin("tools/call").ended(&Ok(RawValue::NULL.to_owned()));
        begin("tools/call").ended(&Err(Failure { kind: FaultKind::Deadline, ..Failure::ended() }.into()));
        begin("resources/read").ended(&Err(Error::Disposed));
        drop(begin("tools/call"));
        begin("tools/dance").ended(&Ok(RawValue::NULL.to_owned()));
        let counted: Vec<_> = metrics.requests().collect();
        assert_eq!(
            counted,
            [
                ("tools/call", "ok", 2),
                ("tools/call", "deadline", 1),
                ("tools/call", "cancelled", 1),
                ("resources/read", "shutting_down", 1),
                ("other", "ok", 1),
            ]
        );
    }
}
