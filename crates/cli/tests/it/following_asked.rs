//! Windows that follow, and an older server that asks about several of their calls: they are asked as the client of the leader is.

use serde_json::{Value, json};

use crate::{
    gateway::{finish_windows, legacy_windows},
    harness::{Client, PATIENCE, Sandbox, wait_until},
};

/// Calls that run at the same time: more than a server may ask for input before it answers one request.
const CALLS: usize = 12;

/// How a question begins.
const ASKED: &str = "elicitation/create";

fn text(answer: &Value) -> String {
    answer["result"]["content"].to_string()
}

/// The next question, which comes before any answer to these calls.
fn question(client: &mut Client, calls: &[i64]) -> Value {
    let next = client.find("a question", |message| {
        message["method"] == ASKED || calls.iter().any(|call| message["id"] == *call)
    });
    assert_eq!(next["method"], ASKED, "it was not asked: {next}");
    next["id"].clone()
}

fn accept(client: &mut Client, question: &Value, name: usize) {
    client.respond(question, &json!({ "action": "accept", "content": { "name": name } }));
}

/// The answer to a call, which may have come already.
fn answer(client: &mut Client, call: i64) -> Value {
    let seen = client.seen().iter().find(|message| message["id"] == call && message.get("method").is_none());
    seen.cloned().unwrap_or_else(|| client.answer(call))
}

/// The questions that were withdrawn from the client.
fn withdrawn(client: &Client) -> Vec<Value> {
    let all = client.seen().iter().filter(|message| message["method"] == "notifications/cancelled");
    all.map(|message| message["params"]["requestId"].clone()).collect()
}

#[test]
fn f_54_calls_of_a_window_that_follows_are_asked_at_once_and_each_gets_an_answer() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    // Both windows are asked alike, before and after the server was seen to ask.
    for (number, is_last_first) in [(1, false), (1, true), (0, true)] {
        let client = &mut windows[number];
        let calls: Vec<i64> =
            (0..CALLS).map(|_| client.call("srv__ask", json!({ "method": ASKED }))).collect();
        let mut questions: Vec<Value> = (0..CALLS).map(|_| question(client, &calls)).collect();
        if is_last_first {
            questions.reverse();
        }
        for (name, question) in questions.iter().enumerate() {
            accept(client, question, name);
        }
        let mut names: Vec<u64> = calls
            .iter()
            .map(|call| {
                let answer = answer(client, *call);
                let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
                let said: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("asked: {answer}"));
                said["content"]["name"].as_u64().expect("a number")
            })
            .collect();
        names.sort_unstable();
        assert!(names.iter().copied().eq(0..CALLS as u64), "window {number}: {names:?}");
        assert!(withdrawn(client).is_empty(), "window {number}: a question does not end with another call");
        let asked = client.seen().iter().filter(|message| message["method"] == ASKED).count();
        assert_eq!(asked % CALLS, 0, "window {number}: no question is asked twice");
    }
    finish_windows(windows, &sandbox);
}

/// A call that asks after 1 s, and a newer one that takes so long.
fn asks_beside_a_newer_call(client: &mut Client, seconds: f64) -> [i64; 2] {
    let asks = client.call("srv__slow", json!({ "seconds": 2, "ask": true }));
    [asks, client.call("srv__slow", json!({ "seconds": seconds, "label": "newer" }))]
}

#[test]
fn f_54_a_question_stays_open_when_the_newest_call_of_a_window_that_follows_ends_or_is_cancelled() {
    for number in [1, 0] {
        let sandbox = Sandbox::with_jobs();
        let mut windows = legacy_windows(&sandbox, &["srv"], "");
        let client = &mut windows[number];
        let [asks, newer] = asks_beside_a_newer_call(client, 6.0);
        let asked = question(client, &[asks, newer]);
        // Its answer does not wait for that to the question of the other call.
        assert!(answer(client, newer)["result"].is_object(), "window {number}");
        accept(client, &asked, 7);
        let told = text(&answer(client, asks));
        assert!(told.contains(r#"name\":7"#), "window {number}: {told}");

        let [asks, newer] = asks_beside_a_newer_call(client, 60.0);
        let asked = question(client, &[asks, newer]);
        client.notify("notifications/cancelled", json!({ "requestId": newer }));
        // The answer shows that unhang has read the cancellation.
        client.request("ping", json!({}));
        accept(client, &asked, 8);
        let told = text(&answer(client, asks));
        assert!(told.contains(r#"name\":8"#), "window {number}: {told}");
        assert!(withdrawn(client).is_empty(), "window {number}");
        finish_windows(windows, &sandbox);
    }
}

#[test]
fn f_54_a_question_ends_at_once_with_the_last_call_that_it_may_be_about() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv", "other"], "");
    let [leader, follower] = &mut windows;
    // A call of another server does not keep it open.
    let others = follower.call("other__slow", json!({ "seconds": 60 }));
    let calls = asks_beside_a_newer_call(follower, 60.0);
    let asked = question(follower, &calls);
    for call in calls {
        assert!(withdrawn(follower).is_empty(), "one of them is there");
        follower.notify("notifications/cancelled", json!({ "requestId": call }));
    }
    let told = follower.find("a withdrawal", |message| message["method"] == "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked);
    // The server has heard that no answer comes, so that it goes on with its other clients.
    let seen = || json!({});
    let id = leader.call("srv__seen", seen());
    assert!(text(&leader.answer(id)).contains("begun"), "it is not held back");
    follower.notify("notifications/cancelled", json!({ "requestId": others }));
    // A call that asks alone.
    let alone = follower.call("srv__ask", json!({ "method": ASKED }));
    let asked = question(follower, &[alone]);
    follower.notify("notifications/cancelled", json!({ "requestId": alone }));
    let is_withdrawn = |message: &Value| message["params"]["requestId"] == asked;
    follower.find("a withdrawal", is_withdrawn);
    wait_until("the server has ended the call", PATIENCE, || {
        let id = leader.call("srv__seen", seen());
        text(&leader.answer(id)).contains("begun")
    });
    finish_windows(windows, &sandbox);
}

/// Answers the question of a new call with these members, and gives what the server has heard.
fn heard(client: &mut Client, members: &Value) -> Value {
    let call = client.call("srv__ask", json!({ "method": ASKED }));
    let mut reply = json!({ "jsonrpc": "2.0", "id": question(client, &[call]) });
    reply.as_object_mut().expect("members").extend(members.as_object().expect("members").clone());
    client.send(&reply.to_string());
    // The server answers the call when it has a reply to its question.
    let told = client.outcome(call)["result"]["content"][0]["text"].clone();
    serde_json::from_str(told.as_str().unwrap_or_default()).expect("JSON")
}

#[test]
fn a_server_hears_of_an_invalid_answer_to_its_question_at_once() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    for client in &mut windows {
        for invalid in [
            json!({ "error": "no" }),
            json!({ "error": { "code": "x", "message": "no" } }),
            json!({}),
            json!({ "result": {}, "error": { "code": 1, "message": "no" } }),
        ] {
            let heard = heard(client, &invalid);
            let why = heard["message"].as_str().unwrap_or_default();
            assert!(heard["code"] == -31007 && why.contains("invalid response"), "{invalid}: {heard}");
        }
    }
    finish_windows(windows, &sandbox);
}

#[test]
fn a_server_gets_the_error_of_a_client_whole() {
    let sandbox = Sandbox::with_jobs();
    let mut windows = legacy_windows(&sandbox, &["srv"], "");
    for client in &mut windows {
        for code in [json!(-1), json!(5_000_000_000_i64)] {
            let error = json!({ "code": code, "message": "no", "data": { "x": [1, null] } });
            assert_eq!(heard(client, &json!({ "error": error })), error);
        }
    }
    finish_windows(windows, &sandbox);
}
