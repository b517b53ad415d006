//! A conversation through the guard: every revision, questions of the server, notifications both ways, batches, and what
//! the client's first message decides (design 2 to 4; protocol.md 1.1 to 1.4 and 3.2).

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox, wait_until},
    talk::{assert_fault, assert_stays, code, text_of},
};

#[test]
fn every_revision_with_a_handshake_passes() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&[], &["well-behaved"]);
        let result = client.initialize_as(revision, "unhang-test");
        assert_eq!(result["protocolVersion"], revision);
        assert_eq!(client.tool_text("echo", json!({"text": revision})), revision);
        assert_eq!(client.state()["protocolVersion"], revision);
        let id = client.request("prompts/get", json!({"name": "greeting", "arguments": {"name": "Ada"}}));
        assert_eq!(client.answer(id)["result"]["messages"][0]["content"]["text"], "Hello, Ada");
        client.end(&[]);
    }
}

#[test]
fn stateless_traffic_passes() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    let discover = client.modern("server/discover", json!({}));
    let discovered = client.answer(discover);
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]), "{discovered}");
    let list = client.modern("tools/list", json!({}));
    assert_eq!(client.answer(list)["result"]["resultType"], "complete");
    let echo = client.modern_call("echo", json!({"text": "stateless"}));
    assert_eq!(text_of(&client.answer(echo)), "stateless");
    let ask = client.modern_call("ask", json!({"method": "elicitation/create"}));
    let answer = client.answer(ask);
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    client.end(&[]);
}

#[test]
fn a_stateless_call_has_a_deadline_and_is_cancelled() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["well-behaved"]);
    let list = client.modern("tools/list", json!({}));
    client.answer(list);
    let late = client.modern_call("sleep", json!({"ms": 60_000}));
    let withdrawn = client.modern_call("sleep", json!({"ms": 60_000}));
    client.cancel(withdrawn);
    client.fault(late, code::DEADLINE);
    client.end(&[withdrawn]);
}

#[test]
fn a_subscription_of_the_stateless_era_has_no_deadline() {
    let sandbox = Sandbox::new();
    let flags =
        ["--request-timeout", "1s", "--call-timeout", "1s", "--start-timeout", "1s", "--eof-grace", "20s"];
    let mut client = sandbox.wrap(&flags, &["well-behaved"]);
    let listen =
        client.modern("subscriptions/listen", json!({"notifications": {"promptsListChanged": true}}));
    let late = client.modern_call("sleep", json!({"ms": 60_000}));
    client.fault(late, code::DEADLINE);
    assert_eq!(client.answers_to(listen), 0);
    client.modern_call("notify-list-changed", json!({}));
    client.find("the change", |message| message["method"] == "notifications/prompts/list_changed");
    // It is no call in flight either: the end does not wait for it.
    client.finish();
    client.drain();
    assert_eq!(client.answers_to(listen), 1);
}

#[test]
fn a_probe_is_answered_by_the_server_and_the_client_may_go_on_as_before() {
    for faulty_server in ["era-ambiguous", "well-behaved"] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&[], &[faulty_server]);
        let probe = client.modern("server/discover", json!({}));
        let refused = client.answer(probe)["error"]["code"] == -32601;
        assert_eq!(
            refused,
            faulty_server == "era-ambiguous",
            "what the server says is what the client hears"
        );
        let result = client.initialize();
        assert_eq!(result["protocolVersion"], "2025-11-25");
        assert_eq!(client.tool_text("echo", json!({"text": "old way"})), "old way");
        client.end(&[]);
    }
}

#[test]
fn an_ambiguous_server_is_not_mended() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["era-ambiguous"]);
    let list = client.modern("tools/list", json!({}));
    let answer = client.answer(list);
    assert!(answer["result"]["tools"].is_array() && answer["result"]["resultType"].is_null(), "{answer}");
    client.end(&[]);
}

#[test]
fn an_era_locked_server_stays_in_the_era_of_the_client() {
    let sandbox = Sandbox::new();
    // Checked while it is idle: a check of the wrong era would be refused, and must not show as an answer either.
    let flags = ["--health-interval", "300ms", "--restart-delay", "50ms"];
    let idles = |client: &mut Client| {
        assert_stays("the client hears nothing", Duration::from_secs(1), || {
            client.next_message(Duration::from_millis(1)).is_none()
        });
    };
    let mut client = sandbox.wrap(&flags, &["era-locked"]);
    let probe = client.modern("server/discover", json!({}));
    assert!(client.answer(probe)["result"]["supportedVersions"].is_array());
    idles(&mut client);
    let initialize = client.request("initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(client.answer(initialize)["error"]["code"], -32022, "the server's own verdict");
    let echo = client.modern_call("echo", json!({"text": "x"}));
    assert_eq!(client.answer(echo)["result"]["resultType"], "complete");
    client.end(&[]);

    let mut client = sandbox.wrap(&flags, &["era-locked"]);
    client.initialize();
    let probe = client.modern("server/discover", json!({}));
    assert_eq!(client.answer(probe)["error"]["code"], -32601);
    idles(&mut client);
    assert_eq!(client.tool_text("echo", json!({"text": "x"})), "x");
    client.end(&[]);
    assert!(!sandbox.log().contains("restarts: 1"), "{}", sandbox.log());
}

#[test]
fn a_server_of_the_other_era_says_so_itself() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["modern-only"]);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25"}));
    let error = client.answer(id)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["supported"]), (&json!(-32022), &json!(["2026-07-28"])));
    client.end(&[]);
}

#[test]
fn a_late_answer_to_a_probe_is_tolerated() {
    let sandbox = Sandbox::new();
    let mut client =
        sandbox.wrap(&["--request-timeout", "1s", "--start-timeout", "1s"], &["late-discover", "1500"]);
    let probe = client.modern("server/discover", json!({}));
    let answer = client.answer(probe);
    assert_fault(&answer, code::DEADLINE);
    client.initialize();
    wait_until("the late answer", crate::harness::PATIENCE, || sandbox.log().contains("a late answer"));
    assert_eq!(client.tool_text("echo", json!({"text": "fine"})), "fine");
    client.end(&[]);
}

#[test]
fn questions_of_the_server_reach_the_client_and_its_answers_come_back() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    for (method, answer) in [
        (
            "sampling/createMessage",
            json!({"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"}),
        ),
        ("elicitation/create", json!({"action": "accept", "content": {"name": "Ada"}})),
        ("roots/list", json!({"roots": [{"uri": "file:///tmp"}]})),
        ("ping", json!({})),
    ] {
        let id = client.call("ask", json!({"method": method}));
        let question = client.find(method, |message| message["method"] == method);
        client.respond(&question["id"], &answer);
        let received: Value = serde_json::from_str(&text_of(&client.answer(id))).expect("JSON");
        assert_eq!(received, answer, "{method}");
    }
    client.end(&[]);
}

#[test]
fn a_refusal_of_the_client_comes_back_too() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let id = client.call("ask", json!({"method": "roots/list"}));
    let question = client.find("the question", |message| message["method"] == "roots/list");
    let error = json!({"code": -32601, "message": "no roots", "data": [1]});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}).to_string());
    let received: Value = serde_json::from_str(&text_of(&client.answer(id))).expect("JSON");
    assert_eq!(received, error);
    client.end(&[]);
}

#[test]
fn ids_of_both_sides_may_be_alike() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["requests-to-client"]);
    client.initialize();
    // The server asks four questions under the ids 0 to 3; the client uses the same ones for its own.
    let id = client.call("echo", json!({}));
    let others = [client.request("ping", json!({})), client.request("tools/list", json!({}))];
    for number in 0..4 {
        client.find("a question", |message| message["id"] == number && message["method"].is_string());
        client.respond(&json!(number), &json!({}));
    }
    assert_eq!(text_of(&client.outcome(id)), "the client answered 4 questions");
    for id in others {
        assert!(client.outcome(id)["result"].is_object());
    }
    client.end(&[]);
}

#[test]
fn an_id_that_the_client_gives_back_in_the_other_type_is_put_right() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["requests-to-client"]);
    client.initialize();
    let id = client.call("echo", json!({}));
    for number in 0..4 {
        client.find("a question", |message| message["id"] == number && message["method"].is_string());
    }
    for number in [json!(0), json!(1), json!(2), json!("3")] {
        client.respond(&number, &json!({}));
    }
    assert_eq!(text_of(&client.answer(id)), "the client answered 4 questions");
    client.end(&[]);
}

#[test]
fn a_question_that_stays_unanswered_ends_for_both_sides() {
    let sandbox = Sandbox::new();
    let mut client =
        sandbox.wrap(&["--call-timeout", "1s", "--request-timeout", "20s"], &["requests-to-client"]);
    client.initialize();
    let call = client.call("echo", json!({}));
    client.fault(call, code::DEADLINE);
    // The client is told that nobody waits for its answers, and the server got one for each question.
    for number in 0..4 {
        let withdrawn = |message: &Value| {
            message["method"] == "notifications/cancelled" && message["params"]["requestId"] == number
        };
        if !client.seen().iter().any(withdrawn) {
            client.find("a withdrawal", withdrawn);
        }
    }
    client.round_trip();
    client.end(&[]);
}

#[test]
fn a_stateless_client_is_never_asked() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["requests-to-client"]);
    let id = client.modern_call("echo", json!({}));
    let answer = client.answer(id);
    assert_eq!(text_of(&answer), "the client answered 4 questions", "unhang refuses them in its place");
    assert_eq!(client.seen().len(), 1, "{:?}", client.seen());
    client.end(&[]);
    assert!(client.stderr().contains("sampling/createMessage"), "what was filtered is shown");
}

#[test]
fn notifications_of_the_server_pass_in_order() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.tool_text("log", json!({"count": 200}));
    let said: Vec<&Value> =
        client.seen().iter().filter(|message| message["method"] == "notifications/message").collect();
    let expect: Vec<String> = (1..=200).map(|number| format!("message {number} of 200")).collect();
    assert_eq!(
        said.iter().map(|message| message["params"]["data"].as_str().unwrap_or_default()).collect::<Vec<_>>(),
        expect
    );
    client.tool_text("notify-list-changed", json!({}));
    for kind in ["tools", "resources", "prompts"] {
        let method = format!("notifications/{kind}/list_changed");
        assert!(client.seen().iter().any(|message| message["method"] == method), "{method}");
    }
    client.end(&[]);
}

#[test]
fn progress_passes_in_order_and_before_the_answer() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["progress-flood", "500"]);
    client.initialize();
    let params = json!({"name": "echo", "arguments": {}, "_meta": {"progressToken": "t"}});
    let id = client.request("tools/call", params);
    client.answer(id);
    let progress: Vec<u64> =
        client.seen().iter().filter_map(|message| message["params"]["progress"].as_u64()).collect();
    assert!(progress.is_sorted() && progress.last() == Some(&500), "{progress:?}");
    client.end(&[]);
}

#[test]
fn notifications_of_the_client_reach_the_server() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    let id =
        client.request("initialize", json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "x"}}));
    client.answer(id);
    assert_eq!(client.state()["initialized"], false);
    client.notify("notifications/roots/list_changed", json!({}));
    client.notify("notifications/initialized", json!({}));
    assert_eq!(client.state()["initialized"], true);
    client.end(&[]);
}

/// A session of one revision.
fn session(sandbox: &Sandbox, revision: &str, flags: &[&str], faulty_server: &str) -> Client {
    let mut client = sandbox.wrap(flags, &[faulty_server]);
    client.initialize_as(revision, "unhang-test");
    client
}

const BATCH: &str = r#"[{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"sleep","arguments":{"ms":300}}},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"b","method":"ping"},{"jsonrpc":"2.0","id":"c","method":"no/such"}]"#;

#[test]
fn a_batch_of_2025_03_26_is_answered_as_one_array() {
    let sandbox = Sandbox::new();
    let mut client = session(&sandbox, "2025-03-26", &[], "well-behaved");
    client.send(BATCH);
    let array = client.find("an array", Value::is_array);
    let answers = array.as_array().expect("an array");
    let of = |id: &str| {
        answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("no {id} in {array}"))
    };
    assert_eq!(text_of(of("a")), "slept 300 ms");
    assert_eq!(
        (answers.len(), &of("b")["result"], &of("c")["error"]["code"]),
        (3, &json!({}), &json!(-32601))
    );
    client.end(&[]);
    assert_eq!(client.seen().iter().filter(|message| message.is_array()).count(), 1);
}

#[test]
fn a_batch_is_complete_with_faults_cancellations_and_garbage() {
    let sandbox = Sandbox::new();
    let mut client = session(&sandbox, "2025-03-26", &["--call-timeout", "1s"], "well-behaved");
    let sleep = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{{"name":"sleep","arguments":{{"ms":60000}}}}}}"#
        )
    };
    client.send(&format!(
        r#"[{},{},17,{{"jsonrpc":"1.0","id":"v","method":"ping"}}]"#,
        sleep("late"),
        sleep("withdrawn")
    ));
    client.notify("notifications/cancelled", json!({"requestId": "withdrawn"}));
    let array = client.find("an array", Value::is_array);
    let codes: Vec<(Value, i64)> = array
        .as_array()
        .expect("an array")
        .iter()
        .map(|answer| (answer["id"].clone(), answer["error"]["code"].as_i64().expect("an error")))
        .collect();
    for expect in [
        (json!("late"), code::DEADLINE),
        (Value::Null, code::INVALID_REQUEST),
        (json!("v"), code::INVALID_REQUEST),
    ] {
        assert!(codes.contains(&expect), "{expect:?} is not in {codes:?}");
    }
    assert_eq!(codes.len(), 3, "{codes:?}");
    client.end(&[]);
}

#[test]
fn a_batch_that_asks_nothing_gets_nothing() {
    let sandbox = Sandbox::new();
    let mut client = session(&sandbox, "2025-03-26", &[], "well-behaved");
    client.send(
        r#"[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","method":"notifications/y"}]"#,
    );
    client.round_trip();
    assert_eq!(client.seen().len(), 2, "{:?}", client.seen());
    client.end(&[]);
}

#[test]
fn a_batch_is_answered_when_the_server_dies() {
    let sandbox = Sandbox::new();
    let mut client = session(&sandbox, "2025-03-26", &["--restart-delay", "50ms"], "dies-every-call");
    client.send(r#"[{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo"}},{"jsonrpc":"2.0","id":"b","method":"tools/list"}]"#);
    let array = client.find("an array", Value::is_array);
    let answers = array.as_array().expect("an array");
    assert_eq!(answers.len(), 2, "{array}");
    let of = |id: &str| answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_fault(of("a"), code::SERVER_EXITED);
    assert!(of("b")["result"]["tools"].is_array(), "sent again, and still part of its batch: {array}");
    client.end(&[]);
}

#[test]
fn a_batch_of_any_other_revision_is_refused_whole() {
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let sandbox = Sandbox::new();
        let mut client = session(&sandbox, revision, &[], "well-behaved");
        client.send(BATCH);
        client.fault(Value::Null, code::INVALID_REQUEST);
        assert_eq!(client.state()["calls"], 1, "none of it reached the server");
        assert_eq!(client.seen().len(), 3, "one answer to the whole: {:?}", client.seen());
        client.end(&[]);
    }
}

#[test]
fn a_handshake_in_a_batch_is_refused() {
    let sandbox = Sandbox::new();
    let mut client = session(&sandbox, "2025-03-26", &[], "well-behaved");
    client.send(
        r#"[{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-03-26"}}]"#,
    );
    let array = client.find("an array", Value::is_array);
    assert_fault(&array[0], code::INVALID_REQUEST);
    // The session is the one that it was.
    client.send(r#"[{"jsonrpc":"2.0","id":"p","method":"ping"}]"#);
    let array = client.find("an array", Value::is_array);
    assert_eq!(array[0]["result"], json!({}));
    client.end(&[]);
}
