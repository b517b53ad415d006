//! What servers ask clients about their calls, on its way there and back (protocol.md 3.3, rows 6 and 7).
//!
//! Invariants
//!
//! - A client is asked what it has said that it can be asked, and on the stream of the call that it is about.
//! - Every question gets one answer: the client's, or ours with the reason.
//! - A question ends with its call, and the client is told.

use serde_json::{Value, value::RawValue};
use unhang_switches::stands;
use unhang_wire::{Id, Json, Outcome, one_line};

use super::machine::{Action, Call, CallKey, Machine, Outside, QuestionKey, To, Way};
use crate::{fault::Kind, gateway::Replied, queue::Class};

/// What can be asked, and what a client says that can be asked it.
const CAPABILITIES: [(&str, &str); 3] =
    [("elicitation/create", "elicitation"), ("sampling/createMessage", "sampling"), ("roots/list", "roots")];

/// What is asked, and with which params.
pub(super) type Asked<'a> = (&'a str, Option<&'a RawValue>);

/// The members of a question, in the server's own words.
pub(super) fn members((method, params): Asked<'_>) -> String {
    let params = params.map_or_else(String::new, |params| format!(r#","params":{}"#, params.get()));
    format!(r#""method":{}{params}"#, Value::from(method))
}

/// A question that the client has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    question: QuestionKey,
    call: CallKey,
    way: Way,
}

/// What a client has answered.
pub(super) fn replied(outcome: Outcome<'_>) -> Replied {
    match outcome {
        Outcome::Result(result) => Ok(result.get().to_owned()),
        Outcome::Error(error) => {
            let code = error.member("code").and_then(|code| code.get().parse().ok());
            let message = error.member("message").and_then(Json::text).map(|text| text.into_owned());
            Err((code.unwrap_or(Kind::Cancelled.code()), message.unwrap_or_default()))
        }
    }
}

impl Machine {
    /// Asks the client on behalf of a server.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(super) fn ask_client(
        &mut self,
        key: CallKey,
        question: QuestionKey,
        asked: Asked<'_>,
        outside: &mut impl Outside,
    ) -> Result<(), &'static str> {
        let call = self.call_asked_about(key, asked.0)?;
        let way = call.way;
        if call.revision.is_stateless() {
            return self.park(key, question, asked, outside);
        }
        if !outside.takes_more(way.stream) {
            return Err("the client that made the call takes nothing but its answer");
        }
        let id = Id::Text(format!("unhang-{question}").into());
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},{}}}"#, id.to_json(), members(asked));
        self.questions.insert(id, Open { question, call: key, way });
        outside.to_client(To::Beside(way.stream), Class::Kept, &one_line(line.as_bytes()));
        Ok(())
    }

    /// The call, if its client can be asked this.
    fn call_asked_about(&self, key: CallKey, method: &str) -> Result<&Call, &'static str> {
        let id = self.running.get(&key).and_then(Option::as_ref);
        let call = id.and_then(|id| self.calls.get(id)).or_else(|| self.parking.call(key));
        let call = call.ok_or("nobody waits for the call any more")?;
        let capability = CAPABILITIES.iter().find(|(asked, _)| *asked == method);
        let (_, capability) = capability.ok_or("no client knows it")?;
        let introduced = call.awaited.introduced().map(|introduced| &*introduced.offers);
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let offers = session.map(|signature| signature.client_capabilities.as_str()).or(introduced);
        let offered = offers.and_then(|offers| Json::new(offers.as_bytes())?.member(capability));
        match offered.is_none_or(|offered| !offered.get().starts_with('{'))
            && stands("client-asked-what-it-offers")
        {
            true => Err("the client that made the call does not offer it"),
            false => Ok(call),
        }
    }

    /// The client has answered something.
    pub(super) fn client_answered(&mut self, id: &Id, replied: Replied) {
        // An answer to nothing that was asked, or to what was withdrawn.
        let Some(open) = self.questions.remove(id) else { return };
        self.actions.push_back(Action::Reply { question: open.question, replied });
    }

    /// A call is over, and so are the questions about it.
    pub(super) fn forget_questions(&mut self, call: CallKey, outside: &mut impl Outside) {
        let over: Vec<Id> =
            self.questions.iter().filter(|(_, open)| open.call == call).map(|(id, _)| id.clone()).collect();
        for id in over {
            let Some(open) = self.questions.remove(&id) else { continue };
            let why = (Kind::Cancelled.code(), "the call that it was about is over".to_owned());
            self.actions.push_back(Action::Reply { question: open.question, replied: Err(why) });
            if stands("question-withdrawn-with-its-call") {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the call that it was about is over"}}}}"#,
                    id.to_json()
                );
                outside.to_client(To::Beside(open.way.stream), Class::Kept, line.as_bytes());
            }
        }
    }
}
