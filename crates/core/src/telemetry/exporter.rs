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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use unhang_net::http::Address;

    use super::*;
    use crate::telemetry::{Parent, SpanSubject};

    /// Reads one post, answers it with this status and returns its body.
    async fn taken(stream: &mut TcpStream, status: &str) -> ExportTraceServiceRequest {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut buffer).await.expect("bytes");
            assert!(count > 0, "a whole post");
            bytes.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
            let body = &bytes[head.len() + 4..];
            if length == Some(body.len()) {
                assert!(head.contains("content-type: application/x-protobuf"), "{head}");
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("room");
                return ExportTraceServiceRequest::decode(body).expect("a post");
            }
        }
    }

    async fn started() -> (Telemetry, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
        let address = Address { url, headers: Vec::new(), uses_proxies: false, socket: None };
        (start(TelemetrySpec { address, service_name: "ours".to_owned() }).expect("an address"), listener)
    }

    fn texts(attributes: &[KeyValue]) -> Vec<(&str, &str)> {
        fn text(value: Option<&AnyValue>) -> &str {
            match value.and_then(|value| value.value.as_ref()) {
                Some(Value::StringValue(text)) => text,
                other => panic!("{other:?}"),
            }
        }
        attributes.iter().map(|attribute| (attribute.key.as_str(), text(attribute.value.as_ref()))).collect()
    }

    #[tokio::test]
    async fn spans_are_posted_together_with_all_that_is_known_of_them() {
        let (telemetry, listener) = started().await;
        let parent = Parent { trace: [7; 16], span: [9; 8], is_sampled: true, state: "a=b".to_owned() };
        let subject = SpanSubject { method: "ping", ..SpanSubject::default() };
        let ours = telemetry.request(Some(&parent), &subject);
        ours.trace().server("srv", &subject).refused(-5, None, "no");
        ours.answered(false);
        telemetry.request(None, &subject).answered(false);
        let collector = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            taken(&mut stream, "200 OK").await
        };
        let ((), post) = tokio::join!(telemetry.close(), collector);
        assert_eq!(telemetry.dropped(), 0);
        let [resource] = post.resource_spans.as_slice() else { panic!("{post:?}") };
        let attributes = &resource.resource.as_ref().expect("a resource").attributes;
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(texts(attributes), [("service.name", "ours"), ("service.version", version)]);
        let [scope] = resource.scope_spans.as_slice() else { panic!("{post:?}") };
        let by = scope.scope.as_ref().expect("a scope");
        assert_eq!((by.name.as_str(), by.version.as_str()), ("unhang", version));
        let [theirs, ours, alone] = scope.spans.as_slice() else { panic!("{post:?}") };
        for (span, kind, parent, state, attributes) in [
            (
                theirs,
                SpanKind::Client,
                ours.span_id.as_slice(),
                "a=b",
                [
                    ("mcp.method.name", "ping"),
                    ("unhang.server", "srv"),
                    ("rpc.response.status_code", "-5"),
                    ("error.type", "-5"),
                ]
                .as_slice(),
            ),
            (ours, SpanKind::Server, &[9; 8], "a=b", &[("mcp.method.name", "ping")]),
            (alone, SpanKind::Server, &[], "", &[("mcp.method.name", "ping")]),
        ] {
            assert_eq!((span.name.as_str(), span.kind, span.flags), ("ping", i32::from(kind), 1));
            assert_eq!((span.parent_span_id.as_slice(), span.trace_state.as_str()), (parent, state));
            assert_eq!(texts(&span.attributes), attributes);
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            assert_eq!(span.trace_id == [7; 16], state == "a=b");
            assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
        }
        let failed = theirs.status.as_ref().expect("a status");
        assert_eq!((failed.message.as_str(), failed.code), ("no", i32::from(StatusCode::Error)));
        assert!(ours.status.is_none() && alone.status.is_none());
    }

    #[tokio::test]
    async fn spans_that_the_collector_refuses_are_dropped_and_counted() {
        let subject = SpanSubject { method: "ping", ..SpanSubject::default() };
        for (status, dropped) in [("204 No Content", 0), ("299 Fine", 0), ("300 No", 2), ("503 No", 2)] {
            let (telemetry, listener) = started().await;
            telemetry.request(None, &subject).answered(false);
            telemetry.request(None, &subject).answered(false);
            let collector = async {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                taken(&mut stream, status).await;
            };
            tokio::join!(telemetry.close(), collector);
            assert_eq!(telemetry.dropped(), dropped, "{status}");
        }
    }
}
