//! The front's answers as lines.
//!
//! Invariants: each goes out once, into its batch where it has one; a result of a stateless revision says that it is complete
//! and who made it (protocol.md 1.3).

use std::time::Duration;

use serde_json::{Map, Value, json};
use unhang_wire::Id;

use super::machine::{Call, Machine, NAME, Outside};
use crate::{
    batch::BatchId,
    fault::{Evidence, Fault, Kind},
    queue::Class,
    refusal::{Addressee, Telling},
    revision::Revision,
};

/// The error of 2026-07-28 for a revision that we do not speak (protocol.md 1.3).
const UNSUPPORTED_VERSION: i32 = -32022;

/// Who we are, in the form of the protocol.
pub(super) fn implementation() -> Value {
    json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION") })
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
        self.counters.answered += 1;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.to_json(), Value::from(result));
        self.send(batch, line.as_bytes(), outside);
    }

    /// Answers a call that will get no other answer.
    pub(super) fn tell(&mut self, id: &Id, call: &Call, telling: Telling<'_>, outside: &mut impl Outside) {
        let limit = (telling.kind == Kind::Deadline).then_some(call.limit);
        let to = Addressee::request(id, "tools/call", call.batch);
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
