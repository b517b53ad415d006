//! Promise 2: only whole, valid, one-line JSON-RPC messages reach the client, and what was filtered is kept, counted and
//! shown. The harness itself demands of every line in every test that it is one.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox, lab_program},
    talk::{code, lines_of, text_of},
};

/// The count of one thing in the last line of the log.
#[track_caller]
fn counted(sandbox: &Sandbox, what: &str) -> u64 {
    let log = sandbox.log();
    let (_, counters) = log.rsplit_once("Counters").unwrap_or_else(|| panic!("no counters in {log}"));
    let (_, rest) =
        counters.split_once(&format!(" {what}: ")).unwrap_or_else(|| panic!("no {what} in {counters}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Calls `echo` three times and demands that the client sees the answers and nothing else.
#[track_caller]
fn sees_only_answers(sandbox: &Sandbox, client: &mut Client) {
    client.initialize();
    for text in ["one", "two", "three"] {
        assert_eq!(client.tool_text("echo", json!({"text": text})), text);
    }
    client.end(&[]);
    let others: Vec<&Value> = client.seen().iter().filter(|message| message["result"].is_null()).collect();
    assert!(others.is_empty(), "{others:?}; log: {}", sandbox.log());
}

#[test]
fn text_between_the_messages_is_filtered_counted_and_shown() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["stdout-noise"]);
    sees_only_answers(&sandbox, &mut client);
    // One greeting, and three lines that are not blank with each of the five answers. One of these is the list that the guard requests.
    assert_eq!(counted(&sandbox, "junk"), 16);
    for text in ["Starting server on stdio", "not json: at all", "100%|###"] {
        assert!(client.stderr().contains(text), "{}", client.stderr());
        assert!(sandbox.log().contains(text), "{}", sandbox.log());
    }
    assert!(!client.stderr().contains('\u{1b}'), "a terminal must not be steered by it");
}

#[test]
fn json_that_is_no_message_is_filtered() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["json-logs", "500"]);
    sees_only_answers(&sandbox, &mut client);
    assert_eq!(counted(&sandbox, "junk"), 1500);
    assert!(client.stderr().contains("a structured log line on the wrong stream"));
}

#[test]
fn text_glued_in_front_is_cut_off_and_counted() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["glued-text"]);
    sees_only_answers(&sandbox, &mut client);
    assert_eq!(
        counted(&sandbox, "junk"),
        5,
        "the answers to the handshake, to the guard's list and to three calls"
    );
    assert!(client.stderr().contains("loading..."));
}

#[test]
fn line_ends_and_marks_of_windows_do_not_reach_the_client() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["crlf"]);
    sees_only_answers(&sandbox, &mut client);
    assert_eq!(counted(&sandbox, "junk"), 0);
}

#[test]
fn two_messages_on_a_line_become_two_lines() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["many-on-a-line"]);
    client.initialize();
    let (held, echo) = (client.call("held", json!({})), client.call("echo", json!({"text": "second"})));
    assert_eq!(text_of(&client.answer(held)), "`held` was called");
    assert_eq!(text_of(&client.answer(echo)), "second");
    client.end(&[]);
}

#[test]
fn arrays_become_lines() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["batch-answers"]);
    sees_only_answers(&sandbox, &mut client);
    assert!(client.seen().iter().all(Value::is_object));
}

#[test]
fn a_second_answer_is_filtered_and_counted() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["answers-twice"]);
    sees_only_answers(&sandbox, &mut client);
    assert_eq!(counted(&sandbox, "unknown_ids"), 3);
}

#[test]
fn x_13_an_answer_to_nobody_is_never_handed_to_a_caller() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["wrong-id"]);
    client.initialize();
    let id = client.call("echo", json!({"text": "mine"}));
    let error = client.fault(id, code::DEADLINE);
    // It is shown to whoever waited in vain: most likely it was meant for them.
    assert!(
        lines_of(&error, "junk").iter().any(|line| line.contains("987654321") && line.contains("mine")),
        "{error}"
    );
    client.end(&[]);
    assert_eq!(counted(&sandbox, "unknown_ids"), 1);
    assert!(client.stderr().contains("987654321"));
}

#[test]
fn an_id_of_the_other_type_is_put_right_and_counted() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["string-id"]);
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "number"})), "number");
    client.send(r#"{"jsonrpc":"2.0","id":"4711","method":"tools/call","params":{"name":"echo","arguments":{"text":"text"}}}"#);
    assert_eq!(text_of(&client.answer("4711")), "text");
    client.end(&[]);
    assert_eq!(counted(&sandbox, "repaired_ids"), 2);
}

#[test]
fn ids_of_the_other_type_are_put_right_while_several_wait() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["string-id"]);
    client.initialize();
    let call = |id: i64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{id}"}}}}}}"#
        )
    };
    // Written at once, so that both wait when the first answer comes.
    client.write(format!("{}\n{}\n", call(51), call(52)).as_bytes()).expect("written");
    for id in [51, 52] {
        assert_eq!(text_of(&client.answer(id)), id.to_string());
    }
    client.end(&[]);
    assert_eq!(counted(&sandbox, "repaired_ids"), 2);
}

#[test]
fn what_is_filtered_is_in_the_next_error() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["both-outcomes"]);
    client.initialize();
    let id = client.call("echo", json!({"text": "twofold"}));
    let error = client.fault(id, code::BAD_RESPONSE);
    let junk = lines_of(&error, "junk");
    assert!(junk.iter().any(|line| line.contains("twofold") && line.contains("it also failed")), "{error}");
    client.end(&[]);
}

#[test]
fn progress_that_nobody_waits_for_is_dropped_and_counted() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["progress-after-cancel"]);
    client.initialize();
    let cancelled = client.request("tools/call", json!({"name": "echo", "_meta": {"progressToken": 1}}));
    client.cancel(cancelled);
    let other = client.call("echo", json!({}));
    client.answer(other);
    client.end(&[cancelled]);
    assert!(counted(&sandbox, "dropped_notifications") > 0, "{}", sandbox.log());
    let progress = client.seen().iter().filter(|message| message["params"]["progressToken"] == 1).count();
    assert_eq!(progress, 0);
}

#[test]
fn g_13_quiet_keeps_notifications_back_while_a_call_runs() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--quiet"], &["well-behaved"]);
    client.initialize();
    let log = client.call("log", json!({"count": 5}));
    client.answer(log);
    let changed = client.call("notify-list-changed", json!({}));
    client.answer(changed);
    let notifications =
        |client: &Client| client.seen().iter().filter(|message| message["id"].is_null()).count();
    assert_eq!(notifications(&client), 0);
    // A change is still worth knowing afterwards; a log message is not.
    client.round_trip();
    assert_eq!(notifications(&client), 3, "{:?}", client.seen());
    client.end(&[]);
}

#[test]
fn errors_of_the_server_are_not_touched() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["server-error"]);
    client.initialize();
    let id = client.call("echo", json!({}));
    let error = client.answer(id)["error"].clone();
    let expect = json!({"code": -32603, "message": "Internal error", "data": {"detail": "the database is locked", "retryable": false}});
    assert_eq!(error, expect);
    client.end(&[]);
}

#[test]
fn depth_is_no_obstacle() {
    let sandbox = Sandbox::new();
    // Deeper than any parser that recurses, ours included, could follow (2 MiB stacks end at some 20,000 levels).
    let mut command = between_tees(&sandbox, &["nested-deep", "100000"]);
    let (mut client, stdout) = Client::start_unread({
        command.stderr(std::process::Stdio::piped());
        command
    });
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#);
    let mut reader = std::io::BufReader::new(stdout);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).expect("a line");
    assert!(line.starts_with(r#"{"jsonrpc":"2.0","id":1,"result":"#) && line.len() > 200_000, "{line:.300}");
    client.finish();
}

/// `tee … -- unhang wrap -- tee … -- faulty server`: what stands on either side of the guard is kept in four files.
fn between_tees(sandbox: &Sandbox, faulty_server: &[&str]) -> Command {
    let (unhang, lab) = (env!("CARGO_BIN_EXE_unhang"), lab_program());
    let mut command = sandbox.lab();
    command.args(["zoo", "tee", "client-said", "client-heard", "--", unhang, "wrap", "--", lab]);
    command.args(["zoo", "tee", "server-heard", "server-said", "--", lab, "zoo"]).args(faulty_server);
    command
}

#[test]
fn every_byte_of_a_message_passes_as_it_was() {
    for (promotion, changed) in [("off", &[][..]), ("by-clock", &[1, 49])] {
        let sandbox = Sandbox::new();
        let mut command = between_tees(&sandbox, &["well-behaved"]);
        command.env("UNHANG_PROMOTE_AFTER", promotion);
        let mut client = Client::start(command);
        client.initialize();
        // A client that lists the tools before it calls one, so the guard has nothing to ask.
        client.send(r#"{"jsonrpc":"2.0","id":49,"method":"tools/list","params":{}}"#);
        client.answer(49);
        // Spaces, escapes, large numbers, unknown and repeated members of the payload: nothing that a typed model would keep.
        for line in [
            r#"{ "jsonrpc" : "2.0", "id": 50, "method":"tools\/call", "params":{"name":"echo","arguments":{"text":"\u00fc \ud83d\ude00 ü/\/"},"x":1,"x":2} , "unknown": [1e300, 12345678901234567890123, -0.0, 1.10] }"#,
            r#"{"id":51,"params":{"_meta":{"a/b":{}},"name":"echo","arguments":{"text":"order of members","more":null}},"method":"tools/call","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/unknown","params":[1e400,{"a":[[]]}]}"#,
            r#"{"jsonrpc":"2.0","id":52,"method":"prompts/list","params":{}}"#,
        ] {
            client.send(line);
        }
        client.answer(52);
        client.tool_text("big", json!({"bytes": 300_000}));
        client.end(&[]);
        let read = |name: &str| fs::read_to_string(sandbox.path().join(name)).expect("the tee kept it");
        assert_eq!(read("client-said"), read("server-heard"));
        let (said, received) = (read("server-said"), read("client-heard"));
        assert_eq!(said.lines().count(), received.lines().count());
        // What is ours stands beside what the server says of itself and of its tools, and nowhere else.
        let differ = said.lines().zip(received.lines()).filter(|(said, received)| said != received);
        let ids =
            differ.map(|(_, received)| serde_json::from_str::<Value>(received).expect("JSON")["id"].clone());
        assert_eq!(ids.collect::<Vec<_>>(), changed, "{promotion}");
        assert!(received.len() > 300_000);
    }
}

#[test]
fn a_server_of_many_vices_leaves_a_clean_wire() {
    // The harness fails at the first line that is no message, whoever the server is.
    for faulty_server in [
        &["half-line-then-dies"][..],
        &["invalid-utf8"],
        &["no-jsonrpc"],
        &["wrong-version"],
        &["giant-line-no-newline", "3000000"],
    ] {
        let sandbox = Sandbox::new();
        let flags = ["--max-message", "1MiB", "--call-timeout", "5s", "--restart-delay", "50ms"];
        let mut client = sandbox.wrap(&flags, faulty_server);
        client.initialize();
        for _ in 0..3 {
            let id = client.call("echo", json!({"text": "x"}));
            client.answer(id);
        }
        client.end(&[]);
        // One that dies may be dying still when it is called again, and then says nothing.
        assert!(counted(&sandbox, "junk") >= 1, "{faulty_server:?}: {}", sandbox.log());
    }
}

#[test]
fn an_oversized_line_is_skipped_and_the_stream_goes_on() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--max-message", "64KiB"], &["well-behaved"]);
    client.initialize();
    let (large, small) =
        (client.call("big", json!({"bytes": 500_000})), client.call("echo", json!({"text": "small"})));
    let error = client.fault(large, code::TOO_LARGE);
    assert!(
        error["message"].as_str().is_some_and(|text| text.contains("500") && text.contains("65536")),
        "{error}"
    );
    assert_eq!(text_of(&client.answer(small)), "small");
    assert_eq!(client.tool_text("big", json!({"bytes": 60_000})).len(), 60_000);
    client.end(&[]);
}
