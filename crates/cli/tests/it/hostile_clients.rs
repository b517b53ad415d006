//! Hostile clients from the zoo in front of the guard: each keeps its own books of what it was owed and says what it saw.
//!
//! Exit code 0 of such a client means: every request got the one answer that it was owed (promise 1), every line was a
//! message (promise 2), and the guard ended by itself (promise 5). The sandbox demands that nothing is left.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Client, Sandbox, figure, is_alive, lab_program, run_to_end, wait_until};

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");
/// Limits for those who run into them.
const SHORT: &[&str] = &[
    "--start-timeout",
    "5s",
    "--call-timeout",
    "2s",
    "--request-timeout",
    "2s",
    "--eof-grace",
    "500ms",
    "--stop-grace",
    "200ms",
    "--restart-delay",
    "20ms",
];
/// What the guard may use whatever its client does (promise 3), far below the 100 MiB that it is promised.
const BOUNDED: u64 = 48 << 20;

/// `unhang-lab zoo CLIENT -- unhang wrap FLAGS -- unhang-lab zoo SERVER`.
fn client_command(sandbox: &Sandbox, client: &[&str], flags: &[&str], server: &[&str]) -> Command {
    let mut command = sandbox.lab();
    command.arg("zoo").args(client).args(["--", UNHANG, "wrap"]).args(flags);
    command.args(["--", lab_program(), "zoo"]).args(server);
    command
}

/// The last line of a client.
#[track_caller]
fn report_in(text: &str) -> Value {
    let line = text.lines().last().unwrap_or_else(|| panic!("the client said nothing"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Runs a client against a server behind the guard and fails if the client complains. Returns its report.
#[track_caller]
fn is_content(client: &[&str], flags: &[&str], server: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = run_to_end(client_command(&sandbox, client, flags, server));
    let report = report_in(&text);
    assert_eq!(
        report["complaints"],
        json!([]),
        "{client:?} and {server:?}: {report}; stderr: {stderr:.2000}"
    );
    assert_eq!(code, 0, "{client:?} and {server:?}: {report}; stderr: {stderr:.2000}");
    report
}

/// Runs a client against a server without a guard and fails unless the client complains.
#[track_caller]
fn is_discontent_without_a_guard(client: &[&str], server: &[&str], complaint: &str) {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.arg("zoo").args(client).args(["--", lab_program(), "zoo"]).args(server);
    let (code, text, _) = run_to_end(command);
    let report = report_in(&text);
    assert_eq!(code, 1, "{client:?}: {report}");
    assert!(report["complaints"].to_string().contains(complaint), "{client:?}: {report}");
}

#[track_caller]
fn assert_bounded(report: &Value) {
    let peak = report["peakBytes"].as_u64().unwrap_or_else(|| panic!("no peak in {report}"));
    figure(&format!("{}: {} KiB", report["client"], peak >> 10));
    assert!(peak <= BOUNDED, "{} MiB: {report}", peak >> 20);
}

/// What each client sees of a well-behaved server behind the guard: how many results, and which errors how often.
macro_rules! each_client {
    ($($test:ident: [$($client:expr),+], $flags:expr => $results:expr, $errors:tt;)+) => {
        $(#[test] fn $test() {
            let report = is_content(&[$($client),+], &$flags, &["well-behaved"]);
            assert_eq!(report["errors"], json!($errors), "{report}");
            assert_eq!(report["results"], json!($results), "{report}");
            assert_eq!(report["end"], "exit 0", "{report}");
        })+
    };
}

const NONE: [&str; 0] = [];

each_client! {
    answers_that_nobody_asked_for_go_nowhere: ["answers-what-nobody-asked"], NONE => 2, {"-32600": 2};
    a_batch_of_many_is_answered_once_each: ["batches"], NONE => 202, {"-32600": 4};
    cancellations_in_a_loop_end_nothing_else: ["cancels-in-a-loop"], NONE => 3, {};
    garbage_between_requests_spoils_none: ["garbage-between-requests"], NONE => 11, {"-32600": 6, "-32700": 5};
    two_handshakes_are_answered_each: ["initializes-twice"], NONE => 5, {};
    an_id_used_twice_is_refused_once: ["same-id-twice"], NONE => 3, {"-32600": 1};
    a_client_that_writes_byte_by_byte_is_understood: ["writes-byte-by-byte"], NONE => 2, {};
    a_client_that_reads_byte_by_byte_gets_all: ["reads-byte-by-byte"], NONE => 3, {};
    pipes_that_do_not_block_stay_so: ["nonblocking-pipes"], NONE => 5, {};
    a_stderr_that_nobody_reads_stops_nothing: ["never-reads-stderr"], NONE => 4, {};
    a_question_that_nobody_answers_ends_with_its_call: ["ignores-questions"], SHORT => 2, {"-31001": 1};
    a_call_is_answered_after_the_end_of_stdin: ["closes-stdin-in-mid-call"], NONE => 2, {};
    half_a_request_at_the_end_is_answered: ["ends-with-half-a-request"], NONE => 2, {"-32700": 1};
    a_line_over_the_limit_is_refused_and_the_next_is_not: ["sends-giant-line", "3000000"], ["--max-message", "1MiB"] => 2, {"-31006": 1};
}

#[test]
fn a_flood_of_requests_is_answered_to_the_last() {
    // Slower than the flood, so that the limit is met.
    let report = is_content(&["floods-requests", "3000"], &["--max-in-flight", "20"], &["slow-start", "300"]);
    let refused = report["errors"]["-31005"].as_u64().unwrap_or_default();
    assert_eq!(report["results"].as_u64().map(|results| results + refused), Some(3001), "{report}");
    assert_bounded(&report);
    let report = is_content(&["floods-requests", "300"], &["--max-in-flight", "20"], &["busy-not-hung", "5"]);
    assert!(report["errors"]["-31005"].as_u64() > Some(0), "more than twenty at once were refused: {report}");
    assert!(report["results"].as_u64() > Some(20), "and twenty at once were not: {report}");
}

#[test]
fn a_flood_of_notifications_delays_no_call() {
    let report = is_content(&["floods-notifications"], &["--queue-bytes", "4MiB"], &["well-behaved"]);
    assert_eq!((&report["results"], &report["errors"]), (&json!(2), &json!({})), "{report}");
    assert_bounded(&report);
}

/// Nobody reads them at the other end either, so they are dropped, and the call behind them is refused or runs out.
#[test]
fn a_flood_of_notifications_to_a_deaf_server_is_bounded() {
    let flags = [SHORT, &["--queue-bytes", "4MiB"]].concat();
    let report = is_content(&["floods-notifications"], &flags, &["stops-reading-after", "1"]);
    assert_eq!(report["results"], 1, "{report}");
    assert_bounded(&report);
}

#[test]
fn a_client_that_reads_only_at_the_end_gets_every_answer() {
    let report = is_content(&["reads-only-at-the-end"], &["--queue-bytes", "1MiB"], &["well-behaved"]);
    let refused = report["errors"]["-31005"].as_u64().unwrap_or_default();
    assert_eq!(report["results"].as_u64().map(|results| results + refused), Some(501), "{report}");
    assert_bounded(&report);
}

#[test]
fn a_client_that_never_reads_is_bounded_and_left() {
    let flags = [SHORT, &["--queue-bytes", "4MiB"]].concat();
    for server in
        [&["well-behaved"][..], &["floods-requests-to-client"], &["notification-flood"], &["stderr-flood"]]
    {
        let report = is_content(&["never-reads-stdout", "10000000"], &flags, server);
        assert_eq!(report["end"], "exit 0", "{report}");
        assert_bounded(&report);
    }
}

#[test]
fn a_client_that_stops_listening_is_noticed() {
    for server in [&["well-behaved"][..], &["ignores-everything"], &["progress-flood"]] {
        let report = is_content(&["stops-listening"], SHORT, server);
        assert_eq!(report["end"], "exit 0", "{report}");
    }
}

#[test]
fn a_client_that_leaves_without_a_word_leaves_nothing() {
    for server in ["well-behaved", "silent-at-start", "ignores-everything", "ignores-stdin-close"] {
        is_content(&["leaves-without-a-word"], SHORT, &[server]);
    }
}

#[test]
fn a_client_that_comes_and_goes_leaves_nothing() {
    for server in ["well-behaved", "ignores-stdin-close"] {
        let report = is_content(&["comes-and-goes", "6"], SHORT, &[server]);
        assert_eq!(report["ends"], json!(vec!["exit 0"; 6]), "{report}");
    }
}

#[test]
fn a_client_that_sends_sigterm_is_answered() {
    let report = is_content(&["terminates-in-mid-call"], SHORT, &["well-behaved"]);
    assert_eq!((&report["end"], &report["errors"]), (&json!("exit 143"), &json!({"-31008": 1})), "{report}");
    is_discontent_without_a_guard(&["terminates-in-mid-call"], &["well-behaved"], "unanswered");
}

#[test]
fn without_a_guard_half_a_request_is_met_with_silence() {
    is_discontent_without_a_guard(
        &["ends-with-half-a-request"],
        &["well-behaved"],
        "unanswered: 1 \\\"half\\\"",
    );
}

#[test]
fn without_a_guard_a_death_is_met_with_silence() {
    is_discontent_without_a_guard(&["floods-while-server-dies", "50"], &["well-behaved"], "unanswered");
}

#[test]
fn a_flood_meets_every_moment_of_a_death() {
    let report = is_content(&["floods-while-server-dies"], SHORT, &["well-behaved"]);
    assert!(report["errors"]["-31002"].as_u64() > Some(0), "it did die: {report}");
    assert!(report["results"].as_u64() > Some(0), "and came back: {report}");
}

#[test]
fn a_client_that_is_killed_leaves_nothing() {
    for server in [&["well-behaved"][..], &["ignores-everything"], &["ignores-stdin-close"]] {
        let sandbox = Sandbox::new();
        let (code, text, stderr) =
            run_to_end(client_command(&sandbox, &["killed-in-mid-call"], SHORT, server));
        assert_eq!(code, 128 + 9, "{server:?}: {text} {stderr}");
        assert_eq!(report_in(&text)["complaints"], json!([]), "{text}");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn without_a_guard_a_killed_client_leaves_its_server() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.args(["zoo", "killed-in-mid-call", "--", lab_program(), "zoo", "ignores-stdin-close"]);
    // Its server holds stderr open, so the end of that cannot be waited for.
    let mut client = Client::start(command);
    assert_eq!(client.exit_code(), 128 + 9);
    let left = sandbox.survivors();
    assert_eq!(left.len(), 1, "{left:?}");
    crate::harness::signal(left[0].0, rustix::process::Signal::KILL);
    wait_until("the end of the server", crate::harness::PATIENCE, || !is_alive(left[0].0));
}

/// Each of these clients against each of these servers: whatever the pair does, each request gets exactly one answer.
macro_rules! each_pair {
    ($($test:ident: [$($client:expr),+];)+) => {
        $(#[test] fn $test() {
            for server in NASTY {
                let flags = [SHORT, &["--queue-bytes", "2MiB", "--breaker-cooldown", "500ms"]].concat();
                is_content(&[$($client),+], &flags, server);
            }
        })+
    };
}

const NASTY: [&[&str]; 8] = [
    &["dies-every-call"],
    &["half-line-then-dies"],
    &["flood-while-dying", "2000"],
    &["exits-zero-after-each-answer"],
    &["stops-reading-after", "2"],
    &["answers-twice"],
    &["wrong-id"],
    &["stdout-noise"],
];

each_pair! {
    a_flood_of_requests_to_nasty_servers: ["floods-requests", "300"];
    reading_only_at_the_end_from_nasty_servers: ["reads-only-at-the-end", "50", "20000"];
    closing_stdin_on_nasty_servers: ["closes-stdin-in-mid-call"];
    cancelling_at_nasty_servers: ["cancels-in-a-loop", "20"];
    garbage_to_nasty_servers: ["garbage-between-requests"];
    a_batch_to_nasty_servers: ["batches", "50"];
}
