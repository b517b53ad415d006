//! Jobs of calls of a window that follows another one. They outlive the window that has made the call and the window that leads, by whatever
//! cause these end: the tool runs once, any process finds the job, and no process is left.

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

/// Ends the window that follows in one way, and demands the whole answer.
#[track_caller]
fn outlives_follower(code: i32, end: fn(&mut Client)) {
    let mut windows = Windows::new();
    let job = windows.job("one");
    windows.end_follower(code, end);
    windows.completes(&job, "one");
    let Windows { leader, scene } = windows;
    Windows::seen_by(leader, &job);
    scene.sandbox.assert_nothing_left();
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

/// Ends the leader in one way, and demands that the window that followed it sees the whole answer.
#[track_caller]
fn outlives_leader(code: i32, end: fn(&mut Client)) {
    let mut windows = Windows::new();
    let job = windows.job("one");
    windows.end_leader(code, end);
    windows.scene.holder();
    windows.completes(&job, "one");
    let Windows { scene: Scene { client: follower, sandbox, .. }, .. } = windows;
    Windows::seen_by(follower.client, &job);
    sandbox.assert_nothing_left();
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
        let jobs = ["one", "two"].map(|label| (windows.job(label), label));
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
