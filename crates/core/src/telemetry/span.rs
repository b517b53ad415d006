//! One span: a request of a client, or the part of a server in it.
//!
//! Invariants: a span is sent once, with its outcome, also if nobody waited for that any more.

use std::time::{SystemTime, UNIX_EPOCH};

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
#[cfg_attr(
    not(any(test, feature = "opentelemetry")),
    expect(dead_code, reason = "nothing posts spans in such a build")
)]
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
    // After a failure spans cannot be told apart, and nothing else depends on it.
    let _filled = getrandom::fill(&mut bytes);
    bytes[LENGTH - 1] |= u8::from(bytes == [0; LENGTH]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::{super::tests::kept, *};
    use crate::error::{Failure, ServerError};

    fn parent(is_sampled: bool) -> Parent {
        Parent { trace: [7; 16], span: [9; 8], is_sampled, state: "a=b".to_owned() }
    }

    fn only(spans: &mut mpsc::Receiver<FinishedSpan>) -> FinishedSpan {
        let span = spans.try_recv().expect("one was sent");
        assert!(spans.try_recv().is_err(), "it is sent once");
        span
    }

    #[tokio::test(start_paused = true)]
    async fn a_span_has_its_place_its_times_and_its_subject() {
        let (telemetry, mut spans) = kept(9);
        let tool = SpanSubject { method: "tools/call", tool: Some("echo"), ..SpanSubject::default() };
        let prompt = SpanSubject { method: "prompts/get", prompt: Some("greet"), ..SpanSubject::default() };
        let uri = SpanSubject { method: "resources/read", uri: Some("file:///a"), ..SpanSubject::default() };
        for (subject, name, attributes) in [
            (
                &tool,
                "tools/call echo",
                [("gen_ai.tool.name", "echo"), ("gen_ai.operation.name", "execute_tool")].as_slice(),
            ),
            (&prompt, "prompts/get greet", &[("gen_ai.prompt.name", "greet")]),
            (&uri, "resources/read", &[("mcp.resource.uri", "file:///a")]),
        ] {
            let before = now();
            let mut ours = telemetry.request(Some(&parent(true)), subject);
            ours.note("network.transport", "pipe");
            let trace = ours.trace();
            tokio::time::advance(Duration::from_millis(30)).await;
            trace.server("srv", subject).answered(false);
            let theirs = only(&mut spans);
            tokio::time::advance(Duration::from_millis(12)).await;
            ours.answered(false);
            let ours = only(&mut spans);
            assert_eq!((ours.name.as_str(), theirs.name.as_str()), (name, name));
            assert_eq!((ours.role, theirs.role), (SpanRole::Server, SpanRole::Client));
            assert_eq!((ours.took, theirs.took), (42_000_000, 0));
            assert!(before > 1_600_000_000_000_000_000 && (before..=now()).contains(&ours.began));
            assert_eq!((ours.parent, theirs.parent), (Some([9; 8]), Some(ours.context.span)));
            for span in [&ours, &theirs] {
                assert_eq!((span.context.trace, span.context.state.as_str()), ([7; 16], "a=b"));
                assert!(span.context.is_sampled && span.failure.is_none());
            }
            let with = |last: (&'static str, &str)| {
                let all = [("mcp.method.name", subject.method)].into_iter().chain(attributes.iter().copied());
                all.chain([last]).map(|(key, value)| (key, value.to_owned())).collect::<Vec<_>>()
            };
            assert_eq!(ours.attributes, with(("network.transport", "pipe")));
            assert_eq!(theirs.attributes, with(("unhang.server", "srv")));
        }
    }

    #[tokio::test]
    async fn what_is_not_sampled_is_not_sent_and_what_names_no_trace_has_one_of_its_own() {
        let (telemetry, mut spans) = kept(9);
        let subject = SpanSubject { method: "ping", ..SpanSubject::default() };
        let hidden = telemetry.request(Some(&parent(false)), &subject);
        hidden.trace().server("srv", &subject).answered(true);
        hidden.answered(false);
        assert!(spans.try_recv().is_err());
        let mut own = Vec::new();
        for _ in 0..2 {
            telemetry.request(None, &subject).answered(false);
            own.push(only(&mut spans));
        }
        assert!(own.iter().all(|span| span.parent.is_none() && span.context.state.is_empty()));
        assert_ne!(own[0].context.trace, own[1].context.trace);
        assert_ne!(own[0].context.span, own[1].context.span);
        let trace = telemetry.request(Some(&parent(true)), &subject).trace();
        assert!(trace == trace.clone() && trace != telemetry.request(Some(&parent(true)), &subject).trace());
    }

    #[tokio::test]
    async fn each_outcome_of_a_span_is_told() {
        let (telemetry, mut spans) = kept(9);
        let subject = SpanSubject { method: "ping", ..SpanSubject::default() };
        let begun = || telemetry.request(None, &subject);
        let server = Error::Server(Box::new(ServerError::read("s", "ping", r#"{"code":-5,"message":"no"}"#)));
        begun().answered(false);
        begun().answered(true);
        begun().refused(-31001, Some("deadline"), "late");
        begun().refused(7, None, "no");
        begun().ended(&Ok(()));
        begun().ended::<()>(&Err(server));
        begun().ended::<()>(&Err(Failure::ended().into()));
        drop(begun());
        for (kind, status, failure) in [
            (None, None, None),
            (Some("tool_error"), None, Some("")),
            (Some("deadline"), Some("-31001"), Some("late")),
            (Some("7"), Some("7"), Some("no")),
            (None, None, None),
            (Some("-5"), Some("-5"), Some("no")),
            (Some("shutting_down"), None, Some("the connection has ended; connect again")),
            (Some("cancelled"), None, Some("")),
        ] {
            let span = spans.try_recv().expect("one of each");
            let noted = |key: &str| {
                let found = span.attributes.iter().find(|(known, _)| *known == key);
                found.map(|(_, value)| value.as_str())
            };
            assert_eq!((noted("error.type"), noted("rpc.response.status_code")), (kind, status));
            assert_eq!(span.failure.as_deref(), failure, "{kind:?}");
        }
        assert!(spans.try_recv().is_err(), "each is sent once");
    }

    #[test]
    fn each_bit_of_a_random_id_may_be_set() {
        let (mut any, mut all) = ([0_u8; 8], [u8::MAX; 8]);
        for _ in 0..200 {
            for (index, byte) in random::<8>().into_iter().enumerate() {
                any[index] |= byte;
                all[index] &= byte;
            }
        }
        assert_eq!((any, all), ([u8::MAX; 8], [0; 8]), "once in 2^193 runs it is not so");
    }
}
