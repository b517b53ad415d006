//! Calls over HTTP that became jobs and whose answers come on streams: the next unhang resumes the stream where the server allows it. The
//! server is asked once (issue 24).

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, handed_over},
    gateway::{finish, window},
    gateway_http,
    harness::{Client, PATIENCE, Remote, Sandbox, Web, run_to_end, wait_until},
    slow_restarts::{kill, shown, terminate},
};

/// The session in which the first unhang has called: it is the first of its server.
const SESSION: &str = "session-1";

/// Configures the server.
fn configure(sandbox: &Sandbox, remote: &Remote, more: &str) {
    let servers =
        format!("[servers.far]\nurl = {:?}\nlimits.promote-after = \"300ms\"\n{more}\n", remote.url);
    fs::write(sandbox.path().join("unhang.toml"), servers).expect("a file");
}

#[track_caller]
fn begun(client: &mut impl Calls, seconds: u32, bytes: u32) -> Value {
    handed_over(&client.result("far__wait", json!({ "seconds": seconds, "bytes": bytes })))
}

/// Runs `unhang job` with these arguments and returns what it says.
#[track_caller]
fn said(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let mut command = sandbox.unhang();
    command.arg("job").args(arguments).args(["--output", "json"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains(SESSION) && !stderr.contains(SESSION), "{stdout}{stderr}");
    stdout
}

/// The ticket of a job, once it names an event after the first.
#[track_caller]
fn until_noted(sandbox: &Sandbox, job: &Value) -> Value {
    let name = format!("jobs/{}/job.json", job.as_str().expect("an id"));
    let mut stream = Value::Null;
    wait_until("the stream is noted", PATIENCE, || {
        let path = sandbox.files().into_iter().find(|path| path.ends_with(&name));
        let path = path.map(|path| sandbox.path().join(path));
        let record = path.as_ref().and_then(|path| fs::read(path).ok());
        let Some(record) = record.and_then(|record| serde_json::from_slice::<Value>(&record).ok()) else {
            return false;
        };
        stream = record["call"]["ticket"]["details"]["stream"].clone();
        let mode = path.and_then(|path| Some(fs::metadata(path).ok()?.permissions().mode()));
        assert_eq!(mode.map(|mode| mode & 0o777), Some(0o600), "the session is a secret");
        stream["last_event"].as_str().is_some_and(|event| !event.ends_with("/0"))
    });
    stream
}

fn calls(remote: &Remote) -> usize {
    remote.count(|seen| seen["did"] == "asked" && seen["rpc"] == "tools/call")
}

/// How often the server has heard that nobody waits for a request of this session. A window that ends may withdraw lists of its own session.
fn cancelled(remote: &Remote) -> usize {
    remote.count(|seen| seen["rpc"] == "notifications/cancelled" && is_of_session(seen))
}

/// Whether this request is of the session in which the call was made.
fn is_of_session(seen: &Value) -> bool {
    seen["headers"]["mcp-session-id"] == SESSION
}

fn is_deletion(seen: &Value) -> bool {
    seen["verb"] == "DELETE" && is_of_session(seen)
}

fn is_resumption(seen: &Value) -> bool {
    seen["verb"] == "GET" && seen["headers"]["last-event-id"].is_string()
}

/// Demands that a job has ended well, that its server was called once, and that the session has ended with the job.
#[track_caller]
fn answered_once(client: &mut impl Calls, job: &Value, remote: &Remote, bytes: usize) {
    assert_eq!(
        client.whole(job),
        [json!({ "type": "text", "text": format!("waited {}", "x".repeat(bytes)) })]
    );
    assert_eq!((calls(remote), cancelled(remote)), (1, 0));
    let resumed = remote.wait_for("it is resumed", is_resumption);
    assert!(is_of_session(&resumed), "{resumed}");
    assert_eq!(resumed["headers"]["mcp-protocol-version"], "2025-11-25");
    remote.wait_for("the session is deleted", is_deletion);
    assert_eq!(remote.count(|seen| seen["rpc"] == "initialize" && is_of_session(seen)), 0);
}

/// Demands that a job is lost with its stream, and that the reason names these words.
#[track_caller]
fn lost(told: &Value, words: &[&str]) {
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("lost"), &json!("stream_not_resumable")),
        "{told}"
    );
    let detail = told["detail"].as_str().expect("a sentence");
    for words in words.iter().chain(&["declares that the call is safe to repeat"]) {
        assert!(detail.contains(words), "{words}: {detail}");
    }
    assert!(!detail.contains(SESSION), "{detail}");
}

#[test]
fn a_stream_is_resumed_when_unhang_was_killed() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-replays"]);
    configure(&sandbox, &remote, "");
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), 8, 100_000);
    let noted = until_noted(&sandbox, &job);
    assert_eq!((&noted["session"], &noted["revision"]), (&json!(SESSION), &json!("2025-11-25")));
    kill(&mut process);
    assert!(!process.stderr().contains(SESSION), "{}", process.stderr());
    // Whoever does not have the server leaves it alone.
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    assert!(said(&sandbox, &["list"]).contains("running"));
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    wait_until("it is taken up", PATIENCE, || process.stderr().contains("unhang continues the job"));
    let told = session.result("get_job_status", json!({ "job_id": job }));
    assert_eq!(told["structuredContent"]["status"], "running", "{told}");
    answered_once(&mut session, &job, &remote, 100_000);
    let resumed = remote.wait_for("it is resumed", is_resumption);
    assert_ne!(resumed["headers"]["last-event-id"], "1/0", "{resumed}");
    assert!(!process.stderr().contains(SESSION), "{}", process.stderr());
    shown(&sandbox, &job);
    // The record of an ended job has no session, and neither has a log.
    for path in sandbox.files() {
        let name = path.to_string_lossy().into_owned();
        if name.ends_with("job.json") || name.ends_with(".log") {
            let text =
                String::from_utf8_lossy(&fs::read(sandbox.path().join(path)).expect("a file")).into_owned();
            assert!(!text.contains(SESSION), "{name}: {text}");
        }
    }
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_stream_is_resumed_after_an_end_in_order() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-replays", "--busy", "1"]);
    configure(&sandbox, &remote, "");
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), 8, 10);
    terminate(&mut process);
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    assert_eq!((cancelled(&remote), remote.count(is_deletion)), (0, 0));
    // A window whose client leaves leaves it as well.
    let mut client = window(&sandbox, &[]);
    wait_until("it is taken up", PATIENCE, || client.stderr().contains("unhang continues the job"));
    remote.wait_for("it is resumed", is_resumption);
    client.finish();
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    assert_eq!((cancelled(&remote), remote.count(is_deletion)), (0, 0));
    let mut client = window(&sandbox, &[]);
    answered_once(&mut client, &job, &remote, 10);
    drop(remote);
    finish(client, &sandbox);
}

/// The replies that the server has got to its questions.
fn replies(remote: &Remote) -> usize {
    remote.count(|seen| seen["verb"] == "POST" && seen["rpc"] == "" && seen["id"].is_string())
}

/// A question of a task is open when the gateway ends. The next one hears it again from the server, and its client answers.
#[test]
fn a_question_that_is_open_when_a_gateway_ends_is_answered_through_the_next_one() {
    let ends: [fn(&mut Client); 3] = [kill, terminate, |client| {
        client.close_stdin();
        assert_eq!(client.exit_code_within(Duration::from_secs(10)), 0, "{}", client.stderr());
    }];
    for end in ends {
        let sandbox = Sandbox::with_jobs();
        let remote = Remote::start(&sandbox, &["http-replays", "--asks", "5"]);
        configure(&sandbox, &remote, "");
        let mut client = window(&sandbox, &[]);
        let params = json!({ "name": "far__wait", "arguments": { "seconds": 1, "bytes": 10 }, "task": {} });
        let task = client.ask("tools/call", params)["result"]["task"]["taskId"].clone();
        let about = json!({ "taskId": task });
        let mut told = Value::Null;
        wait_until("the question", PATIENCE, || {
            told = client.ask("tasks/get", about.clone())["result"].clone();
            told["status"] == "input_required"
        });
        // The point before the question is on the disk.
        until_noted(&sandbox, &task);
        end(&mut client);
        assert_eq!((replies(&remote), cancelled(&remote), remote.count(is_deletion)), (0, 0, 0), "{end:?}");
        let mut client = window(&sandbox, &[]);
        let waits = client.request("tasks/result", about.clone());
        // An answer under the name that the question had at the last gateway counts for nothing.
        let mut answered = Vec::new();
        let result = loop {
            let next = client.find("a question or the result", |message| {
                let is_question = message["method"] == "elicitation/create";
                message["id"] == waits || (is_question && !answered.contains(&message["id"]))
            });
            if next["id"] == waits {
                break next;
            }
            client.respond(&next["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
            answered.push(next["id"].clone());
        };
        let text = result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
        assert!(text.starts_with("waited xxxxxxxxxxheard") && text.contains("Ada"), "{text}");
        assert_eq!((calls(&remote), cancelled(&remote), replies(&remote)), (1, 0, 1));
        remote.wait_for("the session is deleted", is_deletion);
        drop(remote);
        finish(client, &sandbox);
    }
}

#[test]
fn a_stream_that_its_server_refuses_to_resume_is_lost_with_the_reason() {
    for status in ["400", "404", "405"] {
        let sandbox = Sandbox::with_jobs();
        let remote = Remote::start(&sandbox, &["http-replays", "--refuses", status]);
        configure(&sandbox, &remote, "");
        let (mut process, web) = Web::start(&sandbox);
        let job = begun(&mut Session::begin(&web, "one"), 600, 0);
        kill(&mut process);
        let (process, web) = Web::start(&sandbox);
        let told = Session::begin(&web, "one").at_its_end(&job);
        let refusal = format!("HTTP {status}: no stream of (session)");
        lost(&told, &["could not be resumed at `far`", &refusal]);
        assert_eq!(calls(&remote), 1);
        assert!(!process.stderr().contains(SESSION), "{}", process.stderr());
        drop(remote);
        gateway_http::finish(process, &sandbox);
    }
}

#[test]
fn a_stream_without_ids_and_one_of_2026_are_lost_with_unhang() {
    let cases = [
        (&["http-replays", "--ids", "no"][..], "`far` had sent no event with an id"),
        (&["http-well-behaved", "--dialect", "modern"], "`far` speaks revision 2026-07-28"),
    ];
    for (faulty_server, words) in cases {
        let sandbox = Sandbox::with_jobs();
        let remote = Remote::start(&sandbox, faulty_server);
        configure(&sandbox, &remote, "");
        for end in [kill, terminate] {
            let (mut process, web) = Web::start(&sandbox);
            let job = begun(&mut Session::begin(&web, "one"), 600, 0);
            end(&mut process);
            // unhang settles the job without asking the server.
            lost(&shown(&sandbox, &job), &["before the", "answer", words]);
        }
        assert_eq!((calls(&remote), remote.count(is_resumption)), (2, 0));
        drop(remote);
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_stream_that_was_resumed_is_cancelled_with_its_job() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-replays"]);
    configure(&sandbox, &remote, "");
    let (mut process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    // Both are of one session at the server.
    let [job, other] = [(), ()].map(|()| begun(&mut session, 600, 0));
    kill(&mut process);
    let (process, web) = Web::start(&sandbox);
    let is_taken = || process.stderr().matches("unhang continues the job").count() == 2;
    wait_until("both are taken up", PATIENCE, is_taken);
    let mut session = Session::begin(&web, "one");
    let mut cancel = |job: &Value, times: usize| {
        let ended = session.result("terminate_job", json!({ "job_id": job }));
        assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
        let is_told = |seen: &Value| seen["rpc"] == "notifications/cancelled" && is_of_session(seen);
        wait_until("its server hears of it", PATIENCE, || remote.count(is_told) == times);
    };
    cancel(&job, 1);
    assert_eq!(remote.count(is_deletion), 0, "the other job needs the session");
    assert_eq!(shown(&sandbox, &other)["status"], "running");
    cancel(&other, 2);
    remote.wait_for("the session is deleted", is_deletion);
    assert_eq!(calls(&remote), 2);
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_stream_that_was_resumed_has_the_time_that_is_left_of_its_job() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-replays"]);
    configure(&sandbox, &remote, "limits.job-timeout = \"5s\"");
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), 600, 0);
    kill(&mut process);
    let (process, web) = Web::start(&sandbox);
    wait_until("it is taken up", PATIENCE, || process.stderr().contains("unhang continues the job"));
    let told = Session::begin(&web, "one").at_its_end(&job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("timeout")), "{told}");
    remote.wait_for("its server hears of it", |seen| {
        seen["rpc"] == "notifications/cancelled" && is_of_session(seen)
    });
    remote.wait_for("the session is deleted", is_deletion);
    drop(remote);
    gateway_http::finish(process, &sandbox);
}
