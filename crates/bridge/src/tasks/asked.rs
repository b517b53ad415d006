//! Requests of clients about tasks, as the server reads them.
//!
//! Invariants: a missing or malformed value is refused with a sentence that names it. Unknown members are ignored.

use std::borrow::Cow;

use unhang_wire::{Json, may_have};

use super::{ECHO_LIMIT, INPUT_LIMIT, cut, is_object, milliseconds, refused::invalid_params};

/// The wish of a client that a call becomes a task (2025-11-25 alone; the extension does not read it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedTask {
    /// How long the client wants the task to be kept; `None` if it does not say so.
    pub ttl_ms: Option<u64>,
}

/// Reads from the params of a call whether the client wants a task. Returns `None` for an ordinary call.
#[must_use]
pub fn requested_task(params: Json<'_>) -> Option<WantedTask> {
    // Every call comes here, and few have a task.
    if !may_have(params.get(), "task") {
        return None;
    }
    let task = params.member("task").filter(|task| is_object(*task))?;
    Some(WantedTask { ttl_ms: task.member("ttl").and_then(milliseconds) })
}

/// Reads the id of the task that a request is about.
///
/// # Errors
///
/// Fails with the error for the client, as JSON, if the params have no `taskId` that is a string.
pub fn about_whom<'a>(method: &str, params: Option<Json<'a>>) -> Result<Cow<'a, str>, String> {
    let id = params.and_then(|params| params.member("taskId")?.text());
    id.ok_or_else(|| {
        let happened =
            format!("`{}` has no `taskId`: a string with the id of a task", cut(method, ECHO_LIMIT));
        invalid_params(&happened)
    })
}

/// Reads `tasks/update`: the id of the task, and the answers, each with the name of its question and as JSON. If several answers have the
/// same name, the last one counts.
///
/// # Errors
///
/// Fails with the error for the client, as JSON, in three cases: the id or the answers are missing, an answer is not an object, or there
/// are more than [`INPUT_LIMIT`] answers.
pub fn input_responses(params: Option<Json<'_>>) -> Result<(String, Vec<(String, String)>), String> {
    let id = about_whom(super::UPDATE, params)?.into_owned();
    let (mut responses, mut wrong) = (Vec::<(String, String)>::new(), None);
    let read = |name: Json<'_>, response: Json<'_>| {
        let Some(name) = name.text() else { return };
        if !is_object(response) {
            wrong = wrong.take().or_else(|| Some(name.into_owned()));
        } else if let Some(same) = responses.iter_mut().find(|(known, _)| *known == name) {
            response.get().clone_into(&mut same.1);
        // The loop keeps one answer above the limit. The check below then sees that the limit is exceeded.
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
            "the answer `{}` in `inputResponses` of `tasks/update` is not an object",
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
