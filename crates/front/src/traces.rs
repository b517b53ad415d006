//! The exported traces of requests, if there is an exporter: a span from each request to its answer.
//!
//! Invariants: a request belongs to the trace that it names, in its `_meta` or else in its headers. Its span is exported once, with the
//! answer that it got, or with the fact that it got none.

use std::collections::HashMap;

use unhang_wire::{self as wire, Id, Json};

use super::client_request::{ClientRequest, MOST_ECHOED};
use unhang_core::{
    fault::Fault,
    revision::Revision,
    telemetry::{Parent, Span, SpanSubject, Telemetry, Trace},
    wording::shortened,
};

/// The spans of one session's requests that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Traces {
    telemetry: Option<Telemetry>,
    /// The transport of the messages, as traces name it.
    transport: &'static str,
    spans: HashMap<Id, Span>,
    /// The trace in the headers of the next message.
    header: Option<Parent>,
}

impl Traces {
    /// Makes the traces of a session over this transport, exported if there is an exporter.
    pub(super) fn told_to(telemetry: Option<Telemetry>, transport: &'static str) -> Traces {
        Traces { telemetry, transport, ..Traces::default() }
    }

    /// Takes out the span of this id, if there is one, while a request that repeats the id is refused.
    pub(super) fn set_aside(&mut self, id: &Id) -> Option<(Id, Span)> {
        self.spans.remove_entry(id)
    }

    /// Puts back the span that was taken out.
    pub(super) fn put_back(&mut self, request: Option<(Id, Span)>) {
        self.spans.extend(request);
    }

    /// Sets the trace that the headers of the next message name.
    pub(super) fn comes_with(&mut self, header: Option<Parent>) {
        self.header = header;
    }

    /// Begins the span of a request. `session` and `revision` are those of the handshake.
    pub(super) fn begin(
        &mut self,
        request: &ClientRequest<'_>,
        session: Option<&str>,
        revision: Option<Revision>,
    ) {
        let Some(telemetry) = &self.telemetry else { return };
        let params = request.params.unwrap_or(Json::EMPTY);
        let meta = params.member("_meta");
        let in_meta = |member| wire::text_member(meta?, member);
        let parent =
            in_meta("traceparent").and_then(|parent| Parent::read(&parent, in_meta("tracestate").as_deref()));
        let parent = parent.or_else(|| self.header.clone());
        let about = |method, member| {
            let about = request.text(member).filter(|_| request.method == method);
            about.map(|about| shortened(&about, MOST_ECHOED).into_owned())
        };
        let (tool, prompt) = (about("tools/call", "name"), about("prompts/get", "name"));
        let uri = about("resources/read", "uri");
        let (tool, prompt, uri) = (tool.as_deref(), prompt.as_deref(), uri.as_deref());
        let mut span =
            telemetry.request(parent.as_ref(), &SpanSubject { method: &request.method, tool, prompt, uri });
        let named = wire::request_version(params).map(|name| shortened(&name, MOST_ECHOED).into_owned());
        if let Some(revision) = named.or_else(|| revision.map(|revision| revision.name().to_owned())) {
            span.note("mcp.protocol.version", &revision);
        }
        if let Some(session) = session {
            span.note("mcp.session.id", session);
        }
        span.note("jsonrpc.request.id", request.id.to_json().trim_matches('"'));
        span.note("network.transport", self.transport);
        self.spans.insert(request.id.clone(), span);
    }

    /// Returns the place of a request in its trace. Returns `None` if it is not traced.
    pub(super) fn trace_of(&self, id: &Id) -> Option<Trace> {
        self.spans.get(id).map(Span::trace)
    }

    /// Ends the span of a request that is answered with this result.
    pub(super) fn answered(&mut self, id: &Id, result: &str) {
        if let Some(span) = self.spans.remove(id) {
            let is_error = Json::new(result.as_bytes()).and_then(|result| result.member("isError"));
            span.answered(is_error.is_some_and(|is_error| is_error.get() == "true"));
        }
    }

    /// Ends the span of a request that is answered with this fault.
    pub(super) fn faulted(&mut self, id: &Id, fault: &Fault<'_>) {
        if let Some(span) = self.spans.remove(id) {
            span.refused(fault.kind.code().into(), Some(fault.kind.word()), &fault.message());
        }
    }

    /// Ends the span of a request that is answered with this error, as JSON.
    pub(super) fn refused(&mut self, id: &Id, error: &str) {
        if let Some(span) = self.spans.remove(id) {
            let error = Json::new(error.as_bytes());
            let code = error.and_then(|error| error.member("code")?.get().parse().ok()).unwrap_or_default();
            let message = error.and_then(|error| wire::text_member(error, "message")).unwrap_or_default();
            span.refused(code, None, &message);
        }
    }

    /// Drops the span of a request that was withdrawn.
    pub(super) fn withdrawn(&mut self, id: &Id) {
        self.spans.remove(id);
    }
}
