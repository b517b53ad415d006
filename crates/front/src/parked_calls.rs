//! Calls of clients of 2026-07-28 that wait for the client: what a server of old asks about one is the answer to its request, and the
//! client makes the request again with what it has to say (protocol.md 3.3, row 7).
//!
//! ```text
//! request ─ call of a server ─ question ─► input_required, with a state that names the call; the call is parked
//! request with that state and the answers ─► the call goes on under the new request
//! ```
//!
//! Invariants
//!
//! - The state is a name that nobody guesses, and good for one time; what it stands for is here. It goes on with nothing but the very
//!   same request.
//! - A call that its client does not come back to ends when its limit is over, and the server is told.
//! - What the server answers meanwhile waits for the client.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use serde_json::Value;
use unhang_bridge::Era;
use unhang_switches::stands;
use unhang_wire::{Id, Json, progress_token, text_member};

use super::{
    answers::implementation,
    client_request::invalid_params,
    effects::{CallKey, QuestionKey, ReplyRoute, SessionAction},
    questions::{AskedParams, members},
    session_calls::{Awaited, SessionCall, SessionCalls},
};
use unhang_core::{fault::FaultKind, refusal::ErrorReport, revision::Revision};
use unhang_gateway::ServerAnswer;
use unhang_upstream::question::STATE;

/// A call that waits for its client.
#[derive(Debug)]
struct ParkedCall {
    call: SessionCall,
    /// The state under which the client comes back.
    state: String,
    /// Questions that the client has not answered: by our names for them, what was asked.
    questions: Vec<(QuestionKey, String)>,
    /// What the server has answered meanwhile.
    answered: Option<ServerAnswer>,
    /// When nobody is expected to come back any more.
    until: Duration,
}

impl ParkedCall {
    fn digest(&self) -> Option<u64> {
        self.call.awaited.introduced().map(|introduced| introduced.digest)
    }

    /// Goes on under a new request with these params.
    fn goes_on(&mut self, now: Duration, params: Json<'_>, (revision, route): (Revision, ReplyRoute)) {
        let call = &mut self.call;
        (call.revision, call.route) = (revision, route);
        if let Awaited::Server { token, .. } = &mut call.awaited
            && stands("progress-by-the-newest-token")
        {
            // What was named before is over with its request, for whoever hears of progress.
            *token = progress_token(params);
            let heartbeat = call.heartbeat.take().zip(token.clone());
            call.heartbeat = heartbeat.map(|(heartbeat, token)| heartbeat.renamed(now, token).into());
        }
    }

    /// Takes the replies with which the client comes back. What it does not reply to stays a question.
    fn take_replies(&mut self, params: Json<'_>, actions: &mut VecDeque<SessionAction>) {
        let responses = params.member("inputResponses");
        let answers = std::mem::take(&mut self.questions).into_iter().filter_map(|(question, asked)| {
            let name = format!("question-{question}");
            match responses.and_then(|responses| responses.member(&name)) {
                Some(response) => {
                    let replied = Ok(response.get().to_owned());
                    actions.push_back(SessionAction::Reply { question, replied });
                    None
                }
                None => Some((question, asked)),
            }
        });
        self.questions = answers.collect();
    }
}

/// What a request is answered with in place of its real answer.
pub(super) struct InputRequiredAnswer {
    pub id: Id,
    pub route: ReplyRoute,
    pub result: String,
}

/// A call whose client has come back.
pub(super) struct Resumed {
    pub call: SessionCall,
    /// What the server has answered meanwhile.
    pub answered: Option<ServerAnswer>,
}

/// Why a call does not go on though its client has come back.
pub(super) enum NotResumed {
    /// There is none for this request, or its time is over.
    Unknown(ErrorReport<'static>),
    /// This is the answer that asks once more.
    AskedAgain(String),
}

impl NotResumed {
    fn unknown(method: &str) -> NotResumed {
        let happened =
            format!("the requestState of `{method}` is not one that this request was given, or is over");
        NotResumed::Unknown(invalid_params(happened, MAKE_ANEW))
    }
}

/// What to do with a request that comes back to nothing.
pub(super) const MAKE_ANEW: &str = "make the request anew, without requestState and inputResponses";

/// What is known of parked calls.
#[derive(Debug, Default)]
pub(super) struct ParkedCalls {
    /// Not to be guessed; none where nobody can come back.
    secret: Option<String>,
    calls: HashMap<CallKey, ParkedCall>,
    /// States that were given out, so that each is good for one time.
    given: u64,
}

/// What a request is, in short: the same request has the same digest.
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

    /// The call of this key, where it is parked.
    pub(super) fn call(&self, key: CallKey) -> Option<&SessionCall> {
        self.calls.get(&key).map(|parked| &parked.call)
    }

    pub(super) fn next_tick(&self) -> Option<Duration> {
        self.calls.values().map(|parked| parked.until).min()
    }

    /// Whether this is a state that was given out here.
    pub(super) fn gave(&self, state: &str) -> bool {
        secret_of(state).is_some_and(|secret| self.secret.as_deref() == Some(secret))
    }

    /// Whether another process has given this state, which led these windows before us.
    pub(super) fn was_given_elsewhere(&self, state: &str) -> bool {
        let realm = |secret: &str| secret.split_once(REALM_END).map(|(realm, _)| realm.to_owned());
        match (self.secret.as_deref().and_then(realm), secret_of(state).and_then(realm)) {
            (Some(ours), Some(theirs)) => ours != theirs,
            _ => false,
        }
    }

    /// Parks calls under names that begin with this, which nobody guesses.
    pub(super) fn park_under(&mut self, secret: String) {
        self.secret = Some(secret);
    }

    /// Asks about a call what cannot be asked beside its request: it is the answer to it. Gives nothing where the call is parked already,
    /// for then the client hears of it when it comes back.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(super) fn park(
        &mut self,
        key: CallKey,
        question: QuestionKey,
        asked: AskedParams<'_>,
        is_ending: bool,
        calls: &mut SessionCalls,
    ) -> Result<Option<InputRequiredAnswer>, &'static str> {
        let asked = format!("{{{}}}", members(asked, Era::Modern, ""));
        if let Some(parked) = self.calls.get_mut(&key) {
            parked.questions.push((question, asked));
            return Ok(None);
        }
        if self.secret.is_none() {
            return Err("nobody could come back with the answer");
        }
        if is_ending {
            // The call itself gets the time that an end has.
            return Err("unhang is ending, and nobody could come back with the answer");
        }
        let (id, call) = calls.park(key).ok_or("nobody waits for the call any more")?;
        let until = call.since + call.limit;
        let route = call.route;
        let questions = vec![(question, asked)];
        let parked = ParkedCall { call, state: String::new(), questions, answered: None, until };
        Ok(Some(InputRequiredAnswer { id, route, result: self.keep(key, parked) }))
    }

    /// Keeps a call until its client comes back. Gives what its request is answered with: what is to be known before the real answer.
    fn keep(&mut self, key: CallKey, mut parked: ParkedCall) -> String {
        parked.state = self.new_state();
        let requests = parked.questions.iter();
        let requests: Vec<String> =
            requests.map(|(question, asked)| format!(r#""question-{question}":{asked}"#)).collect();
        let result = input_required(&requests, &parked.state);
        self.calls.insert(key, parked);
        result
    }

    /// Takes out the call to which a request comes back.
    ///
    /// # Errors
    /// The call waits on, for it is not known yet what is to be known; or there is none.
    pub(super) fn come_back(
        &mut self,
        now: Duration,
        method: &str,
        params: Json<'_>,
        (revision, route): (Revision, ReplyRoute),
        actions: &mut VecDeque<SessionAction>,
    ) -> Result<Resumed, NotResumed> {
        let state = own_state(Some(params)).unwrap_or_default();
        let is_same = |parked: &ParkedCall| {
            parked.digest() == Some(digest(method, params)) || !stands("parked-call-for-its-request")
        };
        let found = self.calls.iter().find(|(_, parked)| parked.state == state && is_same(parked));
        let found = found.map(|(key, _)| *key).and_then(|key| self.calls.remove_entry(&key));
        let (key, mut parked) = found.ok_or_else(|| NotResumed::unknown(method))?;
        parked.goes_on(now, params, (revision, route));
        parked.take_replies(params, actions);
        if !parked.questions.is_empty() && parked.answered.is_none() {
            // What is still to be known is asked once more.
            return Err(NotResumed::AskedAgain(self.keep(key, parked)));
        }
        for (question, _) in parked.questions {
            actions.push_back(SessionAction::Reply { question, replied: Err(cancelled_reply()) });
        }
        Ok(Resumed { call: parked.call, answered: parked.answered })
    }

    /// The server has answered a parked call; true where it is one.
    pub(super) fn answered_meanwhile(&mut self, key: CallKey, answered: &ServerAnswer) -> bool {
        match self.calls.get_mut(&key) {
            Some(parked) => {
                parked.answered = Some(answered.clone());
                true
            }
            None => false,
        }
    }

    /// Forgets parked calls whose time is over; all of them at the end.
    pub(super) fn forget(&mut self, until: Option<Duration>, actions: &mut VecDeque<SessionAction>) {
        let is_over = |parked: &ParkedCall| until.is_none_or(|now| parked.until <= now);
        let over_now: Vec<CallKey> =
            self.calls.iter().filter(|(_, parked)| is_over(parked)).map(|(key, _)| *key).collect();
        for key in over_now {
            let Some(parked) = self.calls.remove(&key) else { continue };
            for (question, _) in parked.questions {
                actions.push_back(SessionAction::Reply { question, replied: Err(cancelled_reply()) });
            }
            if parked.answered.is_none() && stands("forgotten-call-is-cancelled") {
                actions.push_back(SessionAction::Cancel(key));
            }
        }
    }

    /// A state that was never given out.
    fn new_state(&mut self) -> String {
        self.given += 1;
        format!("{STATE}{}.{}", self.secret.as_deref().unwrap_or_default(), self.given)
    }
}

/// What is between the name of a process and the rest of a secret, where windows may come back to another process.
const REALM_END: char = '-';

/// The secret of one request, in a process of this name.
pub(super) fn secret_in(realm: &str, name: &str) -> String {
    format!("{realm}{REALM_END}{name}")
}

/// The secret in a state of ours, by which its front is found.
pub(super) fn secret_of(state: &str) -> Option<&str> {
    state.strip_prefix(STATE)?.split('.').next()
}

/// The result that asks for this; each request has its name before it.
pub(super) fn input_required(requests: &[String], state: &str) -> String {
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/serverInfo":{}}},"inputRequests":{{{}}},"requestState":{},"resultType":"input_required"}}"#,
        implementation(),
        requests.join(","),
        Value::from(state)
    )
}

/// The state that a request comes with, where it is one of ours.
pub(super) fn own_state(params: Option<Json<'_>>) -> Option<String> {
    text_member(params?, "requestState").filter(|state| state.starts_with(STATE))
}

/// Why a question has no answer.
fn cancelled_reply() -> (i32, String) {
    (FaultKind::Cancelled.code(), "the client has not come back with an answer".to_owned())
}
