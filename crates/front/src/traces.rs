//! What is told of requests in traces, where somebody wants to see them: a span from the request to its answer.
//!
//! Invariants: a request is in the trace that it names, in its `_meta` or else in the headers it came with; what is told of it is told once,
//! with the answer that it got, or that it got none.

use std::collections::HashMap;

use unhang_switches::stands;
use unhang_wire::{self as wire, Id, Json};

use super::{
    mcp_session::McpSession,
    requests::{ClientRequest, MOST_ECHOED},
};
use unhang_core::{
    fault::Fault,
    telemetry::{Parent, Span, Subject, Telemetry, Trace},
    wording::shortened,
};

/// The requests of one session that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Traces {
    telemetry: Option<Telemetry>,
    /// What carries the messages, as traces have it.
    transport: &'static str,
    spans: HashMap<Id, Span>,
    /// What the headers say with which the next message comes.
    header: Option<Parent>,
}

impl Traces {
    /// The request of this id, if there is one, while another of the same id is refused.
    pub(super) fn set_aside(&mut self, id: &Id) -> Option<(Id, Span)> {
        self.spans.remove_entry(id)
    }

    pub(super) fn put_back(&mut self, request: Option<(Id, Span)>) {
        self.spans.extend(request);
    }
}

impl McpSession {
    /// The same, and its requests are told there.
    pub(crate) fn traced_by(mut self, telemetry: Option<Telemetry>, transport: &'static str) -> McpSession {
        self.traces = Traces { telemetry, transport, ..Traces::default() };
        self
    }

    /// The next message comes with this trace in its headers.
    pub(crate) fn comes_with(&mut self, header: Option<Parent>) {
        self.traces.header = header;
    }

    /// A request has come.
    pub(super) fn trace(&mut self, request: &ClientRequest<'_>) {
        let Some(telemetry) = &self.traces.telemetry else { return };
        let params = request.params.unwrap_or(Json::EMPTY);
        let meta = params.member("_meta");
        let in_meta = |member| wire::text_member(meta?, member);
        let parent =
            in_meta("traceparent").and_then(|parent| Parent::read(&parent, in_meta("tracestate").as_deref()));
        let parent =
            parent.or_else(|| self.traces.header.clone()).filter(|_| stands("trace-of-the-client-kept"));
        let about = |method, member| {
            let about = request.text(member).filter(|_| request.method == method);
            about.map(|about| shortened(&about, MOST_ECHOED).into_owned())
        };
        let (tool, prompt) = (about("tools/call", "name"), about("prompts/get", "name"));
        let uri = about("resources/read", "uri");
        let (tool, prompt, uri) = (tool.as_deref(), prompt.as_deref(), uri.as_deref());
        let mut span =
            telemetry.request(parent.as_ref(), &Subject { method: &request.method, tool, prompt, uri });
        let revision = wire::request_version(params).map(|name| shortened(&name, MOST_ECHOED).into_owned());
        let revision = revision.or_else(|| self.session.map(|revision| revision.name().to_owned()));
        if let Some(revision) = revision {
            span.note("mcp.protocol.version", &revision);
        }
        if let Some(session) = &self.session_name {
            span.note("mcp.session.id", session);
        }
        span.note("jsonrpc.request.id", request.id.to_json().trim_matches('"'));
        span.note("network.transport", self.traces.transport);
        self.traces.spans.insert(request.id.clone(), span);
    }

    /// Where a request stands in its trace.
    pub(super) fn trace_of(&self, id: &Id) -> Option<Trace> {
        self.traces.spans.get(id).map(Span::trace)
    }

    /// It is answered with this result.
    pub(super) fn trace_result(&mut self, id: &Id, result: &str) {
        if let Some(span) = self.traces.spans.remove(id) {
            let is_error = Json::new(result.as_bytes()).and_then(|result| result.member("isError"));
            span.answered(is_error.is_some_and(|is_error| is_error.get() == "true"));
        }
    }

    /// It is answered with this fault.
    pub(super) fn trace_fault(&mut self, id: &Id, fault: &Fault<'_>) {
        if let Some(span) = self.traces.spans.remove(id) {
            span.refused(fault.kind.code().into(), Some(fault.kind.word()), &fault.message());
        }
    }

    /// It is answered with this error, as JSON.
    pub(super) fn trace_error(&mut self, id: &Id, error: &str) {
        if let Some(span) = self.traces.spans.remove(id) {
            let error = Json::new(error.as_bytes());
            let code = error.and_then(|error| error.member("code")?.get().parse().ok()).unwrap_or_default();
            let message = error.and_then(|error| wire::text_member(error, "message")).unwrap_or_default();
            span.refused(code, None, &message);
        }
    }

    /// It was withdrawn.
    pub(super) fn trace_nothing(&mut self, id: &Id) {
        self.traces.spans.remove(id);
    }
}
