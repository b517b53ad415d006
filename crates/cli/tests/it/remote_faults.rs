//! Servers over HTTP that fail, each in its own way: every command comes home within its limits, with the exit code and the sentence
//! for what happened, and nothing is done twice.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Remote, Sandbox, run_to_end, timed, wait_until};

/// Generous, and far below what a command would take that waits for a limit that it was not given.
const HOME: Duration = Duration::from_secs(20);

/// Runs `unhang WORDS` to its end, each `URL` in them being that of the server.
#[track_caller]
fn ask(sandbox: &Sandbox, remote: &Remote, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.unhang();
    command.args(words.iter().map(|word| word.replace("URL", &remote.url)));
    let (outcome, took) = timed(|| run_to_end(command));
    assert!(took < HOME, "{words:?} took {took:?}: {}", outcome.2);
    outcome
}

const CALL: &[&str] = &["call", "URL", "echo", "text=x"];
const SHORT_CALL: &[&str] = &["call", "URL", "echo", "text=x", "--call-timeout", "1s"];
const SMALL_CALL: &[&str] =
    &["call", "URL", "echo", "text=x", "--max-message", "64KiB", "--call-timeout", "5s"];

/// How often it was called.
fn calls(remote: &Remote) -> usize {
    remote.asked().iter().filter(|asked| asked["rpc"] == "tools/call").count()
}

/// Calls it, demands exit code and sentence, and that the call was made no more than once.
#[track_caller]
fn fails(faulty_server: &[&str], words: &[&str], code: i32, sentence: &str) {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, faulty_server);
    let (found, stdout, stderr) = ask(&sandbox, &remote, words);
    let sentence = format!(
        "unhang: {}",
        sentence.replace("`URL`", &format!("`{}`", remote.url)).replace("SERVER", &remote.url)
    );
    assert_eq!((found, &*stdout), (code, ""), "{faulty_server:?}: {stderr}");
    assert_eq!(
        stderr.lines().find(|line| line.starts_with("unhang: ")),
        Some(&*sentence),
        "{faulty_server:?}"
    );
    assert!(calls(&remote) <= 1, "{:#?}", remote.seen());
}

#[test]
fn what_does_not_answer_ends_at_its_deadline() {
    let late = "`URL` did not answer `tools/call` within 1s; unhang cancelled the call; raise --call-timeout if \
        it needs longer";
    fails(&["http-never-answers"], SHORT_CALL, 4, late);
    fails(&["http-drips-comments"], SHORT_CALL, 4, late);
    fails(&["http-wrong-ids"], SHORT_CALL, 4, late);
    fails(
        &["http-accepts-and-is-mute"],
        &["ping", "URL", "--start-timeout", "1s"],
        4,
        "`URL` did not answer `server/discover` within 1s; raise --start-timeout if it needs longer",
    );
}

#[test]
fn what_breaks_off_is_told_and_not_called_again() {
    fails(
        &["http-half-answer"],
        CALL,
        3,
        "`URL` gave no answer to `tools/call`: the connection broke: unexpected EOF during chunk size \
         line; the server may have carried out the request; send it again if it is safe to repeat",
    );
    fails(
        &["http-half-answer", "--stream", "yes"],
        CALL,
        3,
        "`URL` gave no answer to `tools/call`: the connection broke: unexpected EOF during chunk size \
         line; the server may have carried out the request; send it again if it is safe to repeat",
    );
    for (status, why) in [("405", "HTTP 405"), ("404", "HTTP 404")] {
        let sentence = format!(
            "`URL` broke off in its answer to `tools/call`, and unhang could not resume the answer: \
             {why}; the server may have carried out the request; send it again if it is safe to repeat"
        );
        fails(&["http-resumes", "--refuses", status], CALL, 3, &sentence);
    }
}

#[test]
fn what_refuses_is_told_with_its_words() {
    fails(
        &["http-refuses-calls", "503"],
        CALL,
        3,
        "`URL` answered `tools/call` with HTTP 503: the server is being replaced; try again later, or see its log",
    );
    fails(
        &["http-refuses-calls", "429"],
        CALL,
        3,
        "`URL` answered `tools/call` with HTTP 429: the server is being replaced; ask again later, or \
         send fewer requests at a time",
    );
    fails(
        &["http-refuses-after-initialize"],
        CALL,
        5,
        "`URL` answered `tools/list` with HTTP 400: Bad Request: No valid session ID provided; check whether it is an MCP server",
    );
    fails(
        &["http-wants-login"],
        CALL,
        3,
        "SERVER requires a login: run `unhang login SERVER`; or give it a token with --header \
         'Authorization: Bearer TOKEN'",
    );
}

#[test]
fn what_is_no_message_or_has_no_end_is_told() {
    fails(
        &["http-answers-html"],
        CALL,
        5,
        "`URL` gave no answer to `tools/call`: the HTTP response has the type text/html; charset=utf-8 \
         and is not a message (HTTP 200); check whether it is an MCP server",
    );
    let large = "`URL` gave no answer to `tools/call`: it is longer than the limit of 65536 bytes; ask for less, or raise --max-message";
    fails(&["http-endless-body"], SMALL_CALL, 5, large);
    fails(&["http-endless-event"], SMALL_CALL, 5, large);
}

#[test]
fn redirects_lead_to_no_other_origin_and_not_round_for_ever() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-redirects-elsewhere"]);
    let (code, _, stderr) = ask(&sandbox, &remote, CALL);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("which is another origin; use that URL, if you trust it"), "{stderr}");
    assert_eq!(remote.count(|seen| seen["did"] == "followed"), 0, "{:#?}", remote.seen());
    fails(
        &["http-redirects-in-a-loop"],
        CALL,
        3,
        "`URL` gave no answer to `server/discover`: it redirects more than 5 times; check the path of its URL",
    );
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let sandbox = Sandbox::new();
    let url = {
        let remote = Remote::start(&sandbox, &["http-well-behaved"]);
        remote.url
    };
    let mut command = sandbox.unhang();
    command.args(["call", &url, "echo", "text=x"]);
    let ((code, _, stderr), took) = timed(|| run_to_end(command));
    let sentence = format!(
        "unhang: `{url}` could not be reached: Connection refused (os error 111); check whether it runs, and whether its URL is right\n"
    );
    assert_eq!((code, &*stderr), (3, &*sentence));
    assert!(took < HOME, "{took:?}");
}

/// Before anybody is asked, and without a word of what may be secret in it.
#[test]
fn a_url_that_is_none_is_wrong_usage() {
    let sandbox = Sandbox::new();
    for (url, why) in [
        ("http://[bad?key=HUSH", "this text cannot be used: its URL is invalid: invalid IPv6 address"),
        (
            "http://127.0.0.1:99999/?key=HUSH",
            "this text cannot be used: its URL is invalid: invalid port number",
        ),
        ("ftp://127.0.0.1/?key=HUSH", "`ftp://` is not http:// or https://"),
        ("far", "`far` cannot be used: its URL is invalid: invalid port number"),
    ] {
        let config = "[servers.far]\nurl = 'http://127.0.0.1:99999/?key=HUSH'\n";
        fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["-v", "ping", url]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{url}: {stderr}");
        assert!(stderr.contains(why) && !stderr.contains("HUSH"), "{url}: {stderr}");
    }
}

#[test]
fn f_79_a_header_that_is_none_is_told_by_name_or_number_and_never_by_value() {
    let sandbox = Sandbox::new();
    for (header, why) in [
        ("X-Key: HUSH\u{1}", "the value of its header `x-key` has a character that a header cannot have"),
        ("X HUSH: a", "the name of its header number 2 is invalid"),
    ] {
        let mut command = sandbox.unhang();
        command.args(["-v", "ping", "http://127.0.0.1:1/mcp", "--header", "A: b", "--header", header]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{header}: {stderr}");
        assert!(stderr.contains(why) && !stderr.contains("HUSH"), "{header}: {stderr}");
    }
}

#[test]
fn a_stream_that_ends_before_its_answer_is_taken_up_again() {
    for words in [&["http-resumes"][..], &["http-resumes", "5"], &["http-resumes", "3", "--breaks", "yes"]] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, words);
        let (code, stdout, stderr) = ask(&sandbox, &remote, CALL);
        assert_eq!(code, 0, "{words:?}: {stderr}");
        assert!(stdout.contains("\"text\":\"x\""), "{stdout}");
        assert_eq!(calls(&remote), 1, "{words:?}");
    }
}

#[test]
fn a_forgotten_session_is_begun_anew_and_what_met_with_that_is_asked_again() {
    // Of sixteen calls at the same time, each may meet with it twice, which is once too often. So one session is enough for 21 calls: five
    // that it answers, and sixteen that fail.
    for (calls_in_session, jobs, calls) in [("1", "1", 40), ("5", "16", 120)] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, &["http-forgets-session", calls_in_session]);
        let line =
            format!("{}\n", json!({ "server": remote.url, "tool": "echo", "arguments": { "text": "x" } }));
        fs::write(sandbox.path().join("in.jsonl"), line.repeat(calls)).expect("a file");
        let (code, stdout, stderr) = ask(&sandbox, &remote, &["batch", "-j", jobs, "in.jsonl"]);
        if jobs == "1" {
            assert_eq!((code, &*stderr), (0, "unhang: 40 ok, 0 failed\n"), "{stdout}");
        } else {
            let odd = stdout.lines().filter(|line| line.contains("\"ok\":false"));
            let odd: Vec<_> = odd.filter(|line| !line.contains("Session not found")).collect();
            assert!(odd.is_empty(), "{odd:#?}");
        }
        let begun = remote.count(|seen| seen["rpc"] == "initialize");
        assert!(begun > 3, "{begun} sessions");
    }
}

#[test]
fn what_changes_nothing_is_asked_once_more_when_its_connection_closes() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-hangs-up-on-reuse"]);
    let (code, stdout, stderr) = ask(&sandbox, &remote, &["tools", "URL"]);
    assert_eq!(code, 0, "{stderr}{:#?}", remote.seen());
    assert!(stdout.contains("echo"), "{stdout}");
    let listed = remote.count(|seen| seen["rpc"] == "tools/list" || seen["rpc"] == "initialize");
    assert!(listed > 2, "one of the two was lost: {:#?}", remote.seen());
    // Of a call nobody knows whether it was carried out.
    let (code, _, stderr) = ask(&sandbox, &remote, CALL);
    assert!(code == 0 || code == 3 && stderr.contains("may have carried out"), "{code} {stderr}");
    assert_eq!(calls(&remote), 1);
}

#[test]
fn answers_that_come_with_each_others_requests_reach_their_own() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-swaps-answers"]);
    let line = |text: usize| {
        format!(
            "{}\n",
            json!({ "server": remote.url, "tool": "echo", "arguments": { "text": text.to_string() } })
        )
    };
    fs::write(sandbox.path().join("in.jsonl"), (1..=8).map(line).collect::<String>()).expect("a file");
    let (code, stdout, stderr) = ask(&sandbox, &remote, &["batch", "-j", "8", "in.jsonl"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for line in stdout.lines() {
        let outcome: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(outcome["result"]["content"][0]["text"], outcome["line"].to_string(), "{outcome}");
    }
}

#[test]
fn a_notification_that_is_never_taken_keeps_nobody_from_asking() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-initialized-unanswered"]);
    let (code, stdout, stderr) = ask(&sandbox, &remote, CALL);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("\"text\":\"x\""), "{stdout}");
}

#[test]
fn a_stream_that_ends_at_once_is_opened_again_ever_more_seldom() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-stream-ends-at-once"]);
    let mut command = sandbox.unhang();
    command.args(["batch", "-"]);
    let mut client = Client::start(command);
    let line = json!({ "server": remote.url, "tool": "echo", "arguments": { "text": "x" } });
    client.send(&line.to_string());
    client.next_line(PATIENCE).expect("an outcome");
    let opened = |seen: &Value| seen["verb"] == "GET";
    wait_until("it is opened", PATIENCE, || remote.count(opened) >= 1);
    let ((), took) = timed(|| wait_until("seven times", PATIENCE, || remote.count(opened) >= 8));
    assert!(took > Duration::from_secs(1), "it wants it back in a millisecond, and has it in {took:?}");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
}
