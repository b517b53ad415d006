//! Verdicts on observations that nobody had to make.

use super::*;
use crate::{
    Severity,
    observations::{ObservedCall, SlowestAnswer},
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What is seen of a server that does everything as the real ones do.
fn usual() -> Observations {
    let ended = ServerExit {
        after: Some(Duration::from_millis(400)),
        waited: seconds(3),
        exit: Some("exit code 0".to_owned()),
        is_failure: false,
        leaked: 0,
    };
    Observations {
        cold: Some(StartResult::Answered(Duration::from_millis(1300))),
        warm: Some(StartResult::Answered(Duration::from_millis(900))),
        handshake: Some(HandshakeSeen::Agreed("2025-11-25".to_owned())),
        modern: Some(DiscoverSeen::Unknown { is_ambiguous: false }),
        lists: vec![ObservedList { method: "tools/list", items: 36, bytes: 41_208, fault: None }],
        tools: vec![ObservedTool { name: "gm_project_info".to_owned(), fault: None, is_safe: true }],
        stderr_bytes: 153,
        garbage: Some(AfterGarbage::Survived),
        stdin_end: Some(ended.clone()),
        sigterm: Some(ServerExit { is_failure: true, ..ended }),
        ..Observations::default()
    }
}

fn ids(seen: &Observations) -> Vec<&'static str> {
    judge(seen).iter().map(|finding| finding.check.id).collect()
}

/// What is found when the usual is changed in this way.
#[track_caller]
fn check(change: impl FnOnce(&mut Observations), expect: &[&str]) {
    let mut seen = usual();
    change(&mut seen);
    assert_eq!(ids(&seen), expect, "{seen:?}");
}

#[test]
fn what_real_servers_do_is_no_finding() {
    check(|_| {}, &[]);
    check(|seen| seen.modern = Some(DiscoverSeen::Unknown { is_ambiguous: true }), &["era-ambiguous"]);
    check(|seen| seen.modern = Some(DiscoverSeen::Spoken { is_locked: true }), &["era-locked"]);
    let notes = [checks::ERA_AMBIGUOUS, checks::ERA_LOCKED];
    assert!(notes.iter().all(|check| check.severity == Severity::Note));
}

#[test]
fn nothing_follows_from_what_was_not_seen() {
    assert_eq!(ids(&Observations::default()), [""; 0]);
}

#[test]
fn each_way_not_to_start_has_its_name() {
    let only = |cold| Observations { cold: Some(cold), ..Observations::default() };
    assert_eq!(ids(&only(StartResult::Failed("no such file".to_owned()))), ["cannot-start"]);
    assert_eq!(ids(&only(StartResult::Unreachable("refused".to_owned()))), ["cannot-reach"], "F-78");
    assert_eq!(ids(&only(StartResult::Ended("exit code 1".to_owned()))), ["dies-at-start"]);
    assert_eq!(ids(&only(StartResult::Silent(seconds(55)))), ["silent-at-start"]);
    assert_eq!(ids(&only(StartResult::Unusable)), ["silent-at-start"], "it is not well");
    let mut mute = only(StartResult::Unusable);
    mute.troubles = vec![ServerTrouble::Mute("`initialize`".to_owned())];
    assert_eq!(ids(&mute), ["closes-stdout"]);
    let mut stateless = only(StartResult::Silent(seconds(55)));
    stateless.modern = Some(DiscoverSeen::Spoken { is_locked: false });
    assert_eq!(ids(&stateless), ["modern-only"]);
    check(|seen| seen.warm = Some(StartResult::Ended("exit code 1".to_owned())), &["dies-at-second-start"]);
    let never_again = |seen: &mut Observations| {
        seen.warm = Some(StartResult::Ended("exit code 1".to_owned()));
        seen.modern = Some(DiscoverSeen::Ended("exit code 1".to_owned()));
    };
    check(never_again, &["dies-at-second-start"]);
    check(|seen| seen.modern = Some(DiscoverSeen::Ended("exit code 1".to_owned())), &["dies-on-discover"]);
    check(
        |seen| seen.handshake = Some(HandshakeSeen::Refused(-32603, "no".to_owned())),
        &["refuses-handshake"],
    );
    check(
        |seen| seen.handshake = Some(HandshakeSeen::Agreed("2030-01-01".to_owned())),
        &["strange-revision"],
    );
}

#[test]
fn a_slow_start_names_the_clients_that_it_presses() {
    let mut seen = usual();
    seen.warm = Some(StartResult::Answered(seconds(6)));
    let found = judge(&seen);
    assert_eq!(found.len(), 1);
    let evidence = &found[0].evidence;
    assert!(evidence.contains("opencode") && evidence.contains("Codex"), "{evidence}");
    assert!(!evidence.contains("Claude Code"), "6 s are not half of 30 s: {evidence}");
    check(|seen| seen.warm = Some(StartResult::Answered(Duration::from_millis(2400))), &[]);
    check(|seen| seen.cold = Some(StartResult::Answered(Duration::from_millis(9900))), &[]);
    check(|seen| seen.cold = Some(StartResult::Answered(Duration::from_millis(10_100))), &["slow-start"]);
}

#[test]
fn a_slow_answer_names_the_clients_whose_clock_it_passes() {
    let slow = |took: u64, is_call| {
        move |seen: &mut Observations| {
            seen.slowest = Some(SlowestAnswer { what: "x".to_owned(), is_call, took: seconds(took) });
        }
    };
    check(slow(29, true), &[]);
    check(slow(31, true), &["slow-answer"]);
    check(slow(4, false), &[]);
    check(slow(6, false), &["slow-answer"]);
    let mut seen = usual();
    slow(61, true)(&mut seen);
    let evidence = judge(&seen)[0].evidence.clone();
    assert!(evidence.contains("langflow (30s)") && evidence.contains("cline (1m)"), "{evidence}");
    assert!(!evidence.contains("codex"), "{evidence}");
}

#[test]
fn what_is_wrong_with_tools_and_lists_is_named() {
    let tool = |name: &str| ObservedTool { name: name.to_owned(), fault: None, is_safe: true };
    check(|seen| seen.tools.push(tool("gm_project_info")), &["duplicate-tool"]);
    check(|seen| seen.tools.push(tool("a tool")), &["odd-tool-name"]);
    check(|seen| seen.tools[0].fault = Some("inputSchema is missing".to_owned()), &["invalid-tool-schema"]);
    check(|seen| seen.tools[0].is_safe = false, &["no-safe-tool"]);
    check(|seen| seen.lists[0].bytes = 100_000, &["large-list"]);
    check(|seen| seen.lists[0].fault = Some(ListFault::Endless), &["endless-list"]);
    check(|seen| seen.lists[0].fault = Some(ListFault::Invalid), &["invalid-list"]);
    check(|seen| seen.lists[0].fault = Some(ListFault::Refused(-32601, "no".to_owned())), &["list-refused"]);
}

#[test]
fn an_answer_after_a_cancel_is_a_fault_only_if_the_cancel_brought_it_about() {
    let late = |seen: &mut Observations| seen.stdout_seen.late.add(b"{}");
    check(late, &["goes-on-after-cancel"]);
    let held_back = |seen: &mut Observations| {
        late(seen);
        seen.troubles = vec![ServerTrouble::Silence("a call".to_owned(), seconds(5))];
    };
    check(held_back, &["no-answer", "answers-after-cancel"]);
}

#[test]
fn what_it_leaves_and_how_it_ends_is_named() {
    check(|seen| seen.stdin_end.as_mut().unwrap().leaked = 2, &["leaves-processes"]);
    check(|seen| seen.stdin_end.as_mut().unwrap().is_failure = true, &["ends-with-code"]);
    check(|seen| seen.stdin_end.as_mut().unwrap().after = None, &["ignores-stdin-end"]);
    check(|seen| seen.sigterm.as_mut().unwrap().after = None, &["ignores-sigterm"]);
    check(|seen| seen.garbage = Some(AfterGarbage::Died("signal 11".to_owned())), &["dies-on-garbage"]);
    check(|seen| seen.garbage = Some(AfterGarbage::Deaf(seconds(5))), &["deaf-after-garbage"]);
    let stopped = |seen: &mut Observations| {
        seen.troubles = vec![ServerTrouble::Silence("`ping`".to_owned(), seconds(5))];
        seen.garbage = Some(AfterGarbage::Deaf(seconds(5)));
    };
    check(stopped, &["no-answer"]);
    check(|seen| seen.sharers = 1, &["shares-stdin"]);
    check(|seen| seen.stderr_bytes = 70_000, &["stderr-flood"]);
    let variables = ["PATH", "GITHUB_TOKEN", "HOME", "OPENAI_API_KEY"].map(str::to_owned).to_vec();
    check(|seen| seen.inherited = variables, &["inherits-secrets"]);
}

#[test]
fn the_gravest_findings_come_first_and_then_the_order_of_the_checks() {
    let call = ObservedCall { tool: "t".to_owned(), took: seconds(2), refusal: None, blocked: true };
    let change = |seen: &mut Observations| {
        seen.stderr_bytes = 1 << 20;
        seen.calls.push(call);
        seen.unfinished_after = Some(seconds(60));
    };
    check(change, &["did-not-finish", "blocks-while-busy", "stderr-flood"]);
    let graver_later = |seen: &mut Observations| {
        seen.stderr_bytes = 1 << 20;
        seen.sharers = 1;
    };
    check(graver_later, &["shares-stdin", "stderr-flood"]);
}

#[test]
fn sizes_read_well() {
    for (bytes, expect) in
        [(12, "12 B"), (1024, "1 KiB"), (2_319, "2.2 KiB"), (41_208, "40 KiB"), (10 << 20, "10 MiB")]
    {
        assert_eq!(size(bytes), expect);
    }
}
