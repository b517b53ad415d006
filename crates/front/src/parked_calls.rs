//! Parked calls: calls of clients of 2026-07-28 that wait for the client. If a server of the handshake era asks something about such a
//! call, the question is the answer to its request. The client then makes the request again with its own answers (protocol.md 3.3, row 7).
//!
//! ```text
//! request ─ call of a server ─ question ─► input_required, with a state that names the call; the call is parked
//! request with that state and the answers ─► the call goes on under the new request
//! ```
//!
//! Invariants
//!
//! - The state is an unguessable name, valid once; the call behind it is kept here. Only the very same request can resume the call.
//! - A call to which its client does not come back ends when its limit is over, and the server is told.
//! - A server's answer to a parked call waits for the client. Questions that may be about other calls are asked before it.
//! - A response that is not an object reaches no server. The request is refused, and the client can come back under the same state.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use serde_json::Value;
use unhang_bridge::Era;
use unhang_wire::{Id, Json, progress_token, text_member};

use super::{
    answers::implementation,
    client_request::{MOST_ECHOED, invalid_params},
    effects::{CallKey, QuestionKey, ReplyRoute, SessionAction},
    questions::{AskedParams, members},
    session_calls::{Awaited, SessionCall, SessionCalls},
    urls,
};
use unhang_core::{fault::FaultKind, refusal::ErrorReport, revision::Revision, wording::shortened};
use unhang_gateway::ServerAnswer;
use unhang_upstream::question::{ReplyError, STATE};

/// A call that waits for its client.
#[derive(Debug)]
struct ParkedCall {
    call: SessionCall,
    /// The state under which the client comes back.
    state: String,
    questions: Vec<ParkedQuestion>,
    /// The server's answer, if it came meanwhile.
    answered: Option<ServerAnswer>,
    /// When the client is not expected to come back any more.
    until: Duration,
}

/// An open question that is the answer to a parked call.
#[derive(Debug)]
struct ParkedQuestion {
    key: QuestionKey,
    /// The question, as JSON.
    asked: String,
    /// It may be about another call, so it stays open when this one has ended.
    is_of_several: bool,
}

impl ParkedCall {
    /// Returns whether its client has to answer more before the call goes on.
    fn is_still_asked(&self) -> bool {
        let is_needed = |question: &ParkedQuestion| self.answered.is_none() || question.is_of_several;
        self.questions.iter().any(is_needed)
    }

    fn digest(&self) -> Option<u64> {
        self.call.awaited.introduced().map(|introduced| introduced.digest)
    }

    /// Resumes the call under a new request with these params.
    fn goes_on(&mut self, now: Duration, params: Json<'_>, (revision, route): (Revision, ReplyRoute)) {
        let call = &mut self.call;
        (call.revision, call.route) = (revision, route);
        if let Awaited::Server { token, .. } = &mut call.awaited {
            // The earlier progress token has ended with its request.
            *token = progress_token(params);
            let heartbeat = call.heartbeat.take().zip(token.clone());
            call.heartbeat = heartbeat.map(|(heartbeat, token)| heartbeat.renamed(now, token).into());
        }
    }

    /// Takes the replies with which the client comes back. A question without a reply stays open.
    fn take_replies(&mut self, params: Json<'_>, actions: &mut VecDeque<SessionAction>) {
        let responses = params.member("inputResponses");
        self.questions.retain(|&ParkedQuestion { key: question, .. }| {
            let name = format!("question-{question}");
            let response = responses.and_then(|responses| responses.member(&name));
            if let Some(response) = response {
                let replied = Ok(response.get().to_owned());
                actions.push_back(SessionAction::Reply { question, replied });
            }
            response.is_none()
        });
    }
}

/// A provisional answer to a request, which asks the client for input.
pub(super) struct InputRequiredAnswer {
    pub id: Id,
    pub route: ReplyRoute,
    pub result: String,
}

/// A call whose client has come back.
pub(super) struct Resumed {
    pub call: SessionCall,
    /// The server's answer, if it came meanwhile.
    pub answered: Option<ServerAnswer>,
}

/// The reason why a call does not go on although its client has come back.
pub(super) enum NotResumed {
    /// No parked call fits the request, or its time is over.
    Unknown(ErrorReport<'static>),
    /// The open questions are asked once more, by this answer.
    AskedAgain(String),
}

impl NotResumed {
    fn unknown(method: &str) -> NotResumed {
        let happened =
            format!("the requestState of `{method}` has expired, or unhang did not give it to this request");
        NotResumed::Unknown(invalid_params(happened, MAKE_ANEW))
    }
}

/// The reason why nobody is asked any more at the end.
pub(super) const ENDING: &str = "unhang is ending, and the client could not return with the answer";

/// The hint for a request that comes back to no parked call.
pub(super) const MAKE_ANEW: &str = "make the request again, without requestState and inputResponses";

/// The parked calls of one session.
#[derive(Debug, Default)]
pub(super) struct ParkedCalls {
    /// The unguessable part of every state; `None` if no client can come back.
    secret: Option<String>,
    calls: HashMap<CallKey, ParkedCall>,
    /// The number of states so far, which makes each of them valid once.
    given: u64,
}

/// Returns a digest of a request: the same request has the same digest.
pub(super) fn digest(method: &str, params: Json<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for member in ["name", "uri", "arguments"] {
        params.member(member).map(Json::get).hash(&mut hasher);
    }
    method.hash(&mut hasher);
    hasher.finish()
}

impl ParkedCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the call of this key if it is parked.
    pub(super) fn call(&self, key: CallKey) -> Option<&SessionCall> {
        self.calls.get(&key).map(|parked| &parked.call)
    }

    pub(super) fn next_tick(&self) -> Option<Duration> {
        self.calls.values().map(|parked| parked.until).min()
    }

    /// Returns whether this state was given out here.
    pub(super) fn gave(&self, state: &str) -> bool {
        secret_of(state).is_some_and(|secret| self.secret.as_deref() == Some(secret))
    }

    /// Returns whether another process has given out this state, which served these windows earlier.
    pub(super) fn was_given_elsewhere(&self, state: &str) -> bool {
        let realm = |secret: &str| secret.split_once(REALM_END).map(|(realm, _)| realm.to_owned());
        match (self.secret.as_deref().and_then(realm), secret_of(state).and_then(realm)) {
            (Some(ours), Some(theirs)) => ours != theirs,
            _ => false,
        }
    }

    /// Parks calls under names that begin with this unguessable secret from now on.
    pub(super) fn park_under(&mut self, secret: String) {
        self.secret = Some(secret);
    }

    /// Parks a call with a question, which becomes the answer to its request. The question may be about another call of its client. Returns
    /// `None` if the call is parked already: its client gets the question when it comes back.
    ///
    /// # Errors
    /// Fails with the reason why the client is not asked.
    pub(super) fn park(
        &mut self,
        (key, is_of_several): (CallKey, bool),
        question: QuestionKey,
        asked: AskedParams<'_>,
        is_ending: bool,
        calls: &mut SessionCalls,
    ) -> Result<Option<InputRequiredAnswer>, &'static str> {
        let asked = format!("{{{}}}", members(asked, Era::Modern, ""));
        let question = ParkedQuestion { key: question, asked, is_of_several };
        if let Some(parked) = self.calls.get_mut(&key) {
            parked.questions.push(question);
            return Ok(None);
        }
        if self.secret.is_none() {
            return Err("the client could not return with the answer");
        }
        if is_ending {
            // The call itself still gets the time that an end allows.
            return Err(ENDING);
        }
        let (id, call) = calls.park(key).ok_or("the caller no longer waits for the call")?;
        let until = call.since + call.limit;
        let route = call.route;
        let questions = vec![question];
        let parked = ParkedCall { call, state: String::new(), questions, answered: None, until };
        Ok(Some(InputRequiredAnswer { id, route, result: self.keep(key, parked) }))
    }

    /// Keeps a call until its client comes back. Returns the answer to its request, which asks the open questions.
    fn keep(&mut self, key: CallKey, mut parked: ParkedCall) -> String {
        parked.state = self.new_state();
        let requests = parked.questions.iter();
        let requests: Vec<String> = requests
            .map(|ParkedQuestion { key, asked, .. }| format!(r#""question-{key}":{asked}"#))
            .collect();
        let result = input_required(&requests, &parked.state);
        self.calls.insert(key, parked);
        result
    }

    /// Removes and returns the call to which a request comes back.
    ///
    /// # Errors
    /// Fails with [`NotResumed::AskedAgain`] if questions are still open, and with [`NotResumed::Unknown`] if no parked call fits.
    pub(super) fn come_back(
        &mut self,
        now: Duration,
        method: &str,
        params: Json<'_>,
        (revision, route): (Revision, ReplyRoute),
        actions: &mut VecDeque<SessionAction>,
    ) -> Result<Resumed, NotResumed> {
        let state = own_state(Some(params)).unwrap_or_default();
        let is_same = |parked: &ParkedCall| parked.digest() == Some(digest(method, params));
        let found = self.calls.iter().find(|(_, parked)| parked.state == state && is_same(parked));
        let found = found.map(|(key, _)| *key).and_then(|key| self.calls.remove_entry(&key));
        let (key, mut parked) = found.ok_or_else(|| NotResumed::unknown(method))?;
        parked.goes_on(now, params, (revision, route));
        parked.take_replies(params, actions);
        if parked.is_still_asked() {
            // The open questions are asked once more.
            return Err(NotResumed::AskedAgain(self.keep(key, parked)));
        }
        for ParkedQuestion { key: question, .. } in parked.questions {
            actions.push_back(SessionAction::Reply { question, replied: Err(cancelled_reply()) });
        }
        Ok(Resumed { call: parked.call, answered: parked.answered })
    }

    /// Forgets a question that its server does not need answered any more. A client that comes back with an answer goes on without it.
    pub(super) fn withdraw(&mut self, question: QuestionKey) {
        for parked in self.calls.values_mut() {
            parked.questions.retain(|open| open.key != question);
        }
    }

    /// Keeps a server's answer to a parked call. Returns false if the call is not parked.
    pub(super) fn answered_meanwhile(&mut self, key: CallKey, answered: &ServerAnswer) -> bool {
        match self.calls.get_mut(&key) {
            Some(parked) => {
                parked.answered = Some(answered.clone());
                true
            }
            None => false,
        }
    }

    /// Forgets parked calls whose time is over, or all of them if no time is given.
    pub(super) fn forget(&mut self, until: Option<Duration>, actions: &mut VecDeque<SessionAction>) {
        let is_over = |parked: &ParkedCall| until.is_none_or(|now| parked.until <= now);
        let over_now: Vec<CallKey> =
            self.calls.iter().filter(|(_, parked)| is_over(parked)).map(|(key, _)| *key).collect();
        for key in over_now {
            let Some(parked) = self.calls.remove(&key) else { continue };
            for ParkedQuestion { key: question, .. } in parked.questions {
                actions.push_back(SessionAction::Reply { question, replied: Err(cancelled_reply()) });
            }
            if parked.answered.is_none() {
                actions.push_back(SessionAction::Cancel(key));
            }
        }
    }

    /// Makes a state that was never given out.
    fn new_state(&mut self) -> String {
        self.given += 1;
        format!("{STATE}{}.{}", self.secret.as_deref().unwrap_or_default(), self.given)
    }
}

/// Separates the name of a process from the rest of a secret, for windows that may come back to another process.
const REALM_END: char = '-';

/// Joins the name of a process with the secret of one request.
pub(super) fn secret_in(realm: &str, name: &str) -> String {
    format!("{realm}{REALM_END}{name}")
}

/// Returns the secret in a state of unhang, by which its front is found.
pub(super) fn secret_of(state: &str) -> Option<&str> {
    state.strip_prefix(STATE)?.split('.').next()
}

/// Makes the result that asks the client for input. Each request begins with its name.
pub(super) fn input_required(requests: &[String], state: &str) -> String {
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/serverInfo":{}}},"inputRequests":{{{}}},"requestState":{},"resultType":"input_required"}}"#,
        implementation(),
        requests.join(","),
        Value::from(state)
    )
}

/// Returns the state with which a request comes, if it is a state of unhang.
pub(super) fn own_state(params: Option<Json<'_>>) -> Option<String> {
    text_member(params?, "requestState").filter(|state| state.starts_with(STATE))
}

/// Returns the error for a request that comes back to unhang with responses that no server could read. Returns `None` for any other request.
pub(super) fn unreadable_responses(method: &str, params: Json<'_>) -> Option<ErrorReport<'static>> {
    text_member(params, "requestState").filter(|state| state.starts_with(STATE) || urls::is_state(state))?;
    let mut wrong = None;
    let mut read = |name: Json<'_>, response: Json<'_>| {
        if !response.get().starts_with('{') {
            wrong =
                wrong.take().or_else(|| name.text().map(|name| shortened(&name, MOST_ECHOED).into_owned()));
        }
    };
    let is_object = params.member("inputResponses")?.each_member(&mut read);
    let happened = match wrong {
        Some(name) => format!("the response `{name}` in `inputResponses` of `{method}` is not an object"),
        None if is_object => return None,
        None => format!("`inputResponses` of `{method}` is not an object"),
    };
    Some(invalid_params(
        happened,
        "send the request again with an object for each question, which is still open",
    ))
}

/// Returns the error for a question that stays unanswered.
fn cancelled_reply() -> ReplyError {
    (FaultKind::Cancelled.code(), "the client has not returned with an answer".to_owned()).into()
}
