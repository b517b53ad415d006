//! The well-behaved server and the fixture of the conformance suite, in both eras, and the faulty servers that are strict or lax about eras.

use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};

use crate::zoo_client::{ZooClient, introduction, marker};

/// Parameters as every stateless request has them.
fn stateless(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

fn ask(client: &mut ZooClient, id: u64, method: &str, params: &Value) -> Value {
    client.request(id, method, params);
    client.answer(id)
}

#[test]
fn a_server_with_extensions_has_what_it_declares_in_both_eras() {
    let mut client = ZooClient::meet("offers-extensions --name one");
    client.shake_hands();
    let discovered = ask(&mut client, 1, "server/discover", &stateless(json!({})));
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/skills"]["directoryRead"], true, "{discovered}");
    for params in [|params: Value| params, stateless] {
        let listed = ask(&mut client, 2, "skills/list", &params(json!({})));
        let skill = listed["result"]["skills"][1]["uri"].clone();
        assert_eq!(skill, "skill://one/SKILL.md");
        for (method, member) in [("skills/get", "skill"), ("resources/read", "contents")] {
            let answer = ask(&mut client, 3, method, &params(json!({ "uri": skill })));
            assert!(!answer["result"][member].is_null(), "{answer}");
        }
        let children =
            ask(&mut client, 4, "resources/directory/read", &params(json!({ "uri": "skill://one" })));
        assert_eq!(children["result"]["resources"][0]["uri"], skill);
        let none = ask(&mut client, 5, "resources/read", &params(json!({ "uri": "other:x" })));
        assert_eq!(none["error"]["code"], -32602);
    }
    client.call(6, "link", &json!({}));
    let linked = client.answer(6);
    assert_eq!(linked["result"]["content"][0]["uri"], "demo://unlisted");
    assert_eq!(ask(&mut client, 7, "resources/list", &json!({}))["result"]["resources"], json!([]));
    client.close_stdin();
    assert!(client.end().success());
}

#[test]
fn every_handshake_revision_is_echoed() {
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = ZooClient::meet("well-behaved");
        let mut params = introduction();
        params["protocolVersion"] = json!(asked);
        let answer = ask(&mut client, 0, "initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], answered);
        assert_eq!(answer["result"]["serverInfo"]["name"], "well-behaved");
    }
}

#[test]
fn simple_tools() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    assert_eq!(client.call_text(1, "echo", &json!({"text": "grüß dich"})), "grüß dich");
    assert_eq!(client.call_text(2, "big", &json!({"bytes": 200_000})).len(), 200_000);
    assert_eq!(client.call_text(3, "pid", &json!({})), client.pid().to_string());
    assert!(client.call_text(4, "environment", &json!({"name": "PATH"})).contains('/'));
    client.call_text(5, "stderr", &json!({"bytes": 200_050}));
    crate::zoo_client::wait_until("stderr is read", || (client.stderr_size() == 200_050).then_some(()));
    client.call(6, "log", &json!({"count": 2}));
    let methods: Vec<_> = (0..3).map(|_| client.json()["method"].clone()).collect();
    assert_eq!(methods, [json!("notifications/message"), json!("notifications/message"), Value::Null]);
    client.call(7, "nonsense", &json!({}));
    assert_eq!(client.answer(7)["error"]["code"], -32602);
    client.call(8, "echo", &json!({}));
    assert_eq!(client.answer(8)["error"]["code"], -32602);
    client.call(9, "fail", &json!({"text": "no"}));
    assert_eq!(client.answer(9)["result"]["isError"], true);
    assert_eq!(ask(&mut client, 10, "no/such", &json!({}))["error"]["code"], -32601);
    client.close_stdin();
    assert!(client.end().success());
}

#[test]
fn sleeping_calls_run_beside_others_and_can_be_cancelled() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    client.call(1, "sleep", &json!({"ms": 60_000}));
    client.call(2, "sleep", &json!({"ms": 1050}));
    client.call(3, "echo", &json!({"text": "meanwhile"}));
    let (mut answered, mut progress) = (Vec::new(), Vec::new());
    while !answered.contains(&json!(2)) {
        let message = client.json();
        if message["method"].is_null() {
            answered.push(message["id"].clone());
        } else if message["params"]["progressToken"] == 2 {
            progress.push(message["params"]["progress"].as_u64().expect("a number"));
        }
    }
    assert_eq!(answered, [json!(3), json!(2)]);
    assert_eq!(progress, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1050]);
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    client.close_stdin();
    assert!(client.end().success(), "a cancelled call does not hold up the end");
    while let Some(line) = client.line() {
        assert!(!String::from_utf8_lossy(&line).contains("\"id\":1,"), "the cancelled call is not answered");
    }
}

#[test]
fn a_call_in_flight_is_answered_after_the_end_of_stdin() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    client.call(1, "ask", &json!({"method": "roots/list"}));
    client.call(2, "sleep", &json!({"ms": 200}));
    client.close_stdin();
    assert_eq!(client.answer(2)["result"]["isError"], false);
    assert!(client.end().success());
}

#[test]
fn deaths_on_demand() {
    let mut coded = ZooClient::meet("well-behaved");
    coded.shake_hands();
    coded.call(1, "die", &json!({"code": 42}));
    assert_eq!(coded.end().code(), Some(42));

    let mut signalled = ZooClient::meet("well-behaved");
    signalled.shake_hands();
    signalled.call(1, "die-by-signal", &json!({"signal": 11}));
    assert_eq!(signalled.end().signal(), Some(11));

    let file = std::env::temp_dir().join(marker("die-once"));
    let arguments = json!({"file": file});
    let mut first = ZooClient::meet("well-behaved");
    first.shake_hands();
    first.call(1, "die-once", &arguments);
    assert_eq!(first.end().code(), Some(1));
    let mut second = ZooClient::meet("well-behaved");
    second.shake_hands();
    assert_eq!(second.call_text(1, "die-once", &arguments), "still alive");
    std::fs::remove_file(file).expect("the file can be removed");
}

#[test]
fn the_client_is_asked_and_its_answer_returned() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    for (id, method) in (1..).zip(["sampling/createMessage", "elicitation/create", "roots/list", "ping"]) {
        client.call(id, "ask", &json!({"method": method}));
        let question = client.json();
        assert_eq!(question["method"], method);
        client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"heard": method}}));
        let text = client.answer(id)["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")["heard"], method);
    }
}

#[test]
fn the_state_of_a_session_can_be_seen() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    ask(&mut client, 1, "logging/setLevel", &json!({"level": "error"}));
    ask(&mut client, 2, "resources/subscribe", &json!({"uri": "zoo://numbers/1"}));
    ask(&mut client, 3, "resources/subscribe", &json!({"uri": "zoo://numbers/2"}));
    ask(&mut client, 4, "resources/unsubscribe", &json!({"uri": "zoo://numbers/2"}));
    let state: Value = serde_json::from_str(&client.call_text(5, "state", &json!({}))).expect("JSON");
    assert_eq!(
        state,
        json!({
            "pid": client.pid(), "calls": 1, "initialized": true, "level": "error", "subscriptions": ["zoo://numbers/1"],
            "listens": 0, "protocolVersion": "2025-11-25", "clientName": "client",
        })
    );
    client.call(6, "notify-resource-updated", &json!({"uri": "zoo://numbers/1"}));
    assert_eq!(client.json()["method"], "notifications/resources/updated");
    client.call(7, "notify-list-changed", &json!({}));
    client.answer(6);
    assert_eq!(client.json()["method"], "notifications/tools/list_changed");
}

#[test]
fn lists_come_in_pages_when_asked() {
    for (method, key) in
        [("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts")]
    {
        let mut whole = ZooClient::meet("well-behaved");
        whole.shake_hands();
        let all = ask(&mut whole, 1, method, &json!({}))["result"][key].clone();
        let mut paged = ZooClient::meet("well-behaved --page 2");
        paged.shake_hands();
        let (mut items, mut params) = (Vec::new(), json!({}));
        for id in 1.. {
            let result = ask(&mut paged, id, method, &params)["result"].take();
            let page = result[key].as_array().expect("a page").clone();
            assert!((1..=2).contains(&page.len()));
            items.extend(page);
            match &result["nextCursor"] {
                Value::Null => break,
                cursor => params = json!({"cursor": cursor}),
            }
        }
        assert_eq!(json!(items), all, "{method}");
        assert_eq!(ask(&mut paged, 99, method, &json!({"cursor": "x"}))["error"]["code"], -32602);
    }
}

#[test]
fn resources_prompts_and_completions() {
    let mut client = ZooClient::meet("well-behaved");
    client.shake_hands();
    let read = ask(&mut client, 1, "resources/read", &json!({"uri": "zoo://numbers/3"}));
    assert_eq!(read["result"]["contents"][0]["text"], "The number 3");
    assert_eq!(
        ask(&mut client, 2, "resources/read", &json!({"uri": "zoo://numbers/6"}))["error"]["code"],
        -32002
    );
    let templates = ask(&mut client, 3, "resources/templates/list", &json!({}));
    assert_eq!(templates["result"]["resourceTemplates"][0]["name"], "number");
    let prompt =
        ask(&mut client, 4, "prompts/get", &json!({"name": "greeting", "arguments": {"name": "Ada"}}));
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, Ada");
    let argument = json!({"ref": {"type": "ref/prompt", "name": "greeting"}, "argument": {"name": "name", "value": "a"}});
    let completion = ask(&mut client, 5, "completion/complete", &argument);
    assert_eq!(completion["result"]["completion"]["values"], json!(["ada", "alan"]));
}

#[test]
fn a_handshake_is_insisted_on() {
    let mut client = ZooClient::meet("well-behaved");
    assert_eq!(ask(&mut client, 1, "tools/list", &json!({}))["error"]["code"], -32602);
    assert_eq!(ask(&mut client, 2, "ping", &json!({}))["result"], json!({}));
}

#[test]
fn stateless_requests() {
    let mut client = ZooClient::meet("well-behaved");
    let discovery = ask(&mut client, 1, "server/discover", &stateless(json!({})));
    assert_eq!(discovery["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(discovery["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "well-behaved");
    let list = ask(&mut client, 2, "tools/list", &stateless(json!({})));
    let result = &list["result"];
    assert_eq!(
        (&result["resultType"], &result["ttlMs"], &result["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    let call =
        ask(&mut client, 3, "tools/call", &stateless(json!({"name": "echo", "arguments": {"text": "x"}})));
    assert_eq!(call["result"]["resultType"], "complete");
    assert_eq!(call["result"].get("ttlMs"), None);
    let mut sleep = stateless(json!({"name": "sleep", "arguments": {"ms": 1}}));
    assert_eq!(ask(&mut client, 4, "tools/call", &sleep)["result"]["resultType"], "complete");
    sleep["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let refused = ask(&mut client, 5, "tools/call", &sleep);
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"]["supported"][0]),
        (&json!(-32022), &json!("2026-07-28"))
    );
    assert_eq!(ask(&mut client, 6, "server/discover", &json!({}))["error"]["code"], -32602);
    assert_eq!(ask(&mut client, 7, "ping", &stateless(json!({})))["error"]["code"], -32601);
    assert_eq!(ask(&mut client, 8, "initialize", &introduction())["result"]["protocolVersion"], "2025-11-25");
}

#[test]
fn questions_without_a_session_are_results() {
    let mut client = ZooClient::meet("well-behaved");
    let mut params = stateless(json!({"name": "ask", "arguments": {"method": "roots/list"}}));
    let question = ask(&mut client, 1, "tools/call", &params);
    assert_eq!(question["result"]["resultType"], "input_required");
    assert_eq!(question["result"]["inputRequests"]["question"]["method"], "roots/list");
    params["inputResponses"] = json!({"question": {"roots": []}});
    let answer = ask(&mut client, 2, "tools/call", &params);
    assert_eq!(answer["result"]["content"][0]["text"], "{\"roots\":[]}");
}

#[test]
fn a_subscription_is_acknowledged_and_fed_until_it_is_cancelled() {
    let mut client = ZooClient::meet("well-behaved");
    client.request(
        1,
        "subscriptions/listen",
        &stateless(json!({"notifications": {"toolsListChanged": true}})),
    );
    let acknowledgement = client.json();
    assert_eq!(acknowledgement["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledgement["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    let announce = stateless(json!({"name": "notify-list-changed"}));
    client.request(2, "tools/call", &announce);
    let change = client.json();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    assert_eq!(change["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    assert_eq!(client.json()["id"], 2, "only what was asked for is announced");
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    client.request(3, "tools/call", &announce);
    assert_eq!(client.json()["id"], 3);
}

#[test]
fn eras_are_locked_ambiguous_or_refused() {
    let codes = |faulty_server: &str, requests: &[(&str, Value)]| -> Vec<Value> {
        let mut client = ZooClient::meet(faulty_server);
        (1..)
            .zip(requests)
            .map(|(id, (method, params))| {
                let answer = ask(&mut client, id, method, params);
                if answer["error"].is_null() {
                    answer["result"]["resultType"].clone()
                } else {
                    answer["error"]["code"].clone()
                }
            })
            .collect()
    };
    let (discover, list) = (("server/discover", stateless(json!({}))), ("tools/list", stateless(json!({}))));
    let initialize = ("initialize", introduction());
    let complete = json!("complete");
    let all = [discover.clone(), initialize.clone(), list.clone(), ("tools/list", json!({}))];
    assert_eq!(codes("era-locked", &all), [complete.clone(), json!(-32022), complete.clone(), json!(-32602)]);
    assert_eq!(codes("era-locked", &[initialize.clone(), discover.clone()]), [Value::Null, json!(-32601)]);
    assert_eq!(codes("era-ambiguous", &all), [json!(-32601), Value::Null, Value::Null, Value::Null]);
    assert_eq!(codes("modern-only", &all), [complete.clone(), json!(-32022), complete, json!(-32602)]);
    let mut client = ZooClient::meet("modern-only");
    assert_eq!(
        ask(&mut client, 1, "initialize", &introduction())["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );
}

#[test]
fn a_late_discovery_comes_after_the_handshake() {
    let mut client = ZooClient::meet("late-discover 300");
    client.request(1, "server/discover", &stateless(json!({})));
    client.request(2, "initialize", &introduction());
    assert_eq!(client.json()["id"], 2);
    assert_eq!(client.json()["result"]["supportedVersions"], json!(["2026-07-28"]));
}

#[test]
fn the_conformance_fixture_asks_in_rounds_or_by_questions() {
    let mut client = ZooClient::meet("conformance-fixture");
    let able = |mut params: Value| {
        params = stateless(params);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        params
    };
    let tool = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
    let unable = ask(&mut client, 1, "tools/call", &stateless(tool.clone()));
    assert_eq!(unable["error"]["code"], -32021);
    assert_eq!(unable["error"]["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
    let answers = [
        json!({"step1": {"action": "accept", "content": {"name": "Ada"}}}),
        json!({"step2": {"action": "accept", "content": {"color": "blue"}}}),
    ];
    let mut result = ask(&mut client, 2, "tools/call", &able(tool.clone()))["result"].take();
    for (id, answers) in (3..).zip(&answers) {
        assert_eq!(result["resultType"], "input_required", "{result}");
        let mut again = tool.clone();
        again["inputResponses"] = answers.clone();
        again["requestState"] = result["requestState"].clone();
        result = ask(&mut client, id, "tools/call", &able(again))["result"].take();
    }
    assert_eq!(result["content"][0]["text"], "Ada likes blue");
    let mut tampered = tool;
    tampered["requestState"] = json!("step2 Eve.0");
    assert_eq!(ask(&mut client, 5, "tools/call", &able(tampered))["error"]["code"], -32602);

    let mut client = ZooClient::meet("conformance-fixture --era legacy");
    assert_eq!(ask(&mut client, 1, "server/discover", &stateless(json!({})))["error"]["code"], -32601);
    let mut introduction = introduction();
    introduction["capabilities"] = json!({"elicitation": {}});
    assert_eq!(ask(&mut client, 2, "initialize", &introduction)["result"]["protocolVersion"], "2025-11-25");
    client.call(3, "test_sampling", &json!({"prompt": "Why?"}));
    assert_eq!(client.answer(3)["result"]["isError"], true);
    client.call(4, "test_input_required_result_elicitation", &json!({}));
    let question = client.json();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    assert_eq!(client.answer(4)["result"]["content"][0]["text"], "Hello, Ada!");
}
