//! The front's answers as lines.
//!
//! Invariants: each goes out once, into its batch where it has one; a result of a stateless revision says that it is complete
//! and who made it (protocol.md 1.3).

use std::{borrow::Cow, time::Duration};

use serde_json::{Map, Value, json};
use unhang_bridge::{Era, error, result};
use unhang_wire::{Id, Json, one_line};

use super::{
    machine::{Call, Machine, NAME, Outside},
    requests::MOST_ECHOED,
};
use crate::{
    batch::BatchId,
    client::{Error, List},
    config::LIST_LIFE,
    fault::{Evidence, Fault, Kind},
    gateway::Answered,
    queue::Class,
    refusal::{Addressee, Telling},
    revision::Revision,
    wording::shortened,
};

/// The error of 2026-07-28 for a revision that we do not speak (protocol.md 1.3).
const UNSUPPORTED_VERSION: i32 = -32022;

/// Who we are, in the form of the protocol.
pub(super) fn implementation() -> Value {
    json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION") })
}

/// The era of a client of this revision.
pub(super) fn era_of(revision: Revision) -> Era {
    if revision.is_stateless() { Era::Modern } else { Era::Legacy }
}

impl Machine {
    /// Answers with a result.
    pub(super) fn answer(
        &mut self,
        id: &Id,
        revision: Revision,
        batch: Option<BatchId>,
        mut result: Map<String, Value>,
        outside: &mut impl Outside,
    ) {
        if revision.is_stateless() {
            result.insert("resultType".to_owned(), "complete".into());
            result.insert(
                "_meta".to_owned(),
                json!({ "io.modelcontextprotocol/serverInfo": implementation() }),
            );
        }
        self.answer_raw(id, batch, &Value::from(result).to_string(), outside);
    }

    /// Answers with a result as it stands.
    fn answer_raw(&mut self, id: &Id, batch: Option<BatchId>, result: &str, outside: &mut impl Outside) {
        self.counters.answered += 1;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.to_json());
        // A server over HTTP may have written it on several.
        self.send(batch, &one_line(line.as_bytes()), outside);
    }

    /// Answers with a list: what we have ourselves, and then what the servers have.
    pub(super) fn answer_list(&mut self, id: &Id, list: List, call: &Call, outside: &mut impl Outside) {
        let is_stateless = call.revision.is_stateless();
        let own = self.tools.iter().filter(|_| list == List::Tools);
        let mut items: Vec<String> = own.map(|tool| tool.to_json(call.revision).to_string()).collect();
        let known = self.servers.as_ref();
        let others = known.map(|known| known.catalog.list(list, era_of(call.revision)));
        let others = others.and_then(|others| others.strip_prefix('[')?.strip_suffix(']'));
        items.extend(others.filter(|others| !others.is_empty()).map(str::to_owned));
        let mut result = format!(r#"{{"{}":[{}]"#, list.member(), items.join(","));
        if is_stateless {
            // What servers have may change at any time, and whoever has not asked to hear of it does not.
            let life = if known.is_some() { Duration::ZERO } else { LIST_LIFE };
            result.push_str(&format!(
                r#","ttlMs":{},"cacheScope":"private","resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{}}}"#,
                life.as_millis(),
                implementation()
            ));
        }
        result.push('}');
        self.answer_raw(id, call.batch, &result, outside);
    }

    /// Answers with what a server has said, in the words of the client's era.
    pub(super) fn pass_on(&mut self, id: &Id, call: &Call, answered: Answered, outside: &mut impl Outside) {
        let Answered { era, server_info, outcome, asked_for } = answered;
        let (method, client) = (call.awaited.method(), era_of(call.revision));
        match outcome {
            Ok(result) => {
                let raw = Json::new(result.get().as_bytes());
                let translated = match (client, era) {
                    (Era::Legacy, Era::Modern) => raw.and_then(|raw| result::to_legacy(method, raw)),
                    (Era::Modern, Era::Legacy) => {
                        raw.and_then(|raw| result::to_modern(method, raw, server_info.as_deref()))
                    }
                    _ => Some(Cow::Borrowed(result.get())),
                };
                match translated {
                    Some(result) => self.answer_raw(id, call.batch, &result, outside),
                    None => {
                        let happened =
                            format!("`{}` answered `{method}` with what is no object", call.awaited.name());
                        let hint = "this is a fault of the server";
                        self.tell(id, call, Telling { kind: Kind::BadResponse, happened, hint }, outside);
                    }
                }
            }
            Err(Error::Server(error)) => {
                let own = error.to_json();
                let raw = Json::new(own.as_bytes());
                let translated = match (client, era) {
                    (Era::Legacy, Era::Modern) => raw.and_then(|raw| error::to_legacy(method, raw)),
                    (Era::Modern, Era::Legacy) => {
                        let uri = asked_for.as_deref().and_then(|uri| Json::new(uri.as_bytes()));
                        match raw.and_then(|raw| error::to_modern(method, raw, uri)) {
                            Some(error::Modern::Error(error)) => Some(error),
                            _ => None,
                        }
                    }
                    _ => None,
                };
                let error = translated.unwrap_or(Cow::Borrowed(&own));
                self.counters.faults += 1;
                let line = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.to_json());
                self.send(call.batch, &one_line(line.as_bytes()), outside);
            }
            Err(Error::Failure(failure)) => {
                tracing::info!("answered with an error: {failure}");
                self.counters.faults += 1;
                self.send(call.batch, &failure.fault().response(Some(id)), outside);
            }
            Err(other) => {
                let happened = format!("`{}` cannot be asked: {other}", call.awaited.name());
                let telling = Telling { kind: Kind::ShuttingDown, happened, hint: "ask again later" };
                self.tell(id, call, telling, outside);
            }
        }
    }

    /// Refuses to read a resource that nobody has, as the client's era has it.
    pub(super) fn refuse_resource(
        &mut self,
        id: &Id,
        uri: &str,
        revision: Revision,
        batch: Option<BatchId>,
        outside: &mut impl Outside,
    ) {
        let message = format!(
            "there is no resource `{}`; resources/list names all of them",
            shortened(uri, MOST_ECHOED)
        );
        let modern = json!({
            "code": Kind::InvalidParams.code(),
            "message": message,
            "data": { "uri": uri, "origin": NAME, "kind": "resource_not_found" },
        })
        .to_string();
        let legacy = Json::new(modern.as_bytes()).filter(|_| !revision.is_stateless());
        let legacy = legacy.and_then(|modern| error::to_legacy("resources/read", modern));
        self.counters.faults += 1;
        let error = legacy.as_deref().unwrap_or(&modern);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.to_json());
        self.send(batch, line.as_bytes(), outside);
    }

    /// Answers a call that will get no other answer.
    pub(super) fn tell(&mut self, id: &Id, call: &Call, telling: Telling<'_>, outside: &mut impl Outside) {
        let limit = (telling.kind == Kind::Deadline).then_some(call.limit);
        let to = Addressee::request(id, call.awaited.method(), call.batch);
        self.fault(to, telling, self.now.saturating_sub(call.since), limit, outside);
    }

    /// Answers what never became a call.
    pub(super) fn refuse(&mut self, to: Addressee<'_>, telling: Telling<'_>, outside: &mut impl Outside) {
        self.fault(to, telling, Duration::ZERO, None, outside);
    }

    fn fault(
        &mut self,
        to: Addressee<'_>,
        telling: Telling<'_>,
        elapsed: Duration,
        limit: Option<Duration>,
        outside: &mut impl Outside,
    ) {
        let fault = Fault {
            kind: telling.kind,
            server: NAME,
            method: to.method,
            happened: telling.happened,
            hint: telling.hint,
            elapsed,
            limit,
            exit: None,
            evidence: Evidence::default(),
        };
        tracing::info!("answered with an error: {}", fault.message());
        self.counters.faults += 1;
        self.send(to.batch, &to.line(&fault), outside);
    }

    /// Refuses a request of a revision that we do not speak, in the form that lets a client choose another.
    pub(super) fn refuse_version(
        &mut self,
        id: &Id,
        asked: &str,
        batch: Option<BatchId>,
        outside: &mut impl Outside,
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
        self.counters.faults += 1;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.to_json());
        self.send(batch, line.as_bytes(), outside);
    }

    /// The request was withdrawn: nothing goes out for it, but its batch may now be complete.
    pub(super) fn answer_nothing(&mut self, batch: Option<BatchId>, outside: &mut impl Outside) {
        if let Some(array) = batch.and_then(|batch| self.batches.settle(batch, None)) {
            outside.to_client(Class::Kept, &array);
        }
    }

    fn send(&mut self, batch: Option<BatchId>, line: &[u8], outside: &mut impl Outside) {
        match batch {
            None => outside.to_client(Class::Kept, line),
            Some(batch) => {
                if let Some(array) = self.batches.settle(batch, Some(line)) {
                    outside.to_client(Class::Kept, &array);
                }
            }
        }
    }
}
