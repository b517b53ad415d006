//! `unhang serve` in front of an older server that asks about several calls at the same time: whom it asks, and who waits.

use std::{thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    gateway::{finish, gateway, listed, server},
    gateway_http::{self, modern_call, modern_post},
    harness::{Client, PATIENCE, Sandbox, Web, WebAnswer, timed, wait_until},
};

/// Calls that run at the same time.
const CALLS: usize = 4;

/// How a question begins, for a look at its method.
const ASKED: &str = "elicitation/create";

/// A server with handshakes alone, whose tool `ask` asks its client something; many at once.
fn asks(name: &str) -> String {
    server(name, &["slow-answers", "--era", "legacy"], "")
}

/// Calls at the same time, until each of them has asked. Gives the ids of the calls and of the questions.
fn all_ask(client: &mut Client) -> (Vec<i64>, Vec<Value>) {
    let calls: Vec<i64> = (0..CALLS).map(|_| client.call("srv__ask", json!({ "method": ASKED }))).collect();
    let questions = (0..CALLS).map(|number| {
        let question = client.find(&format!("question {number}"), |message| {
            message["method"] == ASKED || calls.iter().any(|call| message["id"] == *call)
        });
        assert_eq!(question["method"], ASKED, "it was not asked: {question}");
        question["id"].clone()
    });
    let questions = questions.collect();
    (calls, questions)
}

#[test]
fn f_54_calls_of_one_client_that_ask_at_the_same_time_are_all_asked() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[asks("srv")]);
    listed(&mut client, "tools/list", "tools", "name");
    // Before and after the server was seen to ask; the first call may end first or last.
    for is_last_first in [false, true, false] {
        let (calls, mut questions) = all_ask(&mut client);
        if is_last_first {
            questions.reverse();
        }
        for (number, question) in questions.iter().enumerate() {
            client.respond(question, &json!({ "action": "accept", "content": { "name": number } }));
            // One call ends before the next question is answered.
            client.find("an answer", |message| calls.iter().any(|call| message["id"] == *call));
        }
        let mut names: Vec<Value> = calls
            .iter()
            .map(|call| {
                let answer = client.seen().iter().rev().find(|message| message["id"] == *call);
                let text = answer.expect("it has come")["result"]["content"][0]["text"].clone();
                let said: Value = serde_json::from_str(text.as_str().unwrap_or_default()).expect("JSON");
                said["content"]["name"].clone()
            })
            .collect();
        names.sort_by_key(Value::as_u64);
        assert_eq!(names, (0..CALLS).map(|number| json!(number)).collect::<Vec<_>>());
    }
    let withdrawn = client.seen().iter().filter(|message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn.count(), 0, "a question does not end with the call of another");
    finish(client, &sandbox);
}

#[test]
fn f_54_a_client_that_has_not_offered_it_is_not_asked_in_any_of_its_calls() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[asks("srv")]);
    // Another handshake, in which it offers something else.
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": { "roots": {} }, "clientInfo": { "name": "test" },
    });
    let id = client.request("initialize", params);
    client.answer(id);
    listed(&mut client, "tools/list", "tools", "name");
    let calls = [(); CALLS].map(|()| client.call("srv__ask", json!({ "method": ASKED })));
    for answer in client.answers(calls) {
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("does not offer it"), "{answer}");
    }
    assert!(client.seen().iter().all(|message| message["method"] != ASKED));
    finish(client, &sandbox);
}

/// A call that has asked its client, with its question.
fn asked(web: &Web, session: &str, id: u32) -> (WebAnswer, Value) {
    let mut stream = web.call(session, id, "srv__ask", json!({ "method": ASKED }));
    let question = stream.next().expect("a question");
    assert_eq!(question["method"], ASKED, "{question}");
    (stream, question["id"].clone())
}

/// Answers a question, and gives what became of the call.
fn respond(web: &Web, session: &str, (stream, question): (WebAnswer, Value)) -> Value {
    let answer = json!({ "jsonrpc": "2.0", "id": question, "result": { "by": session } });
    assert_eq!(web.post(&[("mcp-session-id", session)], &answer).status, 202);
    stream.last()["result"]["content"][0]["text"].clone()
}

/// Lets a session call, answers the question that comes, and gives what became of the call.
fn asked_and_answered(web: &Web, session: &str, id: u32) -> Value {
    let asked = asked(web, session, id);
    respond(web, session, asked)
}

#[test]
fn f_54_calls_of_another_session_wait_until_those_of_one_have_ended() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway_http::gateway(&sandbox, &[asks("srv")]);
    let (alice, bob) = (web.begin(), web.begin());
    // The server is seen to ask.
    let first = asked(&web, &alice, 1);
    respond(&web, &alice, first);
    let hers = [asked(&web, &alice, 2), asked(&web, &alice, 3)];
    let waiting = || web.ask("GET", "/status", &[], "").last()["servers"][0]["waiting"].clone();
    thread::scope(|scope| {
        let his = scope.spawn(|| asked_and_answered(&web, &bob, 1));
        wait_until("he waits", PATIENCE, || waiting() == 1);
        // What she asks for now comes after him, however often she asks.
        let later = scope.spawn(|| asked_and_answered(&web, &alice, 4));
        wait_until("she waits as well", PATIENCE, || waiting() == 2);
        let [one, other] = hers;
        assert_eq!(respond(&web, &alice, one), json!({ "by": alice }).to_string());
        assert_eq!(waiting(), 2, "another of her calls is there");
        assert_eq!(respond(&web, &alice, other), json!({ "by": alice }).to_string());
        assert_eq!(his.join().expect("no panic"), json!({ "by": bob }).to_string());
        assert_eq!(later.join().expect("no panic"), json!({ "by": alice }).to_string());
    });
    gateway_http::finish(process, &sandbox);
}

#[test]
fn f_54_calls_of_another_session_wait_from_the_first_question_of_a_server_on() {
    let sandbox = Sandbox::with_jobs();
    // Nobody but who waits takes her question away, which is after 15 s.
    let limits = "limits = { call-timeout = \"150s\" }";
    let srv = server("srv", &["slow-answers", "--era", "legacy"], limits);
    let (process, web) = gateway_http::gateway(&sandbox, &[srv]);
    let (alice, bob) = (web.begin(), web.begin());
    let hers = asked(&web, &alice, 1);
    let waiting = || web.ask("GET", "/status", &[], "").last()["servers"][0]["waiting"].clone();
    thread::scope(|scope| {
        let his = scope.spawn(|| asked_and_answered(&web, &bob, 1));
        wait_until("he waits", PATIENCE, || waiting() == 1);
        assert_eq!(respond(&web, &alice, hers), json!({ "by": alice }).to_string());
        assert_eq!(his.join().expect("no panic"), json!({ "by": bob }).to_string());
    });
    gateway_http::finish(process, &sandbox);
}

#[test]
fn f_90_a_caller_without_a_session_is_asked_though_it_has_left_a_call() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway_http::gateway(&sandbox, &[asks("srv")]);
    let meta = |more: Value| {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        meta.as_object_mut().expect("members").extend(more.as_object().expect("members").clone());
        meta
    };
    let lasting = json!({ "arguments": { "seconds": 20, "label": "left", "progress": true }, "_meta": meta(json!({ "progressToken": 1 })) });
    let mut left = modern_post(&web, 1, "srv__slow", &lasting);
    assert_eq!(left.next().expect("a report")["method"], "notifications/progress");
    drop(left);
    wait_until("the server has been told that nobody waits", PATIENCE, || {
        let seen = modern_call(&web, 2, "srv__seen", &json!({ "arguments": {} }));
        let text = seen["result"]["content"][0]["text"].as_str().unwrap_or_default();
        text.contains(r#""cancelled":1"#)
    });
    // It need not answer what was cancelled, and does not.
    let asked = modern_call(&web, 3, "srv__ask", &json!({ "arguments": { "method": ASKED } }));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_response_that_is_not_an_object_is_refused_and_its_question_stays_open() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway_http::gateway(&sandbox, &[asks("srv")]);
    let call = |id, responses: Value| {
        let mut params = responses;
        params["arguments"] = json!({ "method": ASKED });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        modern_call(&web, id, "srv__ask", &params)
    };
    let result = call(1, json!({}))["result"].clone();
    let key =
        result["inputRequests"].as_object().and_then(|asked| asked.keys().next().cloned()).expect("a key");
    let answers =
        |answer: Value| json!({ "requestState": result["requestState"], "inputResponses": { &key: answer } });
    let refused = call(2, answers(json!("ann")));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().is_some_and(|why| why.contains(&key)), "{refused}");
    let answer = call(3, answers(json!({ "action": "accept", "content": { "name": "ann" } })));
    assert!(text(&answer).contains("ann"), "{answer}");
    gateway_http::finish(process, &sandbox);
}

/// A server that asks, and that has been seen to, whose calls have so much time. Gives two sessions with it.
fn seen_to_ask(sandbox: &Sandbox, call_timeout: &str) -> (Client, Web, [String; 2]) {
    let limits = format!("limits = {{ call-timeout = \"{call_timeout}\", restart-delay = \"100ms\" }}");
    let srv = server("srv", &["slow-answers", "--era", "legacy"], &limits);
    let (process, web) = gateway_http::gateway(sandbox, &[srv]);
    let sessions = [web.begin(), web.begin()];
    let first = asked(&web, &sessions[0], 1);
    respond(&web, &sessions[0], first);
    (process, web, sessions)
}

fn waiting(web: &Web) -> Value {
    web.ask("GET", "/status", &[], "").last()["servers"][0]["waiting"].clone()
}

fn text(answer: &Value) -> String {
    answer["result"]["content"].to_string()
}

/// Waits until the server has one call.
fn until_it_has_a_call(web: &Web) {
    wait_until("the server has the call", PATIENCE, || {
        web.ask("GET", "/status", &[], "").last()["servers"][0]["inFlight"] == 1
    });
}

/// Has a call ask half way which nobody answers, while another session has waited since before. Gives how long the question was open,
/// what came of the call, and of that of the other session.
fn left_unanswered(web: &Web, [alice, bob]: &[String; 2], seconds: u32) -> (Duration, String, String) {
    thread::scope(|scope| {
        let his = scope.spawn(|| {
            until_it_has_a_call(web);
            web.call(bob, 1, "srv__seen", json!({})).last()
        });
        // The stream begins before the question comes on it.
        let mut hers = web.call(alice, 2, "srv__slow", json!({ "seconds": seconds, "ask": true }));
        wait_until("the other session waits", PATIENCE, || waiting(web) == 1);
        assert_eq!(hers.next().expect("a question")["method"], ASKED);
        let (answer, open) = timed(|| hers.last());
        (open, text(&answer), text(&his.join().expect("no panic")))
    })
}

#[test]
fn f_54_who_is_asked_has_no_more_than_a_tenth_though_others_waited_longer_than_that_before() {
    let sandbox = Sandbox::with_jobs();
    let (process, web, sessions) = seen_to_ask(&sandbox, "20s");
    // It asks after 3 s, and 2 s are a tenth.
    let (_, answer, his) = left_unanswered(&web, &sessions, 6);
    assert!(answer.contains("other calls waited"), "{answer}");
    assert!(his.contains("begun"), "{his}");
    gateway_http::finish(process, &sandbox);
}

#[test]
fn f_54_who_is_asked_has_a_whole_tenth_though_others_waited_before() {
    let sandbox = Sandbox::with_jobs();
    let (process, web, sessions) = seen_to_ask(&sandbox, "60s");
    // It asks after 3 s, has had its time by then, and a tenth is 6 s.
    let (open, answer, his) = left_unanswered(&web, &sessions, 6);
    assert!(answer.contains("other calls waited"), "{answer}");
    assert!(open >= Duration::from_secs(5), "she had too little time: {open:?}");
    assert!(his.contains("begun"), "{his}");
    gateway_http::finish(process, &sandbox);
}

#[test]
fn f_54_who_is_asked_by_an_answer_has_a_tenth_as_well() {
    let sandbox = Sandbox::with_jobs();
    let (process, web, [alice, _]) = seen_to_ask(&sandbox, "20s");
    let asks = json!({ "arguments": { "seconds": 6, "ask": true } });
    thread::scope(|scope| {
        let alone = scope.spawn(|| modern_call(&web, 1, "srv__slow", &asks));
        until_it_has_a_call(&web);
        let (hers, took) = timed(|| web.call(&alice, 2, "srv__seen", json!({})).last());
        assert!(text(&hers).contains("begun"), "{hers}");
        // A question takes 3 s to come and 2 s to be declined; the call of whoever was asked is over after 20 s.
        assert!(took < Duration::from_secs(15), "she waited for {took:?}");
        let alone = alone.join().expect("no panic");
        assert_eq!(alone["result"]["resultType"], "input_required", "{alone}");
    });
    gateway_http::finish(process, &sandbox);
}

#[test]
fn promise_6_calls_that_wait_for_their_turn_at_a_server_that_dies_have_it_at_the_next_one() {
    let sandbox = Sandbox::with_jobs();
    let (process, web, [alice, bob]) = seen_to_ask(&sandbox, "60s");
    let carol = web.begin();
    let pid = |session: &str, id| -> i32 {
        let answer = web.call(session, id, "srv__pid", json!({})).last();
        answer["result"]["content"][0]["text"].as_str().and_then(|pid| pid.parse().ok()).expect("a number")
    };
    let before = pid(&alice, 2);
    thread::scope(|scope| {
        let hers = scope.spawn(|| web.call(&alice, 3, "srv__slow", json!({ "seconds": 50 })).last());
        until_it_has_a_call(&web);
        let others = [&bob, &carol].map(|session| scope.spawn(|| pid(session, 1)));
        wait_until("they wait", PATIENCE, || waiting(&web) == 2);
        kill_process(Pid::from_raw(before).expect("a process"), Signal::KILL).expect("it is there");
        assert_eq!(hers.join().expect("no panic")["error"]["code"], -31002);
        let after = others.map(|other| other.join().expect("it was served"));
        assert!(after[0] == after[1] && after[0] != before, "{before} {after:?}");
    });
    gateway_http::finish(process, &sandbox);
}
