//! The front's answers as lines.
//!
//! Invariants: each answer goes out once, into its batch if it has one. A result of a stateless revision says that it is complete and names
//! unhang as its maker (protocol.md 1.3).

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::{Map, Value, json, value::RawValue};
use unhang_bridge::{Era, error, result};
use unhang_wire::{Id, Json, one_line};

use super::{
    client_request::{ClientRequest, MOST_ECHOED},
    effects::{ErrorAnswer, LineTarget, ReplyRoute, SessionCounters, SessionEffects},
    session_calls::SessionCall,
    tally::{FrontTally, add_one},
    traces::Traces,
    unlisted::{with_hint_in_error, with_hint_in_result},
    urls,
};
use unhang_core::{
    batch::{BatchId, Batches},
    fault::{Fault, FaultKind},
    queue::Class,
    refusal::{Addressee, ErrorReport},
    revision::Revision,
    wording::shortened,
};
use unhang_gateway::ServerAnswer;
use unhang_upstream::client::Error;

/// The name of unhang itself in errors.
pub(super) const NAME: &str = "unhang";

/// The error code of 2026-07-28 for a revision that unhang does not speak (protocol.md 1.3).
const UNSUPPORTED_VERSION: i32 = -32022;

/// Returns the name and version of unhang in the form of the protocol.
pub(super) fn implementation() -> Value {
    json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION") })
}

/// Makes a result of unhang itself, for a client of this revision.
pub(super) fn own_result(mut result: Map<String, Value>, revision: Revision) -> String {
    if revision.is_stateless() {
        result.insert("resultType".to_owned(), "complete".into());
        result.insert("_meta".to_owned(), json!({ "io.modelcontextprotocol/serverInfo": implementation() }));
    }
    Value::from(result).to_string()
}

/// Writes the answers of a session, and keeps its counters, its traces and its incomplete batches.
#[derive(Debug, Default)]
pub(super) struct AnswerWriter {
    counters: SessionCounters,
    /// The counters of all sessions.
    tally: Arc<FrontTally>,
    /// The spans of the session's requests, if traces are exported.
    traces: Traces,
    batches: Batches,
    /// The name that the log gives the session.
    session_name: Option<Box<str>>,
    /// The name that the client gave itself last.
    client_name: Option<Box<str>>,
}

impl AnswerWriter {
    /// Counts into this tally, which all sessions share, from now on.
    pub(super) fn count_in(&mut self, tally: Arc<FrontTally>) {
        self.tally = tally;
    }

    /// Reports requests to these traces from now on.
    pub(super) fn trace_with(&mut self, traces: Traces) {
        self.traces = traces;
    }

    /// Returns the traces of the session's requests.
    pub(super) fn traces(&mut self) -> &mut Traces {
        &mut self.traces
    }

    /// Returns the counters so far.
    pub(super) fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// Returns the bytes of answers that wait for the others of their batch.
    pub(super) fn held_bytes(&self) -> usize {
        self.batches.cost()
    }

    /// Opens a batch that waits for this many answers.
    pub(super) fn open_batch(&mut self, answers: usize) -> BatchId {
        self.batches.open(answers)
    }

    /// Sets the name that the log gives the session; an empty name clears it.
    pub(super) fn name_session(&mut self, name: &str) {
        self.session_name = Some(name.into()).filter(|_| !name.is_empty());
    }

    /// Sets the name that the client gives itself from now on.
    pub(super) fn name_client(&mut self, name: Option<Box<str>>) {
        self.client_name = name;
    }

    /// Returns the name that the client gives itself.
    pub(super) fn client_name(&self) -> Option<&str> {
        self.client_name.as_deref()
    }

    /// Returns the name that the log gives the session.
    pub(super) fn session_name(&self) -> Option<&str> {
        self.session_name.as_deref()
    }

    /// Counts a request that has come.
    pub(super) fn requested(&mut self, method: &str) {
        self.counters.requests += 1;
        self.tally.requested(method);
    }

    /// Begins to trace a request of a session that has come to this revision.
    pub(super) fn trace(&mut self, request: &ClientRequest<'_>, revision: Option<Revision>) {
        self.traces.begin(request, self.session_name.as_deref(), revision);
    }

    /// Counts a request that its client has withdrawn.
    pub(super) fn withdrawn(&mut self, id: &Id) {
        self.counters.withdrawn += 1;
        add_one(&self.tally.withdrawn);
        self.traces.withdrawn(id);
    }

    /// Sends a result of unhang itself.
    pub(super) fn answer(
        &mut self,
        id: &Id,
        revision: Revision,
        route: ReplyRoute,
        result: Map<String, Value>,
        effects: &mut impl SessionEffects,
    ) {
        self.answer_raw(id, route, &own_result(result, revision), effects);
    }

    /// Sends a result unchanged.
    pub(super) fn answer_raw(
        &mut self,
        id: &Id,
        route: ReplyRoute,
        result: &str,
        effects: &mut impl SessionEffects,
    ) {
        self.counters.answered += 1;
        add_one(&self.tally.results);
        self.traces.answered(id, result);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.to_json());
        // A server over HTTP may have written the result on several lines.
        self.send(route, None, &one_line(line.as_bytes()), effects);
    }

    /// Sends the outcome of a server, translated into the client's era.
    pub(super) fn pass_on(
        &mut self,
        now: Duration,
        id: &Id,
        call: &SessionCall,
        answered: &ServerAnswer,
        effects: &mut impl SessionEffects,
    ) {
        let (method, client) = (call.awaited.method(), call.revision.era());
        match &answered.outcome {
            Ok(result) => match result_for(client, method, answered, result) {
                Ok(result) => {
                    let hinted = call.nearest_hint.as_deref().map(|hint| with_hint_in_result(&result, hint));
                    self.answer_raw(id, call.route, hinted.as_deref().unwrap_or(&result), effects);
                }
                Err(why) => {
                    let happened = format!("`{}` answered `{method}` with {why}", call.awaited.name());
                    let hint = "this is a fault of the server";
                    self.fail(
                        now,
                        id,
                        call,
                        ErrorReport { kind: FaultKind::BadResponse, summary: happened, hint },
                        effects,
                    );
                }
            },
            Err(Error::Server(error)) => {
                let own = error.to_json();
                let wanted =
                    Json::new(own.as_bytes()).and_then(|error| urls::asked_for(call, answered, error));
                if let Some(result) = wanted {
                    return self.answer_raw(id, call.route, &result, effects);
                }
                let error = error_for(client, method, answered, &own).unwrap_or(Cow::Borrowed(&own));
                let hinted = call.nearest_hint.as_deref().map(|hint| with_hint_in_error(&error, hint));
                self.send_error(id, call.route, hinted.as_deref().unwrap_or(&error), false, effects);
            }
            Err(Error::Failure(failure)) => {
                let fault = failure.fault();
                self.log(&fault);
                self.count_fault();
                self.traces.faulted(id, &fault);
                let error = ErrorAnswer { code: fault.kind.code(), is_ours: true };
                self.send(call.route, Some(error), &fault.response(Some(id)), effects);
            }
            Err(other) => {
                let happened =
                    format!("unhang cannot send the request to `{}`: {other}", call.awaited.name());
                let error_report =
                    ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint: "ask again later" };
                self.fail(now, id, call, error_report, effects);
            }
        }
    }

    /// Sends an error of unhang itself unchanged.
    pub(super) fn refuse_raw(
        &mut self,
        id: &Id,
        route: ReplyRoute,
        error: &str,
        effects: &mut impl SessionEffects,
    ) {
        self.send_error(id, route, error, true, effects);
    }

    /// Sends an error unchanged, be it of unhang or of a server.
    fn send_error(
        &mut self,
        id: &Id,
        route: ReplyRoute,
        error: &str,
        is_ours: bool,
        effects: &mut impl SessionEffects,
    ) {
        self.count_fault();
        self.traces.refused(id, error);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.to_json());
        let code = Json::new(error.as_bytes()).and_then(|error| error.member("code")?.get().parse().ok());
        let error = code.map(|code| ErrorAnswer { code, is_ours });
        self.send(route, error, &one_line(line.as_bytes()), effects);
    }

    /// Refuses to read a resource that no server has, in the form of the client's era.
    pub(super) fn refuse_resource(
        &mut self,
        id: &Id,
        (uri, names_all): (&str, &str),
        revision: Revision,
        route: ReplyRoute,
        effects: &mut impl SessionEffects,
    ) {
        let message = format!("there is no resource `{}`; {names_all}", shortened(uri, MOST_ECHOED));
        let modern = json!({
            "code": FaultKind::InvalidParams.code(),
            "message": message,
            "data": { "uri": uri, "origin": NAME, "kind": "resource_not_found" },
        })
        .to_string();
        let legacy = Json::new(modern.as_bytes()).filter(|_| !revision.is_stateless());
        let legacy = legacy.and_then(|modern| error::to_legacy("resources/read", modern));
        self.refuse_raw(id, route, legacy.as_deref().unwrap_or(&modern), effects);
    }

    /// Fails a call that will get no other answer.
    pub(super) fn fail(
        &mut self,
        now: Duration,
        id: &Id,
        call: &SessionCall,
        error_report: ErrorReport<'_>,
        effects: &mut impl SessionEffects,
    ) {
        let limit = (error_report.kind == FaultKind::Deadline).then_some(call.limit);
        let to = Addressee::request(id, call.awaited.method(), call.route.batch);
        self.fault(call.route, to, error_report, now.saturating_sub(call.since), limit, effects);
    }

    /// Refuses a request that never became a call.
    pub(super) fn refuse_request(
        &mut self,
        request: &ClientRequest<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.refuse(request.route, request.addressee(), error_report, effects);
    }

    /// Refuses a line or a request that never became a call.
    pub(super) fn refuse(
        &mut self,
        route: ReplyRoute,
        to: Addressee<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.fault(route, to, error_report, to.waited, None, effects);
    }

    fn fault(
        &mut self,
        route: ReplyRoute,
        to: Addressee<'_>,
        error_report: ErrorReport<'_>,
        elapsed: Duration,
        limit: Option<Duration>,
        effects: &mut impl SessionEffects,
    ) {
        let fault = Fault { elapsed, limit, ..error_report.into_fault(to.server.unwrap_or(NAME), to.method) };
        self.log(&fault);
        self.count_fault();
        if let Some(id) = to.id {
            self.traces.faulted(id, &fault);
        }
        let error = ErrorAnswer { code: fault.kind.code(), is_ours: true };
        self.send(route, Some(error), &to.line(&fault), effects);
    }

    /// Logs which session got which error.
    fn log(&self, fault: &Fault<'_>) {
        tracing::info!(
            session = self.session_name.as_deref(),
            client = self.client_name.as_deref(),
            server = fault.server,
            method = fault.method,
            kind = fault.kind.word(),
            "answered with an error: {}",
            fault.message()
        );
    }

    fn count_fault(&mut self) {
        self.counters.faults += 1;
        add_one(&self.tally.errors);
    }

    /// Refuses a request of a revision that unhang does not speak, in the form that lets a client choose another.
    pub(super) fn refuse_version(
        &mut self,
        id: &Id,
        asked: &str,
        route: ReplyRoute,
        effects: &mut impl SessionEffects,
    ) {
        let supported = Revision::stateless();
        let error = json!({
            "code": UNSUPPORTED_VERSION,
            "message": format!(
                "unhang does not speak the revision `{asked}` without a handshake; name {} in params._meta, or begin with \
                 `initialize`",
                supported.join(" or ")
            ),
            "data": { "supported": supported, "requested": asked, "origin": NAME, "kind": "unsupported_version" },
        });
        self.refuse_raw(id, route, &error.to_string(), effects);
    }

    /// Settles a request that was withdrawn. It gets no answer, but its batch may now be complete.
    pub(super) fn answer_nothing(&mut self, route: ReplyRoute, effects: &mut impl SessionEffects) {
        let array = route.batch.and_then(|batch| self.batches.settle(batch, None));
        match array {
            Some(array) => {
                effects.to_client(
                    LineTarget::Answer { stream: route.stream, error: None },
                    Class::Kept,
                    &array,
                );
            }
            None if route.batch.is_some_and(|batch| self.batches.is_open(batch)) => {}
            None => effects.nothing_to_client(route.stream),
        }
    }

    /// Sends an answer, which is an error if `error` is given.
    fn send(
        &mut self,
        route: ReplyRoute,
        error: Option<ErrorAnswer>,
        line: &[u8],
        effects: &mut impl SessionEffects,
    ) {
        match route.batch {
            None => effects.to_client(LineTarget::Answer { stream: route.stream, error }, Class::Kept, line),
            Some(batch) => {
                if let Some(array) = self.batches.settle(batch, Some(line)) {
                    effects.to_client(
                        LineTarget::Answer { stream: route.stream, error: None },
                        Class::Kept,
                        &array,
                    );
                }
            }
        }
    }
}

/// Translates a server's result into the client's era. Fails with the reason if the result is not usable.
fn result_for<'a>(
    client: Era,
    method: &str,
    answered: &ServerAnswer,
    result: &'a RawValue,
) -> Result<Cow<'a, str>, String> {
    let raw = Json::new(result.get().as_bytes()).filter(|raw| raw.get().starts_with('{'));
    let raw = raw.ok_or_else(|| "a result that is not an object".to_owned())?;
    match (answered.era, result::kind(raw)) {
        // A server of the handshake era knows no other kind of result, whatever it writes there.
        (Era::Legacy, _) | (Era::Modern, result::ResultKind::Complete) => {}
        // A client of the server's own era can handle this kind.
        (Era::Modern, result::ResultKind::InputRequired) if client == Era::Modern => {}
        (Era::Modern, other) => return Err(other.out_of_place()),
    }
    let translated = match (client, answered.era) {
        (Era::Legacy, Era::Modern) => result::to_legacy(method, raw),
        (Era::Modern, Era::Legacy) => result::to_modern(method, raw, answered.server_info.as_deref()),
        _ => Some(Cow::Borrowed(result.get())),
    };
    // A result that the translation left alone is an object.
    Ok(translated.unwrap_or(Cow::Borrowed(result.get())))
}

/// Translates a server's error into the client's era. Returns `None` if the error can stay as it is.
fn error_for<'a>(client: Era, method: &str, answered: &ServerAnswer, own: &'a str) -> Option<Cow<'a, str>> {
    let raw = Json::new(own.as_bytes())?;
    match (client, answered.era) {
        (Era::Legacy, Era::Modern) => error::to_legacy(method, raw),
        (Era::Modern, Era::Legacy) => {
            let uri = answered.asked_for.as_deref().and_then(|uri| Json::new(uri.as_bytes()));
            match error::to_modern(method, raw, uri)? {
                error::ModernError::Error(error) => Some(error),
                // The client cannot be asked for input.
                error::ModernError::InputRequired(_) => None,
            }
        }
        _ => None,
    }
}
