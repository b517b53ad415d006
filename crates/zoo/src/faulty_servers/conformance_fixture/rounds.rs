//! What asks the client something before it answers: in rounds, which look the same in both eras.
//!
//! # Invariants
//!
//! - A round depends on nothing but what came with the request: the server remembers nothing between two rounds.
//! - Nobody is asked for what the client has not said it can do.
//! - A state that comes back is accepted only as this process gave it out.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits::lock,
    pipe::{self, ClientMessage},
    plain_server::INVALID_PARAMS,
};

use crate::faulty_servers::well_behaved::eras::{CLIENT_CAPABILITIES, RequestRules};
use crate::faulty_servers::well_behaved::tools::{QuestionSlot, beside, failure};
use crate::faulty_servers::well_behaved::{HandlerOutcome, WellBehavedServer};

use super::listings::messages;

/// The prompt that asks.
pub(super) const PROMPT: &str = "test_input_required_result_prompt";

/// The error for a client that cannot do what a request needs.
const MISSING_CAPABILITY: i64 = -32021;

/// How many rounds are enough; more mean that somebody goes in circles.
const ENOUGH: usize = 4;

/// What a request knows in one round.
pub(super) struct InputRound<'a> {
    arguments: &'a Value,
    /// What the client answered to the questions of the round before, by key.
    answers: &'a Value,
    /// What the client gave back.
    state: &'a Value,
    capabilities: &'a Value,
}

/// A question to the client.
pub(super) struct RoundQuestion {
    key: &'static str,
    method: &'static str,
    params: Value,
}

/// What becomes of a round.
pub(super) enum RoundOutcome {
    Ask {
        questions: Vec<RoundQuestion>,
        state: Option<String>,
    },
    Done(Value),
    /// The client sent what nobody gave it.
    Refuse(&'static str),
    /// The client cannot do what is needed.
    Lacking(&'static str),
}

/// What a tool or a prompt does in each of its rounds.
pub(super) type Asking = fn(&InputRound) -> RoundOutcome;

/// Returns what a tool does that asks; `None` for those that do not.
pub(super) fn of_tool(name: &str) -> Option<Asking> {
    Some(match name {
        "test_elicitation" => |round| {
            let properties = json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            });
            let question = elicit("user_response", text_of(&round.arguments["message"]), &properties);
            one(round, question, |answer| pipe::text(&format!("User response: {answer}")))
        },
        "test_elicitation_sep1034_defaults" => |round| completed(round, &defaults()),
        "test_elicitation_sep1330_enums" => |round| completed(round, &choices()),
        "test_input_required_result_capabilities" => capabilities,
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => |round| {
            one(round, name_question(), |answer| {
                pipe::text(&format!("Hello, {}!", text_of(&answer["content"]["name"])))
            })
        },
        "test_input_required_result_list_roots" => {
            |round| one(round, roots(), |answer| pipe::text(&format!("The roots: {}", answer["roots"])))
        }
        "test_input_required_result_multi_round" => multi_round,
        "test_input_required_result_multiple_inputs" => |round| {
            let questions = vec![name_question(), sample("greeting", "Generate a greeting", 50), roots()];
            sealed(round, "multiple", questions)
        },
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => |round| {
            let confirm = elicit("confirm", "Please confirm", &json!({"ok": {"type": "boolean"}}));
            sealed(round, "confirm", vec![confirm])
        },
        "test_input_required_result_sampling" => |round| {
            let question = sample("capital_question", "What is the capital of France?", 100);
            one(round, question, said_by_model)
        },
        "test_missing_capability" => |round| {
            if round.capabilities["sampling"].is_null() {
                return RoundOutcome::Lacking("sampling");
            }
            RoundOutcome::Done(pipe::text("The client samples"))
        },
        "test_sampling" => {
            |round| one(round, sample("sampling", text_of(&round.arguments["prompt"]), 100), said_by_model)
        }
        _ => return None,
    })
}

/// What the prompt does that asks.
pub(super) fn prompt(round: &InputRound) -> RoundOutcome {
    let schema = json!({"context": {"type": "string"}});
    one(round, elicit("user_context", "What context should the prompt use?", &schema), |answer| {
        let text = format!("Use this context: {}", text_of(&answer["content"]["context"]));
        messages(vec![json!({"type": "text", "text": text})])
    })
}

/// Runs a request that may ask: one round without a handshake, all of them under one.
pub(super) fn run(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
    asking: Asking,
) -> HandlerOutcome {
    match era {
        RequestRules::Modern => one_round(message, asking),
        RequestRules::Handshake => all_rounds(server, message, asking),
    }
}

fn one_round(message: &ClientMessage, asking: Asking) -> HandlerOutcome {
    let params = message.params();
    let round = InputRound {
        arguments: &params["arguments"],
        answers: &params["inputResponses"],
        state: &params["requestState"],
        capabilities: &params["_meta"][CLIENT_CAPABILITIES],
    };
    match round.step(asking) {
        RoundOutcome::Done(result) => HandlerOutcome::Result(result),
        RoundOutcome::Refuse(text) => HandlerOutcome::error(INVALID_PARAMS, text),
        RoundOutcome::Lacking(capability) => HandlerOutcome::Error {
            code: MISSING_CAPABILITY,
            message: format!("The client has not declared the capability `{capability}`"),
            data: json!({"requiredCapabilities": {capability: {}}}),
        },
        RoundOutcome::Ask { questions, state } => {
            let questions: serde_json::Map<_, _> = questions
                .into_iter()
                .map(|RoundQuestion { key, method, params }| {
                    (key.to_owned(), json!({"method": method, "params": params}))
                })
                .collect();
            let mut result = json!({"resultType": "input_required", "inputRequests": questions});
            if let Some(state) = state {
                result["requestState"] = json!(state);
            }
            HandlerOutcome::Result(result)
        }
    }
}

fn all_rounds(server: &Arc<WellBehavedServer>, message: &ClientMessage, asking: Asking) -> HandlerOutcome {
    let capabilities = lock(&server.session).client_capabilities.clone();
    let arguments = message.params()["arguments"].clone();
    let is_tool = message.is_call();
    let give_up = move |text: &str| {
        let said = json!({"type": "text", "text": text});
        if is_tool { failure(text) } else { messages(vec![said]) }
    };
    beside(server, message, move |server, call| {
        let (mut answers, mut state) = (Value::Null, Value::Null);
        for _ in 0..ENOUGH {
            let round = InputRound {
                arguments: &arguments,
                answers: &answers,
                state: &state,
                capabilities: &capabilities,
            };
            let (questions, next) = match round.step(asking) {
                RoundOutcome::Done(result) => return Some(result),
                RoundOutcome::Refuse(text) => return Some(give_up(text)),
                RoundOutcome::Lacking(capability) => {
                    return Some(give_up(&format!("The client has no capability `{capability}`")));
                }
                RoundOutcome::Ask { questions, state } => (questions, state),
            };
            let mut answers_by_key = json!({});
            for RoundQuestion { key, method, params } in questions {
                let answer = QuestionSlot::enter(server, call).put(method, &params)?;
                if !answer["error"].is_null() {
                    return Some(give_up(&format!("The client refused: {}", answer["error"])));
                }
                answers_by_key[key] = answer["result"].clone();
            }
            (answers, state) = (answers_by_key, json!(next));
        }
        Some(give_up("The answers led nowhere"))
    })
}

impl InputRound<'_> {
    /// Takes the step of this round, unless it would ask for what the client cannot do.
    fn step(&self, asking: Asking) -> RoundOutcome {
        let step = asking(self);
        let lacking = match &step {
            RoundOutcome::Ask { questions, .. } => {
                questions.iter().map(RoundQuestion::capability).find(|name| self.capabilities[name].is_null())
            }
            _ => None,
        };
        lacking.map_or(step, RoundOutcome::Lacking)
    }

    /// Returns what came for a question; `None` when that is nothing, or no answer to such a question.
    fn answer(&self, question: &RoundQuestion) -> Option<&Value> {
        let answer = &self.answers[question.key];
        let proof = match question.capability() {
            "elicitation" => answer["action"].is_string(),
            "sampling" => !answer["content"].is_null(),
            _ => answer["roots"].is_array(),
        };
        proof.then_some(answer)
    }

    fn all_answered(&self, questions: &[RoundQuestion]) -> bool {
        questions.iter().all(|question| self.answer(question).is_some())
    }
}

impl RoundQuestion {
    /// Returns the capability that a client needs for it.
    fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }
}

/// Asks one question, until it has been answered.
fn one(round: &InputRound, question: RoundQuestion, done: impl FnOnce(&Value) -> Value) -> RoundOutcome {
    match round.answer(&question) {
        Some(answer) => RoundOutcome::Done(done(answer)),
        None => RoundOutcome::Ask { questions: vec![question], state: None },
    }
}

/// Asks for a form to be filled in, and tells what came of it as the suite wants it told.
fn completed(round: &InputRound, properties: &Value) -> RoundOutcome {
    one(round, elicit("form", "Please fill in the form", properties), |answer| {
        let action = text_of(&answer["action"]);
        pipe::text(&format!("Elicitation completed: action={action}, content={}", answer["content"]))
    })
}

/// Asks with a state that has to come back together with all answers.
fn sealed(round: &InputRound, label: &str, questions: Vec<RoundQuestion>) -> RoundOutcome {
    let came_back = !round.state.is_null();
    if came_back && unseal(round.state) != Some(label) {
        return RoundOutcome::Refuse("The request state is not the one that was given out");
    }
    if came_back && round.all_answered(&questions) {
        return RoundOutcome::Done(pipe::text("state-ok: all answers came, and the state with them"));
    }
    RoundOutcome::Ask { questions, state: Some(seal(label)) }
}

fn multi_round(round: &InputRound) -> RoundOutcome {
    let first = || elicit("step1", "Step 1: What is your name?", &json!({"name": {"type": "string"}}));
    let second =
        || elicit("step2", "Step 2: What is your favorite color?", &json!({"color": {"type": "string"}}));
    let ask =
        |question, state: &str| RoundOutcome::Ask { questions: vec![question], state: Some(seal(state)) };
    if round.state.is_null() {
        return ask(first(), "step1");
    }
    match unseal(round.state) {
        Some("step1") => match round.answer(&first()) {
            Some(answer) => ask(second(), &format!("step2 {}", text_of(&answer["content"]["name"]))),
            None => ask(first(), "step1"),
        },
        Some(state) if state.starts_with("step2 ") => match round.answer(&second()) {
            Some(answer) => {
                let (name, color) = (&state["step2 ".len()..], text_of(&answer["content"]["color"]));
                RoundOutcome::Done(pipe::text(&format!("{name} likes {color}")))
            }
            None => ask(second(), state),
        },
        _ => RoundOutcome::Refuse("The request state is not the one that was given out"),
    }
}

/// Asks for whatever the client can do.
fn capabilities(round: &InputRound) -> RoundOutcome {
    let mut questions = vec![name_question(), sample("greeting", "Generate a greeting", 50), roots()];
    questions.retain(|question| !round.capabilities[question.capability()].is_null());
    if round.all_answered(&questions) {
        return RoundOutcome::Done(pipe::text(&format!("The client answered {} questions", questions.len())));
    }
    RoundOutcome::Ask { questions, state: None }
}

fn name_question() -> RoundQuestion {
    elicit("user_name", "What is your name?", &json!({"name": {"type": "string"}}))
}

fn roots() -> RoundQuestion {
    RoundQuestion { key: "client_roots", method: "roots/list", params: json!({}) }
}

fn sample(key: &'static str, prompt: &str, most: u64) -> RoundQuestion {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let params = json!({"messages": [message], "maxTokens": most});
    RoundQuestion { key, method: "sampling/createMessage", params }
}

/// Asks the user for values, all of which are required.
fn elicit(key: &'static str, message: &str, properties: &Value) -> RoundQuestion {
    let required: Vec<_> =
        properties.as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    RoundQuestion {
        key,
        method: "elicitation/create",
        params: json!({"message": message, "requestedSchema": schema}),
    }
}

/// A value of each kind, with its default (SEP-1034).
fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

/// A choice in each of the five ways to write one down (SEP-1330).
fn choices() -> Value {
    let titled = |word: &str| -> Vec<Value> {
        ["First", "Second", "Third"]
            .iter()
            .zip(1..)
            .map(|(title, number)| json!({"const": format!("value{number}"), "title": format!("{title} {word}")}))
            .collect()
    };
    let options = ["option1", "option2", "option3"];
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    })
}

fn said_by_model(answer: &Value) -> Value {
    pipe::text(&format!("LLM response: {}", text_of(&answer["content"]["text"])))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Adds a proof to a text that only this process can give.
fn seal(text: &str) -> String {
    format!("{text}.{:016x}", proof(text))
}

/// Returns the text whose proof is right.
fn unseal(state: &Value) -> Option<&str> {
    let (text, given) = state.as_str()?.rsplit_once('.')?;
    (given == format!("{:016x}", proof(text))).then_some(text)
}

fn proof(text: &str) -> u64 {
    // Keyed by a random number of this process, which makes it one that nobody else can work out.
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_was_touched_is_none() {
        let state = seal("step2 Ada.");
        assert_eq!(unseal(&json!(state)), Some("step2 Ada."));
        for other in [json!(format!("{state}-TAMPERED")), json!(format!("x{state}")), json!("x"), json!(1)] {
            assert_eq!(unseal(&other), None, "{other}");
        }
    }

    #[test]
    fn nobody_is_asked_for_what_they_cannot_do() {
        let (nothing, able) = (json!({}), json!({"sampling": {}}));
        let round = |capabilities| InputRound {
            arguments: &Value::Null,
            answers: &Value::Null,
            state: &Value::Null,
            capabilities,
        };
        let asking = of_tool("test_sampling").expect("it asks");
        assert!(matches!(round(&nothing).step(asking), RoundOutcome::Lacking("sampling")));
        assert!(matches!(round(&able).step(asking), RoundOutcome::Ask { .. }));
    }
}
