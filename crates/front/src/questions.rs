//! Questions of servers to clients about their calls, on the way there and back (protocol.md 3.3, rows 6 and 7).
//!
//! Invariants
//!
//! - A client is asked only the kinds of questions that it supports, and on the stream of the call in question.
//! - Every question gets one answer: the client's, or an error of unhang with the reason. An invalid or oversized answer of the
//!   client makes one.
//! - A question ends with its call, and the client is told. A question about one of several calls ends with the last of them.
//! - If the server has answered the call and not waited for the reply, the question is about no call and stays open.
//! - A question to a window ends here with its call, and moves to another call. The window goes on asking its client.
//! - A question that its server has withdrawn is withdrawn from the client.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, value::RawValue};
use unhang_bridge::{
    Era,
    question::{self, CAPABILITIES},
};
use unhang_wire::{
    Id, Invalid, InvalidReason, Json, MessageShape, Oversized, ResponseOutcome, compose, one_line,
};

use super::{
    effects::{CallKey, LineTarget, QuestionKey, ReplyRoute, SessionAction, SessionEffects},
    session_calls::{CalledUpstream, SessionCall, SessionCalls},
};
use unhang_core::{clients, fault::FaultKind, queue::Class, units::in_words};
use unhang_gateway::{Replied, ServerAnswer};
use unhang_upstream::{
    client::{Error, Failure},
    question::{ReplyError, window_question_id},
};

/// The method and the params of a question.
pub(super) type AskedParams<'a> = (&'a str, Option<&'a RawValue>);

/// Writes the members of a question in the form of the client's era; `name` is unhang's name for it.
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
#[derive(Clone, Debug)]
struct OpenQuestion {
    question: QuestionKey,
    /// The method of the question.
    method: &'static str,
    /// The call beside which it is put, and the way of that call's answer. `None` if it is about no call.
    beside: Option<(CallKey, ReplyRoute)>,
    /// The other calls that it may be about.
    others: Option<ConcurrentCalls>,
    /// It is put to a window, which replies by a post of its own.
    is_of_window: bool,
}

impl OpenQuestion {
    /// Tells the server that no answer comes, and withdraws the question from the client.
    fn decline(
        &self,
        id: &Id,
        why: &str,
        actions: &mut VecDeque<SessionAction>,
        effects: &mut impl SessionEffects,
    ) {
        let replied = Err((FaultKind::Cancelled.code(), why.to_owned()).into());
        actions.push_back(SessionAction::Reply { question: self.question, replied });
        self.withdraw(id, why, effects);
    }

    fn withdraw(&self, id: &Id, why: &str, effects: &mut impl SessionEffects) {
        effects.to_client(target(self.beside), Class::Kept, &compose::cancelled(id, why));
    }

    fn is_beside(&self, call: CallKey) -> bool {
        self.beside.is_some_and(|(key, _)| key == call)
    }

    /// Returns another call that the question may be about and that still has a waiting client. The newest one counts.
    fn another(&self, calls: &SessionCalls) -> Option<(CallKey, ReplyRoute)> {
        let others = self.others.as_ref()?;
        let calls = calls.iter().map(|(_, call)| call);
        let newest =
            calls.filter(|call| !self.is_beside(call.key) && others.have(call)).max_by_key(|call| call.key);
        newest.map(|call| (call.key, call.route))
    }
}

/// Returns the place of a question: beside this call, or among the messages about the session.
fn target(beside: Option<(CallKey, ReplyRoute)>) -> LineTarget {
    beside.map_or(LineTarget::Session, |(_, route)| LineTarget::Beside(route.stream))
}

/// The calls that a server had when it asked something.
#[derive(Clone, Debug)]
struct ConcurrentCalls {
    server: CalledUpstream,
    /// The newest call at that time.
    newest: CallKey,
}

impl ConcurrentCalls {
    fn have(&self, call: &SessionCall) -> bool {
        call.server.as_ref() == Some(&self.server) && call.key <= self.newest
    }
}

/// Returns the client's answer to a question.
pub(super) fn replied(outcome: ResponseOutcome<'_>) -> Replied {
    match outcome {
        ResponseOutcome::Result(result) => Ok(result.get().to_owned()),
        ResponseOutcome::Error(error) => {
            let code = error.member("code").and_then(|code| code.get().parse().ok());
            let message = error.member("message").and_then(Json::text).map(|text| text.into_owned());
            let data = error.member("data").map(|data| data.get().into());
            let code = code.unwrap_or(FaultKind::Cancelled.code().into());
            Err(ReplyError { code, message: message.unwrap_or_default(), data })
        }
    }
}

/// Returns the reply to a question that the client has answered with an invalid response, which breaks this rule.
fn invalid_reply(method: &str, rule: InvalidReason) -> Replied {
    let happened = format!("the client answered `{method}` with an invalid response: {rule}");
    Err((FaultKind::BadResponse.code(), happened).into())
}

/// Returns the reply to a question that the client has answered with a message over this limit.
fn oversized_reply(method: &str, limit: usize) -> Replied {
    let happened = format!(
        "the client answered `{method}` with a message over the limit of {limit} bytes; ask for less, or raise \
         --max-message"
    );
    Err((FaultKind::BadResponse.code(), happened).into())
}

/// Questions that the client has not answered, by unhang's own ids.
#[derive(Debug, Default)]
pub(super) struct ClientQuestions {
    open: HashMap<Id, OpenQuestion>,
}

impl ClientQuestions {
    /// Asks the client on behalf of a server, beside the answer to this call. `newest` is the newest call, if the question may be about any
    /// of the server's calls.
    ///
    /// # Errors
    /// Fails with the reason why the client is not asked.
    pub(super) fn ask(
        &mut self,
        call: &SessionCall,
        question: QuestionKey,
        asked: AskedParams<'_>,
        newest: Option<CallKey>,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        let others = call.server.clone().zip(newest);
        let others = others.map(|(server, newest)| ConcurrentCalls { server, newest });
        self.put(call, (question, format!("unhang-{question}")), asked, others, effects)
    }

    /// Asks a window on behalf of a server, beside the answer to this call. `is_of_several` says that the question may be about another
    /// call of the window.
    ///
    /// # Errors
    /// Fails with the reason why the window is not asked.
    pub(super) fn ask_window(
        &mut self,
        call: &SessionCall,
        question: QuestionKey,
        asked: AskedParams<'_>,
        is_of_several: bool,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        self.put(call, (question, window_question_id(question, is_of_several)), asked, None, effects)
    }

    fn put(
        &mut self,
        call: &SessionCall,
        (question, name): (QuestionKey, String),
        asked: AskedParams<'_>,
        others: Option<ConcurrentCalls>,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        if !effects.takes_more(call.route.stream) {
            return Err("the client that made the call accepts only the answer");
        }
        // Only a window makes a request that stands alone and is asked beside it.
        let is_of_window = call.revision.is_stateless();
        self.send(Some((call.key, call.route)), (question, name), asked, (others, is_of_window), effects);
        Ok(())
    }

    /// Asks the client on behalf of a server, outside calls.
    pub(super) fn ask_session(
        &mut self,
        question: QuestionKey,
        asked: AskedParams<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.send(None, (question, format!("unhang-{question}")), asked, (None, false), effects);
    }

    fn send(
        &mut self,
        beside: Option<(CallKey, ReplyRoute)>,
        (question, name): (QuestionKey, String),
        asked: AskedParams<'_>,
        (others, is_of_window): (Option<ConcurrentCalls>, bool),
        effects: &mut impl SessionEffects,
    ) {
        let members = members(asked, Era::Legacy, &name);
        let id = Id::Text(name.into());
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},{members}}}"#, id.to_json());
        let known = CAPABILITIES.iter().find(|(method, _)| *method == asked.0);
        let method = known.map_or("a question", |(method, _)| method);
        self.open.insert(id, OpenQuestion { question, method, beside, others, is_of_window });
        effects.to_client(target(beside), Class::Kept, &one_line(line.as_bytes()));
    }

    /// Takes the question that the client has answered. Returns `None` if it was not asked, or was withdrawn.
    pub(super) fn answered(&mut self, id: &Id) -> Option<QuestionKey> {
        self.open.remove(id).map(|open| open.question)
    }

    /// Takes the question that the client has answered with an invalid response, and returns the reply to it. Returns `None` if the
    /// message answers no question.
    pub(super) fn answered_invalidly(&mut self, invalid: &Invalid<'_>) -> Option<(QuestionKey, Replied)> {
        let id = invalid.id.as_ref().filter(|_| invalid.shape == MessageShape::Response)?;
        let open = self.open.remove(id)?;
        Some((open.question, invalid_reply(open.method, invalid.reason)))
    }

    /// Takes the question that the client has answered with a message over the limit, which nobody has read. Returns the reply to it.
    /// Returns `None` if the message answers no question.
    pub(super) fn answered_too_long(
        &mut self,
        oversized: &Oversized,
        limit: usize,
    ) -> Option<(QuestionKey, Replied)> {
        let id = oversized.id.as_ref().filter(|_| oversized.shape == MessageShape::Response)?;
        let open = self.open.remove(id)?;
        Some((open.question, oversized_reply(open.method, limit)))
    }

    /// Returns the method of an open question about this call.
    pub(super) fn about(&self, call: &SessionCall) -> Option<&'static str> {
        let mut open = self.open.values();
        let about = |open: &&OpenQuestion| {
            open.is_beside(call.key) || open.others.as_ref().is_some_and(|others| others.have(call))
        };
        open.find(about).map(|open| open.method)
    }

    /// Words the timeout of a call that waits for its client's answer to a question. Returns `None` if there is no such question.
    pub(super) fn unanswered(&self, call: &SessionCall) -> Option<(String, &'static str)> {
        let question = self.about(call)?;
        let (name, limit) = (call.awaited.name(), in_words(call.limit));
        let happened =
            format!("`{name}` needs the client's answer to `{question}`, which did not come within {limit}");
        Some((happened, "answer the question in time, or raise call-timeout"))
    }

    /// Adds to a server's timeout why the call had no more time: an open question to the client, or the client's own timeout. Returns
    /// `None` for other outcomes.
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

    /// Notes that the server has answered this call. A question that it has asked during the call and that can be about no other call now
    /// counts as asked outside calls: the server still wants the reply.
    pub(super) fn outlive(&mut self, call: CallKey, calls: &SessionCalls) {
        for open in self.open.values_mut().filter(|open| open.is_beside(call) && !open.is_of_window) {
            if open.another(calls).is_none() {
                (open.beside, open.others) = (None, None);
            }
        }
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
            self.open.iter().filter(|(_, open)| open.is_beside(call)).map(|(id, _)| id.clone()).collect();
        for id in of_call {
            let Some(open) = self.open.remove(&id) else { continue };
            if open.is_of_window {
                actions.push_back(SessionAction::Leave(open.question));
                continue;
            }
            if let beside @ Some(_) = open.another(calls) {
                self.open.insert(id, OpenQuestion { beside, ..open });
                continue;
            }
            open.decline(&id, "the call of this question has ended", actions, effects);
        }
    }

    /// Declines all questions that are put to a window.
    pub(super) fn decline_windows(
        &mut self,
        why: &str,
        actions: &mut VecDeque<SessionAction>,
        effects: &mut impl SessionEffects,
    ) {
        for (id, open) in self.open.extract_if(|_, open| open.is_of_window) {
            open.decline(&id, why, actions, effects);
        }
    }

    /// Declines all questions outside calls, which end with no call.
    pub(super) fn decline_outside_calls(
        &mut self,
        why: &str,
        actions: &mut VecDeque<SessionAction>,
        effects: &mut impl SessionEffects,
    ) {
        for (id, open) in self.open.extract_if(|_, open| open.beside.is_none()) {
            open.decline(&id, why, actions, effects);
        }
    }

    /// Forgets a question that was answered elsewhere.
    pub(super) fn answered_elsewhere(&mut self, question: QuestionKey) {
        self.open.retain(|_, open| open.question != question);
    }

    /// Withdraws from the client a question that its server does not need answered any more.
    pub(super) fn withdraw(&mut self, question: QuestionKey, effects: &mut impl SessionEffects) {
        for (id, open) in self.open.extract_if(|_, open| open.question == question) {
            open.withdraw(&id, "the server no longer needs the answer", effects);
        }
    }
}
