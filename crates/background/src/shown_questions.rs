//! Open questions of jobs between the process that holds the call and the process whose client can answer.
//!
//! The holder shows its questions in the folder of the job and looks there for answers. Any other process on the data folder reads them for
//! a client that follows the task, and leaves the answer of that client.
//!
//! Invariant: a disk that fails delays no question between the holder and its own clients.

use std::{convert::Infallible, time::Duration};

use serde_json::value::RawValue;
use unhang_jobs::{engine::Engine, id::JobId, questions::CallQuestion};
use unhang_wire::{Json, text_member};

use crate::inputs::{Inputs, OpenInput};
use unhang_gateway::Replied;
use unhang_upstream::question::ReplyError;

/// The time between two looks at the folder of a job.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// Shows the open questions of a call that this process holds, and gives the answers of other processes to its server, as long as the future
/// is polled.
pub(super) async fn show(engine: &Engine, inputs: &Inputs, id: JobId) -> Infallible {
    let (mut changes, mut looks) = (inputs.changes(), engine.folder_looks());
    let (mut is_shown, mut has_failed) = (false, false);
    loop {
        changes.mark_unchanged();
        looks.begin();
        let open: Vec<CallQuestion> = inputs.open(id).into_iter().map(shown).collect();
        let has_some = !open.is_empty();
        if has_some || is_shown {
            // In a box, what few calls need makes the future of all others no larger.
            match Box::pin(engine.show_questions(id, open)).await {
                Ok(replies) => {
                    (is_shown, has_failed) = (has_some, false);
                    for (key, reply) in replies {
                        pass_on(inputs, id, &key, &reply);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(
                            job = id.as_str(),
                            "unhang cannot show the questions of the job: {error}"
                        );
                    }
                }
            }
        }
        let changed = async { drop(changes.changed().await) };
        match has_some || is_shown {
            true => tokio::select! {
                () = changed => {}
                () = looks.next() => {}
            },
            false => changed.await,
        }
    }
}

fn shown(input: OpenInput) -> CallQuestion {
    let OpenInput { key, method, params } = input;
    CallQuestion { key, method, params: params.map(|params| params.get().to_owned()) }
}

/// Gives the answer that another process has left to the server.
fn pass_on(inputs: &Inputs, id: JobId, key: &str, reply: &str) {
    let is_known = match read_reply(reply) {
        Some(replied) => inputs.answer(id, key, replied),
        None => false,
    };
    if !is_known {
        tracing::info!(
            job = id.as_str(),
            "the answer to `{key}` of another process came too late or is damaged"
        );
    }
}

/// Returns the open questions of a call that another process holds. A job that cannot be read has none.
pub(super) async fn open_elsewhere(engine: &Engine, id: JobId) -> Vec<OpenInput> {
    let questions = engine.questions(id).await.unwrap_or_else(|error| {
        tracing::debug!(job = id.as_str(), "the questions of the job cannot be read: {error}");
        Vec::new()
    });
    questions.into_iter().filter_map(opened).collect()
}

/// Makes a question of one that was read; `None` if its params are not JSON.
fn opened(question: CallQuestion) -> Option<OpenInput> {
    let CallQuestion { key, method, params } = question;
    let params = params.map(RawValue::from_string).transpose().ok()?;
    Some(OpenInput { key, method, params })
}

/// Leaves an answer for the process that holds the call. Returns whether the task had an open question of this name.
pub(super) async fn answer_elsewhere(engine: &Engine, id: JobId, key: &str, replied: &Replied) -> bool {
    let answered = engine.answer_question(id, key.to_owned(), write_reply(replied)).await;
    answered.unwrap_or_else(|error| {
        tracing::warn!(job = id.as_str(), "unhang cannot pass on the answer to `{key}`: {error}");
        false
    })
}

/// Writes a reply as the members of a JSON-RPC response.
fn write_reply(replied: &Replied) -> String {
    match replied {
        Ok(result) => format!(r#"{{"result":{result}}}"#),
        Err(ReplyError { code, message, data }) => {
            let message = serde_json::Value::from(message.as_str());
            let data = data.as_ref().map_or_else(String::new, |data| format!(r#","data":{data}"#));
            format!(r#"{{"error":{{"code":{code},"message":{message}{data}}}}}"#)
        }
    }
}

/// Reads a reply; `None` if it is damaged.
fn read_reply(text: &str) -> Option<Replied> {
    let reply = Json::new(text.as_bytes())?;
    if let Some(result) = reply.member("result") {
        return result.get().starts_with('{').then(|| Ok(result.get().to_owned()));
    }
    let error = reply.member("error")?;
    let code = error.member("code")?.get().parse().ok()?;
    let message = text_member(error, "message")?;
    Some(Err(ReplyError { code, message, data: error.member("data").map(|data| data.get().into()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written_and_a_damaged_one_is_none() {
        let error = ReplyError { code: -1, message: "\"no\"".to_owned(), data: Some("[1]".into()) };
        let bare = ReplyError { data: None, ..error.clone() };
        for replied in [Ok(r#"{"action":"accept"}"#.to_owned()), Err(error), Err(bare)] {
            assert_eq!(read_reply(&write_reply(&replied)), Some(replied));
        }
        for damaged in ["", "{", "{}", r#"{"result":1}"#, r#"{"error":{"code":"x"}}"#] {
            assert_eq!(read_reply(damaged), None, "{damaged}");
        }
    }
}
