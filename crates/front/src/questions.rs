//! What servers ask clients about their calls, on its way there and back (protocol.md 3.3, rows 6 and 7).
//!
//! Invariants
//!
//! - A client is asked what it has said that it can be asked, and on the stream of the call that it is about.
//! - Every question gets one answer: the client's, or ours with the reason.
//! - A question ends with its call, and the client is told. One that may be about several calls ends with the last of them.

use serde_json::{Value, value::RawValue};
use unhang_bridge::{
    Era,
    question::{self, CAPABILITIES, is_offered},
};
use unhang_switches::stands;
use unhang_wire::{Id, Json, ResponseOutcome, one_line};

use super::mcp_session::{
    CallKey, McpSession, QuestionKey, QuestionSubject, SessionAction, SessionCall, SessionEffects, To, Way,
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
pub(super) struct OpenQuestion {
    question: QuestionKey,
    /// What is asked.
    method: &'static str,
    call: CallKey,
    way: Way,
    /// Which other calls it may be about.
    others: Option<Others>,
}

/// Calls that a server had when it asked something.
#[derive(Clone, Copy, Debug)]
struct Others {
    server: usize,
    /// The newest call at that time.
    newest: CallKey,
}

impl Others {
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

impl McpSession {
    /// Asks the client on behalf of a server.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(super) fn ask_client(
        &mut self,
        about: QuestionSubject,
        question: QuestionKey,
        asked: AskedParams<'_>,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        let (QuestionSubject::Call(key) | QuestionSubject::OneOfSeveral(key)) = about;
        let call = self.call_asked_about(key, asked)?;
        let way = call.way;
        let server = call.server.filter(|_| matches!(about, QuestionSubject::OneOfSeveral(_)));
        let others = server.map(|server| Others { server, newest: self.next_key });
        if call.revision.is_stateless() {
            return self.park(key, question, asked, effects);
        }
        if !effects.takes_more(way.stream) {
            return Err("the client that made the call takes nothing but its answer");
        }
        let name = format!("unhang-{question}");
        let members = members(asked, Era::Legacy, &name);
        let id = Id::Text(name.into());
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},{members}}}"#, id.to_json());
        let known = CAPABILITIES.iter().find(|(method, _)| *method == asked.0);
        let method = known.map_or("a question", |(method, _)| method);
        self.questions.insert(id, OpenQuestion { question, method, call: key, way, others });
        effects.to_client(To::Beside(way.stream), Class::Kept, &one_line(line.as_bytes()));
        Ok(())
    }

    /// The call, if its client can be asked this.
    fn call_asked_about(&self, key: CallKey, asked: AskedParams<'_>) -> Result<&SessionCall, &'static str> {
        let id = self.running.get(&key).and_then(Option::as_ref);
        let call = id.and_then(|id| self.calls.get(id)).or_else(|| self.parking.call(key));
        let call = call.ok_or("nobody waits for the call any more")?;
        if !CAPABILITIES.iter().any(|(method, _)| *method == asked.0) {
            return Err("no client knows it");
        }
        let introduced = call.awaited.introduced().map(|introduced| &*introduced.offers);
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let offers = session.map(|signature| signature.client_capabilities.as_str()).or(introduced);
        let offers = offers.and_then(|offers| Json::new(offers.as_bytes()));
        let is_offered = offers.is_some_and(|offers| is_offered(offers, asked));
        match !is_offered && stands("client-asked-what-it-offers") {
            true => Err("the client that made the call does not offer it"),
            false => Ok(call),
        }
    }

    /// The client has answered something.
    pub(super) fn client_answered(&mut self, id: &Id, replied: Replied) {
        // An answer to nothing that was asked, or to what was withdrawn.
        let Some(open) = self.questions.remove(id) else { return };
        self.actions.push_back(SessionAction::Reply { question: open.question, replied });
    }

    /// Whether the client is being asked something about this call.
    pub(super) fn is_asked_about(&self, call: &SessionCall) -> bool {
        self.asked_about(call).is_some()
    }

    /// What the client is being asked about this call.
    fn asked_about(&self, call: &SessionCall) -> Option<&'static str> {
        let mut open = self.questions.values();
        let about = |open: &&OpenQuestion| {
            open.call == call.key || open.others.is_some_and(|others| others.have(call))
        };
        open.find(about).map(|open| open.method)
    }

    /// What to say of a call whose time is over while its client is being asked something about it; nothing where it is not.
    pub(super) fn unanswered(&self, call: &SessionCall) -> Option<(String, &'static str)> {
        let question = self.asked_about(call)?;
        let (name, limit) = (call.awaited.name(), in_words(call.limit));
        let happened =
            format!("`{name}` needs the client's answer to `{question}`, which did not come within {limit}");
        Some((happened, "answer the question in time, or raise call-timeout"))
    }

    /// What came of a call whose time was over, with why it had no more: its client was asked something, or has a clock of its own.
    pub(super) fn with_why_it_was_late(&self, key: CallKey, answered: &ServerAnswer) -> Option<ServerAnswer> {
        let Err(Error::Failure(failure)) = &answered.outcome else { return None };
        let id = self.running.get(&key).and_then(Option::as_ref)?;
        let call = self.calls.get(id).filter(|_| failure.kind == FaultKind::Deadline)?;
        let failure = Failure::clone(failure);
        let failure = match self.unanswered(call) {
            Some((happened, hint)) => Failure { happened, hint: hint.to_owned(), ..failure },
            None => {
                let client = self.answers.client_name().filter(|name| !name.is_empty());
                Failure { hint: clients::cut_short(client, call.clock?), ..failure }
            }
        };
        Some(ServerAnswer { outcome: Err(failure.into()), ..answered.clone() })
    }

    /// Another call that a question may be about, and that is waited for.
    fn another(&self, open: &OpenQuestion) -> Option<(CallKey, Way)> {
        let others = open.others?;
        let calls = self.calls.iter().map(|(_, call)| call);
        let newest =
            calls.filter(|call| call.key != open.call && others.have(call)).max_by_key(|call| call.key);
        newest.map(|call| (call.key, call.way))
    }

    /// A call is over, and so are the questions about it.
    pub(super) fn forget_questions(&mut self, call: CallKey, effects: &mut impl SessionEffects) {
        let of_call: Vec<Id> =
            self.questions.iter().filter(|(_, open)| open.call == call).map(|(id, _)| id.clone()).collect();
        for id in of_call {
            let Some(open) = self.questions.remove(&id) else { continue };
            if let Some((call, way)) = self.another(&open) {
                self.questions.insert(id, OpenQuestion { call, way, ..open });
                continue;
            }
            let why = (FaultKind::Cancelled.code(), "the call that it was about is over".to_owned());
            self.actions.push_back(SessionAction::Reply { question: open.question, replied: Err(why) });
            if stands("question-withdrawn-with-its-call") {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the call that it was about is over"}}}}"#,
                    id.to_json()
                );
                effects.to_client(To::Beside(open.way.stream), Class::Kept, line.as_bytes());
            }
        }
    }
}
