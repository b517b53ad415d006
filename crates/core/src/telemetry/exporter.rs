//! The task that posts spans to a collector.
//!
//! The messages are those of `opentelemetry-proto`, which are made from OpenTelemetry's own description of them. The rest of its family is
//! made for programs, not for libraries. `opentelemetry_sdk` and `opentelemetry-otlp` read the environment for every option that they are
//! not given.
//!
//! Invariants: the exporter drops and counts spans that the collector does not accept within [`POST`]. It reports the loss at most once a
//! minute.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span::SpanKind, status::StatusCode},
};
use prost::Message;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use unhang_net::http::{Connection, HttpError, HttpRequest, Verb};

use super::{
    Telemetry, TelemetryShared, TelemetrySpec,
    span::{FinishedSpan, SpanRole},
};

/// The most spans that wait to be posted.
const QUEUE: usize = 2048;
/// The most spans in one post.
const BATCH: usize = 512;
/// How long the first span of a post waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take for one post.
const POST: Duration = Duration::from_secs(10);
/// The pause between two reports of lost spans, while spans are lost.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// The most bytes that are read of an answer.
const ANSWER: usize = 64 << 10;

/// Starts the task. Must be called in a runtime.
pub(super) fn start(spec: TelemetrySpec) -> Result<Telemetry, HttpError> {
    let connection = Connection::new(&spec.address, None, ANSWER)?;
    let (queue, spans) = mpsc::channel(QUEUE);
    let (dropped, end, has_ended) = (AtomicU64::new(0), Notify::new(), watch::Sender::new(false));
    let telemetry = Telemetry(Arc::new(TelemetryShared { queue, dropped, end, has_ended }));
    let shown = spec.address.shown();
    let exporter = Exporter { shown, connection, service_name: spec.service_name, said: None };
    tokio::spawn(exporter.run(telemetry.clone(), spans));
    Ok(telemetry)
}

/// The state of the task.
struct Exporter {
    /// The address, as people may see it.
    shown: String,
    connection: Connection,
    service_name: String,
    /// When the loss of spans was last reported.
    said: Option<Instant>,
}

impl Exporter {
    async fn run(mut self, telemetry: Telemetry, mut spans: mpsc::Receiver<FinishedSpan>) {
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

    async fn post(&mut self, telemetry: &Telemetry, batch: Vec<FinishedSpan>) {
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

    fn request(&self, spans: Vec<FinishedSpan>) -> ExportTraceServiceRequest {
        let (name, version) = ("unhang".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let attributes = vec![
            attribute("service.name", self.service_name.clone()),
            attribute("service.version", version.clone()),
        ];
        let resource = Some(Resource { attributes, ..Resource::default() });
        let scope = Some(InstrumentationScope { name, version, ..InstrumentationScope::default() });
        let spans = spans.into_iter().map(otlp_span).collect();
        let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
        let spans = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Returns the span in OpenTelemetry's form.
fn otlp_span(span: FinishedSpan) -> OtlpSpan {
    let FinishedSpan { context, parent, name, role, began, took, attributes, failure } = span;
    let kind = match role {
        SpanRole::Server => SpanKind::Server,
        SpanRole::Client => SpanKind::Client,
    };
    OtlpSpan {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        parent_span_id: parent.map(Vec::from).unwrap_or_default(),
        trace_state: context.state,
        flags: 1,
        name,
        kind: kind.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: began.saturating_add(took),
        attributes: attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status: failure.map(|message| Status { message, code: StatusCode::Error.into() }),
        ..OtlpSpan::default()
    }
}
