//! Promise 1: every request gets exactly one response, with its own id, before its deadline, whatever the server does.

#![expect(clippy::disallowed_methods, reason = "that an answer comes in time is the promise")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox, server_pid},
    talk::{assert_fault, code, lines_of, text_of},
};

/// Short limits for servers that will run into them.
const SHORT: &[&str] =
    &["--call-timeout", "1s", "--request-timeout", "2s", "--stop-grace", "200ms", "--restart-delay", "50ms"];

/// What a call must end in.
#[derive(Clone, Copy)]
enum Ends {
    /// The server's own answer.
    Well,
    /// An error of ours.
    In(i64),
}

/// Calls one tool of one faulty server: the outcome is the expected one, the session goes on, and no request is answered twice.
#[track_caller]
fn call_ends(more_flags: &[&str], faulty_server: &[&str], tool: &str, expect: Ends) {
    let sandbox = Sandbox::new();
    // Where something else than the deadline is to end the call, a busy machine must not let the deadline come first.
    let limits: &[&str] = match expect {
        Ends::Well => &[],
        Ends::In(code::DEADLINE) => SHORT,
        Ends::In(_) => &["--stop-grace", "200ms", "--restart-delay", "50ms"],
    };
    let mut client = sandbox.wrap(&[limits, more_flags].concat(), faulty_server);
    client.initialize();
    let id = client.call(tool, json!({"text": "hello"}));
    let answer = client.answer(id);
    match expect {
        Ends::Well => assert!(answer["error"]["data"]["origin"] != "unhang", "{answer}"),
        Ends::In(code) => {
            let error = assert_fault(&answer, code);
            assert_eq!(error["data"]["method"], "tools/call");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("tools/call")), "{error}");
        }
    }
    // Whatever became of the server, the next request is answered too.
    let id = client.request("ping", json!({}));
    client.answer(id);
    client.end(&[]);
}

macro_rules! each_program {
    ($($test:ident: $flags:expr, [$($faulty_server:expr),+], $tool:expr => $ends:expr;)+) => {
        $(#[test] fn $test() { call_ends(&$flags, &[$($faulty_server),+], $tool, $ends); })+
    };
}

const NONE: [&str; 0] = [];
const ONE_MIB: [&str; 2] = ["--max-message", "1MiB"];

each_program! {
    silence_ends_at_the_deadline: NONE, ["never-answers", "hang"], "hang" => Ends::In(code::DEADLINE);
    half_a_line_ends_at_the_deadline: NONE, ["half-line"], "echo" => Ends::In(code::DEADLINE);
    x_13_a_wrong_id_ends_at_the_deadline: NONE, ["wrong-id"], "echo" => Ends::In(code::DEADLINE);
    g_08_a_stolen_stdin_ends_at_the_deadline: NONE, ["stdin-thief"], "echo" => Ends::In(code::DEADLINE);
    a_blocked_server_ends_at_the_deadline: NONE, ["busy-not-hung", "2000"], "echo" => Ends::In(code::DEADLINE);
    a_late_answer_is_not_a_second_one: NONE, ["answers-after-cancel"], "echo" => Ends::In(code::DEADLINE);

    a_death_is_told: NONE, ["dies-every-call"], "echo" => Ends::In(code::SERVER_EXITED);
    a_death_at_the_first_request_is_told: NONE, ["exits-on-first-request"], "echo" => Ends::In(code::SERVER_EXITED);
    a_death_in_the_middle_of_a_line_is_told: NONE, ["half-line-then-dies"], "echo" => Ends::In(code::SERVER_EXITED);
    a_talkative_death_is_told: NONE, ["stderr-flood-while-dying"], "echo" => Ends::In(code::SERVER_EXITED);
    a_closed_stdout_is_told: NONE, ["closes-stdout"], "echo" => Ends::In(code::SERVER_EXITED);

    a_null_id_is_told: NONE, ["null-id"], "echo" => Ends::In(code::BAD_RESPONSE);
    a_missing_version_is_told: NONE, ["no-jsonrpc"], "echo" => Ends::In(code::BAD_RESPONSE);
    a_wrong_version_is_told: NONE, ["wrong-version"], "echo" => Ends::In(code::BAD_RESPONSE);
    a_missing_outcome_is_told: NONE, ["no-outcome"], "echo" => Ends::In(code::BAD_RESPONSE);
    both_outcomes_are_told: NONE, ["both-outcomes"], "echo" => Ends::In(code::BAD_RESPONSE);
    invalid_utf8_is_told: NONE, ["invalid-utf8"], "echo" => Ends::In(code::BAD_RESPONSE);
    a_number_that_json_has_not_is_told: NONE, ["nan-result"], "echo" => Ends::In(code::BAD_RESPONSE);
    an_answer_over_the_limit_is_told: ONE_MIB, ["giant-answer", "3000000"], "echo" => Ends::In(code::TOO_LARGE);

    two_answers_are_one: NONE, ["answers-twice"], "echo" => Ends::Well;
    an_id_of_the_other_type_is_an_answer: NONE, ["string-id"], "echo" => Ends::Well;
    text_in_front_is_an_answer: NONE, ["glued-text"], "echo" => Ends::Well;
    two_messages_on_a_line_are_two: NONE, ["many-on-a-line"], "echo" => Ends::Well;
    crlf_is_an_answer: NONE, ["crlf"], "echo" => Ends::Well;
    an_array_is_an_answer: NONE, ["batch-answers"], "echo" => Ends::Well;
    noise_hides_no_answer: NONE, ["stdout-noise"], "echo" => Ends::Well;
    json_noise_hides_no_answer: NONE, ["json-logs", "2000"], "echo" => Ends::Well;
    a_deep_answer_is_an_answer: NONE, ["nested-deep", "100"], "echo" => Ends::Well;
    ten_megabytes_are_an_answer: NONE, ["giant-answer"], "echo" => Ends::Well;
    an_answer_byte_by_byte_is_an_answer: NONE, ["slow-writer"], "echo" => Ends::Well;
    l_05_stderr_hides_no_answer: NONE, ["stderr-flood"], "echo" => Ends::Well;
    a_giant_line_on_stderr_hides_no_answer: NONE, ["stderr-giant-line"], "echo" => Ends::Well;
    a_flood_of_notifications_hides_no_answer: NONE, ["notification-flood"], "echo" => Ends::Well;
    a_notification_before_it_is_no_answer: NONE, ["notification-before-each-answer"], "echo" => Ends::Well;
    a_flood_of_questions_hides_no_answer: NONE, ["floods-requests-to-client"], "echo" => Ends::Well;
    an_error_of_the_server_is_an_answer: NONE, ["server-error"], "echo" => Ends::Well;
    a_server_that_leaves_has_answered: NONE, ["exits-zero-after-each-answer"], "echo" => Ends::Well;
    a_server_that_turns_deaf_has_answered: NONE, ["closes-stdin"], "echo" => Ends::Well;
}

#[test]
fn without_a_guard_nothing_comes() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.bare(&["never-answers", "hang"]);
    client.initialize();
    client.call("hang", json!({}));
    assert!(client.next_message(Duration::from_secs(2)).is_none(), "the vice is real");
    client.finish();
}

#[test]
fn every_kind_of_id_comes_back_as_it_was() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let ids = [
        json!(0),
        json!(-7),
        json!("7"),
        json!(7_000),
        json!("7000"),
        json!(9_007_199_254_740_993_i64),
        json!("a \"quoted\" id, an umlaut ü and a tab\t"),
        json!(""),
    ];
    // All at once, slowest first, so that numbers and texts that look alike are in flight together.
    for (position, id) in ids.iter().enumerate() {
        let milliseconds = 400 - 50 * position;
        let params = json!({"name": "sleep", "arguments": {"ms": milliseconds}});
        client
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    }
    let answers: Vec<Value> =
        (0..ids.len()).map(|_| client.find("an answer", |message| !message["result"].is_null())).collect();
    for (position, id) in ids.iter().enumerate() {
        let answer =
            answers.iter().find(|answer| answer["id"] == *id).unwrap_or_else(|| panic!("none to {id}"));
        assert_eq!(text_of(answer), format!("slept {} ms", 400 - 50 * position));
    }
    client.end(&[]);
}

#[test]
fn every_kind_of_request_is_answered_once() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let (no, uri) = (json!({}), json!({"uri": "zoo://numbers/1"}));
    let requests = [
        ("ping", &no),
        ("tools/list", &no),
        ("resources/list", &no),
        ("resources/templates/list", &no),
        ("resources/read", &uri),
        ("resources/subscribe", &uri),
        ("resources/unsubscribe", &uri),
        ("prompts/list", &no),
        ("no/such/method", &no),
        ("tools/call", &no),
        (
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "again"}}),
        ),
    ];
    for (method, params) in requests {
        client.request(method, params.clone());
    }
    let last = client.last_id();
    client.answer(last);
    client.end(&[]);
    let errors = client.seen().iter().filter(|message| !message["error"].is_null()).count();
    assert_eq!(errors, 2, "the server's own verdicts on an unknown method and an unknown tool");
}

#[test]
fn two_hundred_calls_at_once_are_each_answered_once() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    for number in 0..200 {
        client.call("sleep", json!({"ms": 100 + number % 7}));
    }
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "what is in flight is answered before the end");
    client.assert_answered_once(&[]);
    assert!(client.seen().iter().all(|message| message["error"].is_null()));
}

/// One deadline, and who set it.
#[track_caller]
fn expires(flags: &[&str], environment: &[(&str, &str)], method: &str, limit_ms: u64) {
    let sandbox = Sandbox::new();
    // A server that is stopped answers nothing at all after the handshake.
    let mut command = sandbox.wrap_command(&[&["--stop-grace", "100ms"], flags].concat(), &["stopped"]);
    command.envs(environment.iter().copied());
    let mut client = Client::start(command);
    client.initialize();
    let (start, id) = (Instant::now(), client.request(method, json!({"name": "echo", "arguments": {}})));
    let error = client.fault(id, code::DEADLINE);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(error["data"]["limitMs"], limit_ms);
    assert_eq!(error["data"]["method"], method);
    assert!(error["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed >= limit_ms), "{error}");
    // One sentence: server, what was awaited, how long, what to do.
    let message = error["message"].as_str().expect("a message");
    let words = [
        format!("`{}`", error["data"]["server"].as_str().expect("a name")),
        format!("`{method}`"),
        "within 1s".into(),
    ];
    assert!(words.iter().all(|word| message.contains(word.as_str())), "{message}");
    client.end(&[]);
}

#[test]
fn l_19_the_limit_of_a_request_is_a_flag() {
    expires(&["--request-timeout", "1s"], &[], "tools/list", 1000);
}

#[test]
fn the_limit_of_a_call_is_a_flag() {
    expires(&["--call-timeout", "1s"], &[], "tools/call", 1000);
}

#[test]
fn the_limit_of_a_request_is_in_the_environment() {
    expires(&[], &[("UNHANG_REQUEST_TIMEOUT", "1s")], "prompts/list", 1000);
}

#[test]
fn the_limit_of_a_call_is_in_the_environment() {
    expires(&[], &[("UNHANG_CALL_TIMEOUT", "1s")], "tools/call", 1000);
}

#[test]
fn a_flag_stands_before_the_environment() {
    expires(&["--call-timeout", "1s"], &[("UNHANG_CALL_TIMEOUT", "9m")], "tools/call", 1000);
}

#[test]
fn a_result_that_blocks_has_the_limit_of_a_call() {
    // Where it is the server's: of one without tasks nobody is asked for them.
    expires(&["--call-timeout", "1s", "--promote-after", "off"], &[], "tasks/result", 1000);
}

/// The shortest clock in the table is 30 s, so this is the one slow test here; it sleeps in the kernel all the while.
#[test]
fn g_06_a_client_with_a_known_clock_hears_from_us_first() {
    let sandbox = Sandbox::new();
    // Otherwise it would be a job by then.
    let flags = ["--start-timeout", "1s", "--promote-after", "off"];
    let mut client = sandbox.wrap(&flags, &["never-answers", "hang"]);
    client.initialize_as("2025-06-18", "langflow");
    let (start, id) = (Instant::now(), client.call("hang", json!({})));
    let answer = loop {
        assert!(start.elapsed() < Duration::from_secs(40), "no answer before the client's clock");
        if let Some(message) = client.next_message(Duration::from_secs(5)) {
            break message;
        }
    };
    let error = assert_fault(&answer, code::DEADLINE);
    assert_eq!((&answer["id"], &error["data"]["limitMs"]), (&json!(id), &json!(28_500)));
    assert!(error["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed < 30_000), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("langflow")), "{error}");
    client.end(&[]);
}

#[test]
fn an_own_limit_below_the_clients_clock_stays() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["never-answers", "hang"]);
    client.initialize_as("2025-06-18", "langflow");
    let id = client.call("hang", json!({}));
    assert_eq!(client.fault(id, code::DEADLINE)["data"]["limitMs"], 1000);
    client.end(&[]);
}

#[test]
fn progress_does_not_extend_a_call() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["well-behaved"]);
    client.initialize();
    let params = json!({"name": "sleep", "arguments": {"ms": 60_000}, "_meta": {"progressToken": "p"}});
    let id = client.request("tools/call", params);
    client.fault(id, code::DEADLINE);
    let progress = client.seen().iter().filter(|message| message["params"]["progressToken"] == "p").count();
    assert!(progress >= 2, "it was alive and said so: {progress}");
    // The server was told, so it stops working and has nothing to finish when its stdin ends.
    client.end(&[]);
    assert!(sandbox.log().contains("done"), "{}", sandbox.log());
}

#[test]
fn an_expired_call_is_cancelled_at_the_server_and_its_late_answer_goes_nowhere() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["answers-after-cancel"]);
    client.initialize();
    let id = client.call("echo", json!({"text": "late"}));
    client.fault(id, code::DEADLINE);
    client.round_trip();
    client.end(&[]);
    // This faulty server answers only once it has been told to stop.
    assert!(sandbox.log().contains("late_answers: 1"), "{}", sandbox.log());
}

#[test]
fn x_13_a_late_answer_is_not_taken_for_the_answer_to_the_same_id() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["busy-not-hung", "2000"]);
    client.initialize();
    let call = r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"echo","arguments":{"text":"old"}}}"#;
    client.send(call);
    client.fault(77, code::DEADLINE);
    // The server still works on the first; its answer comes before the one to the second.
    client.send(r#"{"jsonrpc":"2.0","id":77,"method":"tools/list"}"#);
    let answer = client.answer(77);
    assert!(answer["result"]["tools"].is_array(), "{answer}");
    client.end(&[]);
    assert_eq!(client.answers_to(77), 2);
}

#[test]
fn after_a_cancel_nothing_more_comes_for_that_id() {
    for faulty_server in ["well-behaved", "answers-after-cancel", "never-answers"] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&["--call-timeout", "1s"], &[faulty_server, "sleep"]);
        client.initialize();
        let id = client.call(
            if faulty_server == "answers-after-cancel" { "echo" } else { "sleep" },
            json!({"ms": 60_000}),
        );
        client.cancel(id);
        client.round_trip();
        // A call that stays silent until its deadline outlives the deadline of the one before it.
        let other = client.call("sleep", json!({"ms": 60_000}));
        client.answer(other);
        client.end(&[id]);
    }
}

#[test]
fn a_cancelled_id_may_be_used_again() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}"#);
    client.notify("notifications/cancelled", json!({"requestId": "x"}));
    client.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo","arguments":{"text":"new"}}}"#);
    assert_eq!(text_of(&client.answer("x")), "new");
    // Its own cancellation, under an id that the server knows by another name, finds it.
    client.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}"#);
    client.notify("notifications/cancelled", json!({"requestId": "x"}));
    client.end(&[]);
    assert_eq!(client.answers_to("x"), 1);
}

#[test]
fn cancelling_what_is_not_in_flight_does_no_harm() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    client.cancel(1);
    client.cancel(4711);
    client.notify("notifications/cancelled", json!({}));
    client.round_trip();
    client.end(&[]);
}

#[test]
fn progress_after_a_cancel_goes_nowhere() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["progress-after-cancel"]);
    client.initialize();
    let with_token = |token: &str| json!({"name": "echo", "arguments": {"text": token}, "_meta": {"progressToken": token}});
    let cancelled = client.request("tools/call", with_token("cancelled"));
    let kept = client.request("tools/call", with_token("kept"));
    client.find("progress", |message| message["params"]["progressToken"] == "cancelled");
    client.cancel(cancelled);
    client.round_trip();
    let until_then = client.seen().len();
    // The second call runs as long as the first one would have.
    client.answer(kept);
    let of = |token: &str| {
        client.seen()[until_then..]
            .iter()
            .filter(|message| message["params"]["progressToken"] == token)
            .count()
    };
    assert_eq!(of("cancelled"), 0);
    assert!(of("kept") >= 1, "progress of others goes on");
    client.end(&[cancelled]);
}

#[test]
fn a_progress_token_may_be_used_again() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let sleep =
        |ms: u64| json!({"name": "sleep", "arguments": {"ms": ms}, "_meta": {"progressToken": "always"}});
    let cancelled = client.request("tools/call", sleep(60_000));
    client.cancel(cancelled);
    client.round_trip();
    let until_then = client.seen().len();
    let id = client.request("tools/call", sleep(500));
    client.answer(id);
    let progress = &client.seen()[until_then..client.seen().len() - 1];
    assert!(progress.iter().any(|message| message["params"]["progressToken"] == "always"), "{progress:?}");
    client.end(&[cancelled]);
}

#[test]
fn what_is_in_flight_when_stdin_ends_is_still_answered() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let id = client.call("sleep", json!({"ms": 500}));
    client.close_stdin();
    assert_eq!(text_of(&client.answer(id)), "slept 500 ms");
    assert_eq!(client.exit_code(), 0);
    client.assert_answered_once(&[]);
}

#[test]
fn the_grace_after_the_end_of_stdin_ends_too() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--eof-grace", "1s"], &["never-answers", "hang"]);
    client.initialize();
    let id = client.call("hang", json!({}));
    client.close_stdin();
    client.fault(id, code::SHUTTING_DOWN);
    assert_eq!(client.exit_code(), 0);
    client.assert_answered_once(&[]);
}

#[test]
fn a_signal_answers_what_is_in_flight() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["never-answers", "hang"]);
    client.initialize();
    let id = client.call("hang", json!({}));
    client.round_trip();
    client.signal(rustix::process::Signal::TERM);
    client.fault(id, code::SHUTTING_DOWN);
    assert_eq!(client.exit_code(), 143);
    client.assert_answered_once(&[]);
}

#[test]
fn more_requests_than_the_limit_are_refused_at_once() {
    let sandbox = Sandbox::new();
    let mut client =
        sandbox.wrap(&["--max-in-flight", "2", "--call-timeout", "2s"], &["never-answers", "hang"]);
    client.initialize();
    let ids = [0; 3].map(|_| client.call("hang", json!({})));
    client.fault(ids[2], code::OVERLOADED);
    assert_eq!(
        client.answers_to(ids[0]) + client.answers_to(ids[1]),
        0,
        "it is the third that is refused, and at once"
    );
    client.fault(ids[0], code::DEADLINE);
    client.round_trip();
    client.end(&[]);
}

#[test]
fn a_server_that_reads_no_more_is_answered_for() {
    let sandbox = Sandbox::new();
    let flags = ["--queue-bytes", "64KiB", "--call-timeout", "2s", "--stop-grace", "200ms"];
    let mut client = sandbox.wrap(&flags, &["stops-reading-after", "2"]);
    client.initialize();
    let text = "x".repeat(50_000);
    let ids: Vec<i64> = (0..50).map(|_| client.call("echo", json!({"text": text}))).collect();
    let codes: Vec<Value> = ids.iter().map(|id| client.outcome(*id)["error"]["code"].clone()).collect();
    assert_eq!(codes[0], code::DEADLINE, "the first fits the pipe");
    assert_eq!(codes[49], code::OVERLOADED, "the last does not fit the queue");
    client.end(&[]);
}

#[test]
fn l_48_a_server_that_never_answers_anything_ends_at_the_start_deadline() {
    for faulty_server in ["silent-at-start", "never-reads-stdin"] {
        let sandbox = Sandbox::new();
        let mut client = sandbox.wrap(&["--start-timeout", "1s", "--stop-grace", "100ms"], &[faulty_server]);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let id = client.request("initialize", params);
        let error = client.fault(id, code::DEADLINE);
        assert_eq!(error["data"]["limitMs"], 1000);
        assert!(
            error["data"]["hint"].as_str().is_some_and(|hint| hint.contains("--start-timeout")),
            "{error}"
        );
        client.close_stdin();
        assert_eq!(client.exit_code(), 4, "{faulty_server}");
        client.assert_answered_once(&[]);
    }
}

#[test]
fn a_slow_start_is_waited_for_whatever_is_asked_first() {
    let sandbox = Sandbox::new();
    let flags = ["--request-timeout", "1s", "--call-timeout", "1s"];
    let mut client = sandbox.wrap(&flags, &["slow-start", "2000"]);
    let ids = [client.modern("tools/list", json!({})), client.modern_call("echo", json!({"text": "there"}))];
    assert!(client.answer(ids[0])["result"]["tools"].is_array());
    assert_eq!(text_of(&client.answer(ids[1])), "there");
    client.end(&[]);
}

#[test]
fn a_start_that_fails_is_told_with_its_last_words() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--name", "gms"], &["dies-at-start", "7"]);
    let id = client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    let error = client.fault(id, code::START_FAILED);
    assert_eq!(error["data"]["server"], "gms");
    assert!(error["data"]["exit"].as_str().is_some_and(|exit| exit.contains('7')), "{error}");
    assert!(lines_of(&error, "stderrTail").iter().any(|line| line.contains("no project file")), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("no project file")), "{error}");
    assert_eq!(client.exit_code(), 3);
    client.assert_answered_once(&[]);
}

/// The news of an end and the last line before it come by different ways, and either may be first.
#[test]
fn r_29_the_last_words_of_a_failed_start_are_told_every_time() {
    let sandbox = Sandbox::new();
    for round in 0..20 {
        let mut client = sandbox.wrap(&[], &["dies-at-start"]);
        let id = client.request("initialize", json!({}));
        let error = client.fault(id, code::START_FAILED);
        assert_eq!(
            lines_of(&error, "stderrTail"),
            ["error: no project file found in the working folder"],
            "round {round}"
        );
    }
}

#[test]
fn several_requests_at_a_start_that_fails_are_each_told() {
    let sandbox = Sandbox::new();
    let mut client =
        sandbox.wrap(&["--start-timeout", "20s"], &["restarts-broken", "--count-file", "count", "0"]);
    // Written at once, so that they are there before the server has gone.
    let lines: Vec<String> = (1..=3)
        .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n"))
        .collect();
    client.write(lines.concat().as_bytes()).expect("written");
    for id in 1..=3 {
        client.fault(id, code::START_FAILED);
    }
    assert_eq!(client.exit_code(), 3);
    client.drain();
    assert!((1..=3).all(|id| client.answers_to(id) == 1), "{:?}", client.seen());
}

#[test]
fn a_deadline_leaves_no_debt_behind() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    let ids: Vec<i64> = (0..20).map(|_| client.call("sleep", json!({"ms": 60_000}))).collect();
    for id in ids {
        client.fault(id, code::DEADLINE);
    }
    assert_eq!(server_pid(&mut client), pid);
    client.end(&[]);
}
