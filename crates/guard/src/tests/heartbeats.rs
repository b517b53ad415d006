//! What the client hears while the server says nothing of its calls.

use super::*;
use unhang_core::{config::LATE_IDS, limits::Limits, promotion::Promotion};

impl Guarded {
    fn call_with(&mut self, id: u64, token: &str) {
        self.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"slow","_meta":{{"progressToken":{token}}}}}}}"#
        ));
    }

    /// The values of the progress that the client has heard since the last look, and nothing else.
    #[track_caller]
    fn progress(&mut self) -> Vec<f64> {
        let received = self.received();
        let values = received.iter().map(|message| {
            assert_eq!(message["method"], "notifications/progress", "{message}");
            message["params"]["progress"].as_f64().expect("a number")
        });
        values.collect()
    }
}

#[test]
fn a_client_that_wants_to_hear_of_progress_hears_that_a_silent_server_is_waited_for_until_the_end() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(60), ..Limits::default() });
    guarded.call_with(1, "\"p\"");
    guarded.wait(seconds(9));
    assert!(guarded.received().is_empty());
    guarded.wait(seconds(1));
    assert_eq!(
        guarded.effects.client.pop().expect("a heartbeat"),
        (
            Class::Progress("p".into()),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.000001,"message":"still waiting for `slow`: 10s"}}"#.to_owned()
        )
    );
    guarded.wait(seconds(10));
    assert_eq!(guarded.progress(), [0.000_002]);
    // What the server says begins the ten seconds anew, and goes on from where we are; the rest of it is as it was.
    guarded.server(r#"{ "jsonrpc":"2.0","method":"notifications/progress","params":{"x":1.0e0, "progressToken":"p","progress":0} ,"y":2}"#);
    assert_eq!(
        guarded.effects.client.pop().expect("progress").1,
        r#"{ "jsonrpc":"2.0","method":"notifications/progress","params":{"x":1.0e0, "progressToken":"p","progress":0.000003} ,"y":2}"#
    );
    guarded.wait(seconds(9));
    assert!(guarded.received().is_empty());
    guarded.wait(seconds(1));
    assert_eq!(guarded.progress(), [0.000_004]);
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0e0}}"#);
    assert!(guarded.effects.client.pop().expect("progress").1.contains(r#""progress":1.0e0}"#), "as it is");
    // The limit comes as ever.
    guarded.wait(seconds(29));
    assert_eq!(guarded.progress().len(), 2);
    guarded.wait(seconds(1));
    guarded.heard_fault(1, -31001);
    guarded.wait(seconds(200));
    assert!(guarded.received().is_empty());
}

#[test]
fn after_the_answer_or_without_anybody_who_waits_there_is_no_heartbeat() {
    let mut guarded = Guarded::shaken(Limits::default());
    for (id, is_answered) in [(1, true), (2, false)] {
        guarded.call_with(id, "7");
        guarded.wait(seconds(15));
        assert_eq!(guarded.progress().len(), 1);
        if is_answered {
            guarded.answer(id);
            assert_eq!(guarded.received().len(), 1);
        } else {
            guarded.client(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            ));
        }
        guarded.wait(seconds(25));
        assert!(guarded.received().is_empty());
    }
}

#[test]
fn a_heartbeat_is_for_calls_whose_clients_ask_for_progress_where_traffic_is_not_left_alone() {
    let off = Limits { promote_after: Promotion::Off, ..Limits::default() };
    let quiet = Limits { quiet: true, ..Limits::default() };
    for (limits, beats) in [(Limits::default(), 1), (off, 0), (quiet, 0)] {
        let mut guarded = Guarded::shaken(limits);
        guarded.call(1);
        guarded.client(
            r#"{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"_meta":{"progressToken":2}}}"#,
        );
        guarded.client(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"task":{},"_meta":{"progressToken":3}}}"#);
        guarded.call_with(4, "4");
        guarded.wait(seconds(15));
        assert_eq!(guarded.progress().len(), beats);
    }
}

#[test]
fn progress_without_a_heartbeat_is_as_the_server_says_it() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call_with(1, "1");
    let line =
        r#"{"jsonrpc":"2.0", "method":"notifications/progress","params":{"progressToken":1,"progress":3.0}}"#;
    for _ in 0..3 {
        guarded.server(line);
        assert_eq!(guarded.effects.client.pop().expect("progress").1, line);
    }
}

#[test]
fn a_call_that_waits_for_the_next_process_has_a_heartbeat_too() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.dies();
    guarded.call_with(1, "1");
    guarded.wait(seconds(1));
    guarded.dies();
    guarded.wait(seconds(10));
    assert_eq!(guarded.progress(), [0.000_001], "as if it were with a server");
}

#[test]
fn a_client_of_the_first_revision_is_told_no_words() {
    for (version, has_words) in [("2024-11-05", false), ("2025-03-26", true), ("1999-01-01", false)] {
        let mut guarded = Guarded::shaken_as(Limits::default(), INITIALIZE, version);
        guarded.call_with(1, "1");
        guarded.wait(seconds(15));
        assert_eq!(guarded.received()[0]["params"]["message"].is_string(), has_words, "{version}");
    }
}

#[test]
fn two_calls_with_one_token_have_one_heartbeat_which_increases() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call_with(1, "7");
    guarded.wait(seconds(5));
    guarded.call_with(2, "7");
    guarded.wait(seconds(25));
    assert_eq!(guarded.progress(), [0.000_001, 0.000_002, 0.000_003]);
    // Who uses it again when the first is over has one.
    guarded.answer(1);
    guarded.answer(2);
    guarded.call_with(3, "7");
    guarded.received();
    guarded.wait(seconds(15));
    assert_eq!(guarded.progress(), [0.000_001]);
}

#[test]
fn tokens_of_calls_that_are_over_are_forgotten_in_time() {
    let mut guarded = Guarded::shaken(Limits::default());
    for id in 1..=LATE_IDS as u64 {
        guarded.call_with(id, &id.to_string());
        guarded.answer(id);
    }
    let (_, heartbeats, _) = guarded.wrap_session.progress_tokens.kept();
    assert!(heartbeats < 50, "{heartbeats}");
    guarded.received();
    guarded.call_with(5000, "5000");
    guarded.wait(seconds(15));
    assert_eq!(guarded.progress().len(), 1);
}
