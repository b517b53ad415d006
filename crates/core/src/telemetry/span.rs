//! One span: a request of a client, or the part of a server in it.
//!
//! Invariants: a span is sent once, with its outcome, also if nobody waited for that any more.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::Instant;

use super::{Telemetry, context::Parent};
use crate::{error::Error, fault::FaultKind};

/// The subject of a request, by the semantic conventions of OpenTelemetry for MCP.
#[derive(Clone, Debug, Default)]
pub struct SpanSubject<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The tool that it calls.
    pub tool: Option<&'a str>,
    /// The prompt that it gets.
    pub prompt: Option<&'a str>,
    /// The resource that it reads.
    pub uri: Option<&'a str>,
}

/// A span that has begun. It is sent when it ends, at the latest when it is dropped.
#[derive(Debug)]
pub struct Span {
    telemetry: Telemetry,
    /// `None` if the trace is not sampled, and once the span is sent.
    span: Option<FinishedSpan>,
    context: Parent,
    began: Instant,
}

/// The side of a request that a span is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanRole {
    /// unhang, as the server of its client.
    Server,
    /// unhang, as the client of a server.
    Client,
}

/// A span as it is posted.
#[derive(Debug)]
#[cfg_attr(not(feature = "opentelemetry"), expect(dead_code, reason = "nothing posts spans in such a build"))]
pub(super) struct FinishedSpan {
    /// Its own place in the trace.
    pub(super) context: Parent,
    /// The span that it belongs to.
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: String,
    pub(super) role: SpanRole,
    /// Nanoseconds since 1970.
    pub(super) began: u64,
    /// Nanoseconds.
    pub(super) took: u64,
    pub(super) attributes: Vec<(&'static str, String)>,
    /// The text of its error, if it failed; may be empty.
    pub(super) failure: Option<String>,
}

/// The place of a span in its trace, for the spans that belong to it.
#[derive(Clone, Debug)]
pub struct Trace {
    telemetry: Telemetry,
    context: Parent,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl Eq for Trace {}

impl Trace {
    /// Begins the span of a server's part in the request.
    pub fn server(&self, server: &str, subject: &SpanSubject<'_>) -> Span {
        let mut span = Span::begin(&self.telemetry, SpanRole::Client, Some(&self.context), subject);
        span.note("unhang.server", server);
        span
    }
}

impl Span {
    /// Begins a span now.
    pub(super) fn begin(
        telemetry: &Telemetry,
        role: SpanRole,
        parent: Option<&Parent>,
        subject: &SpanSubject<'_>,
    ) -> Span {
        let own = random::<8>();
        let context = Parent {
            trace: parent.map_or_else(random, |parent| parent.trace),
            span: own,
            is_sampled: parent.is_none_or(|parent| parent.is_sampled),
            state: parent.map(|parent| parent.state.clone()).unwrap_or_default(),
        };
        let target = subject.tool.or(subject.prompt);
        let span = context.is_sampled.then(|| FinishedSpan {
            context: context.clone(),
            parent: parent.map(|parent| parent.span),
            name: target
                .map_or_else(|| subject.method.to_owned(), |target| format!("{} {target}", subject.method)),
            role,
            began: now(),
            took: 0,
            attributes: Vec::new(),
            failure: None,
        });
        let mut span = Span { telemetry: telemetry.clone(), span, context, began: Instant::now() };
        span.note("mcp.method.name", subject.method);
        let names = [
            ("gen_ai.tool.name", subject.tool),
            ("gen_ai.operation.name", subject.tool.map(|_| "execute_tool")),
            ("gen_ai.prompt.name", subject.prompt),
            ("mcp.resource.uri", subject.uri),
        ];
        for (key, value) in names {
            if let Some(value) = value {
                span.note(key, value);
            }
        }
        span
    }

    /// Returns the place of the span in its trace.
    pub fn trace(&self) -> Trace {
        Trace { telemetry: self.telemetry.clone(), context: self.context.clone() }
    }

    /// Notes an attribute of the span.
    pub fn note(&mut self, key: &'static str, value: &str) {
        if let Some(span) = &mut self.span {
            span.attributes.push((key, value.to_owned()));
        }
    }

    /// Ends the span with a result. `is_tool_error` states whether the result calls itself an error.
    pub fn answered(mut self, is_tool_error: bool) {
        match is_tool_error {
            true => self.failed("tool_error", ""),
            false => self.told(),
        }
    }

    /// Ends the span with this error.
    pub fn refused(mut self, code: i64, kind: Option<&str>, message: &str) {
        self.note("rpc.response.status_code", &code.to_string());
        let code = code.to_string();
        self.failed(kind.unwrap_or(&code), message);
    }

    /// Ends the span with the outcome of a server's part.
    pub fn ended<T>(mut self, outcome: &Result<T, Error>) {
        match outcome {
            Ok(_) => self.told(),
            Err(Error::Server(error)) => self.refused(error.code, None, &error.message),
            Err(error) => self.failed(error.kind(), &error.to_string()),
        }
    }

    fn failed(&mut self, kind: &str, message: &str) {
        self.note("error.type", kind);
        if let Some(span) = &mut self.span {
            span.failure = Some(message.to_owned());
        }
        self.told();
    }

    fn told(&mut self) {
        let Some(mut span) = self.span.take() else { return };
        span.took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.telemetry.tell(span);
    }
}

/// Ends the span as cancelled, if nobody waits for it any more.
impl Drop for Span {
    fn drop(&mut self) {
        if self.span.is_some() {
            self.failed(FaultKind::Cancelled.word(), "");
        }
    }
}

/// Returns the nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns random bytes that are not all zero, as ids must not be.
fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    // The call fills short requests whole, or fails. After a failure spans cannot be told apart, and nothing else depends on it.
    let _filled = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes[LENGTH - 1] |= u8::from(bytes == [0; LENGTH]);
    bytes
}
