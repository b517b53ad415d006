//! Servers with several vices at once, and events that meet: a flood while dying, a restart while the client does not read,
//! a cancellation during a replay.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, is_alive, peak_memory, server_pid, signal, wait_until},
    talk::{assert_fault, assert_stays, code, lines_of, text_of},
};

const FAST: &[&str] = &["--restart-delay", "20ms", "--stop-grace", "200ms", "--eof-grace", "500ms"];
/// Far below the 100 MiB of promise 3.
const BOUNDED: u64 = 48 << 20;

fn wrap(sandbox: &Sandbox, flags: &[&str], faulty_server: &[&str]) -> Client {
    sandbox.wrap(&[FAST, flags].concat(), faulty_server)
}

#[track_caller]
fn assert_bounded(client: &Client) {
    let peak = peak_memory(client.pid()).expect("the guard is there");
    assert!(peak <= BOUNDED, "{} MiB", peak >> 20);
}

/// Lets the server die by its own tool, unanswered.
#[track_caller]
fn let_die(client: &mut Client) {
    let id = client.call("die", json!({"code": 9}));
    client.fault(id, code::SERVER_EXITED);
}

/// The processes that have counted themselves, in the order of their starts.
fn starts(sandbox: &Sandbox) -> Vec<i32> {
    let text = fs::read_to_string(sandbox.path().join("starts")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn a_flood_while_dying_hides_neither_the_death_nor_the_next_server() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--breaker-failures", "9"], &["flood-while-dying"]);
    client.initialize();
    for _ in 0..3 {
        let id = client.call("echo", json!({"text": "x"}));
        let error = client.fault(id, code::SERVER_EXITED);
        // All of its last words had come: the flood of stderr was drained, not cut off.
        let tail = lines_of(&error, "stderrTail");
        assert!(tail.last().is_some_and(|line| line.contains("at byte 1999900")), "{tail:?}");
        let id = client.request("tools/list", json!({}));
        assert!(client.answer(id)["result"]["tools"].is_array());
    }
    assert_bounded(&client);
    client.end(&[]);
}

#[test]
fn a_flood_while_dying_reaches_a_client_that_does_not_read() {
    let sandbox = Sandbox::new();
    let flags = [FAST, &["--queue-bytes", "1MiB", "--breaker-failures", "9"]].concat();
    let (mut client, stdout) =
        Client::start_unread(sandbox.wrap_command(&flags, &["flood-while-dying", "10000"]));
    let mut ids =
        vec![client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}))];
    for deaths in 1..=3 {
        ids.push(client.call("echo", json!({"text": "x"})));
        // It dies although nobody has read a byte of what it floods.
        wait_until("a death", PATIENCE, || client.stderr().matches("ended unexpectedly").count() == deaths);
    }
    assert_bounded(&client);
    let mut client = client.reading(stdout);
    assert!(client.answer(ids[0])["result"].is_object());
    for id in &ids[1..] {
        client.fault(*id, code::SERVER_EXITED);
    }
    client.end(&[]);
}

/// The new process answers the replayed handshake, but nobody reads on its side either while its client is held up: that is
/// not its fault, however long it lasts.
#[test]
fn a_restart_while_the_client_does_not_read() {
    let sandbox = Sandbox::new();
    let flags =
        [FAST, &["--queue-bytes", "1MiB", "--start-timeout", "1s", "--health-interval", "200ms"]].concat();
    let (mut client, stdout) = Client::start_unread(sandbox.wrap_command(&flags, &["dies-held-back"]));
    client.request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    client.notify("notifications/initialized", json!({}));
    for _ in 0..6 {
        client.call("echo", json!({"text": "x"}));
    }
    let deaths = |client: &Client| client.stderr().matches("ended unexpectedly").count();
    wait_until("its death", PATIENCE, || deaths(&client) == 1);
    let list = client.request("tools/list", json!({}));
    assert_stays("its successor is left alone", Duration::from_secs(3), || deaths(&client) == 1);
    assert_bounded(&client);
    let mut client = client.reading(stdout);
    assert!(client.answer(list)["result"]["tools"].is_array());
    client.end(&[]);
    assert!(client.stderr().contains("is back"), "{}", client.stderr());
    let lost = client.seen().iter().filter(|message| message["error"]["code"] == code::SERVER_EXITED).count();
    assert!(lost > 0, "it died with calls in flight");
}

#[test]
fn a_deaf_server_that_floods_is_bounded_and_answered_for() {
    let sandbox = Sandbox::new();
    let flags = ["--start-timeout", "1s", "--call-timeout", "1s", "--queue-bytes", "1MiB"];
    let mut client = wrap(&sandbox, &flags, &["deaf-flood", "50000"]);
    let text = "x".repeat(100_000);
    let ids: Vec<i64> = (0..40).map(|_| client.call("echo", json!({"text": text}))).collect();
    for id in ids {
        let answer = client.outcome(id);
        let known =
            [code::DEADLINE, code::OVERLOADED].into_iter().find(|code| answer["error"]["code"] == *code);
        assert_fault(&answer, known.unwrap_or_else(|| panic!("{answer}")));
    }
    assert_bounded(&client);
    client.close_stdin();
    // It never answered anything.
    assert_eq!(client.exit_code(), 4, "{}", client.stderr());
    client.assert_answered_once(&[]);
}

#[test]
fn an_answer_before_the_death_counts_and_half_of_the_next_does_not() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["answers-then-dies-in-the-next"]);
    client.initialize();
    let ids = ["first", "second"].map(|text| client.call("echo", json!({"text": text})));
    assert_eq!(text_of(&client.outcome(ids[0])), "first");
    assert_fault(&client.outcome(ids[1]), code::SERVER_EXITED);
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["result"]["tools"].is_array());
    client.end(&[]);
}

#[test]
fn a_flood_after_a_cancel_or_a_deadline_goes_nowhere() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "1s"], &["floods-after-cancel"]);
    client.initialize();
    let with_token =
        |token: &str| json!({"name": "echo", "arguments": {}, "_meta": {"progressToken": token}});
    let withdrawn = client.request("tools/call", with_token("withdrawn"));
    client.cancel(withdrawn);
    client.round_trip();
    let expired = client.request("tools/call", with_token("expired"));
    client.fault(expired, code::DEADLINE);
    client.round_trip();
    client.end(&[withdrawn]);
    let floods = client.seen().iter().filter(|message| message["method"] == "notifications/progress").count();
    assert_eq!(floods, 0);
    assert!(sandbox.log().contains("late_answers: 2"), "{}", sandbox.log());
}

#[test]
fn a_family_that_ignores_everything_ends_with_the_guard() {
    for guard_is_killed in [false, true] {
        let sandbox = Sandbox::new();
        let mut client = wrap(&sandbox, &[], &["family-ignores-everything", "--marker", sandbox.marker()]);
        client.initialize();
        wait_until("the family", PATIENCE, || {
            sandbox.survivors().iter().filter(|(_, line)| line.contains("lingers")).count() == 2
        });
        if guard_is_killed {
            client.signal(Signal::KILL);
        } else {
            client.end(&[]);
        }
        sandbox.assert_nothing_left();
    }
}

#[test]
fn what_is_printed_after_a_death_goes_nowhere() {
    let sandbox = Sandbox::new();
    let mut client =
        wrap(&sandbox, &["--breaker-failures", "9"], &["prints-after-death", "--marker", sandbox.marker()]);
    client.initialize();
    for _ in 0..3 {
        let id = client.call("echo", json!({"text": "x"}));
        client.fault(id, code::SERVER_EXITED);
        // The child answers this one already, on the pipe of the dead.
        let id = client.request("tools/list", json!({}));
        assert!(client.answer(id)["result"]["tools"].is_array(), "the next server is not spoken for");
        let printing = || sandbox.survivors().iter().any(|(_, line)| line.contains(" prints "));
        wait_until("the end of the child", PATIENCE, || !printing());
    }
    client.end(&[]);
}

/// A server that cannot be brought back, whatever its reason: whoever waits is told by the time the fence is up.
#[track_caller]
fn cannot_come_back(faulty_server: &str, words: &str) {
    let sandbox = Sandbox::new();
    let flags = ["--start-timeout", "1s", "--breaker-failures", "3", "--breaker-cooldown", "60s"];
    let mut client = wrap(&sandbox, &flags, &[faulty_server, "--count-file", "starts"]);
    client.initialize();
    let_die(&mut client);
    wait_until("the fence", PATIENCE, || {
        let id = client.call("echo", json!({"text": "x"}));
        let answer = client.answer(id);
        let refused = answer["error"]["code"] == code::BREAKER_OPEN;
        assert_fault(&answer, if refused { code::BREAKER_OPEN } else { code::SERVER_EXITED });
        refused
    });
    assert_eq!(starts(&sandbox).len(), 3, "one good start, two that failed");
    client.end(&[]);
    let told = sandbox.log();
    assert!(told.contains(words), "{faulty_server}: {told}");
}

#[test]
fn a_restart_that_never_shakes_hands_counts_as_a_failure() {
    cannot_come_back("restarts-silent", "no answer to the replayed `initialize`");
}

#[test]
fn a_restart_that_refuses_the_handshake_counts_as_a_failure() {
    cannot_come_back("restarts-refusing", "the database is locked");
}

#[test]
fn a_restart_that_dies_of_the_session_counts_as_a_failure() {
    cannot_come_back("restarts-dying", "the session cannot be restored");
}

/// A session whose server has died and whose next one does not answer the handshake yet.
struct Replay {
    sandbox: Sandbox,
    client: Client,
}

impl Replay {
    fn new(flags: &[&str]) -> Replay {
        let sandbox = Sandbox::new();
        let faulty_server = ["restarts-slowly", "--count-file", "starts", "--until", "go"];
        let mut client = wrap(&sandbox, flags, &faulty_server);
        client.initialize();
        let_die(&mut client);
        let mut replay = Replay { sandbox, client };
        replay.wait_for_start(2);
        replay
    }

    #[track_caller]
    fn wait_for_start(&mut self, number: usize) {
        wait_until("another start", PATIENCE, || starts(&self.sandbox).len() == number);
    }

    /// Lets the handshake be answered.
    fn go_on(&self) {
        fs::write(self.sandbox.path().join("go"), "").expect("written");
    }

    fn end(mut self, withdrawn: &[i64]) {
        self.client.end(withdrawn);
    }
}

#[test]
fn a_cancel_during_a_replay_is_the_end_of_that_call() {
    let mut replay = Replay::new(&[]);
    let withdrawn = replay.client.call("echo", json!({"text": "withdrawn"}));
    let kept = replay.client.call("state", json!({}));
    replay.client.cancel(withdrawn);
    // Answered here, for the server does not answer yet: so the cancellation has been dealt with.
    replay.client.send("garbage");
    replay.client.fault(Value::Null, code::PARSE_ERROR);
    replay.go_on();
    let state: Value = serde_json::from_str(&text_of(&replay.client.answer(kept))).expect("JSON");
    assert_eq!(state["calls"], 1, "the withdrawn call never reached it: {state}");
    replay.end(&[withdrawn]);
}

#[test]
fn a_deadline_during_a_replay_is_kept() {
    let mut replay = Replay::new(&["--call-timeout", "1s"]);
    let id = replay.client.call("echo", json!({"text": "x"}));
    let error = replay.client.fault(id, code::DEADLINE);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("not ready again")), "{error}");
    replay.go_on();
    assert_eq!(replay.client.state()["calls"], 1, "the expired call never reached it");
    replay.end(&[]);
}

#[test]
fn a_second_death_during_a_replay_starts_a_third_server() {
    let mut replay = Replay::new(&[]);
    let id = replay.client.call("state", json!({}));
    signal(starts(&replay.sandbox)[1], Signal::KILL);
    replay.wait_for_start(3);
    replay.go_on();
    let state: Value = serde_json::from_str(&text_of(&replay.client.answer(id))).expect("JSON");
    assert_eq!((&state["initialized"], &state["pid"]), (&json!(true), &json!(starts(&replay.sandbox)[2])));
    replay.end(&[]);
}

#[test]
fn a_handshake_of_the_client_during_a_replay_is_answered() {
    let mut replay = Replay::new(&[]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "anew", "version": "1"}});
    let id = replay.client.request("initialize", params);
    replay.go_on();
    assert_eq!(replay.client.answer(id)["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(replay.client.state()["clientName"], "anew");
    replay.end(&[]);
}

#[test]
fn an_end_during_a_replay_answers_and_leaves_nothing() {
    for by_signal in [false, true] {
        let mut replay = Replay::new(&[]);
        let id = replay.client.call("echo", json!({"text": "x"}));
        // The call has been read once what came behind it is answered.
        replay.client.send("garbage");
        replay.client.fault(Value::Null, code::PARSE_ERROR);
        if by_signal {
            replay.client.signal(Signal::TERM);
        } else {
            replay.client.close_stdin();
        }
        replay.client.fault(id, code::SHUTTING_DOWN);
        assert_eq!(replay.client.exit_code(), if by_signal { 143 } else { 0 });
        replay.client.assert_answered_once(&[]);
        replay.sandbox.assert_nothing_left();
    }
}

/// The server is stopped, so it neither reads nor dies of SIGTERM, while requests pile up for it and the client is killed.
#[test]
fn a_killed_client_of_a_stopped_server_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--queue-bytes", "1MiB"], &["well-behaved"]);
    client.initialize();
    let server = server_pid(&mut client);
    signal(server, Signal::STOP);
    let text = "x".repeat(100_000);
    for _ in 0..60 {
        client.call("echo", json!({"text": text}));
    }
    client.find("refusal", |message| message["error"]["code"] == code::OVERLOADED);
    client.signal(Signal::KILL);
    sandbox.assert_nothing_left_within(Duration::from_secs(10));
    assert!(!is_alive(server));
}
