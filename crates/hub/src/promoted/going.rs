//! A call whose answer is on its way, with all that is told beside it.

use std::pin::Pin;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use unhang_bridge::result;
use unhang_jobs::{
    engine::{CallEnd, HeldCall},
    progress::Progress,
    record::Reason,
};
use unhang_wire::{Json, text_member};

use super::advice;
use crate::{
    client::Error,
    fault::Kind,
    gateway::{Answered, Aside, Question, Servers},
    wording::shortened,
};

/// Of a message of progress, in characters.
const MOST_TOLD: usize = 200;

/// See the module's text.
pub(crate) struct Going {
    pub answering: Pin<Box<dyn Future<Output = Answered> + Send>>,
    /// The newest progress.
    pub seen: watch::Receiver<Option<Box<RawValue>>>,
    /// What else the server says and asks about it.
    pub said: mpsc::Receiver<Aside>,
    /// What the session has of them for itself lives as long as its calls.
    #[expect(dead_code, reason = "it is kept, and not asked")]
    pub servers: Servers,
}

impl Going {
    /// Follows it to its end, and notes on the way what the server tells. Dropping the rest withdraws it. Cancel-safe.
    pub(super) async fn follow(&mut self, held: &mut HeldCall, is_repeatable: bool) -> CallEnd {
        // What was told while it was a call.
        let newest = self.seen.borrow().clone();
        if let Some(params) = newest {
            note_progress(held, &params);
        }
        loop {
            tokio::select! {
                biased;
                () = held.cancelled() => return CallEnd::Cancelled,
                Ok(()) = self.seen.changed() => {
                    let newest = self.seen.borrow_and_update().clone();
                    if let Some(params) = newest {
                        note_progress(held, &params);
                    }
                }
                Some(aside) = self.said.recv() => match aside {
                    Aside::Logged(params) => held.log(&logged(&params)),
                    Aside::Asked(question) => decline(question),
                },
                answered = &mut self.answering => return end(answered, is_repeatable),
            }
        }
    }
}

fn note_progress(held: &mut HeldCall, params: &RawValue) {
    let Some(params) = Json::new(params.get().as_bytes()) else { return };
    let number = |member| params.member(member).and_then(|number| number.get().parse::<f64>().ok());
    let message = text_member(params, "message");
    let message = message.map(|message| shortened(&message, MOST_TOLD).into_owned());
    let fraction = number("progress").zip(number("total").filter(|total| *total > 0.0));
    let fraction = fraction.map(|(progress, total)| (progress / total).clamp(0.0, 1.0));
    match fraction {
        Some(fraction) => {
            // In a form that others who read the log understand as well.
            let line = serde_json::json!({ "progress": fraction, "message": message }).to_string();
            held.progress(Some(Progress { fraction, message }), &line);
        }
        None => {
            let so_far = params.member("progress").map_or("", Json::get);
            held.progress(None, &format!("{so_far} {}", message.unwrap_or_default()));
        }
    }
}

/// What a server logs, as a line for people.
fn logged(params: &RawValue) -> String {
    let Some(params) = Json::new(params.get().as_bytes()) else { return String::new() };
    let level = text_member(params, "level").unwrap_or_else(|| "info".to_owned());
    let data = params.member("data");
    let text = data.and_then(Json::text).unwrap_or_else(|| data.map_or("", Json::get).into());
    match text_member(params, "logger") {
        Some(logger) => format!("{level} {logger}: {text}"),
        None => format!("{level}: {text}"),
    }
}

fn decline(question: Question) {
    let Question { method, reply, .. } = question;
    let why = "the call has become a job, and its client does not wait for it any more";
    // The server may have gone meanwhile.
    let _gone = reply.send(Err((Kind::MethodNotFound.code(), format!("`{method}` is declined: {why}"))));
}

/// What came of it.
fn end(answered: Answered, is_repeatable: bool) -> CallEnd {
    let failed = |reason, detail: String, error: Option<String>| CallEnd::Failed {
        reason,
        detail: format!("{detail}; {}", advice(is_repeatable)),
        error,
    };
    match answered.outcome {
        Ok(result) => answer(&result, answered.era),
        // It has answered, so that it is up to what it says.
        Err(Error::Server(error)) => CallEnd::Failed {
            reason: Reason::ServerError,
            detail: error.message.clone(),
            error: Some(error.to_json()),
        },
        Err(Error::Failure(failure)) => {
            let fault = failure.fault();
            let reason = match fault.kind {
                Kind::Deadline => Reason::Timeout,
                Kind::BadResponse | Kind::TooLarge => Reason::ServerError,
                Kind::Cancelled => Reason::UnhangEnded,
                _ => Reason::ServerExited,
            };
            let line = fault.response(None);
            let error = Json::new(&line).and_then(|line| Some(line.member("error")?.get().to_owned()));
            failed(reason, fault.message(), error)
        }
        Err(other) => failed(Reason::ServerExited, format!("the server cannot be asked: {other}"), None),
    }
}

fn answer(result: &RawValue, era: unhang_bridge::Era) -> CallEnd {
    let broken = |what: &str| CallEnd::Failed {
        reason: Reason::ServerError,
        detail: format!("the server answered with {what}; this is a fault of the server"),
        error: None,
    };
    let Some(raw) = Json::new(result.get().as_bytes()).filter(|raw| raw.get().starts_with('{')) else {
        return broken("what is no object");
    };
    match (era, result::kind(raw)) {
        (unhang_bridge::Era::Legacy, _) | (_, result::Kind::Complete) => {
            let is_error = raw.member("isError").is_some_and(|is_error| is_error.get() == "true");
            CallEnd::Answered { result: result.get().to_owned(), is_error }
        }
        (_, result::Kind::InputRequired) => CallEnd::Failed {
            reason: Reason::ServerError,
            detail: "the server asks for something before it goes on, and nobody is there to answer; call the tool with \
                     promote-after = \"off\" to be asked"
                .to_owned(),
            error: None,
        },
        (_, other) => broken(&format!("a result that is not complete ({other:?})")),
    }
}
