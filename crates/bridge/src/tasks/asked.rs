//! What a server reads of what clients ask of tasks.
//!
//! Invariants: what is missing or not of the form that it has to be is refused with a sentence that names it; what is not known is
//! passed over.

use std::borrow::Cow;

use unhang_wire::Json;

use super::{ECHO_LIMIT, INPUT_LIMIT, cut, is_object, milliseconds, refused::invalid_params};

/// That the client of a call wants it to be a task (2025-11-25 alone; the extension does not read it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedTask {
    /// How long the client wants the task to be kept; `None` where it does not say so.
    pub ttl_ms: Option<u64>,
}

/// What the params of a call say of a task; `None` where the call is to be answered like any other.
#[must_use]
pub fn requested_task(params: Json<'_>) -> Option<WantedTask> {
    let task = params.member("task").filter(|task| is_object(*task))?;
    Some(WantedTask { ttl_ms: task.member("ttl").and_then(milliseconds) })
}

/// The id of the task that a request is about.
///
/// # Errors
///
/// The error for the client, as JSON, where there is none.
pub fn about_whom<'a>(method: &str, params: Option<Json<'a>>) -> Result<Cow<'a, str>, String> {
    let id = params.and_then(|params| params.member("taskId")?.text());
    id.ok_or_else(|| {
        let happened =
            format!("`{}` has no `taskId`: a string with the id of a task", cut(method, ECHO_LIMIT));
        invalid_params(&happened)
    })
}

/// What `tasks/update` answers: the id of the task, and the answers, each with the name of its question and as JSON. Of several with
/// one name the last counts.
///
/// # Errors
///
/// The error for the client, as JSON, where an id or the answers are missing, an answer is no object, or there are more than
/// [`INPUT_LIMIT`] of them.
pub fn input_responses(params: Option<Json<'_>>) -> Result<(String, Vec<(String, String)>), String> {
    let id = about_whom(super::UPDATE, params)?.into_owned();
    let (mut responses, mut wrong) = (Vec::<(String, String)>::new(), None);
    let read = |name: Json<'_>, response: Json<'_>| {
        let Some(name) = name.text() else { return };
        if !is_object(response) {
            wrong = wrong.take().or_else(|| Some(name.into_owned()));
        } else if let Some(same) = responses.iter_mut().find(|(known, _)| *known == name) {
            response.get().clone_into(&mut same.1);
        // One more than there may be tells that there are too many.
        } else if responses.len() <= INPUT_LIMIT {
            responses.push((name.into_owned(), response.get().to_owned()));
        }
    };
    let given = params.and_then(|params| params.member("inputResponses"));
    if !given.is_some_and(|given| given.each_member(read)) {
        let happened = "`tasks/update` has no `inputResponses`: an object with an answer under the name of each question";
        return Err(invalid_params(happened));
    }
    if let Some(name) = wrong {
        let happened = format!(
            "the answer `{}` in `inputResponses` of `tasks/update` is no object",
            cut(&name, ECHO_LIMIT)
        );
        return Err(invalid_params(&happened));
    }
    if responses.len() > INPUT_LIMIT {
        let happened =
            format!("`tasks/update` has more than {INPUT_LIMIT} answers; send them in several requests");
        return Err(invalid_params(&happened));
    }
    Ok((id, responses))
}
