//! The tools that a server with tasks has, without tasks: each call takes its time, and asks in the middle of it.
//!
//! They are there for whoever wants them. The suite looks for them in every set, and waits for them where nobody makes tasks of them.
//!
//! # Invariants
//!
//! - What they do is what [`plan`] says, as the servers with tasks do it.
//! - Under a handshake the questions of a tool are put all at once, and without one they are one result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits::{BOUND, lock},
    pipe::{self, ClientMessage},
};

use crate::faulty_servers::well_behaved::eras::{CLIENT_CAPABILITIES, RequestRules};
use crate::faulty_servers::well_behaved::tools::{QuestionSlot, beside, failure, rest};
use crate::faulty_servers::well_behaved::{HandlerOutcome, WellBehavedServer};
use crate::tasks::plan::{self, PLANS, TaskTool, UserQuestion};

/// Whether there are such tools.
pub(super) static ARE_OFFERED: AtomicBool = AtomicBool::new(false);

/// Returns the plans of the tools that there are.
pub(super) fn all() -> &'static [TaskTool] {
    if ARE_OFFERED.load(Ordering::Relaxed) { PLANS } else { &[] }
}

/// Runs one call.
pub(super) fn run(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
    plan: &'static TaskTool,
) -> HandlerOutcome {
    if !plan.open(&Value::Null).is_empty() && !can_be_asked(server, message, era) {
        return HandlerOutcome::Result(failure(
            "The client has no capability `elicitation`, so it cannot be asked",
        ));
    }
    match era {
        RequestRules::Modern => round(server, message, plan),
        RequestRules::Handshake => whole(server, message, plan),
    }
}

fn can_be_asked(server: &WellBehavedServer, message: &ClientMessage, era: &RequestRules) -> bool {
    match era {
        RequestRules::Modern => !message.params()["_meta"][CLIENT_CAPABILITIES]["elicitation"].is_null(),
        RequestRules::Handshake => !lock(&server.session).client_capabilities["elicitation"].is_null(),
    }
}

/// One round of a call: it ends with questions, or with the end.
fn round(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    plan: &'static TaskTool,
) -> HandlerOutcome {
    let (id, arguments) = (message.id().clone(), message.params()["arguments"].clone());
    let answers = message.params()["inputResponses"].clone();
    let first = plan::unanswered(plan.before, &answers);
    if !first.is_empty() {
        return HandlerOutcome::Result(ask_by_result(&first));
    }
    let has_asked = !plan.during.is_empty() && answers.is_object();
    let length = if has_asked { plan.afterwards() } else { plan.work(&arguments) };
    beside(server, message, move |server, call| {
        rest(server, call, milliseconds(length))?;
        let open = plan::unanswered(plan.during, &answers);
        if open.is_empty() { end(plan, &id, &arguments, &answers) } else { Some(ask_by_result(&open)) }
    })
}

/// A call from its beginning to its end.
fn whole(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    plan: &'static TaskTool,
) -> HandlerOutcome {
    let (id, arguments) = (message.id().clone(), message.params()["arguments"].clone());
    beside(server, message, move |server, call| {
        let mut answers = json!({});
        ask(server, call, plan.before, &mut answers)?;
        rest(server, call, milliseconds(plan.work(&arguments)))?;
        ask(server, call, plan.during, &mut answers)?;
        rest(server, call, milliseconds(plan.afterwards()))?;
        end(plan, &id, &arguments, &answers)
    })
}

fn milliseconds(length: u64) -> Duration {
    Duration::from_millis(length).min(BOUND)
}

/// Puts questions, and waits for all of their answers; `None` when some will not come.
fn ask(
    server: &WellBehavedServer,
    call: &str,
    questions: &[UserQuestion],
    answers: &mut Value,
) -> Option<()> {
    let put = |question: &UserQuestion| {
        let asked = QuestionSlot::enter(server, call);
        asked.say("elicitation/create", &question.params()).ok()?;
        Some((question.key, asked))
    };
    let asked: Vec<_> = questions.iter().map(put).collect::<Option<_>>()?;
    for (key, asked) in asked {
        answers[key] = asked.hear()?["result"].take();
    }
    Some(())
}

fn ask_by_result(questions: &[&UserQuestion]) -> Value {
    json!({"resultType": "input_required", "inputRequests": plan::input_requests(questions)})
}

/// Returns the result; an error has no result, and is sent from here.
fn end(plan: &TaskTool, id: &Value, arguments: &Value, answers: &Value) -> Option<Value> {
    match plan.end(arguments, answers) {
        Ok(result) => Some(result),
        Err(broken) => {
            // A client that has gone is noticed at the next read.
            let _ = pipe::send(&pipe::error(id, broken.code, broken.message));
            None
        }
    }
}
