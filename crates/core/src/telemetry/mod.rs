//! Traces for OpenTelemetry: each request of a client, and the part that a server had in it, told to a collector over OTLP.
//!
//! ```text
//! front ─ Span (server) ─┐
//! gateway ─ Span (client)┴─ queue (bounded) ─ one task: gathers, encodes, posts ─► collector
//! ```
//!
//! The messages are those of `opentelemetry-proto`, which are made from OpenTelemetry's own description of them. The rest of its family is
//! made for programs, not for libraries. `opentelemetry_sdk` and `opentelemetry-otlp` read the environment for every option that they are
//! not given.
//!
//! Invariants
//!
//! - Nobody waits for a collector. A span that finds the queue full, or the collector away, is dropped and counted, and the loss is
//!   reported.
//! - Each wait at the end has a limit.
//! - A request goes to a server as the client wrote it: `traceparent` is read, never added.

mod context;
mod span;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as Told, span::SpanKind},
};
use prost::Message;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use unhang_net::http::{Address, Connection, HttpError, HttpRequest, Verb};

pub use self::span::Trace;
pub use self::{
    context::Parent,
    span::{Span, SpanSubject},
};

/// The most spans that wait to be posted.
const QUEUE: usize = 2048;
/// The most spans in one post.
const BATCH: usize = 512;
/// How long the first span of a post waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take for one post.
const POST: Duration = Duration::from_secs(10);
/// How long the end waits for what has not been posted yet.
const FLUSH: Duration = Duration::from_secs(1);
/// The pause between two reports of lost spans, while spans are lost.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// The most bytes that are read of an answer.
const ANSWER: usize = 64 << 10;

/// The destination of spans.
#[derive(Clone, Debug)]
pub struct TelemetrySpec {
    /// The address at which a collector takes spans over OTLP, in protobuf: mostly `http://HOST:4318/v1/traces`.
    pub address: Address,
    /// Our name there.
    pub service_name: String,
}

/// Sends spans to a collector. Clones are the same.
#[derive(Clone)]
pub struct Telemetry(Arc<TelemetryShared>);

struct TelemetryShared {
    queue: mpsc::Sender<Told>,
    dropped: AtomicU64,
    end: Notify,
    has_ended: watch::Sender<bool>,
}

impl Telemetry {
    /// Starts the telemetry. Nothing is connected before there is something to send. Must be called in a runtime.
    ///
    /// # Errors
    /// Fails if the address is not usable.
    pub fn start(spec: TelemetrySpec) -> Result<Telemetry, HttpError> {
        let connection = Connection::new(&spec.address, None, ANSWER)?;
        let (queue, spans) = mpsc::channel(QUEUE);
        let (dropped, end, has_ended) = (AtomicU64::new(0), Notify::new(), watch::Sender::new(false));
        let telemetry = Telemetry(Arc::new(TelemetryShared { queue, dropped, end, has_ended }));
        let shown = spec.address.shown();
        let exporter = Exporter { shown, connection, service_name: spec.service_name, said: None };
        tokio::spawn(exporter.run(telemetry.clone(), spans));
        Ok(telemetry)
    }

    /// Begins the span of a client's request.
    pub fn request(&self, parent: Option<&Parent>, subject: &SpanSubject<'_>) -> Span {
        Span::begin(self, SpanKind::Server, parent, subject)
    }

    fn tell(&self, span: Told) {
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

/// The task that posts.
struct Exporter {
    /// The address, as people may see it.
    shown: String,
    connection: Connection,
    service_name: String,
    /// When the loss of spans was last reported.
    said: Option<Instant>,
}

impl Exporter {
    async fn run(mut self, telemetry: Telemetry, mut spans: mpsc::Receiver<Told>) {
        let mut ends = false;
        while !ends {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                Some(span) = spans.recv() => batch.push(span),
                () = telemetry.0.end.notified() => ends = true,
            }
            let by = Instant::now() + GATHER;
            while !ends && batch.len() < BATCH {
                let left = BATCH - batch.len();
                tokio::select! {
                    biased;
                    () = telemetry.0.end.notified() => ends = true,
                    _ = spans.recv_many(&mut batch, left) => {}
                    () = sleep_until(by) => break,
                }
            }
            while ends && let Ok(span) = spans.try_recv() {
                batch.push(span);
            }
            self.post(&telemetry, batch).await;
        }
        telemetry.0.has_ended.send_replace(true);
    }

    async fn post(&mut self, telemetry: &Telemetry, batch: Vec<Told>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len();
        let body = self.request(batch).encode_to_vec();
        let headers = vec![("content-type".to_owned(), "application/x-protobuf".to_owned())];
        let ask = HttpRequest { verb: Verb::Post, url: None, headers, body: Some(body.into()) };
        let why = match timeout(POST, self.taken(ask)).await {
            Ok(Ok(200..=299)) => return,
            Ok(Ok(status)) => format!("it answers HTTP {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not answer within {POST:?}"),
        };
        telemetry.lost(count);
        if self.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            self.said = Some(Instant::now());
            let lost = telemetry.dropped();
            tracing::warn!("spans do not reach {}: {why}; unhang has dropped {lost} so far", self.shown);
        }
    }

    async fn taken(&self, ask: HttpRequest) -> Result<u16, HttpError> {
        let reply = self.connection.ask(ask).await?;
        let status = reply.status();
        // A reply that is read to its end leaves the connection for the next one.
        reply.whole().await.map(|_| status)
    }

    fn request(&self, spans: Vec<Told>) -> ExportTraceServiceRequest {
        let text = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
            ..KeyValue::default()
        };
        let (name, version) = ("unhang".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let attributes = vec![text("service.name", &self.service_name), text("service.version", &version)];
        let resource = Some(Resource { attributes, ..Resource::default() });
        let scope = Some(InstrumentationScope { name, version, ..InstrumentationScope::default() });
        let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
        let spans = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }
}
