//! The server whose calls last as long as they are told: what it answers, when it says something meanwhile, and what it counts.

use serde_json::{Value, json};

use crate::zoo_client::{ZooClient, introduction, wait_until};

/// Longer than any test waits: a call of it is cancelled, or never answered.
const FOR_EVER: u32 = 100;

fn slow(client: &mut ZooClient, id: u64, arguments: &Value) -> Value {
    client.call(id, "slow", arguments);
    client.answer(id)["result"].take()
}

/// What the server has counted, as it is asked for by a request with this id.
fn seen(client: &mut ZooClient, id: u64) -> Value {
    serde_json::from_str(&client.call_text(id, "seen", &json!({}))).expect("JSON")
}

/// A client of the handshake that can be asked something.
fn able() -> ZooClient {
    let mut client = ZooClient::meet("slow-answers");
    let mut introduction = introduction();
    introduction["capabilities"] = json!({"elicitation": {}});
    client.request(0, "initialize", &introduction);
    client.answer(0);
    client.notify("notifications/initialized", &json!({}));
    client
}

#[test]
fn calls_are_answered_whole_when_their_time_has_come() {
    let mut client = ZooClient::meet("slow-answers");
    client.shake_hands();
    client.call(1, "slow", &json!({"seconds": 0.6, "size": 100_003}));
    client.call(2, "slow", &json!({"seconds": 0.1, "fail": true}));
    assert_eq!(client.json()["id"], 2, "the shorter one waits for nobody");
    let answer = client.json();
    let text = answer["result"]["content"][0]["text"].as_str().expect("a text");
    assert_eq!((text.len(), answer["result"]["isError"].as_bool()), (100_003, Some(false)));
    for (number, part) in (0..).zip(text.as_bytes().chunks(16)) {
        let expected = format!("{:015} ", 16 * number);
        assert_eq!(part, &expected.as_bytes()[..part.len()]);
    }
    assert_eq!(slow(&mut client, 3, &json!({"seconds": 0, "fail": true}))["isError"], true);
    for (id, wrong) in (4..).zip([json!({}), json!({"seconds": -1}), json!({"seconds": 0, "size": "x"})]) {
        client.call(id, "slow", &wrong);
        assert_eq!(client.answer(id)["error"]["code"], -32602, "{wrong}");
    }
    // The rest is the well-behaved server.
    assert_eq!(client.call_text(9, "echo", &json!({"text": "x"})), "x");
}

#[test]
fn progress_and_log_come_at_a_steady_rate_where_they_are_wanted() {
    let mut client = ZooClient::meet("slow-answers");
    client.shake_hands();
    client.call(1, "slow", &json!({"seconds": 0.2, "progress": true, "log": true}));
    for part in 1..=10 {
        let progress = client.json();
        let params = &progress["params"];
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!((&params["progress"], &params["total"]), (&json!(part), &json!(10)));
        assert_eq!(client.json()["params"]["data"], format!("part {part} of 10"));
    }
    assert_eq!(client.json()["id"], 1);
    // Without a token nobody hears of progress.
    client.request(2, "tools/call", &json!({"name": "slow", "arguments": {"seconds": 0, "progress": true}}));
    assert_eq!(client.json()["id"], 2);
}

#[test]
fn what_became_of_each_call_is_counted() {
    let mut client = ZooClient::meet("slow-answers");
    client.shake_hands();
    let (short, long) =
        (json!({"seconds": 0, "label": "short"}), json!({"label": "long", "seconds": FOR_EVER}));
    slow(&mut client, 1, &short);
    slow(&mut client, 2, &short);
    client.call(3, "slow", &long);
    client.notify("notifications/cancelled", &json!({"requestId": 3}));
    // The cancellation was there first, so it is seen, whether or not the call has noticed it.
    let told = seen(&mut client, 4);
    assert_eq!(
        told,
        json!({
            "pid": client.pid(), "begun": 3, "answered": 2, "cancelled": 1,
            "calls": [
                {"arguments": long, "begun": 1, "answered": 0, "cancelled": 1},
                {"arguments": short, "begun": 2, "answered": 2, "cancelled": 0},
            ],
        })
    );
    client.close_stdin();
    assert!(client.end().success(), "a cancelled call holds nothing up");
    assert!(client.line().is_none(), "and is not answered");
}

#[test]
fn many_calls_at_once_and_each_its_own_answer() {
    let mut client = ZooClient::meet("slow-answers");
    client.shake_hands();
    for id in 1..=300 {
        client.call(id, "slow", &json!({"seconds": 0.3, "size": id}));
    }
    let mut left: Vec<_> = (1..=300).collect();
    while !left.is_empty() {
        let answer = client.json();
        let id = answer["id"].as_u64().expect("an answer");
        assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), usize::try_from(id).ok());
        left.retain(|other| *other != id);
    }
    let told = seen(&mut client, 1000);
    assert_eq!(
        (&told["begun"], &told["answered"], &told["cancelled"]),
        (&json!(300), &json!(300), &json!(0))
    );
}

#[test]
fn it_asks_half_way_whoever_can_be_asked() {
    let arguments = json!({"seconds": 0.2, "ask": true, "size": 3});
    let mut unable = ZooClient::meet("slow-answers");
    unable.shake_hands();
    assert_eq!(slow(&mut unable, 1, &arguments)["isError"], true);

    let mut client = able();
    client.call(1, "slow", &arguments);
    let question = client.json();
    assert_eq!(question["method"], "elicitation/create");
    let said = json!({"action": "accept", "content": {"name": "Ada"}});
    client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": said}));
    let content = client.answer(1)["result"]["content"].take();
    assert_eq!(content[0]["text"], "000");
    assert_eq!(serde_json::from_str::<Value>(content[1]["text"].as_str().expect("a text")).ok(), Some(said));

    // Cancelled while it waits for its answer, it is over at once.
    client.call(2, "slow", &arguments);
    assert_eq!(client.json()["method"], "elicitation/create");
    client.notify("notifications/cancelled", &json!({"requestId": 2}));
    wait_until("the cancellation is counted", || (seen(&mut client, 9)["cancelled"] == 1).then_some(()));
}

#[test]
fn without_a_handshake_it_asks_by_its_answer() {
    let mut client = ZooClient::meet("slow-answers");
    let mut params = json!({"name": "slow", "arguments": {"seconds": 0.1, "ask": true}});
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    client.request(1, "tools/call", &params);
    let question = client.answer(1)["result"].take();
    assert_eq!(question["resultType"], "input_required");
    let said = json!({"action": "accept", "content": {"name": "Ada"}});
    params["inputResponses"] = json!({"question": said});
    client.request(2, "tools/call", &params);
    let answer = client.answer(2)["result"].take();
    assert_eq!((&answer["resultType"], &answer["isError"]), (&json!("complete"), &json!(false)));
    params["arguments"] = json!({});
    params["name"] = json!("seen");
    client.request(3, "tools/call", &params);
    let told = client.answer(3)["result"]["content"][0]["text"].take();
    let told: Value = serde_json::from_str(told.as_str().expect("a text")).expect("JSON");
    assert_eq!((&told["begun"], &told["answered"]), (&json!(1), &json!(1)), "two rounds are one call");
}

#[test]
fn a_call_of_the_server_that_works_on_one_at_a_time_blocks_all_others() {
    let mut client = ZooClient::meet("one-at-a-time");
    client.shake_hands();
    client.call(1, "work", &json!({"ms": 200}));
    client.call(2, "seen", &json!({}));
    assert_eq!(client.json()["method"], "roots/list");
    assert_eq!(client.json()["id"], 1, "the other call waits");
    assert_eq!(client.json()["id"], 2);
}
