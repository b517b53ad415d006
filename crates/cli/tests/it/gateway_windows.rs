//! Windows that share an older server that asks and logs about calls: each of them is a session to it, whoever leads.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{finish_windows, gateway, legacy_windows, listed, server, window},
    harness::{Client, PATIENCE, Sandbox, timed, wait_until},
    talk::modern_meta,
};

/// Calls that run at the same time.
const CALLS: usize = 4;

/// How a question begins.
const ASKED: &str = "elicitation/create";

/// How many calls of `slow` have begun and have been cancelled.
fn seen(client: &mut Client) -> [Value; 2] {
    let seen: Value = serde_json::from_str(&client.tool_text("srv__seen", json!({}))).expect("JSON");
    [seen["begun"].clone(), seen["cancelled"].clone()]
}

/// A call that the server has, that is given up, and that is never answered.
fn give_up_a_call(client: &mut Client) {
    let id = client.call("srv__slow", json!({ "seconds": 60 }));
    wait_until("the server has it", PATIENCE, || seen(client)[0] == 1);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_until("the server knows", PATIENCE, || seen(client)[1] == 1);
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

/// What becomes of a call that asks: its client answers all that it is asked.
fn ask(client: &mut Client) -> String {
    let id = client.call("srv__ask", json!({ "method": ASKED }));
    let next =
        client.find("a question or an answer", |message| message["method"] == ASKED || message["id"] == id);
    if next["method"] != ASKED {
        return text(&next).to_owned();
    }
    client.respond(&next["id"], &json!({ "action": "accept", "content": { "name": "ann" } }));
    text(&client.answer(id)).to_owned()
}

#[test]
fn f_90_a_window_is_asked_though_it_has_given_up_a_call_that_is_never_answered() {
    for number in [0, 1] {
        let sandbox = Sandbox::with_jobs();
        let mut windows = legacy_windows(&sandbox, &["srv"], "");
        give_up_a_call(&mut windows[number]);
        let answered = ask(&mut windows[number]);
        assert!(answered.contains("ann"), "window {number}: {answered}");
        // What another window has given up is not this one's affair, and a question may be about it.
        let declined = ask(&mut windows[1 - number]);
        assert!(declined.contains("which of several calls"), "window {number}: {declined}");
        finish_windows(windows, &sandbox);
    }
}

#[test]
fn f_54_calls_of_a_window_that_ask_at_the_same_time_are_all_asked() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    // Before and after the server was seen to ask.
    for number in [1, 1, 0] {
        let client = &mut windows[number];
        let calls: Vec<i64> =
            (0..CALLS).map(|_| client.call("srv__ask", json!({ "method": ASKED }))).collect();
        for name in 0..CALLS {
            let question = client.find("a question", |message| message["method"] == ASKED);
            client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": name } }));
        }
        let mut names: Vec<Value> = calls
            .iter()
            .map(|call| {
                let seen = client.seen().iter().find(|message| message["id"] == *call).cloned();
                let answer = seen.unwrap_or_else(|| client.answer(*call));
                let said: Value =
                    serde_json::from_str(text(&answer)).unwrap_or_else(|_| panic!("asked: {answer}"));
                said["content"]["name"].clone()
            })
            .collect();
        names.sort_by_key(Value::as_u64);
        assert_eq!(names, (0..CALLS).map(|name| json!(name)).collect::<Vec<_>>(), "window {number}");
    }
    finish_windows(windows, &sandbox);
}

#[test]
fn a_window_hears_what_its_calls_log_though_it_has_named_no_level() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    for (number, client) in windows.iter_mut().enumerate() {
        let id = client.call("srv__log", json!({ "count": 3 }));
        client.answer(id);
        let logged = client.seen().iter().filter(|message| message["method"] == "notifications/message");
        assert_eq!(logged.count(), 3, "window {number}");
    }
    // One that has named a level hears no less than that.
    let id = windows[1].request("logging/setLevel", json!({ "level": "emergency" }));
    windows[1].answer(id);
    let before = windows[1].seen().len();
    let id = windows[1].call("srv__log", json!({ "count": 3 }));
    windows[1].answer(id);
    let later = &windows[1].seen()[before..];
    assert!(later.iter().all(|message| message["method"] != "notifications/message"), "{later:?}");
    finish_windows(windows, &sandbox);
}

/// 2 s are a tenth of it.
const SHORT: &str = "limits = { call-timeout = \"20s\" }";

/// A call that asks half way, which is after 3 s, once the server has it.
fn asks_later(client: &mut Client, other: &mut Client) -> i64 {
    ask(other);
    let id = client.call("srv__slow", json!({ "seconds": 6, "ask": true }));
    wait_until("the server has it", PATIENCE, || seen(client)[0] == 1);
    id
}

#[test]
fn f_54_a_window_that_does_not_answer_keeps_the_server_no_longer_than_a_tenth() {
    for is_leader in [true, false] {
        let sandbox = Sandbox::with_jobs();
        let mut windows = legacy_windows(&sandbox, &["srv"], SHORT);
        let [leader, follower] = &mut windows;
        let (silent, other) = if is_leader { (leader, follower) } else { (follower, leader) };
        let id = asks_later(silent, other);
        // It waits before there is a question, and longer than a tenth.
        let (begun, took) = timed(|| seen(other)[0].clone());
        assert!(begun == 1 && took < Duration::from_secs(15), "it waited for {took:?}");
        let question = silent.find("a question", |message| message["method"] == ASKED);
        silent.respond(&question["id"], &json!({ "action": "cancel" }));
        let answer = silent.answer(id);
        assert!(answer["result"]["content"].to_string().contains("other calls waited"), "{answer}");
        finish_windows(windows, &sandbox);
    }
}

#[test]
fn f_54_a_window_that_goes_while_it_is_asked_keeps_the_server_no_longer_than_a_tenth() {
    let sandbox = Sandbox::with_jobs();
    let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], SHORT);
    asks_later(&mut follower, &mut leader);
    follower.close_stdin();
    let (begun, took) = timed(|| seen(&mut leader)[0].clone());
    assert!(begun == 1 && took < Duration::from_secs(15), "it waited for {took:?}");
    finish_windows([leader, follower], &sandbox);
}

/// How the window that leads ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    InOrder,
    Killed,
}

/// A call of a client of 2026-07-28 that can be asked, with more params.
fn asked_by_the_answer(client: &mut Client, call: &Value, more: &Value) -> i64 {
    let mut params = call.clone();
    let members = params.as_object_mut().expect("an object");
    members.extend(more.as_object().expect("an object").clone());
    let mut meta = modern_meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    members.insert("_meta".to_owned(), meta);
    client.request("tools/call", params)
}

#[test]
fn a_question_to_another_window_ends_with_the_leader_and_its_call_does_not() {
    let sandbox = Sandbox::with_jobs();
    let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], "");
    let id = follower.call("srv__ask", json!({ "method": ASKED }));
    let question = follower.find("a question", |message| message["method"] == ASKED);
    leader.close_stdin();
    let answer = follower.answer(id);
    assert!(text(&answer).contains("unhang is ending"), "{answer}");
    // The answer and the withdrawal come on two connections, in any order.
    let is_withdrawal = |message: &Value| message["method"] == "notifications/cancelled";
    let seen = follower.seen().iter().find(|message| is_withdrawal(message)).cloned();
    let withdrawn = seen.unwrap_or_else(|| follower.find("the withdrawal", is_withdrawal));
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert!(ask(&mut follower).contains("ann"), "the next call is asked");
    finish_windows([leader, follower], &sandbox);
}

#[test]
fn promise_6_a_leader_that_ends_while_another_window_is_asked_costs_it_the_documented_error() {
    for (end, is_asked_beside) in [(End::Killed, true), (End::Killed, false), (End::InOrder, false)] {
        let sandbox = Sandbox::with_jobs();
        let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], "");
        let call = json!({ "name": "srv__ask", "arguments": { "method": ASKED } });
        let mut id = match is_asked_beside {
            true => follower.request("tools/call", call.clone()),
            false => asked_by_the_answer(&mut follower, &call, &json!({})),
        };
        let question = follower.find("a question", |message| {
            message["method"] == ASKED || message["result"]["resultType"] == "input_required"
        });
        match end {
            End::InOrder => leader.close_stdin(),
            End::Killed => leader.signal(Signal::KILL),
        }
        let _code = leader.exit_code();
        if !is_asked_beside {
            let state = json!({ "requestState": question["result"]["requestState"], "inputResponses": {} });
            id = asked_by_the_answer(&mut follower, &call, &state);
        }
        // Nobody has to answer the question for that.
        let error = follower.answer(id)["error"].clone();
        let told = (&error["code"], &error["data"]["server"]);
        assert_eq!(told, (&json!(-31002), &json!("srv")), "{end:?} {is_asked_beside}: {error}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("`srv`") && message.contains("the window that ran the servers has ended"),
            "{error}"
        );
        assert!(ask(&mut follower).contains("ann"), "the next call is asked");
        follower.close_stdin();
        assert_eq!(follower.exit_code(), 0, "{}", follower.stderr());
        sandbox.assert_nothing_left_within(Duration::from_secs(3));
    }
}

#[test]
fn a_call_of_another_window_ends_in_the_time_of_the_leaders_end_though_it_asks() {
    let sandbox = Sandbox::with_jobs();
    let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], "");
    let id = follower.call("srv__slow", json!({ "seconds": 2, "ask": true }));
    wait_until("the server has it", PATIENCE, || seen(&mut leader)[0] == 1);
    leader.close_stdin();
    let answer = follower.answer(id);
    let said = answer["result"]["content"].to_string();
    assert!(said.contains("unhang is ending"), "{answer}");
    finish_windows([leader, follower], &sandbox);
}

/// Neither the window that asks nor its client has ended anything.
#[test]
fn a_call_of_another_window_that_outlives_the_leader_says_whose_end_it_was() {
    let sandbox = Sandbox::with_jobs();
    let [mut leader, mut follower] = legacy_windows(&sandbox, &["srv"], "");
    let id = follower.call("srv__slow", json!({ "seconds": 60 }));
    wait_until("the server has it", PATIENCE, || seen(&mut leader)[0] == 1);
    leader.close_stdin();
    let error = follower.answer(id)["error"].clone();
    assert_eq!(error["code"], -31008, "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("the window that runs the servers for all windows is ending"), "{error}");
    assert!(message.contains("send the request again if it is safe to repeat"), "{error}");
    finish_windows([leader, follower], &sandbox);
}

#[test]
fn a_call_of_a_window_waits_for_a_server_that_starts_slowly() {
    let sandbox = Sandbox::with_jobs();
    // Longer than lists wait for it.
    let slow = [server("srv", &["slow-start", "3500"], ""), server("other", &["well-behaved"], "")];
    let mut leader = gateway(&sandbox, &slow);
    let mut follower = window(&sandbox, &[]);
    // Before anything is listed, and when there is a list without it.
    let early = follower.call("srv__echo", json!({ "text": "early" }));
    let names = listed(&mut follower, "tools/list", "tools", "name");
    let late = follower.call("srv__echo", json!({ "text": "late" }));
    let none = follower.call("other__nothing", json!({}));
    for (id, expect) in [(early, "early"), (late, "late")] {
        let seen = follower.seen().iter().find(|message| message["id"] == id).cloned();
        let answer = seen.unwrap_or_else(|| follower.answer(id));
        assert_eq!(text(&answer), expect, "{answer} {names:?}");
    }
    let seen = follower.seen().iter().find(|message| message["id"] == none).cloned();
    let answer = seen.unwrap_or_else(|| follower.answer(none));
    assert_eq!(answer["error"]["code"], -32602, "what cannot come is not waited for: {answer}");
    // Once it is there what it has is known.
    let id = leader.call("srv__echo", json!({ "text": "x" }));
    assert_eq!(text(&leader.answer(id)), "x");
    let id = follower.call("srv__nothing", json!({}));
    assert_eq!(follower.answer(id)["error"]["code"], -32602);
    finish_windows([leader, follower], &sandbox);
}

#[test]
fn a_call_of_a_window_that_waits_for_its_turn_is_told_of_as_one_that_may() {
    let sandbox = Sandbox::with_jobs();
    let more = "limits = { max-in-flight = 1, promote-after = \"500ms\" }\ntools.slow_read = { call-timeout = \"1s\", promote-after = \"off\" }";
    let mut leader = gateway(&sandbox, &[server("srv", &["slow-answers"], more)]);
    listed(&mut leader, "tools/list", "tools", "name");
    let mut follower = window(&sandbox, &[]);
    listed(&mut follower, "tools/list", "tools", "name");
    // It has the only place until the end.
    let first = leader.call("srv__slow", json!({ "seconds": 600 }));
    let first = leader.answer(first);
    assert!(text(&first).contains("has been working for"), "it works");
    let [overloaded, waits] = ["srv__slow_read", "srv__slow"]
        .map(|tool| follower.call(tool, json!({ "seconds": 0, "label": "second" })));
    let [overloaded, waits] = follower.answers([overloaded, waits]);
    let error = &overloaded["error"];
    assert_eq!((&error["code"], &error["data"]["server"]), (&json!(-31005), &json!("srv")), "{error}");
    let told = text(&waits);
    assert!(told.contains("has not answered for") && told.contains("waits for its turn"), "{waits}");
    // It would go on without the leader.
    let job = &first["result"]["structuredContent"]["job_id"];
    let end = leader.call("terminate_job", json!({ "job_id": job }));
    leader.answer(end);
    finish_windows([leader, follower], &sandbox);
}
