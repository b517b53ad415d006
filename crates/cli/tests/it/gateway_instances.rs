//! `unhang serve` in front of a server that works on one call at a time and has `instances`: a slow call holds up no other.

use std::{collections::BTreeSet, fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, StdioCaller, handed_over},
    gateway::{finish, gateway, listed, server, window},
    gateway_http,
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, run_to_end, timed, wait_until},
};

/// A quick call that waits for the slow one takes at least as long as this.
const BLOCKS: Duration = Duration::from_secs(60);

/// A server that works on one call at a time, two of which may run, with these words and this configuration besides. It answers questions
/// about itself, however busy the machine is.
fn blocking(words: &[&str], more: &str) -> String {
    let more = format!(
        "instances = 2\nlimits.busy-after = \"300ms\"\nlimits.promote-after = \"700ms\"\n\
         tools.pid.promote-after = \"off\"\ntools.seen.promote-after = \"off\"\n{more}"
    );
    server("srv", &[&["one-at-a-time"], words].concat(), &more)
}

fn work(length: Duration) -> Value {
    json!({ "ms": u64::try_from(length.as_millis()).expect("a number") })
}

/// Calls a tool that takes so long, and returns its job.
fn becomes_a_job(client: &mut Client, length: Duration) -> Value {
    let result = client.result("srv__work", work(length));
    handed_over(&result)
}

fn pid(client: &mut Client) -> i32 {
    client.tool_text("srv__pid", json!({})).parse().expect("a number")
}

/// Cancels a job that would go on for longer than the test, and waits until the server has gone.
fn finish_without(mut client: Client, sandbox: &Sandbox, job: &Value) {
    client.result("terminate_job", json!({ "job_id": job }));
    client.close_stdin();
    client.exit_code();
    wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());
}

#[test]
fn promise_8_a_quick_call_is_answered_while_a_slow_one_blocks_its_server() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[blocking(&[], "")]);
    let first = pid(&mut client);
    let job = becomes_a_job(&mut client, BLOCKS);
    let (second, took) = timed(|| pid(&mut client));
    assert!(took < BLOCKS / 2, "it waited for {took:?}");
    assert_ne!(first, second);
    let (again, took) = timed(|| pid(&mut client));
    assert!(took < BLOCKS / 2, "it waited for {took:?}");
    assert_eq!(again, second, "the second instance goes on");
    let told = client.result("get_job_status", json!({ "job_id": job }));
    assert_eq!(told["structuredContent"]["status"], "running", "{told}");
    finish_without(client, &sandbox, &job);
}

#[test]
fn a_window_that_follows_has_the_instances_of_the_leader() {
    let sandbox = Sandbox::with_jobs();
    let mut leader = gateway(&sandbox, &[blocking(&[], "")]);
    let first = pid(&mut leader);
    let mut follower = window(&sandbox, &[]);
    assert_eq!(pid(&mut follower), first);
    let job = becomes_a_job(&mut leader, BLOCKS);
    let (second, took) = timed(|| pid(&mut follower));
    assert!(took < BLOCKS / 2 && second != first, "it waited for {took:?}");
    assert_eq!(pid(&mut leader), second);
    follower.close_stdin();
    follower.exit_code();
    finish_without(leader, &sandbox, &job);
}

/// A job whose call waits for an instance ends with the gateway, and its reason does not say that the server may have worked on it.
#[test]
fn a_job_whose_call_no_server_has_says_so_when_the_gateway_ends() {
    for (signal, reason) in [
        (Signal::TERM, "the server had not got the call, so it is safe to call the tool again"),
        (Signal::KILL, "the server did not have the call when the job began and may never have got it"),
    ] {
        let sandbox = Sandbox::with_jobs();
        let (mut process, web) = over_http(&sandbox, &blocking(&[], ""));
        let mut session = Session::begin(&web, "one");
        let jobs = [(); 3].map(|()| handed_over(&session.result("srv__work", work(BLOCKS))));
        process.signal(signal);
        process.exit_code();
        let job = |words: &[&str]| {
            let mut command = sandbox.unhang();
            command.arg("job").args(words).args(["--output", "json"]);
            let (code, stdout, stderr) = run_to_end(command);
            assert_eq!(code, 0, "{stderr}");
            serde_json::from_str::<Value>(&stdout).expect("JSON")
        };
        let [first, second, waits] = jobs.map(|job| job.as_str().expect("an id").to_owned());
        let mut told = Value::Null;
        wait_until("the end of a job", PATIENCE, || {
            told = job(&["show", &waits]);
            told["status"] == "failed"
        });
        assert!(told["detail"].as_str().is_some_and(|detail| detail.contains(reason)), "{told}");
        for id in [first, second] {
            assert_eq!(job(&["show", &id])["status"], "running");
            job(&["cancel", &id]);
        }
        wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());
        gateway_http::finish(over_http(&sandbox, &blocking(&[], "")).0, &sandbox);
    }
}

/// The status of the only server.
fn status(web: &Web) -> Value {
    web.ask("GET", "/status", &[], "").last()["servers"][0].clone()
}

fn over_http(sandbox: &Sandbox, config: &str) -> (Client, Web) {
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let (process, web) = Web::start(sandbox);
    wait_until("the server has come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("text: {answer}"))
}

#[test]
fn a_further_instance_ends_when_it_is_idle_and_starts_again_when_it_is_needed() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = over_http(
        &sandbox,
        &blocking(&[], "idle-timeout = \"1s\"\nlimits.promote-after = \"off\"\n").replacen(
            "limits.promote-after = \"700ms\"\n",
            "",
            1,
        ),
    );
    let session = web.begin();
    let call = |id, tool: &str, arguments| web.call(&session, id, &format!("srv__{tool}"), arguments);
    let mut pids = BTreeSet::new();
    let slow = call(1, "work", work(Duration::from_secs(8)));
    for (starts, id) in [(2, 2), (3, 3)] {
        let further: i32 = text(&call(id, "pid", json!({})).last()).parse().expect("a number");
        let known = status(&web);
        assert_eq!((&known["starts"], &known["instances"]), (&json!(starts), &json!(2)), "{known}");
        assert!(is_alive(further) && pids.insert(further));
        wait_until("it is idle", PATIENCE, || status(&web)["instances"] == 1);
        wait_until("it has gone", PATIENCE, || !is_alive(further));
    }
    // The first one was at work all the time.
    assert_eq!(text(&slow.last()), "8000 ms are over");
    assert!(sandbox.log().contains("instance 2 of `srv` got no request for 1s"), "{}", sandbox.log());
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_call_waits_for_the_instance_that_is_free_first_when_all_are_busy() {
    let sandbox = Sandbox::with_jobs();
    let config = blocking(&[], "").replace("700ms", "1h");
    let mut client = gateway(&sandbox, &[config]);
    let first = pid(&mut client);
    let longer = client.call("srv__work", work(BLOCKS));
    let shorter = client.call("srv__work", work(Duration::from_secs(2)));
    let third = client.call("srv__pid", json!({}));
    let answer = client.answer(third);
    assert_eq!(client.answers_to(shorter), 1, "one instance was free again");
    assert_eq!(client.answers_to(longer), 0, "the other is at work");
    assert_ne!(text(&answer).parse::<i32>().expect("a number"), first);
    client.close_stdin();
    client.exit_code();
    wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());
}

#[test]
fn a_server_whose_call_was_cancelled_is_busy_until_it_shows_a_sign_of_life() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[blocking(&[], "")]);
    let first = pid(&mut client);
    let cancelled = client.call("srv__work", work(BLOCKS));
    // The second instance shows that the call has begun: it is needed.
    let second = pid(&mut client);
    client.notify("notifications/cancelled", json!({ "requestId": cancelled }));
    let ((third, fourth), took) = timed(|| (pid(&mut client), pid(&mut client)));
    assert!(took < BLOCKS / 2, "it waited for {took:?}");
    assert_eq!([third, fourth], [second, second]);
    assert!(is_alive(first));
    client.close_stdin();
    client.exit_code();
    wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());
}

#[test]
fn a_cancelled_call_frees_its_instance_once_the_server_answers_anything() {
    let sandbox = Sandbox::with_jobs();
    let config = blocking(&[], "").replace("instances = 2", "instances = 2\nlimits.call-timeout = \"50s\"");
    let mut client = gateway(&sandbox, &[config]);
    let first = pid(&mut client);
    let job = becomes_a_job(&mut client, BLOCKS);
    // On the second instance.
    let cancelled = client.call("srv__work", work(Duration::from_secs(2)));
    let waiting = client.call("srv__pid", json!({}));
    client.notify("notifications/cancelled", json!({ "requestId": cancelled }));
    let answer = client.answer(waiting);
    let second: i32 = text(&answer).parse().expect("a number");
    assert_ne!(second, first);
    assert_eq!(pid(&mut client), second);
    finish_without(client, &sandbox, &job);
}

#[test]
fn an_instance_that_cannot_be_started_costs_nobody_an_error() {
    let sandbox = Sandbox::with_jobs();
    let beside = sandbox.path().join("beside").display().to_string();
    let mut client = gateway(&sandbox, &[blocking(&["--fails-beside", &beside], "").replace("700ms", "1h")]);
    let first = pid(&mut client);
    let slow = client.call("srv__work", work(Duration::from_secs(3)));
    let waiting = client.call("srv__pid", json!({}));
    let [slow, waiting] = client.answers([slow, waiting]);
    assert_eq!((text(&slow), text(&waiting)), ("3000 ms are over", &*first.to_string()));
    let log = client.stderr();
    assert!(log.contains("instance 2 of `srv` cannot be started, so requests wait for the others"), "{log}");
    finish(client, &sandbox);
}

/// Returns what the instance that gets this call has heard of its client.
fn seen(client: &mut Client) -> Value {
    serde_json::from_str(&client.tool_text("srv__seen", json!({}))).expect("JSON")
}

#[test]
fn subscriptions_the_log_level_and_roots_reach_every_instance_and_a_change_is_told_once() {
    const URI: &str = "zoo://watched";
    let sandbox = Sandbox::with_jobs();
    let file = sandbox.path().join("watched");
    let words = ["--watch", file.to_str().expect("text")];
    let mut client = gateway(&sandbox, &[blocking(&words, "")]);
    let give_roots = |client: &mut Client, uri: &str| {
        let question = client.find("a request for roots", |message| message["method"] == "roots/list");
        client.respond(&question["id"], &json!({ "roots": [{ "uri": uri }] }));
    };
    give_roots(&mut client, "file:///one");
    listed(&mut client, "tools/list", "tools", "name");
    client.ask("logging/setLevel", json!({ "level": "warning" }));
    let uri = listed(&mut client, "resources/list", "resources", "uri").remove(0);
    client.ask("resources/subscribe", json!({ "uri": uri }));
    let at_first = |client: &mut Client, pid: &mut Value| {
        wait_until("the first instance knows it all", PATIENCE, || {
            let seen = seen(client);
            *pid = seen["pid"].clone();
            seen["level"] == "warning" && seen["roots"][0]["uri"] == "file:///one"
        });
    };
    let mut first = Value::Null;
    at_first(&mut client, &mut first);
    let job = becomes_a_job(&mut client, BLOCKS);
    // The second instance starts after all that.
    let waiting = client.call("srv__seen", json!({}));
    give_roots(&mut client, "file:///one");
    client.answer(waiting);
    let mut told = Value::Null;
    wait_until("the second instance knows it all", PATIENCE, || {
        told = seen(&mut client);
        let knows = told["level"] == "warning" && told["roots"][0]["uri"] == "file:///one";
        knows && told["subscribed"] == json!([URI])
    });
    assert_ne!(told["pid"], first);
    // Changes after the start of the second instance reach it too.
    client.ask("logging/setLevel", json!({ "level": "debug" }));
    client.notify("notifications/roots/list_changed", json!({}));
    give_roots(&mut client, "file:///two");
    wait_until("the second instance knows that", PATIENCE, || {
        told = seen(&mut client);
        told["level"] == "debug" && told["roots"][0]["uri"] == "file:///two"
    });
    // Both instances tell of a change. The first one has a thread for that.
    let updates = |client: &Client| {
        let all = client.seen().iter();
        all.filter(|message| message["method"] == "notifications/resources/updated").count()
    };
    for count in 1..=2 {
        fs::write(&file, "x".repeat(count)).expect("a file");
        client.find("a change", |message| message["method"] == "notifications/resources/updated");
        // Another change that is told twice would be told by then.
        let before = client.result("srv__work", work(Duration::from_millis(500)));
        assert_eq!(before["content"][0]["text"], "500 ms are over", "{before}");
        assert_eq!(updates(&client), count);
    }
    client.ask("resources/unsubscribe", json!({ "uri": uri }));
    wait_until("the second instance hears that nobody listens", PATIENCE, || {
        seen(&mut client)["subscribed"] == json!([])
    });
    finish_without(client, &sandbox, &job);
}

#[test]
fn what_an_instance_asks_in_a_call_goes_to_the_client_of_that_call() {
    let sandbox = Sandbox::with_jobs();
    let config = server(
        "srv",
        &["requests-to-client"],
        "instances = 2\nlimits.busy-after = \"300ms\"\nlimits.promote-after = \"off\"\n",
    );
    let (process, web) = over_http(&sandbox, &config);
    let sessions = [web.begin(), web.begin()];
    let mut calls = sessions.each_ref().map(|session| {
        let mut received = web.call(session, 1, "srv__echo", json!({ "text": session }));
        // The next call is made while these questions are open.
        let questions = [(); 3].map(|()| received.next().expect("a question"));
        let methods = questions.each_ref().map(|question| question["method"].as_str().expect("a method"));
        assert_eq!(methods, ["sampling/createMessage", "elicitation/create", "roots/list"]);
        (session, received, questions)
    });
    assert_eq!(status(&web)["instances"], 2);
    for (session, received, questions) in &mut calls {
        for question in questions {
            let result = json!({ "who": session });
            let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
            web.post(&[("mcp-session-id", session)], &answer);
        }
        let answered = received.next().expect("an answer");
        assert_eq!(text(&answered), "the client answered 4 questions", "{answered}");
    }
    gateway_http::finish(process, &sandbox);
}

/// The way of an agent that a job is made for, and nothing else.
#[test]
fn the_job_of_a_blocked_instance_ends_with_its_answer() {
    let sandbox = Sandbox::with_jobs();
    let mut client = StdioCaller::at(gateway(&sandbox, &[blocking(&[], "")]));
    let job = becomes_a_job(&mut client, Duration::from_secs(4));
    pid(&mut client);
    assert_eq!(client.whole(&job), [json!({ "type": "text", "text": "4000 ms are over" })]);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_that_blocks_while_a_job_runs_gets_a_hint_and_one_that_does_not_gets_none() {
    const HINT: &str = "works on one call at a time; `instances = 2` would answer others meanwhile";
    let limits = "limits.promote-after = \"500ms\"\nlimits.busy-after = \"300ms\"\n";
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["one-at-a-time"], limits)]);
    pid(&mut client);
    let job = becomes_a_job(&mut client, Duration::from_secs(10));
    for _ in 0..2 {
        let waiting = client.call("srv__work", work(Duration::ZERO));
        client.answer(waiting);
    }
    wait_until("the log says it", PATIENCE, || client.stderr().contains(HINT));
    let result = client.result("terminate_job", json!({ "job_id": job }));
    assert_eq!(result["isError"], Value::Null, "{result}");
    client.close_stdin();
    client.exit_code();
    assert_eq!(client.stderr_at_the_end().matches(HINT).count(), 1);
    wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());

    // One that works on several calls is slow with each of them, and answers a ping.
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["slow-answers"], limits)]);
    for label in ["one", "other"] {
        let result = client.result("srv__slow", json!({ "seconds": 5, "label": label }));
        let job = handed_over(&result);
        assert!(job.is_string());
    }
    client.tool_text("srv__slow", json!({ "seconds": 0.1, "label": "third" }));
    client.close_stdin();
    client.exit_code();
    let log = client.stderr_at_the_end();
    assert!(!log.contains(HINT), "{log}");
    wait_until("nothing runs", PATIENCE, || sandbox.survivors().is_empty());
}

#[test]
fn wrap_with_instances_answers_a_quick_call_while_a_slow_one_blocks_its_server() {
    let sandbox = Sandbox::with_jobs();
    let flags = ["--instances", "2", "--busy-after", "300ms", "--promote-after", "700ms"];
    let mut client = sandbox.wrap(&flags, &["one-at-a-time"]);
    client.initialize();
    let pid = |client: &mut Client| client.tool_text("pid", json!({}));
    let first = pid(&mut client);
    let result = client.result("work", work(BLOCKS));
    let job = handed_over(&result);
    let (second, took) = timed(|| pid(&mut client));
    assert!(took < BLOCKS / 2 && first != second, "it waited for {took:?}");
    finish_without(client, &sandbox, &job);
}

#[test]
fn wrap_with_one_instance_is_the_guard_and_refuses_a_number_that_is_none() {
    let sandbox = Sandbox::with_jobs();
    let mut client = sandbox.wrap(&["--instances", "1"], &["one-at-a-time"]);
    client.initialize();
    assert!(listed(&mut client, "tools/list", "tools", "name").contains(&"unhang_get_job_status".to_owned()));
    finish(client, &sandbox);
    for number in ["0", "65", "two"] {
        let command = sandbox.wrap_command(&["--instances", number], &["one-at-a-time"]);
        let (code, _, told) = run_to_end(command);
        assert_eq!(code, 2, "{told}");
        assert!(told.contains("write a whole number from 1 to 64"), "{told}");
    }
}
