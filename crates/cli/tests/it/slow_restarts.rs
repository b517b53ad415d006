//! Calls with which a server goes on as tasks of its own, and that became jobs: they outlive the unhang that waited for them, and the next
//! one has the answer (issue 7). The server is asked once.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, handed_over},
    gateway::{finish, server, window},
    gateway_access::ONE,
    gateway_http,
    harness::{Client, PATIENCE, Remote, Sandbox, Web, run_to_end, wait_until},
    slow_tasks::{EXTENSION, Modern},
};

/// A server that is elsewhere, and gives out tasks.
fn far(remote: &Remote, limits: &str) -> String {
    format!("[servers.far]\nurl = {:?}\nlimits.promote-after = \"300ms\"\n{limits}\n", remote.url)
}

fn configure(sandbox: &Sandbox, servers: &str) {
    fs::write(sandbox.path().join("unhang.toml"), servers).expect("a file");
}

/// The job that a call has become with which the server goes on as a task.
#[track_caller]
fn begun(client: &mut impl Calls, tool: &str, seconds: f64) -> Value {
    handed_over(&client.result(tool, json!({ "seconds": seconds, "label": "x" })))
}

/// Returns what `unhang job show` prints about a job.
#[track_caller]
pub(crate) fn shown(sandbox: &Sandbox, job: &Value) -> Value {
    let mut command = sandbox.unhang();
    command.args(["job", "show", job.as_str().expect("an id"), "--output", "json"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

pub(crate) fn kill(process: &mut Client) {
    process.signal(Signal::KILL);
    assert_eq!(process.exit_code(), 128 + 9);
}

/// Ends a process by SIGTERM.
pub(crate) fn terminate(process: &mut Client) {
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
}

/// What is kept of a task of a server for whoever takes it up, once its client is known too, which follows it as a task of ours.
#[track_caller]
fn ticket(sandbox: &Sandbox, task: &Value) -> Value {
    let name = format!("jobs/{}/job.json", task.as_str().expect("an id"));
    let record = || {
        let path = sandbox.files().into_iter().find(|path| path.ends_with(&name))?;
        serde_json::from_slice::<Value>(&fs::read(sandbox.path().join(path)).ok()?).ok()
    };
    let ticket = || record().map(|record| record["call"]["ticket"].clone()).unwrap_or_default();
    wait_until("the task is known", PATIENCE, || ticket()["details"]["followers"].is_object());
    ticket()
}

fn calls(remote: &Remote) -> usize {
    remote.count(|seen| seen["rpc"] == "tools/call" && seen["tool"] == "batch_compute")
}

fn cancelled(remote: &Remote) -> usize {
    remote.count(|seen| seen["rpc"] == "tasks/cancel")
}

/// The calls of a tool that needs tasks, for a client that has not asked for one: the server refuses the first (-32021).
const CALLS: usize = 2;

/// Demands that a job has ended well, and that its server accepted one call for it.
#[track_caller]
fn answered_once(client: &mut impl Calls, job: &Value, remote: &Remote) {
    assert_eq!(client.whole(job), [json!({ "type": "text", "text": "computed x" })]);
    assert_eq!((calls(remote), cancelled(remote)), (CALLS, 0));
}

#[test]
fn a_task_of_a_server_is_taken_up_when_unhang_was_killed() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    // Whoever has a token is known in the next run.
    let joins = "tools.batch_compute.join-same-call = true";
    configure(&sandbox, &format!("{}\n[http]\ntokens = [{ONE:?}]\n", far(&remote, joins)));
    let (mut process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web.with_token(ONE), "one");
    let job = begun(&mut session, "far__batch_compute", 8.0);
    kill(&mut process);
    // A process without the server does not change the job.
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web.with_token(ONE), "one");
    wait_until("it is taken up", PATIENCE, || process.stderr().contains("unhang continues the job"));
    // The same call is still the same.
    assert_eq!(begun(&mut session, "far__batch_compute", 8.0), job);
    answered_once(&mut session, &job, &remote);
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_task_of_a_server_is_taken_up_after_an_end_in_order() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, ""));
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), "far__batch_compute", 6.0);
    terminate(&mut process);
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    // A window whose client leaves leaves it as well.
    let mut client = window(&sandbox, &[]);
    wait_until("it is taken up", PATIENCE, || client.stderr().contains("unhang continues the job"));
    client.finish();
    assert_eq!(shown(&sandbox, &job)["status"], "running");
    let mut client = window(&sandbox, &[]);
    answered_once(&mut client, &job, &remote);
    drop(remote);
    finish(client, &sandbox);
}

#[test]
fn a_window_that_follows_takes_up_what_its_leader_has_left() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, ""));
    let mut leader = window(&sandbox, &[]);
    let job = begun(&mut leader, "far__batch_compute", 4.0);
    let mut follower = window(&sandbox, &[]);
    assert!(follower.stderr().contains("the gateway that already runs"), "{}", follower.stderr());
    kill(&mut leader);
    answered_once(&mut follower, &job, &remote);
    drop(remote);
    finish(follower, &sandbox);
}

#[test]
fn a_task_that_becomes_known_after_its_job_is_taken_up() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, ""));
    let (mut process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    // It is a job before its server has heard of it.
    let params =
        json!({ "name": "far__batch_compute", "arguments": { "seconds": 4, "label": "x" }, "task": {} });
    let answer = session.ask("tools/call", params);
    let task = answer["result"]["task"]["taskId"].clone();
    let ticket = ticket(&sandbox, &task);
    assert_eq!(ticket["details"]["task"]["dialect"], "extension");
    kill(&mut process);
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    let result = session.ask("tasks/result", json!({ "taskId": task }));
    assert_eq!(result["result"]["content"][0]["text"], "computed x", "{result}");
    assert_eq!((calls(&remote), cancelled(&remote)), (1, 0));
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn what_a_task_asks_that_was_taken_up_is_asked_of_whoever_follows_it() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, ""));
    let (mut process, web) = Web::start(&sandbox);
    let can = json!({ "elicitation": {}, "extensions": { EXTENSION: {} } });
    let call = json!({ "name": "far__confirm_delete", "arguments": { "filename": "f", "seconds": 2 } });
    let answer = Modern::Web(web).ask_as("tools/call", call, can.clone());
    let task = answer["result"]["taskId"].clone();
    ticket(&sandbox, &task);
    kill(&mut process);
    let (process, web) = Web::start(&sandbox);
    let mut client = Modern::Web(web);
    let until = |client: &mut Modern, status: &str| {
        let mut told = Value::Null;
        wait_until(status, PATIENCE, || {
            told = client.ask_as("tasks/get", json!({ "taskId": task }), can.clone())["result"].clone();
            told["status"] == status
        });
        told
    };
    let asked = until(&mut client, "input_required");
    let key = asked["inputRequests"].as_object().and_then(|asked| asked.keys().next()).expect("a question");
    let answer = json!({ key: { "action": "accept", "content": { "confirm": true } } });
    let update = json!({ "taskId": task, "inputResponses": answer });
    let answer = client.ask_as("tasks/update", update, can.clone());
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let told = until(&mut client, "completed");
    assert_eq!(told["result"]["content"][0]["text"], "deleted f", "{told}");
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_task_that_was_taken_up_is_cancelled_with_its_job() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, ""));
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), "far__batch_compute", 600.0);
    kill(&mut process);
    // As many as have the server, and one of them takes it up.
    let [(one, web), (other, _)] = [Web::start(&sandbox), Web::start(&sandbox)];
    let taken = || [&one, &other].map(|process| process.stderr().matches("unhang continues the job").count());
    wait_until("it is taken up", PATIENCE, || taken() != [0, 0]);
    let ended = Session::begin(&web, "one").result("terminate_job", json!({ "job_id": job }));
    assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
    remote.wait_for("its server hears of it", |seen| seen["rpc"] == "tasks/cancel");
    assert_eq!(taken().iter().sum::<usize>(), 1);
    assert_eq!(calls(&remote), CALLS);
    drop(remote);
    for mut process in [one, other] {
        terminate(&mut process);
    }
    sandbox.assert_nothing_left();
}

#[test]
fn a_task_that_was_taken_up_has_the_time_that_is_left_of_its_job() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    configure(&sandbox, &far(&remote, "limits.job-timeout = \"5s\""));
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), "far__batch_compute", 600.0);
    kill(&mut process);
    // What counts is what it began with.
    configure(&sandbox, &far(&remote, "limits.job-timeout = \"1h\""));
    let (process, web) = Web::start(&sandbox);
    wait_until("it is taken up", PATIENCE, || process.stderr().contains("unhang continues the job"));
    let told = Session::begin(&web, "one").at_its_end(&job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("timeout")), "{told}");
    remote.wait_for("its server hears of it", |seen| seen["rpc"] == "tasks/cancel");
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_task_that_its_server_has_forgotten_fails_with_the_reason() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-tasks-modern", "--ttl", "3000"]);
    configure(&sandbox, &far(&remote, ""));
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), "far__batch_compute", 600.0);
    kill(&mut process);
    let (process, web) = Web::start(&sandbox);
    let told = Session::begin(&web, "one").at_its_end(&job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("server_error")), "{told}");
    let detail = told["detail"].as_str().expect("a sentence");
    for words in ["`far` no longer knows the task", "Task not found", "check before you repeat it"] {
        assert!(detail.contains(words), "{detail}");
    }
    drop(remote);
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_task_whose_server_is_nobodys_ends_when_its_time_is_over() {
    let sandbox = Sandbox::with_jobs();
    let [remote, namesake] = [(), ()].map(|()| Remote::start(&sandbox, &["http-tasks-modern"]));
    configure(&sandbox, &far(&remote, "limits.job-timeout = \"6s\""));
    let (mut process, web) = Web::start(&sandbox);
    let job = begun(&mut Session::begin(&web, "one"), "far__batch_compute", 600.0);
    kill(&mut process);
    // Another one of the same name has not got it.
    configure(&sandbox, &far(&namesake, ""));
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    let told = session.result("get_job_status", json!({ "job_id": job }));
    assert_eq!(told["structuredContent"]["status"], "running", "{told}");
    let told = session.at_its_end(&job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("timeout")), "{told}");
    assert!(
        told["detail"].as_str().is_some_and(|detail| detail.contains("no process with this server")),
        "{told}"
    );
    assert_eq!(namesake.count(|seen| seen["rpc"] == "tasks/get"), 0);
    drop((remote, namesake));
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_task_of_a_command_that_keeps_its_tasks_is_taken_up() {
    let sandbox = Sandbox::with_jobs();
    let faulty_server = ["tasks-legacy", "--state", "tasks.json"];
    configure(&sandbox, &server("near", &faulty_server, "limits.promote-after = \"300ms\""));
    let mut client = window(&sandbox, &[]);
    let job = begun(&mut client, "near__batch_compute", 4.0);
    kill(&mut client);
    let mut client = window(&sandbox, &[]);
    assert_eq!(client.whole(&job), [json!({ "type": "text", "text": "computed x" })]);

    // What ends with us ends as it always has, and its server is told.
    let job = begun(&mut client, "near__batch_compute", 600.0);
    client.finish();
    let told = shown(&sandbox, &job);
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!("client_gone")), "{told}");
    sandbox.assert_nothing_left();
}
