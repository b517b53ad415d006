//! What servers ask clients about their calls, on its way there and back (protocol.md 3.3, rows 6 and 7).
//!
//! Invariants
//!
//! - A client is asked what it has said that it can be asked, and on the stream of the call that it is about.
//! - Every question gets one answer: the client's, or ours with the reason.
//! - A question ends with its call, and the client is told. One that may be about several calls ends with the last of them.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, value::RawValue};
use unhang_bridge::{
    Era,
    question::{self, CAPABILITIES},
};
use unhang_switches::stands;
use unhang_wire::{Id, Json, ResponseOutcome, compose, one_line};

use super::{
    effects::{CallKey, LineTarget, QuestionKey, ReplyRoute, SessionAction, SessionEffects},
    session_calls::{SessionCall, SessionCalls},
};
use unhang_core::{clients, fault::FaultKind, queue::Class, units::in_words};
use unhang_gateway::{Replied, ServerAnswer};
use unhang_upstream::client::{Error, Failure};

/// What is asked, and with which params.
pub(super) type AskedParams<'a> = (&'a str, Option<&'a RawValue>);

/// The members of a question, in the words of the era of the client that gets it; `name` is what we call it.
pub(super) fn members((method, params): AskedParams<'_>, era: Era, name: &str) -> String {
    let json = params.and_then(|params| Json::new(params.get().as_bytes()));
    let worded = json.and_then(|params| match era {
        Era::Legacy => question::to_legacy(method, params, name),
        Era::Modern => question::to_modern(method, params),
    });
    let params = worded.as_deref().or(params.map(RawValue::get));
    let params = params.map_or_else(String::new, |params| format!(r#","params":{params}"#));
    format!(r#""method":{}{params}"#, Value::from(method))
}

/// A question that the client has not answered.
#[derive(Clone, Copy, Debug)]
struct OpenQuestion {
    question: QuestionKey,
    /// What is asked.
    method: &'static str,
    call: CallKey,
    route: ReplyRoute,
    /// Which other calls it may be about.
    others: Option<ConcurrentCalls>,
}

impl OpenQuestion {
    /// Another call that it may be about, and that is waited for.
    fn another(&self, calls: &SessionCalls) -> Option<(CallKey, ReplyRoute)> {
        let others = self.others?;
        let calls = calls.iter().map(|(_, call)| call);
        let newest =
            calls.filter(|call| call.key != self.call && others.have(call)).max_by_key(|call| call.key);
        newest.map(|call| (call.key, call.route))
    }
}

/// Calls that a server had when it asked something.
#[derive(Clone, Copy, Debug)]
struct ConcurrentCalls {
    server: usize,
    /// The newest call at that time.
    newest: CallKey,
}

impl ConcurrentCalls {
    fn have(self, call: &SessionCall) -> bool {
        call.server == Some(self.server) && call.key <= self.newest
    }
}

/// What a client has answered.
pub(super) fn replied(outcome: ResponseOutcome<'_>) -> Replied {
    match outcome {
        ResponseOutcome::Result(result) => Ok(result.get().to_owned()),
        ResponseOutcome::Error(error) => {
            let code = error.member("code").and_then(|code| code.get().parse().ok());
            let message = error.member("message").and_then(Json::text).map(|text| text.into_owned());
            Err((code.unwrap_or(FaultKind::Cancelled.code()), message.unwrap_or_default()))
        }
    }
}

/// Questions that the client has not answered, by our own ids.
#[derive(Debug, Default)]
pub(super) struct ClientQuestions {
    open: HashMap<Id, OpenQuestion>,
}

impl ClientQuestions {
    /// Asks the client on behalf of a server, beside the answer to this call. `newest` is the newest call, where the question may be about
    /// any that the server has.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(super) fn ask(
        &mut self,
        call: &SessionCall,
        question: QuestionKey,
        asked: AskedParams<'_>,
        newest: Option<CallKey>,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        let route = call.route;
        if !effects.takes_more(route.stream) {
            return Err("the client that made the call takes nothing but its answer");
        }
        let name = format!("unhang-{question}");
        let members = members(asked, Era::Legacy, &name);
        let id = Id::Text(name.into());
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},{members}}}"#, id.to_json());
        let known = CAPABILITIES.iter().find(|(method, _)| *method == asked.0);
        let method = known.map_or("a question", |(method, _)| method);
        let others = call.server.zip(newest).map(|(server, newest)| ConcurrentCalls { server, newest });
        self.open.insert(id, OpenQuestion { question, method, call: call.key, route, others });
        effects.to_client(LineTarget::Beside(route.stream), Class::Kept, &one_line(line.as_bytes()));
        Ok(())
    }

    /// Takes the question that the client has answered. Gives nothing for what was not asked, or was withdrawn.
    pub(super) fn answered(&mut self, id: &Id) -> Option<QuestionKey> {
        self.open.remove(id).map(|open| open.question)
    }

    /// What the client is being asked about this call.
    pub(super) fn about(&self, call: &SessionCall) -> Option<&'static str> {
        let mut open = self.open.values();
        let about = |open: &&OpenQuestion| {
            open.call == call.key || open.others.is_some_and(|others| others.have(call))
        };
        open.find(about).map(|open| open.method)
    }

    /// What to say of a call whose time is over while its client is being asked something about it; nothing where it is not.
    pub(super) fn unanswered(&self, call: &SessionCall) -> Option<(String, &'static str)> {
        let question = self.about(call)?;
        let (name, limit) = (call.awaited.name(), in_words(call.limit));
        let happened =
            format!("`{name}` needs the client's answer to `{question}`, which did not come within {limit}");
        Some((happened, "answer the question in time, or raise call-timeout"))
    }

    /// What came of a call whose time was over, with why it had no more: its client was asked something, or has a clock of its own.
    pub(super) fn with_why_it_was_late(
        &self,
        call: &SessionCall,
        answered: &ServerAnswer,
        client: Option<&str>,
    ) -> Option<ServerAnswer> {
        let Err(Error::Failure(failure)) = &answered.outcome else { return None };
        if failure.kind != FaultKind::Deadline {
            return None;
        }
        let failure = Failure::clone(failure);
        let failure = match self.unanswered(call) {
            Some((happened, hint)) => Failure { happened, hint: hint.to_owned(), ..failure },
            None => {
                let client = client.filter(|name| !name.is_empty());
                Failure { hint: clients::cut_short(client, call.clock?), ..failure }
            }
        };
        Some(ServerAnswer { outcome: Err(failure.into()), ..answered.clone() })
    }

    /// Ends the questions about a call that is over.
    pub(super) fn forget(
        &mut self,
        call: CallKey,
        calls: &SessionCalls,
        actions: &mut VecDeque<SessionAction>,
        effects: &mut impl SessionEffects,
    ) {
        let of_call: Vec<Id> =
            self.open.iter().filter(|(_, open)| open.call == call).map(|(id, _)| id.clone()).collect();
        for id in of_call {
            let Some(open) = self.open.remove(&id) else { continue };
            if let Some((call, route)) = open.another(calls) {
                self.open.insert(id, OpenQuestion { call, route, ..open });
                continue;
            }
            let why = (FaultKind::Cancelled.code(), "the call that it was about is over".to_owned());
            actions.push_back(SessionAction::Reply { question: open.question, replied: Err(why) });
            if stands("question-withdrawn-with-its-call") {
                let line = compose::cancelled(&id, "the call that it was about is over");
                effects.to_client(LineTarget::Beside(open.route.stream), Class::Kept, &line);
            }
        }
    }
}
