//! Jobs of calls of a window that follows another one. They outlive the window that has made the call and the window that leads, by whatever
//! cause these end: the tool runs once, any process finds the job, and no process is left. The same holds for calls for which their client
//! has asked for a task.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, text},
    gateway::window,
    harness::{Client, PATIENCE, Sandbox, signal, wait_until},
    processes::lifeline,
    slow_gateway_outlives::configure,
    slow_outlives::{HOLDER, Scene, until_go},
};

/// The size of an answer.
const SIZE: usize = 50_000;

/// A window that leads, and one that follows it, which is the client of the scene. The server of the leader waits for `go`.
struct Windows {
    leader: Client,
    scene: Scene,
}

impl Windows {
    fn new() -> Windows {
        let sandbox = Sandbox::with_jobs();
        configure(&sandbox, "limits.stop-grace = \"500ms\"\n");
        let mut leader = window(&sandbox, &[]);
        assert_eq!(leader.counted(), [0, 0, 0]);
        let follower = window(&sandbox, &[]);
        assert!(follower.stderr().contains("the gateway that already runs"), "{}", follower.stderr());
        let lifeline = lifeline(&leader);
        let scene = Scene { client: StdioCaller::at(follower), lifeline, sandbox };
        Windows { leader, scene }
    }

    /// A job of the window that follows, whose call waits for `go`.
    #[track_caller]
    fn job(&mut self, label: &str) -> Value {
        let job = self.scene.job(until_go(label, SIZE));
        assert_eq!(self.scene.named(HOLDER), [0; 0], "nothing of it runs while the leader lives");
        job
    }

    /// The task that the client of the window that follows gets for a call with these params.
    #[track_caller]
    fn task_of(&mut self, mut arguments: Value, label: &str) -> Value {
        arguments["label"] = json!(label);
        let params = json!({ "name": "srv__slow", "arguments": arguments, "task": {}, "_meta": { "progressToken": label } });
        let created = self.scene.client.ask("tools/call", params);
        let task = created["result"]["task"]["taskId"].clone();
        assert!(task.is_string(), "{created}; {:.5000}", self.scene.client.stderr());
        task
    }

    /// A task of the window that follows, whose call waits for `go`.
    #[track_caller]
    fn task(&mut self, label: &str) -> Value {
        let task = self.task_of(until_go(label, SIZE), label);
        assert_eq!(self.scene.asked(&["\"tools/call\"", &format!("\"label\":\"{label}\"")]), 1);
        assert_eq!(self.scene.named(HOLDER), [0; 0], "nothing of it runs while the leader lives");
        task
    }

    /// Ends the leader in one way, and waits for its end.
    #[track_caller]
    fn end_leader(&mut self, code: i32, end: fn(&mut Client)) {
        end(&mut self.leader);
        assert_eq!(self.leader.exit_code_within(Duration::from_secs(10)), code, "{}", self.leader.stderr());
    }

    /// Ends the window that follows in one way, and waits for its end.
    #[track_caller]
    fn end_follower(&mut self, code: i32, end: fn(&mut Client)) {
        let follower = &mut self.scene.client;
        end(follower);
        assert_eq!(follower.exit_code_within(Duration::from_secs(10)), code, "{}", follower.stderr());
    }

    /// Lets the calls go on, and demands that the job has the whole answer, seen by a command, and that the tool ran once.
    #[track_caller]
    fn completes(&self, job: &Value, label: &str) {
        assert_eq!(self.scene.shown(job)["status"], "running");
        self.scene.go();
        let ended = self.scene.ended(job);
        assert_eq!(ended["status"], "completed", "{ended}; {:.5000}", self.scene.sandbox.log());
        let result = self.scene.unhang_job(&["result", job.as_str().expect("an id")]).to_string();
        assert!(result.contains(&text(SIZE)), "{result:.1000}");
        self.ran_once(label);
    }

    /// Demands that the server was sent the call once.
    #[track_caller]
    fn ran_once(&self, label: &str) {
        assert_eq!(self.scene.asked(&["\"tools/call\"", &format!("\"label\":\"{label}\"")]), 1);
    }

    /// Demands that a window sees the whole answer, and ends it.
    #[track_caller]
    fn seen_by(mut seer: Client, job: &Value) {
        assert_eq!(seer.whole(job), [json!({ "type": "text", "text": text(SIZE) })]);
        let log = seer.result("get_job_logs", json!({ "job_id": job }))["structuredContent"]["text"].clone();
        assert!(log.as_str().is_some_and(|log| log.contains("part 10 of 10")), "{log}");
        seer.finish();
    }
}

/// The ways in which a call of the window that follows becomes a job.
const WAYS: [fn(&mut Windows, &str) -> Value; 2] = [Windows::job, Windows::task];

/// Ends the window that follows in one way, and demands the whole answers.
#[track_caller]
fn outlives_follower(code: i32, end: fn(&mut Client)) {
    for begin in WAYS {
        let mut windows = Windows::new();
        let job = begin(&mut windows, "one");
        windows.end_follower(code, end);
        windows.completes(&job, "one");
        let Windows { leader, scene } = windows;
        Windows::seen_by(leader, &job);
        scene.sandbox.assert_nothing_left();
    }
}

#[test]
fn a_job_of_a_window_outlives_the_window_that_is_killed() {
    outlives_follower(128 + 9, |follower| follower.signal(Signal::KILL));
}

#[test]
fn a_job_of_a_window_outlives_the_window_that_is_terminated() {
    outlives_follower(128 + 15, |follower| follower.signal(Signal::TERM));
}

#[test]
fn a_job_of_a_window_outlives_the_client_that_closes_its_stdin() {
    outlives_follower(0, Client::close_stdin);
}

/// Ends the leader in one way, and demands that the window that followed it sees the whole answers.
#[track_caller]
fn outlives_leader(code: i32, end: fn(&mut Client)) {
    for begin in WAYS {
        let mut windows = Windows::new();
        let job = begin(&mut windows, "one");
        windows.end_leader(code, end);
        windows.scene.holder();
        windows.completes(&job, "one");
        let Windows { scene: Scene { client: follower, sandbox, .. }, .. } = windows;
        Windows::seen_by(follower.client, &job);
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_job_of_a_window_outlives_the_leader_that_is_killed() {
    outlives_leader(128 + 9, |leader| leader.signal(Signal::KILL));
}

#[test]
fn a_job_of_a_window_outlives_the_leader_that_is_terminated() {
    outlives_leader(128 + 15, |leader| leader.signal(Signal::TERM));
}

#[test]
fn a_job_of_a_window_outlives_the_client_that_closes_the_stdin_of_the_leader() {
    outlives_leader(0, Client::close_stdin);
}

/// The leader ends first, or the window that follows.
#[test]
fn a_job_of_a_window_outlives_both_windows() {
    for leader_is_first in [true, false] {
        let mut windows = Windows::new();
        let jobs = [(windows.job("one"), "one"), (windows.task("two"), "two")];
        let kill: fn(&mut Client) = |window| window.signal(Signal::KILL);
        let mut ends = [Windows::end_leader, Windows::end_follower];
        if !leader_is_first {
            ends.reverse();
        }
        ends.into_iter().for_each(|end| end(&mut windows, 128 + 9, kill));
        windows.scene.holder();
        let shown = windows.scene.shown(&jobs[1].0);
        assert_eq!(
            shown["status"],
            "running",
            "{leader_is_first} {shown}; {:.9000}",
            windows.scene.sandbox.log()
        );
        windows.completes(&jobs[0].0, jobs[0].1);
        assert_eq!(windows.scene.ended(&jobs[1].0)["status"], "completed");
        windows.ran_once(jobs[1].1);
        let next = window(&windows.scene.sandbox, &[]);
        Windows::seen_by(next, &jobs[1].0);
        windows.scene.sandbox.assert_nothing_left();
    }
}

/// The leader has the job after its window, and the call holder after both.
#[test]
fn a_job_whose_window_has_gone_is_cancelled_at_its_server() {
    for leader_ends in [false, true] {
        let mut windows = Windows::new();
        let job = windows.job("one");
        windows.end_follower(128 + 9, |follower| follower.signal(Signal::KILL));
        if leader_ends {
            windows.end_leader(128 + 9, |leader| leader.signal(Signal::KILL));
            windows.scene.holder();
        }
        windows.scene.unhang_job(&["cancel", job.as_str().expect("an id")]);
        assert_eq!(windows.scene.ended(&job)["status"], "cancelled");
        wait_until("the server hears of it", PATIENCE, || {
            windows.scene.asked(&["notifications/cancelled"]) == 1
        });
        windows.ran_once("one");
        let Windows { mut leader, scene } = windows;
        match leader_ends {
            false => leader.finish(),
            // The next window clears away what a killed one left.
            true => window(&scene.sandbox, &[]).finish(),
        }
        scene.sandbox.assert_nothing_left();
    }
}

/// The client of the window has the task as one of its own, though the leader has made it.
#[test]
fn a_task_of_a_window_is_followed_and_cancelled_by_its_client() {
    let mut windows = Windows::new();
    let [one, two] = ["one", "two"].map(|label| windows.task(label));
    let client = &mut windows.scene.client;
    let about = |task: &Value| json!({ "taskId": task });
    assert_eq!(client.ask("tasks/get", about(&one))["result"]["status"], "working");
    let listed = client.ask("tasks/list", json!({}));
    let listed: Vec<Value> = listed["result"]["tasks"].as_array().expect("tasks").clone();
    for task in [&one, &two] {
        assert!(listed.iter().any(|listed| listed["taskId"] == *task), "{listed:?}");
    }
    let waits = client.request("tasks/result", about(&one));
    assert_eq!(client.ask("tasks/cancel", about(&two))["result"]["status"], "cancelled");
    wait_until("the server hears of it", PATIENCE, || windows.scene.asked(&["notifications/cancelled"]) == 1);
    windows.scene.go();
    let client = &mut windows.scene.client;
    let result = client.outcome(waits);
    assert_eq!(result["result"]["content"], json!([{ "type": "text", "text": text(SIZE) }]), "{result:.500}");
    assert_eq!(client.ask("tasks/get", about(&one))["result"]["status"], "completed");
    for label in ["one", "two"] {
        windows.ran_once(label);
    }
    // An answer that comes at once is one of the task, too.
    let fast = windows.task_of(json!({ "seconds": 0 }), "fast");
    let client = &mut windows.scene.client;
    let result = client.ask("tasks/result", about(&fast));
    assert!(result["result"]["content"].is_array(), "{result}");
    assert_ne!(result["result"]["isError"], true, "{result}");
    let Windows { mut leader, scene: Scene { client: mut follower, sandbox, .. } } = windows;
    follower.finish();
    leader.finish();
    sandbox.assert_nothing_left();
}

/// The server asks its client while both windows live, and the client answers beside its `tasks/result`.
#[test]
fn a_question_about_a_task_of_a_window_reaches_its_client() {
    let mut windows = Windows::new();
    let mut arguments = until_go("asks", 64);
    (arguments["ask"], arguments["question"]) = (json!(true), json!("elicitation/create"));
    let task = windows.task_of(arguments, "asks");
    let client = &mut windows.scene.client;
    let waits = client.request("tasks/result", json!({ "taskId": task }));
    windows.scene.go();
    let client = &mut windows.scene.client;
    let question = client.find("a question", |message| message["method"] == "elicitation/create");
    client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let result = client.outcome(waits);
    assert!(result["result"]["content"].to_string().contains("Ada"), "{result}");
    let Windows { mut leader, scene: Scene { client: mut follower, sandbox, .. } } = windows;
    follower.finish();
    leader.finish();
    sandbox.assert_nothing_left();
}

/// If the lifeline does not confirm that it keeps the server, the leader makes no task, and the client gets an error.
#[test]
fn a_task_of_a_window_that_nothing_keeps_is_refused() {
    let mut windows = Windows::new();
    signal(windows.scene.lifeline, Signal::STOP);
    let params = json!({ "name": "srv__slow", "arguments": until_go("one", SIZE), "task": {} });
    let refused = windows.scene.client.ask("tools/call", params);
    signal(windows.scene.lifeline, Signal::CONT);
    assert_eq!(refused["error"]["code"], -31005, "{refused}");
    let message = refused["error"]["message"].as_str().expect("a sentence");
    assert!(message.contains("cannot continue as a task"), "{message}");
    wait_until("the server hears of it", PATIENCE, || windows.scene.asked(&["notifications/cancelled"]) == 1);
    wait_until("nothing is left of it", PATIENCE, || windows.scene.unhang_job(&["list"]) == json!([]));
    let Windows { mut leader, scene: Scene { client: mut follower, sandbox, .. } } = windows;
    follower.finish();
    leader.finish();
    sandbox.assert_nothing_left();
}

/// The lifeline does not confirm that it keeps the server, so the leader makes no job.
#[test]
fn a_window_whose_leader_makes_no_job_has_the_job_itself() {
    let mut windows = Windows::new();
    signal(windows.scene.lifeline, Signal::STOP);
    let job = windows.scene.job(until_go("one", SIZE));
    signal(windows.scene.lifeline, Signal::CONT);
    wait_until("the window says so", PATIENCE, || {
        windows.scene.client.stderr().contains("the leading window does not keep it")
    });
    windows.completes(&job, "one");
    let jobs = windows.scene.unhang_job(&["list"]);
    assert_eq!(jobs.as_array().expect("jobs").len(), 1, "nothing is left of the other: {jobs}");
    let Windows { mut leader, scene: Scene { client: follower, sandbox, .. } } = windows;
    Windows::seen_by(follower.client, &job);
    leader.finish();
    sandbox.assert_nothing_left();
}
