//! Clients of 2026-07-28 at an older server that asks about their calls: they get questions as answers to calls, to several at the same
//! time too.

use std::{fs, thread, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{finish_windows, legacy_windows, server},
    gateway_http::{self, modern_post},
    harness::{Client, PATIENCE, Sandbox, Web, timed, wait_until},
    talk::modern_meta,
};

/// Calls that run at the same time.
const CALLS: usize = 6;

/// How a question begins.
const ASKED: &str = "elicitation/create";

/// Calls a tool of the server as a client that can be asked. `more` are more params.
fn call(client: &mut Client, tool: &str, more: &Value) -> i64 {
    let mut params =
        json!({ "name": format!("srv__{tool}"), "arguments": { "method": ASKED }, "_meta": modern_meta() });
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    for (member, value) in more.as_object().expect("members") {
        params[member] = value.clone();
    }
    client.request("tools/call", params)
}

fn is_asked(answer: &Value) -> bool {
    answer["result"]["resultType"] == "input_required"
}

/// The params with which a client comes back with these replies, one for each question.
fn replies(answer: &Value, mut reply: impl FnMut() -> Value) -> Value {
    let asked = answer["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("asked: {answer}"));
    let responses: serde_json::Map<String, Value> = asked.keys().map(|key| (key.clone(), reply())).collect();
    json!({ "requestState": answer["result"]["requestState"], "inputResponses": responses })
}

fn accepts(name: usize) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

/// Returns the answer that the server got to the question of a call.
fn told(answer: &Value) -> u64 {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    let said: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("asked: {answer}"));
    said["content"]["name"].as_u64().unwrap_or_else(|| panic!("asked: {answer}"))
}

/// Has calls ask at the same time, and answers each question with a number of its own. Gives the numbers that the server has heard.
fn all_ask(client: &mut Client, is_last_first: bool) -> Vec<u64> {
    let ids: Vec<i64> = (0..CALLS).map(|_| call(client, "ask", &json!({}))).collect();
    let mut asked: Vec<Value> = ids.into_iter().map(|id| client.outcome(id)).collect();
    if is_last_first {
        asked.reverse();
    }
    let (mut names, mut number) = (Vec::new(), 0);
    while !asked.is_empty() {
        let (questions, answers): (Vec<Value>, Vec<Value>) = asked.into_iter().partition(is_asked);
        names.extend(answers.iter().map(told));
        // All come back before any of them is answered: the server may wait for the reply to another one.
        let mut come_back = |answer: &Value| {
            let more = replies(answer, || {
                number += 1;
                accepts(number - 1)
            });
            call(client, "ask", &more)
        };
        let ids: Vec<i64> = questions.iter().map(&mut come_back).collect();
        asked = ids.into_iter().map(|id| client.outcome(id)).collect();
    }
    names.sort_unstable();
    names
}

#[test]
fn f_54_calls_of_a_client_that_is_asked_by_answers_may_all_ask_at_the_same_time() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    // Before and after the server was seen to ask.
    for (number, is_last_first) in [(0, false), (0, true), (1, false), (1, true)] {
        let names = all_ask(&mut windows[number], is_last_first);
        assert!(names.iter().copied().eq(0..CALLS as u64), "window {number}: {names:?}");
    }
    finish_windows(windows, &sandbox);
}

const TOKENS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];

/// Over HTTP, a token and the name of the client say that two requests are of one client.
#[test]
fn f_54_calls_of_one_token_and_client_over_http_may_all_ask_at_the_same_time() {
    let sandbox = Sandbox::with_jobs();
    let srv = server("srv", &["slow-answers", "--era", "legacy"], "");
    let config = format!("{srv}[http]\ntokens = {TOKENS:?}\n");
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let web = web.with_token(TOKENS[0]);
    let params = |arguments: Value, more: Value| {
        let mut params = json!({ "arguments": arguments, "_meta": modern_meta() });
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
        for (member, value) in more.as_object().expect("members") {
            params[member] = value.clone();
        }
        params
    };
    let both = thread::scope(|scope| {
        let calls = [1, 2].map(|id| {
            let slow = json!({ "seconds": 4, "ask": true, "label": id });
            let (web, params) = (&web, &params);
            scope.spawn(move || {
                let mut answer = modern_post(web, id, "srv__slow", &params(slow.clone(), json!({}))).last();
                // The other call may carry both questions, one after the other.
                for round in 1.. {
                    if !is_asked(&answer) {
                        break;
                    }
                    let more = replies(&answer, || accepts(7));
                    let id = id + 10 * round;
                    answer = modern_post(web, id, "srv__slow", &params(slow.clone(), more)).last();
                }
                answer
            })
        });
        calls.map(|call| call.join().expect("no panic"))
    });
    for answer in both {
        assert!(answer["result"]["content"].to_string().contains(r#"name\":7"#), "{answer}");
    }
    gateway_http::finish(process, &sandbox);
}

#[test]
fn f_54_the_next_call_of_a_client_does_not_take_its_question_away() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    for (number, client) in windows.iter_mut().enumerate() {
        let id = call(client, "ask", &json!({}));
        let asked = client.outcome(id);
        assert!(is_asked(&asked), "{asked}");
        // Without a question, this is as long as the server needs.
        let seen = call(client, "seen", &json!({ "arguments": {} }));
        let (seen, took) = timed(|| client.outcome(seen));
        assert!(seen["result"]["content"].to_string().contains("begun"), "{seen}");
        assert!(took < Duration::from_secs(15), "window {number} waited for {took:?}");
        let id = call(client, "ask", &replies(&asked, || accepts(7)));
        assert_eq!(told(&client.outcome(id)), 7, "window {number}");
    }
    finish_windows(windows, &sandbox);
}

#[test]
fn f_54_a_window_that_ends_while_its_client_is_asked_by_an_answer_holds_nobody_back() {
    for is_killed in [true, false] {
        let sandbox = Sandbox::with_jobs();
        let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], "");
        let id = call(&mut follower, "slow", &json!({ "arguments": { "seconds": 2, "ask": true } }));
        let asked = follower.outcome(id);
        assert!(is_asked(&asked), "{asked}");
        match is_killed {
            true => follower.signal(Signal::KILL),
            false => follower.close_stdin(),
        }
        let _code = follower.exit_code();
        let ended = || {
            let id = leader.call("srv__seen", json!({}));
            let answer = leader.answer(id)["result"]["content"][0]["text"].clone();
            let seen: Value = serde_json::from_str(answer.as_str().unwrap_or_default()).unwrap_or_default();
            seen["cancelled"] == 1 || seen["answered"] == 1
        };
        let ((), took) = timed(|| wait_until("the server has ended its call", PATIENCE, ended));
        assert!(took < Duration::from_secs(15), "it waited for {took:?}");
        leader.close_stdin();
        assert_eq!(leader.exit_code(), 0, "{}", leader.stderr());
        sandbox.assert_nothing_left_within(Duration::from_secs(3));
    }
}
