//! The front's answers as lines.
//!
//! Invariants: each goes out once, into its batch where it has one; a result of a stateless revision says that it is complete
//! and who made it (protocol.md 1.3).

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

/// The session's own name in errors.
pub(super) const NAME: &str = "unhang";

/// The error of 2026-07-28 for a revision that we do not speak (protocol.md 1.3).
const UNSUPPORTED_VERSION: i32 = -32022;

/// Who we are, in the form of the protocol.
pub(super) fn implementation() -> Value {
    json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION") })
}

/// A result of ours, for a client of this revision.
pub(super) fn own_result(mut result: Map<String, Value>, revision: Revision) -> String {
    if revision.is_stateless() {
        result.insert("resultType".to_owned(), "complete".into());
        result.insert("_meta".to_owned(), json!({ "io.modelcontextprotocol/serverInfo": implementation() }));
    }
    Value::from(result).to_string()
}

/// Writes what a client gets for what it says, and keeps the books on that: counts, traces, batches that are not complete.
#[derive(Debug, Default)]
pub(super) struct AnswerWriter {
    counters: SessionCounters,
    /// The counters of all sessions.
    tally: Arc<FrontTally>,
    /// The spans of its requests, where traces are exported.
    traces: Traces,
    batches: Batches,
    /// What a person calls the session, in the log.
    session_name: Option<Box<str>>,
    /// What the client called itself last.
    client_name: Option<Box<str>>,
}

impl AnswerWriter {
    /// Counts with others from now on.
    pub(super) fn count_in(&mut self, tally: Arc<FrontTally>) {
        self.tally = tally;
    }

    /// Tells of requests there from now on.
    pub(super) fn trace_with(&mut self, traces: Traces) {
        self.traces = traces;
    }

    /// What is told of requests.
    pub(super) fn traces(&mut self) -> &mut Traces {
        &mut self.traces
    }

    /// What was counted so far.
    pub(super) fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// Bytes of answers that wait for the others of their batch.
    pub(super) fn held_bytes(&self) -> usize {
        self.batches.cost()
    }

    /// Awaits so many answers as one batch.
    pub(super) fn open_batch(&mut self, answers: usize) -> BatchId {
        self.batches.open(answers)
    }

    /// What the log calls the session.
    pub(super) fn name_session(&mut self, name: &str) {
        self.session_name = Some(name.into()).filter(|_| !name.is_empty());
    }

    /// What the client calls itself from now on.
    pub(super) fn name_client(&mut self, name: Option<Box<str>>) {
        self.client_name = name;
    }

    /// What the client calls itself.
    pub(super) fn client_name(&self) -> Option<&str> {
        self.client_name.as_deref()
    }

    /// What the log calls the session.
    pub(super) fn session_name(&self) -> Option<&str> {
        self.session_name.as_deref()
    }

    /// Counts a request that has come.
    pub(super) fn requested(&mut self, method: &str) {
        self.counters.requests += 1;
        self.tally.requested(method);
    }

    /// Begins to trace a request, in a session that has come to this revision.
    pub(super) fn trace(&mut self, request: &ClientRequest<'_>, revision: Option<Revision>) {
        self.traces.begin(request, self.session_name.as_deref(), revision);
    }

    /// Counts a request that its client has withdrawn.
    pub(super) fn withdrawn(&mut self, id: &Id) {
        self.counters.withdrawn += 1;
        add_one(&self.tally.withdrawn);
        self.traces.withdrawn(id);
    }

    /// Answers with a result.
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

    /// Answers with a result as it stands.
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
        // A server over HTTP may have written it on several.
        self.send(route, None, &one_line(line.as_bytes()), effects);
    }

    /// Answers with what a server has said, in the words of the client's era.
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
                Ok(result) => self.answer_raw(id, call.route, &result, effects),
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
                self.send_error(id, call.route, &error, false, effects);
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
                let happened = format!("`{}` cannot be asked: {other}", call.awaited.name());
                let error_report =
                    ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint: "ask again later" };
                self.fail(now, id, call, error_report, effects);
            }
        }
    }

    /// Answers with an error of ours as it stands.
    pub(super) fn refuse_raw(
        &mut self,
        id: &Id,
        route: ReplyRoute,
        error: &str,
        effects: &mut impl SessionEffects,
    ) {
        self.send_error(id, route, error, true, effects);
    }

    /// Answers with an error as it stands, ours or a server's.
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

    /// Refuses to read a resource that nobody has, as the client's era has it.
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

    /// Answers a call that will get no other answer.
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

    /// Answers a request that never became a call.
    pub(super) fn refuse_request(
        &mut self,
        request: &ClientRequest<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.refuse(request.route, request.addressee(), error_report, effects);
    }

    /// Answers what never became a call.
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

    /// Says to whoever reads the log who got which error.
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

    /// Refuses a request of a revision that we do not speak, in the form that lets a client choose another.
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

    /// The request was withdrawn: nothing goes out for it, but its batch may now be complete.
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

    /// Sends an answer, which may be this error.
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

/// A server's result in the words of the client's era, or what is wrong with it.
fn result_for<'a>(
    client: Era,
    method: &str,
    answered: &ServerAnswer,
    result: &'a RawValue,
) -> Result<Cow<'a, str>, String> {
    let raw = Json::new(result.get().as_bytes()).filter(|raw| raw.get().starts_with('{'));
    let raw = raw.ok_or_else(|| "what is no object".to_owned())?;
    match (answered.era, result::kind(raw)) {
        // A server of old knows no other, whatever it writes there.
        (Era::Legacy, _) | (Era::Modern, result::ResultKind::Complete) => {}
        // Whoever speaks as the server does knows what to do with it.
        (Era::Modern, result::ResultKind::InputRequired) if client == Era::Modern => {}
        (Era::Modern, other) => return Err(other.out_of_place()),
    }
    let translated = match (client, answered.era) {
        (Era::Legacy, Era::Modern) => result::to_legacy(method, raw),
        (Era::Modern, Era::Legacy) => result::to_modern(method, raw, answered.server_info.as_deref()),
        _ => Some(Cow::Borrowed(result.get())),
    };
    // It is an object.
    Ok(translated.unwrap_or(Cow::Borrowed(result.get())))
}

/// A server's error in the words of the client's era, where it has to be put into those.
fn error_for<'a>(client: Era, method: &str, answered: &ServerAnswer, own: &'a str) -> Option<Cow<'a, str>> {
    let raw = Json::new(own.as_bytes())?;
    match (client, answered.era) {
        (Era::Legacy, Era::Modern) => error::to_legacy(method, raw),
        (Era::Modern, Era::Legacy) => {
            let uri = answered.asked_for.as_deref().and_then(|uri| Json::new(uri.as_bytes()));
            match error::to_modern(method, raw, uri)? {
                error::ModernError::Error(error) => Some(error),
                // Nobody can be asked.
                error::ModernError::InputRequired(_) => None,
            }
        }
        _ => None,
    }
}
