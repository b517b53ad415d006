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
