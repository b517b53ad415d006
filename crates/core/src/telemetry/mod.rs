//! Traces for OpenTelemetry: each request of a client, and the part that a server had in it, told to a collector over OTLP.
//!
//! ```text
//! front ─ Span (server) ─┐
//! gateway ─ Span (client)┴─ queue (bounded) ─ one task: gathers, encodes, posts ─► collector
//! ```
//!
//! The feature `opentelemetry` has the task that posts. Without the feature, spans are as they are, and [`Telemetry::start`] refuses.
//!
//! Invariants
//!
//! - Nobody waits for a collector. A span that finds the queue full, or the collector away, is dropped and counted, and the loss is
//!   reported.
//! - Each wait at the end has a limit.
//! - A request goes to a server as the client wrote it: `traceparent` is read, never added.

mod context;
#[cfg(feature = "opentelemetry")]
mod exporter;
mod span;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use thiserror::Error;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::timeout,
};
use unhang_net::http::{Address, HttpError};

pub use self::span::Trace;
use self::span::{FinishedSpan, SpanRole};
pub use self::{
    context::Parent,
    span::{Span, SpanSubject},
};

/// How long the end waits for what has not been posted yet.
const FLUSH: Duration = Duration::from_secs(1);

/// The destination of spans.
#[derive(Clone, Debug)]
pub struct TelemetrySpec {
    /// The address at which a collector takes spans over OTLP, in protobuf: mostly `http://HOST:4318/v1/traces`.
    pub address: Address,
    /// Our name there.
    pub service_name: String,
}

/// The reason why telemetry does not start.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The address of the collector is not usable.
    #[error("{0}")]
    Address(HttpError),
    /// The feature `opentelemetry` is off.
    #[error("this unhang was built without the feature `opentelemetry`")]
    NotBuilt,
}

/// Sends spans to a collector. Clones are the same.
#[derive(Clone)]
pub struct Telemetry(Arc<TelemetryShared>);

struct TelemetryShared {
    queue: mpsc::Sender<FinishedSpan>,
    dropped: AtomicU64,
    end: Notify,
    has_ended: watch::Sender<bool>,
}

impl Telemetry {
    /// Starts the telemetry. Nothing is connected before there is something to send. Must be called in a runtime.
    ///
    /// # Errors
    /// [`TelemetryError::Address`] if the address is not usable.
    #[cfg(feature = "opentelemetry")]
    pub fn start(spec: TelemetrySpec) -> Result<Telemetry, TelemetryError> {
        exporter::start(spec).map_err(TelemetryError::Address)
    }

    /// Refuses: this build has nothing that posts spans.
    ///
    /// # Errors
    /// [`TelemetryError::NotBuilt`].
    #[cfg(not(feature = "opentelemetry"))]
    pub fn start(_: TelemetrySpec) -> Result<Telemetry, TelemetryError> {
        Err(TelemetryError::NotBuilt)
    }

    /// Begins the span of a client's request.
    pub fn request(&self, parent: Option<&Parent>, subject: &SpanSubject<'_>) -> Span {
        Span::begin(self, SpanRole::Server, parent, subject)
    }

    fn tell(&self, span: FinishedSpan) {
        if self.0.queue.try_send(span).is_err() {
            self.lost(1);
        }
    }

    fn lost(&self, spans: usize) {
        self.0.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Returns how many spans were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Sends the spans that were not sent yet, and takes a moment at most. A span that ends after that is not sent.
    pub async fn close(&self) {
        self.0.end.notify_one();
        let mut has_ended = self.0.has_ended.subscribe();
        if timeout(FLUSH, has_ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::warn!("the collector had not taken the last spans when unhang ended");
        }
        if self.dropped() > 0 {
            tracing::warn!("{} spans were dropped in all", self.dropped());
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Telemetry").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;
    use tracing::{Event, Metadata, Subscriber, field, span as tracing_span};

    use super::*;

    /// Makes a telemetry whose spans are kept in a queue, and are not posted.
    pub(super) fn kept(room: usize) -> (Telemetry, mpsc::Receiver<FinishedSpan>) {
        let (queue, spans) = mpsc::channel(room);
        let (dropped, end, has_ended) = (AtomicU64::new(0), Notify::new(), watch::Sender::new(false));
        (Telemetry(Arc::new(TelemetryShared { queue, dropped, end, has_ended })), spans)
    }

    /// Notes the messages of events.
    struct Noted(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Noted {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing_span::Attributes<'_>) -> tracing_span::Id {
            tracing_span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing_span::Id, _: &tracing_span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing_span::Id, _: &tracing_span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut |_: &field::Field, value: &dyn fmt::Debug| {
                self.0.lock().unwrap().push(format!("{value:?}"));
            });
        }

        fn enter(&self, _: &tracing_span::Id) {}

        fn exit(&self, _: &tracing_span::Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_last_post_for_a_moment_and_reports_each_loss() {
        let late = "the collector had not taken the last spans when unhang ended".to_owned();
        let lost = "2 spans were dropped in all".to_owned();
        for (has_ended, lost_spans, took, expect) in [
            (true, 0, Duration::ZERO, vec![]),
            (true, 2, Duration::ZERO, vec![lost.clone()]),
            (false, 0, FLUSH, vec![late.clone()]),
            (false, 2, FLUSH, vec![late, lost]),
        ] {
            let (telemetry, _spans) = kept(1);
            telemetry.0.has_ended.send_replace(has_ended);
            telemetry.lost(lost_spans);
            let noted = Arc::default();
            let listens = tracing::subscriber::set_default(Noted(Arc::clone(&noted)));
            let began = Instant::now();
            telemetry.close().await;
            drop(listens);
            // A paused clock goes on by whole milliseconds.
            assert_eq!(began.elapsed().as_millis() / 10, took.as_millis() / 10);
            assert_eq!(*noted.lock().unwrap(), expect);
            telemetry.0.end.notified().await;
        }
    }

    #[test]
    fn a_span_that_finds_the_queue_full_or_nobody_behind_it_is_dropped_and_counted() {
        let (telemetry, mut spans) = kept(1);
        let subject = SpanSubject { method: "ping", ..SpanSubject::default() };
        for dropped in [0, 1, 2] {
            telemetry.request(None, &subject).answered(false);
            assert_eq!(telemetry.dropped(), dropped);
        }
        assert!(spans.try_recv().is_ok() && spans.try_recv().is_err());
        drop(spans);
        telemetry.request(None, &subject).answered(false);
        assert_eq!(telemetry.dropped(), 3);
        telemetry.lost(5);
        assert_eq!(telemetry.dropped(), 8);
    }
}
