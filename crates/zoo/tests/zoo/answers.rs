//! The vices that show in how a call is answered: one table, one line for each.

use serde_json::{Value, json};

use crate::zoo_client::{self, ZooClient};

const CALL: u64 = 7;
const PING: u64 = 99;

/// Calls `echo`, then pings, and returns all lines from the call to the line with the ping's answer, without that one.
fn lines_of_a_call(faulty_server: &str) -> (Vec<String>, ZooClient) {
    let mut client = ZooClient::meet(faulty_server);
    client.shake_hands_quietly();
    client.call(CALL, "echo", &json!({"text": "hello"}));
    client.request(PING, "ping", &json!({}));
    let mut lines = Vec::new();
    loop {
        let line = client.line().expect("the ping is answered");
        let text = String::from_utf8_lossy(&line).into_owned();
        if text.contains(&format!("\"id\":{PING}")) {
            return (lines, client);
        }
        lines.push(text);
    }
}

impl ZooClient {
    /// The handshake for faulty servers whose answers are no plain JSON lines.
    fn shake_hands_quietly(&mut self) {
        self.request(0, "initialize", &zoo_client::introduction());
        while !self.line().is_some_and(|line| String::from_utf8_lossy(&line).contains("\"protocolVersion\""))
        {
        }
        self.notify("notifications/initialized", &json!({}));
    }
}

/// Checks what one call brought; a final honest answer is checked by `honest`.
fn check(faulty_server: &str, expect: impl FnOnce(&[String]) -> bool) {
    let (lines, mut client) = lines_of_a_call(faulty_server);
    let shown: Vec<_> = lines.iter().map(|line| line.chars().take(200).collect::<String>()).collect();
    assert!(expect(&lines), "{faulty_server}: {} lines: {:?}", lines.len(), &shown[..shown.len().min(5)]);
    client.close_stdin();
    assert!(client.end().success(), "{faulty_server} ends well at the end of stdin");
}

/// Checks the one line that a call brought, as JSON.
fn check_message(faulty_server: &str, expect: impl FnOnce(&Value) -> bool) {
    check(faulty_server, |lines| {
        let [line] = lines else { return false };
        expect(&serde_json::from_str(line).expect("the line is JSON"))
    });
}

fn honest(line: &str) -> bool {
    serde_json::from_str::<Value>(line)
        .is_ok_and(|answer| answer["id"] == CALL && answer["result"]["content"][0]["text"] == "hello")
}

/// Whether there are `count` lines with `word` and then an honest answer.
fn preceded_by(lines: &[String], count: usize, word: &str) -> bool {
    matches!(lines, [before @ .., last] if before.len() == count && before.iter().all(|line| line.contains(word)) && honest(last))
}

#[test]
fn identities() {
    check("answers-twice", |lines| matches!(lines, [one, two] if one == two && honest(one)));
    check_message("wrong-id", |answer| answer["id"].is_u64() && answer["id"] != CALL);
    check_message("string-id", |answer| answer["id"] == "7");
    check_message("null-id", |answer| answer.get("id") == Some(&Value::Null) && answer["result"].is_object());
    check_message("no-jsonrpc", |answer| answer.get("jsonrpc").is_none() && answer["id"] == CALL);
    check_message("wrong-version", |answer| answer["jsonrpc"] == "1.0" && answer["id"] == CALL);
}

#[test]
fn outcomes() {
    check(
        "nan-result",
        |lines| matches!(lines, [line] if line.contains(&format!("\"id\":{CALL}")) && line.contains("NaN")),
    );
    check_message("no-outcome", |answer| answer.get("result").or(answer.get("error")).is_none());
    check_message("both-outcomes", |answer| answer["result"].is_object() && answer["error"].is_object());
    check_message("server-error", |answer| {
        answer["error"]["code"] == -32603 && answer["error"]["data"].is_object()
    });
    check_message("steers-terminal", |answer| {
        answer["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("\u{1b}]52;"))
    });
    check_message("announces-lists", |answer| answer["result"].is_object());
    check_message("changes-lists", |answer| answer["error"]["code"] == -32602);
    check_message("remembers", |answer| answer["result"].is_object());
    check_message("batch-answers", |answer| answer[0]["id"] == CALL);
    check("never-answers echo", |lines| lines.is_empty());
    check("never-answers other", |lines| matches!(lines, [line] if honest(line)));
    check("answers-after-cancel", |lines| lines.is_empty());
    check("asks-late", |lines| lines.is_empty());
}

#[test]
fn framing() {
    check(
        "glued-text",
        |lines| matches!(lines, [line] if line.strip_prefix("loading... ").is_some_and(honest)),
    );
    check("many-on-a-line", |lines| {
        let [line] = lines else { return false };
        let messages: Vec<Value> =
            serde_json::Deserializer::from_str(line).into_iter().filter_map(Result::ok).collect();
        messages.len() == 2 && messages[1]["id"] == CALL
    });
    check("crlf", |lines| matches!(lines, [line] if line.ends_with("}\r\n")));
    check("stdout-noise", |lines| {
        let texts = |word| lines.iter().any(|line| line.contains(word));
        lines.iter().any(|line| honest(line))
            && texts("\u{1b}[32m")
            && texts("not json")
            && lines.iter().any(|line| line == "\n")
    });
    check("invalid-utf8", |lines| matches!(lines, [line] if line.contains("caf\u{fffd}")));
    check("slow-writer", |lines| matches!(lines, [line] if honest(line)));
    check(
        "nested-deep 500",
        |lines| matches!(lines, [line] if line.contains(&"[".repeat(500)) && line.ends_with("}}\n")),
    );
}

#[test]
fn sizes_and_floods() {
    check("giant-answer 300000", |lines| matches!(lines, [line] if line.len() > 300_000));
    check(
        "giant-line-no-newline 300000",
        |lines| matches!(lines, [letters, answer] if letters.len() == 300_001 && honest(answer)),
    );
    check("notification-flood 50", |lines| preceded_by(lines, 50, "notifications/message"));
    check("progress-flood 50", |lines| preceded_by(lines, 50, "\"progressToken\":7"));
    check("floods-requests-to-client 50", |lines| preceded_by(lines, 50, "\"id\":\"flood-"));
    check("json-logs 50", |lines| preceded_by(lines, 50, "\"level\""));
    check(
        "notification-before-each-answer",
        |lines| matches!(lines, [note, answer, note_of_ping] if note == note_of_ping && note.contains("notifications/message") && honest(answer)),
    );
}

#[test]
fn a_byte_order_mark_begins_crlf() {
    let mut client = ZooClient::meet("crlf");
    client.request(0, "initialize", &zoo_client::introduction());
    assert!(client.line().expect("an answer").starts_with(b"\xEF\xBB\xBF{"));
}

#[test]
fn two_responses_share_a_line() {
    let mut client = ZooClient::meet("many-on-a-line");
    client.shake_hands();
    client.call(1, "held", &json!({}));
    client.call(2, "echo", &json!({}));
    let line = client.line().expect("an answer");
    let ids: Vec<Value> = serde_json::Deserializer::from_slice(&line)
        .into_iter::<Value>()
        .filter_map(Result::ok)
        .map(|message| message["id"].clone())
        .collect();
    assert_eq!(ids, [json!(1), json!(2)]);
}

#[test]
fn stderr_is_flooded_before_the_answer() {
    for (faulty_server, line_ends) in [("stderr-flood 300000", 3000), ("stderr-giant-line 300000", 0)] {
        let (lines, mut client) = lines_of_a_call(faulty_server);
        assert!(matches!(&lines[..], [line] if honest(line)), "{faulty_server}");
        client.close_stdin();
        client.end();
        let words = client.last_words();
        assert_eq!((words.len(), words.matches('\n').count()), (300_000, line_ends), "{faulty_server}");
    }
}

#[test]
fn half_a_line_comes_and_nothing_more() {
    let mut client = ZooClient::meet("half-line");
    client.shake_hands();
    client.call(CALL, "echo", &json!({}));
    client.request(PING, "ping", &json!({}));
    client.close_stdin();
    assert!(client.end().success());
    let half = client.line().expect("half a line");
    assert!(half.starts_with(b"{") && !half.ends_with(b"\n"));
    assert!(client.line().is_none());
}

#[test]
fn the_client_is_asked_during_a_call() {
    let mut client = ZooClient::meet("requests-to-client");
    client.shake_hands();
    client.call(CALL, "echo", &json!({}));
    let mut methods = Vec::new();
    while methods.len() < 4 {
        let question = client.json();
        methods.push(question["method"].as_str().expect("a request").to_owned());
        client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {}}));
    }
    assert_eq!(methods, ["sampling/createMessage", "elicitation/create", "roots/list", "ping"]);
    assert_eq!(client.answer(CALL)["result"]["content"][0]["text"], "the client answered 4 questions");
}

#[test]
fn cancellation_is_handled_badly() {
    let mut late = ZooClient::meet("answers-after-cancel");
    late.shake_hands();
    late.call(CALL, "echo", &json!({}));
    late.notify("notifications/cancelled", &json!({"requestId": CALL}));
    assert_eq!(late.json()["id"], CALL);

    let mut talker = ZooClient::meet("progress-after-cancel");
    talker.shake_hands();
    talker.call(CALL, "echo", &json!({"text": "x"}));
    talker.notify("notifications/cancelled", &json!({"requestId": CALL}));
    talker.request(PING, "ping", &json!({}));
    talker.answer(PING);
    let last =
        (0..).map(|_| talker.json()).find(|note| note["params"]["progress"] == 10).expect("progress goes on");
    assert_eq!(last["method"], "notifications/progress");
    talker.call(8, "echo", &json!({"text": "x"}));
    assert_eq!(talker.answer(8)["result"]["content"][0]["text"], "x");
    assert!(!talker.has_line(), "the cancelled call is not answered");
}

#[test]
fn a_busy_server_delays_even_pings() {
    for text in ["sleep", "burn"] {
        let mut client = ZooClient::meet("busy-not-hung 300");
        client.shake_hands();
        let start = zoo_client::now();
        client.call(CALL, "echo", &json!({"text": text}));
        client.request(PING, "ping", &json!({}));
        assert_eq!(client.json()["id"], CALL);
        assert!(start.elapsed().as_millis() >= 300);
        assert_eq!(client.json()["id"], PING);
    }
}
