//! URLs that a person has to open before a server of 2025-11-25 accepts a request (-32042). A client of 2026-07-28 is asked to open them by
//! the answer to its request, and makes the request again (protocol.md 3.3, row 17).
//!
//! Invariants: nothing is kept meanwhile, for the request comes back whole. A client that cannot be asked gets the error.

use serde_json::value::RawValue;
use unhang_bridge::{Era, Splice, error, question::is_offered};
use unhang_wire::{Json, text_member};

use super::{
    parked_calls::{MAKE_ANEW, input_required},
    questions::members,
    session_calls::SessionCall,
};
use unhang_core::{fault::FaultKind, refusal::ErrorReport};
use unhang_gateway::ServerAnswer;

/// The state with which such a request comes back. It is public, because it stands for no secret.
const STATE: &str = "unhang-again";

/// Returns the answer that replaces this error of a server. Returns `None` if it is another error, or if the client cannot be asked.
pub(super) fn asked_for(call: &SessionCall, answered: &ServerAnswer, error: Json<'_>) -> Option<String> {
    if answered.era != Era::Legacy || !call.revision.is_stateless() {
        return None;
    }
    let error::ModernError::InputRequired(wanted) = error::to_modern(call.awaited.method(), error, None)?
    else {
        return None;
    };
    let capabilities = Json::new(call.awaited.introduced()?.client_capabilities.as_bytes())?;
    let (mut requests, mut can_be_asked) = (Vec::new(), true);
    Json::new(wanted.as_bytes())?.each_element(|params| {
        let raw: Option<&RawValue> = serde_json::from_str(params.get()).ok();
        let asked = ("elicitation/create", raw);
        can_be_asked &= is_offered(capabilities, asked);
        requests.push(format!(r#""url-{}":{{{}}}"#, requests.len() + 1, members(asked, Era::Modern, "")));
    });
    (can_be_asked && !requests.is_empty()).then(|| input_required(&requests, STATE))
}

/// Returns whether a request with this state comes back after a URL was asked for.
pub(super) fn is_state(state: &str) -> bool {
    state == STATE
}

/// Returns the original params of a request that comes back. Returns `None` for any other request.
pub(super) fn made_again(params: Json<'_>) -> Option<Resumption> {
    text_member(params, "requestState").filter(|state| is_state(state))?;
    let mut is_done = true;
    if let Some(responses) = params.member("inputResponses") {
        responses.each_member(|_, response| {
            is_done &= text_member(response, "action").is_some_and(|action| action == "accept");
        });
    }
    let first = Splice::new(params).remove("requestState").remove("inputResponses").apply()?;
    Some(if is_done { Resumption::Asked(first.into_owned()) } else { Resumption::Declined })
}

/// Makes the error for a request of this method whose URL the person has declined to open.
pub(super) fn declined(method: &str) -> ErrorReport<'static> {
    let happened = format!("`{method}` needs the user to open a URL, and the user did not");
    ErrorReport { kind: FaultKind::Cancelled, summary: happened, hint: MAKE_ANEW }
}

/// The outcome of a request that comes back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resumption {
    /// Its server is asked with these params.
    Asked(String),
    /// The person has declined.
    Declined,
}
