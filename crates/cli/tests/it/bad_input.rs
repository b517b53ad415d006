//! Bad input in either direction: a clear error to whoever is waiting, the stream goes on, nothing is lost and nothing is
//! guessed.

use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox, wait_until},
    talk::{assert_fault, code, lines_of, text_of},
};

/// Sends bytes and a line end in the middle of a session. Demands one error with this code and id, that the server saw
/// none of it, and that the session goes on.
#[track_caller]
fn is_refused(bytes: &[u8], code: i64, id: &Value) {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--max-message", "64KiB"], &["well-behaved"]);
    client.initialize();
    client.write(bytes).expect("written");
    client.send("");
    let answer = client.find("an answer", |message| message.get("method").is_none());
    let error = assert_fault(&answer, code);
    assert_eq!(answer["id"], *id, "{answer}");
    assert!(answer.as_object().is_some_and(|members| members.contains_key("id")), "{answer}");
    assert!(error["data"]["hint"].as_str().is_some_and(|hint| hint.contains("send")), "{error}");
    assert_eq!(client.state()["calls"], 1, "the server saw only the question for its state");
    let answers = client.seen().len();
    assert_eq!(answers, 3, "{:?}", client.seen());
    client.end(&[]);
}

macro_rules! each_line {
    ($($test:ident: $bytes:expr => $code:ident, $id:expr;)+) => {
        $(#[test] fn $test() { is_refused(&$bytes[..], code::$code, &json!($id)); })+
    };
}

each_line! {
    garbage: b"hello there" => PARSE_ERROR, Value::Null;
    half_a_message: br#"{"jsonrpc":"2.0","id":90,"method":"pi"# => PARSE_ERROR, 90;
    invalid_utf8: b"{\"jsonrpc\":\"2.0\",\"id\":90,\"method\":\"ping\",\"params\":{\"x\":\"\xE9\"}}" => PARSE_ERROR, 90;
    a_number: b"42" => INVALID_REQUEST, Value::Null;
    a_text: b"\"ping\"" => INVALID_REQUEST, Value::Null;
    an_empty_object: b"{}" => INVALID_REQUEST, Value::Null;
    an_empty_array: b"[]" => INVALID_REQUEST, Value::Null;
    a_wrong_version: br#"{"jsonrpc":"1.0","id":90,"method":"ping"}"# => INVALID_REQUEST, 90;
    a_version_that_is_a_number: br#"{"jsonrpc":2.0,"id":90,"method":"ping"}"# => INVALID_REQUEST, 90;
    a_missing_version: br#"{"id":90,"method":"ping"}"# => INVALID_REQUEST, 90;
    a_null_id: br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"# => INVALID_REQUEST, Value::Null;
    a_fraction_as_id: br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"# => INVALID_REQUEST, 1.5;
    a_list_as_id: br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"# => INVALID_REQUEST, Value::Null;
    two_ids: br#"{"jsonrpc":"2.0","id":90,"id":91,"method":"ping"}"# => INVALID_REQUEST, Value::Null;
    two_methods: br#"{"jsonrpc":"2.0","id":90,"method":"ping","method":"tools/list"}"# => INVALID_REQUEST, 90;
    a_method_that_is_no_text: br#"{"jsonrpc":"2.0","id":90,"method":7}"# => INVALID_REQUEST, 90;
    parameters_that_are_text: br#"{"jsonrpc":"2.0","id":90,"method":"ping","params":"x"}"# => INVALID_REQUEST, 90;
    a_method_and_a_result: br#"{"jsonrpc":"2.0","id":90,"method":"ping","result":{}}"# => INVALID_REQUEST, 90;
    a_request_without_a_method: br#"{"jsonrpc":"2.0","id":90,"params":{}}"# => INVALID_REQUEST, 90;
    a_batch_outside_its_revision: br#"[{"jsonrpc":"2.0","id":90,"method":"ping"}]"# => INVALID_REQUEST, Value::Null;
    an_oversized_request: oversized(r#"{"jsonrpc":"2.0","id":90,"method":"tools/call","params":{"x":""#, r#""}}"#) => TOO_LARGE, 90;
    an_oversized_request_with_its_id_last: oversized(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"x":""#, r#""},"id":"z"}"#) => TOO_LARGE, "z";
    an_oversized_line_of_nothing: oversized("", "") => TOO_LARGE, Value::Null;
}

fn oversized(before: &str, after: &str) -> Vec<u8> {
    format!("{before}{}{after}", "x".repeat(200_000)).into_bytes()
}

/// Sends bytes that are owed no answer, and demands that none comes and the session goes on.
#[track_caller]
fn is_ignored(bytes: &[u8]) {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.write(bytes).expect("written");
    client.round_trip();
    assert_eq!(client.seen().len(), 2, "{:?}", client.seen());
    client.end(&[]);
}

#[test]
fn blank_lines_are_ignored() {
    is_ignored(b"\n \n\r\n\t\r\n");
}

#[test]
fn an_answer_that_nobody_asked_for_is_ignored() {
    is_ignored(b"{\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":1,\"message\":\"m\"}}\n");
}

#[test]
fn a_notification_as_deep_as_100_000_levels_is_no_danger() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    is_ignored(format!("{deep}\n").as_bytes());
}

#[test]
fn line_ends_marks_and_glue_of_a_client_are_tolerated() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.write(b"\xEF\xBB\xBF").expect("written");
    client.initialize();
    let echo = |id: i64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{id}"}}}}}}"#
        )
    };
    client.write(format!("{}\r\n", echo(80)).as_bytes()).expect("written");
    client.write(format!("{}{}\n", echo(81), echo(82)).as_bytes()).expect("written");
    for id in 80..83 {
        assert_eq!(text_of(&client.answer(id)), id.to_string());
    }
    client.end(&[]);
}

#[test]
fn what_stands_behind_a_message_is_refused_and_the_message_is_not() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.send(r#"{"jsonrpc":"2.0","id":80,"method":"ping"}}"#);
    client.fault(Value::Null, code::PARSE_ERROR);
    assert_eq!(client.answer(80)["result"], json!({}));
    client.end(&[]);
}

#[test]
fn a_last_message_without_its_line_end_is_a_message() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.write(br#"{"jsonrpc":"2.0","id":80,"method":"tools/call","params":{"name":"echo","arguments":{"text":"last"}}}"#).expect("written");
    client.close_stdin();
    assert_eq!(text_of(&client.answer(80)), "last");
    assert_eq!(client.exit_code(), 0);
}

#[test]
fn half_a_last_message_is_refused() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.write(br#"{"jsonrpc":"2.0","id":80,"method":"tools/c"#).expect("written");
    client.close_stdin();
    // Its id stands in the half that came.
    client.fault(80, code::PARSE_ERROR);
    assert_eq!(client.exit_code(), 0);
}

#[test]
fn a_line_in_pieces_is_one_line() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let line = r#"{"jsonrpc":"2.0","id":80,"method":"tools/call","params":{"name":"echo","arguments":{"text":"ü in pieces"}}}"#;
    for byte in format!("{line}\n").as_bytes() {
        client.write(std::slice::from_ref(byte)).expect("written");
    }
    assert_eq!(text_of(&client.answer(80)), "ü in pieces");
    client.end(&[]);
}

#[test]
fn a_repeated_id_is_refused_and_the_first_is_still_answered() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let sleep =
        r#"{"jsonrpc":"2.0","id":80,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":500}}}"#;
    client.write(format!("{sleep}\n{sleep}\n").as_bytes()).expect("written");
    client.fault(80, code::INVALID_REQUEST);
    assert_eq!(text_of(&client.answer(80)), "slept 500 ms");
    // Of another type it is another id, and once answered it is free again.
    client.write(format!("{}\n{sleep}\n", sleep.replace("80", "\"80\"")).as_bytes()).expect("written");
    assert_eq!(text_of(&client.answer("80")), "slept 500 ms");
    client.end(&[]);
    assert_eq!((client.answers_to(80), client.answers_to("80")), (3, 1));
}

#[test]
fn an_unknown_method_is_for_the_server_to_judge() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let id = client.request("no/such/method", json!({}));
    assert_eq!(
        client.answer(id)["error"],
        json!({"code": -32601, "message": "Method not found: no/such/method"})
    );
    client.end(&[]);
}

#[test]
fn garbage_before_the_handshake_does_not_spoil_it() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.send("GET / HTTP/1.1");
    client.send("");
    client.fault(Value::Null, code::PARSE_ERROR);
    client.initialize();
    client.round_trip();
    client.end(&[]);
}

/// What the error says about a server's bad answer, and that the bad line is shown with it.
#[track_caller]
fn is_told_why(faulty_server: &str, why: &str, shown: &str) {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--name", "program"], &[faulty_server]);
    client.initialize();
    let id = client.call("echo", json!({"text": "payload"}));
    let error = client.fault(id, code::BAD_RESPONSE);
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("`program`") && message.to_lowercase().contains(why), "{message}");
    assert!(lines_of(&error, "junk").iter().any(|line| line.contains(shown)), "{error}");
    // The server is not blamed for more than this one answer.
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["result"]["tools"].is_array());
    client.end(&[]);
}

#[test]
fn a_server_without_a_version() {
    is_told_why("no-jsonrpc", "jsonrpc", "payload");
}

#[test]
fn a_server_of_another_version() {
    is_told_why("wrong-version", "jsonrpc", "1.0");
}

#[test]
fn l_45_a_server_without_an_outcome() {
    is_told_why("no-outcome", "neither", "jsonrpc");
}

#[test]
fn a_server_with_both_outcomes() {
    is_told_why("both-outcomes", "both", "it also failed");
}

#[test]
fn a_server_with_a_null_id() {
    is_told_why("null-id", "id", "payload");
}

#[test]
fn a_server_with_invalid_utf8() {
    is_told_why("invalid-utf8", "utf-8", "caf");
}

#[test]
fn a_null_id_is_not_guessed_where_two_wait() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["null-id"]);
    client.initialize();
    let call = |id: i64| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#)
    };
    client.write(format!("{}\n{}\n", call(51), call(52)).as_bytes()).expect("written");
    client.fault(51, code::DEADLINE);
    client.fault(52, code::DEADLINE);
    client.end(&[]);
}

#[test]
fn a_bad_answer_of_the_client_is_an_error_for_the_server() {
    for (bad, expect) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"m"}}"#, "both"),
        (r#"{"jsonrpc":"1.0","id":ID,"result":{}}"#, "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":ID}"#, "neither"),
        (r#"{"jsonrpc":"2.0","id":ID,"error":"no object"}"#, "error"),
    ] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&[], &["well-behaved"]);
        client.initialize();
        let id = client.call("ask", json!({"method": "sampling/createMessage"}));
        let question = client.find("a question", |message| message["method"] == "sampling/createMessage");
        client.send(&bad.replace("ID", &question["id"].to_string()));
        let received: Value = serde_json::from_str(&text_of(&client.answer(id))).expect("JSON");
        assert_eq!(received["code"], code::BAD_RESPONSE, "{received}");
        assert!(
            received["message"].as_str().is_some_and(|text| text.to_lowercase().contains(expect)),
            "{received}"
        );
        client.end(&[]);
    }
}

#[test]
fn a_missing_program_is_named_with_the_folders_searched() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", "no-such-program-anywhere", "--flag"]);
    let mut client = Client::start(command);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25"}));
    let error = client.fault(id, code::START_FAILED);
    let message = error["message"].as_str().expect("a message");
    for words in ["no-such-program-anywhere", "/usr/local/bin", "/usr/bin", "/bin"] {
        assert!(message.contains(words), "{words} is not in {message}");
    }
    assert_eq!(client.exit_code(), 3);
    client.assert_answered_once(&[]);
    assert!(client.stderr().contains("no-such-program-anywhere"));
}

#[test]
fn a_file_that_cannot_be_run_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("plain.txt"), "no program").expect("written");
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", "./plain.txt"]);
    let mut client = Client::start(command);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25"}));
    let error = client.fault(id, code::START_FAILED);
    let message = error["message"].as_str().expect("a message").to_lowercase();
    assert!(message.contains("plain.txt") && message.contains("permission denied"), "{message}");
    assert_eq!(client.exit_code(), 3);
}

/// Wrong usage: exit code 2, nothing on stdout, and these words on stderr.
#[track_caller]
fn is_wrong_usage(arguments: &[&str], words: &[&str]) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(arguments);
    let mut client = Client::start(command);
    assert_eq!(client.exit_code(), 2, "{arguments:?}");
    client.drain();
    assert!(client.seen().is_empty());
    wait_until(&format!("{words:?} for {arguments:?}"), crate::harness::PATIENCE, || {
        words.iter().all(|word| client.stderr().contains(word))
    });
}

#[test]
fn wrong_flags_are_answered_with_a_suggestion() {
    is_wrong_usage(&["wrap", "--call-timout", "5s", "--", "true"], &["--call-timout", "--call-timeout"]);
    is_wrong_usage(&["wrap", "--call-timeout", "90", "--", "true"], &["--call-timeout", "90s"]);
    is_wrong_usage(&["wrap", "--max-message", "16", "--", "true"], &["--max-message", "16MiB"]);
    is_wrong_usage(&["wrap", "--max-in-flight", "0", "--", "true"], &["--max-in-flight"]);
    is_wrong_usage(&["wrop", "--", "true"], &["wrop", "wrap"]);
    is_wrong_usage(&["wrap"], &["<CMD>"]);
    is_wrong_usage(&["zoo", "no-such-program"], &["no-such-program", "--list"]);
}

/// The faulty servers, clients, jobs and helpers of the tests are in the lab.
#[test]
fn the_product_has_no_test_material_but_the_servers_of_the_demonstration() {
    for name in ["answers-twice", "deaf-flood", "http-well-behaved", "batches", "slow", "naive-pump", "hops"]
    {
        is_wrong_usage(&["zoo", name], &[name, "--list"]);
    }
    is_wrong_usage(&["zoo", "--page"], &["--page", "--list"]);
}

/// Every limit of design 3 is a flag and a variable: both are known, and both refuse what is no value.
#[test]
fn every_limit_is_a_flag_and_a_variable() {
    for limit in [
        "start-timeout",
        "request-timeout",
        "call-timeout",
        "eof-grace",
        "stop-grace",
        "max-message",
        "max-in-flight",
        "queue-bytes",
        "restart-delay",
        "breaker-failures",
        "breaker-cooldown",
        "health-interval",
        "stderr-tail",
        "stderr-log",
    ] {
        let flag = format!("--{limit}");
        is_wrong_usage(&["wrap", &flag, "nonsense", "--", "true"], &["nonsense", &flag]);
        let sandbox = Sandbox::new();
        let mut command = sandbox.unhang();
        command.args(["wrap", "--", "true"]);
        command.env(format!("UNHANG_{}", limit.replace('-', "_").to_uppercase()), "nonsense");
        assert_eq!(Client::start(command).exit_code(), 2, "{limit}");
    }
}

#[test]
fn a_wrong_value_in_the_environment_is_wrong_usage_too() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.wrap_command(&[], &["well-behaved"]);
    command.env("UNHANG_CALL_TIMEOUT", "soon");
    let mut client = Client::start(command);
    assert_eq!(client.exit_code(), 2);
    wait_until("the reason", crate::harness::PATIENCE, || client.stderr().contains("soon"));
}
