//! What clients hear while nothing comes of their calls.

use std::sync::Arc;

use unhang_bridge::Era;

use super::{
    promotion::{job_report, with_jobs},
    servers::{TOOL, answered, ask, asked, fronted, known, raw},
    *,
};
use unhang_core::promotion::Promotion;
use unhang_gateway::RequestTimeouts;

const CALL: &str = r#"{"name":"srv__now","arguments":{},"_meta":{"progressToken":"p"}}"#;

/// The progress that the client has heard since the last look, and nothing else; each with its value.
#[track_caller]
fn progress(front: &mut TestSession) -> Vec<(f64, Option<String>)> {
    let received = front.received();
    let told = received.iter().map(|message| {
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progressToken"], "p", "{message}");
        let text = message["params"]["message"].as_str().map(str::to_owned);
        (message["params"]["progress"].as_f64().expect("a number"), text)
    });
    told.collect()
}

fn says(front: &mut TestSession, key: CallKey, params: &str) {
    front.mcp_session.progressed(front.now, key, &raw(params), &mut front.effects);
}

#[test]
fn a_client_that_wants_to_hear_of_progress_hears_that_a_silent_server_is_waited_for_until_the_end() {
    let mut front = fronted(known(&[TOOL], true));
    ask(&mut front, 1, "tools/call", CALL);
    let (key, _) = asked(&mut front);
    front.wait(seconds(9));
    assert!(front.received().is_empty());
    front.wait(seconds(12));
    let text = |length: &str| Some(format!("still waiting for `srv__now`: {length}"));
    assert_eq!(progress(&mut front), [(0.000_001, text("10s")), (0.000_002, text("20s"))]);
    // What the server says begins the ten seconds anew, and goes on from where we are.
    says(&mut front, key, r#"{"progressToken":3,"progress":0,"x":1.0e0}"#);
    assert_eq!(
        front.effects.received.pop().as_deref(),
        Some(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.000003,"x":1.0e0}}"#
        )
    );
    front.wait(seconds(9));
    assert!(front.received().is_empty());
    front.wait(seconds(1));
    assert_eq!(progress(&mut front), [(0.000_004, text("31s"))]);
    says(&mut front, key, r#"{"progressToken":3,"progress":1.0e0}"#);
    assert!(front.effects.received.pop().expect("progress").contains(r#""progress":1.0e0}"#), "as it is");
    // The limit comes as ever: it is a call of a minute, and whoever asks the server has a moment more.
    front.wait(Duration::from_millis(29_499));
    assert_eq!(progress(&mut front).len(), 2);
    front.wait(Duration::from_millis(1));
    assert_eq!(front.heard_fault(1, -31001)["data"]["limitMs"], 60_000);
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.wait(seconds(100));
    assert!(front.received().is_empty());
}

#[test]
fn after_the_answer_or_without_anybody_who_waits_there_is_no_heartbeat() {
    let mut front = fronted(known(&[TOOL], true));
    for (id, is_answered) in [(1, true), (2, false)] {
        ask(&mut front, id, "tools/call", CALL);
        let (key, _) = asked(&mut front);
        front.wait(seconds(15));
        assert_eq!(progress(&mut front).len(), 1);
        if is_answered {
            let answer = answered(Era::Legacy, Ok(raw("{}")));
            front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
            assert_eq!(front.received().len(), 1);
        } else {
            front.says(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            ));
        }
        front.wait(seconds(100));
        assert!(front.received().is_empty());
    }
}

#[test]
fn a_heartbeat_is_for_calls_whose_clients_ask_for_progress() {
    let mut front = fronted(known(&[TOOL], true));
    ask(&mut front, 1, "tools/call", r#"{"name":"srv__now"}"#);
    ask(&mut front, 2, "resources/read", r#"{"uri":"note:1","_meta":{"progressToken":"p"}}"#);
    front.wait(seconds(1));
    front.received();
    front.wait(seconds(18));
    assert!(front.received().is_empty());
}

#[test]
fn a_call_becomes_a_job_when_it_would_without_a_heartbeat_and_then_there_is_none() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", CALL);
    front.actions();
    front.wait(seconds(44));
    assert_eq!(progress(&mut front).len(), 4);
    assert!(front.actions().is_empty());
    front.wait(seconds(1));
    let SessionAction::Promote { key, order } = front.actions().remove(0) else { panic!("it is time") };
    assert_eq!(order.elapsed, seconds(45));
    // Until the job is there it is a call.
    front.wait(seconds(5));
    assert_eq!(progress(&mut front).len(), 1);
    assert!(front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects).is_some());
    assert_eq!(front.received().len(), 1);
    front.wait(seconds(600));
    assert!(front.received().is_empty() && front.actions().is_empty());
}

#[test]
fn where_nothing_becomes_a_job_or_a_server_is_to_be_quiet_there_is_no_heartbeat() {
    let off = RequestTimeouts { promotion: Promotion::Off, ..RequestTimeouts::default() };
    let quiet = RequestTimeouts { is_quiet: true, ..RequestTimeouts::default() };
    for (timeouts, beats) in [(off, 0), (quiet, 0), (RequestTimeouts::default(), 1)] {
        let mut known = known(&[TOOL], true);
        known.timeouts = Arc::new([(0, timeouts.clone())].into());
        let mut front = fronted(known);
        ask(&mut front, 1, "tools/call", CALL);
        front.wait(seconds(15));
        assert_eq!(progress(&mut front).len(), beats, "{timeouts:?}");
    }
}

#[test]
fn tools_of_ours_have_heartbeats_too_and_windows_see_to_their_own() {
    let call = r#"{"name":"echo","arguments":{},"_meta":{"progressToken":"p"}}"#;
    let off = Limits { promote_after: Promotion::Off, ..Limits::default() };
    for (limits, are_of_windows, beats) in
        [(Limits::default(), false, 1), (Limits::default(), true, 0), (off, false, 0)]
    {
        let mut front = TestSession::shaken(limits, "2025-11-25");
        front.mcp_session.jobs.are_of_windows = are_of_windows;
        ask(&mut front, 1, "tools/call", call);
        front.wait(seconds(15));
        assert_eq!(progress(&mut front).len(), beats);
        let key = front.called()[0];
        front.ends(key, "x");
        assert_eq!(front.received().len(), 1);
        front.wait(seconds(15));
        assert!(front.received().is_empty());
    }
}

#[test]
fn a_client_of_the_first_revision_is_told_no_words() {
    let mut front = TestSession::shaken(Limits::default(), "2024-11-05");
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    ask(&mut front, 1, "tools/call", CALL);
    front.wait(seconds(15));
    assert_eq!(progress(&mut front), [(0.000_001, None)]);
}
