//! Jobs of calls behind `unhang wrap` that outlive the guard, by whatever cause it ends: the tool runs once, the job ends with the whole
//! answer or with the true reason, and no process is left.
//!
//! The server waits for the file `go`, so that no test depends on the speed of the machine. A recorder in front of it writes down what it
//! is sent.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]

use std::{
    fs,
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, handed_over, text},
    harness::{
        Client, PATIENCE, Sandbox, is_alive, lab_program, memory, run_to_end, signal, timed, wait_until,
    },
    processes::{children, entry, lifeline},
};

/// The name of a call holder in the table of processes.
pub(crate) const HOLDER: &str = "mcp-call-holder";

/// The size of an answer that fits into no pipe.
pub(crate) const LARGE: usize = 8 << 20;

/// A guard or a gateway with a server that waits for `go`.
pub(crate) struct Scene {
    pub(crate) client: StdioCaller,
    pub(crate) lifeline: i32,
    pub(crate) sandbox: Sandbox,
}

/// The command of a guard with a recorder in front of the server.
pub(crate) fn guard_of(sandbox: &Sandbox, server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(["-v", "wrap", "--name", "srv", "--promote-after", "500ms", "--stop-grace", "500ms", "--"]);
    command.args(server);
    command.process_group(0);
    command
}

/// The recorder and the server, as words of a command.
pub(crate) fn recorded() -> [&'static str; 7] {
    [lab_program(), "zoo", "tee", "asked", "said", "--", lab_program()]
}

/// A call that waits for `go` half way.
pub(crate) fn until_go(label: &str, size: usize) -> Value {
    json!({ "seconds": 0.2, "until": "go", "label": label, "size": size, "progress": true, "log": true })
}

impl Scene {
    pub(crate) fn guarded() -> Scene {
        let sandbox = Sandbox::with_jobs();
        let client = Client::start(guard_of(&sandbox, &[&recorded()[..], &["zoo", "slow-answers"]].concat()));
        Scene::of(sandbox, client)
    }

    pub(crate) fn of(sandbox: Sandbox, client: Client) -> Scene {
        Scene::of_caller(sandbox, StdioCaller { client, is_guarded: true })
    }

    pub(crate) fn of_caller(sandbox: Sandbox, mut client: StdioCaller) -> Scene {
        client.initialize();
        client.ask("logging/setLevel", json!({ "level": "info" }));
        Scene { lifeline: lifeline(&client), client, sandbox }
    }

    /// A job whose call waits for `go`.
    #[track_caller]
    pub(crate) fn job(&mut self, arguments: Value) -> Value {
        let tool = self.client.named("srv__slow");
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": arguments["label"] } });
        handed_over(&self.client.ask("tools/call", params)["result"])
    }

    /// Lets the calls of the server go on.
    pub(crate) fn go(&self) {
        fs::write(self.sandbox.path().join("go"), "").expect("a file");
    }

    /// Kills the guard.
    #[track_caller]
    pub(crate) fn kill_guard(&mut self) {
        self.client.signal(Signal::KILL);
        self.client.exit_code();
    }

    /// Kills the guard, and waits until the call holder goes on with the jobs.
    #[track_caller]
    pub(crate) fn kill(&mut self) -> i32 {
        self.kill_guard();
        let holder = self.holder();
        wait_until("it goes on", PATIENCE, || self.sandbox.log().contains("whose owner has ended"));
        holder
    }

    /// The processes of this test with this name.
    pub(crate) fn named(&self, name: &str) -> Vec<i32> {
        let all = self.sandbox.survivors().into_iter().map(|(pid, _)| pid);
        all.filter(|pid| entry(*pid).is_some_and(|entry| entry.name == name && !entry.is_zombie)).collect()
    }

    /// The only call holder, once it is there.
    #[track_caller]
    pub(crate) fn holder(&self) -> i32 {
        let mut all = Vec::new();
        wait_until("a call holder", PATIENCE, || {
            all = self.named(HOLDER);
            !all.is_empty()
        });
        assert_eq!(all.len(), 1, "one call holder for all jobs of a server");
        all[0]
    }

    /// How many lines the server was sent that have all these words.
    pub(crate) fn asked(&self, words: &[&str]) -> usize {
        let asked = fs::read_to_string(self.sandbox.path().join("asked")).unwrap_or_default();
        asked.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// What `unhang job` says, as JSON.
    #[track_caller]
    pub(crate) fn unhang_job(&self, words: &[&str]) -> Value {
        let mut command = self.sandbox.unhang();
        command.arg("job").args(words).args(["--output", "json"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{words:?}: {stdout} {stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("JSON ({error}): {stdout:.1000}"))
    }

    #[track_caller]
    pub(crate) fn shown(&self, job: &Value) -> Value {
        self.unhang_job(&["show", job.as_str().expect("an id")])
    }

    /// Waits until a job has ended, and returns what `unhang job show` prints of it.
    #[track_caller]
    pub(crate) fn ended(&self, job: &Value) -> Value {
        let mut shown = Value::Null;
        wait_until("the end of a job", PATIENCE, || {
            shown = self.shown(job);
            shown["status"] != "running"
        });
        shown
    }

    /// Demands that the job has failed for this reason, and that nothing is left.
    #[track_caller]
    pub(crate) fn failed(self, job: &Value, reason: &str, words: &str) {
        let ended = self.ended(job);
        assert_eq!((&ended["status"], &ended["reason"]), (&json!("failed"), &json!(reason)), "{ended}");
        assert!(ended["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{ended}");
        self.sandbox.assert_nothing_left();
    }

    /// Ends the owner of a job in one way, and demands the whole answer.
    #[track_caller]
    pub(crate) fn survives(&mut self, code: i32, end: impl FnOnce(&mut Client)) {
        let job = self.job(until_go("one", 200_000));
        assert_eq!(self.named(HOLDER), [0; 0], "nothing of it runs while the owner lives");
        end(&mut self.client);
        assert_eq!(self.client.exit_code_within(Duration::from_secs(10)), code, "{}", self.client.stderr());
        self.holder();
        assert_eq!(self.shown(&job)["status"], "running");
        assert!(is_alive(self.lifeline));
        self.go();
        self.completed(&job, "one", 200_000);
        let log =
            run_to_end(self.sandbox.shell(&format!("unhang job logs {}", job.as_str().expect("an id")))).1;
        assert!(log.contains("\"progress\":1.0") && log.contains("info zoo: part 7 of 10"), "{log}");
    }

    /// Kills the owner while a large answer is half in the pipe, and demands that it arrives whole. The owner reads nothing, or has read a
    /// part.
    #[track_caller]
    pub(crate) fn answer_arrives_whole(&mut self, is_stopped: bool) {
        let job = self.job(until_go("large", LARGE));
        let written = || fs::metadata(self.sandbox.path().join("said")).expect("a file").len();
        let before = written();
        if is_stopped {
            self.client.signal(Signal::STOP);
        }
        self.go();
        // The recorder writes down a piece of 64 KiB before it passes it on.
        wait_until("a part is in the pipe", PATIENCE, || written() > before + (32 << 10));
        self.kill_guard();
        self.completed(&job, "large", LARGE);
    }

    /// Demands that the job has the whole answer, seen by a command and by the next session, that the tool ran once, and that nothing is
    /// left.
    #[track_caller]
    pub(crate) fn completed(&self, job: &Value, label: &str, size: usize) {
        let ended = self.ended(job);
        assert_eq!(ended["status"], "completed", "{ended}; {:.3000}", self.sandbox.log());
        let result = self.unhang_job(&["result", job.as_str().expect("an id")]).to_string();
        assert!(result.contains(&text(size)), "{result:.1000}");
        assert_eq!(self.asked(&["\"tools/call\"", &format!("\"label\":\"{label}\"")]), 1);
        let mut next = StdioCaller::new(&self.sandbox, self.client.is_guarded, &[]);
        next.initialize();
        // A session reads a large answer in hundreds of parts, which is tested elsewhere.
        if size < LARGE {
            assert_eq!(next.whole(job), [json!({ "type": "text", "text": text(size) })]);
        } else {
            assert_eq!(next.at_its_end(job)["status"], "completed");
        }
        let log = next.result("get_job_logs", json!({ "job_id": job }))["structuredContent"]["text"].clone();
        assert!(log.as_str().is_some_and(|log| log.contains("part 10 of 10")), "{log}");
        next.finish();
        self.sandbox.assert_nothing_left();
    }
}

/// Kills the process group of a guard or gateway.
pub(crate) fn kill_group(owner: &mut Client) {
    let group = Pid::from_raw(owner.pid()).expect("a group");
    kill_process_group(group, Signal::KILL).expect("it lives");
}

/// Ends the guard of a job in one way, and demands the whole answer.
#[track_caller]
fn outlives(code: i32, end: impl FnOnce(&mut Client)) {
    Scene::guarded().survives(code, end);
}

#[test]
fn a_job_outlives_a_guard_that_is_killed() {
    outlives(128 + 9, |guard| guard.signal(Signal::KILL));
}

#[test]
fn a_job_outlives_a_guard_that_is_terminated() {
    outlives(128 + 15, |guard| guard.signal(Signal::TERM));
}

#[test]
fn a_job_outlives_a_guard_whose_terminal_has_gone() {
    outlives(128 + 15, |guard| guard.signal(Signal::HUP));
}

#[test]
fn a_job_outlives_a_client_that_closes_the_stdin_of_its_guard() {
    outlives(0, Client::close_stdin);
}

#[test]
fn a_job_outlives_a_guard_whose_group_is_killed() {
    outlives(128 + 9, kill_group);
}

#[test]
fn a_job_outlives_a_client_that_reads_no_more() {
    let sandbox = Sandbox::with_jobs();
    let [(input, theirs), (output, reader)] = [(); 2].map(|()| UnixStream::pair().expect("a pair"));
    let command = guard_of(&sandbox, &[&recorded()[..], &["zoo", "slow-answers"]].concat());
    let [input, output] = [input, output].map(|end| OwnedFd::from(end).into());
    let client = Client::start_on(command, input, output, theirs.try_clone().expect("a copy"));
    let client = client.reading(reader.try_clone().expect("a copy"));
    let mut scene = Scene::of(sandbox, client);
    scene.survives(0, |_| reader.shutdown(Shutdown::Both).expect("it is open"));
}

/// All processes below this one by their parents, each behind its own.
fn descendants(pid: i32) -> Vec<i32> {
    let below = children(pid).into_iter().map(|child| child.pid);
    below.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Clients end a server so: they walk down from its number, and kill each process that they meet.
#[test]
fn a_job_outlives_a_guard_whose_tree_is_killed() {
    for is_deepest_first in [false, true] {
        outlives(128 + 9, |guard| {
            let mut tree = [vec![guard.pid()], descendants(guard.pid())].concat();
            if is_deepest_first {
                tree.reverse();
            }
            for pid in tree {
                signal(pid, Signal::KILL);
            }
        });
    }
}

/// The watcher of the lifeline keeps the call holder, which is its child.
#[test]
fn a_job_outlives_the_watcher_of_its_lifeline() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 64));
    let holder = scene.kill();
    let watcher = entry(scene.lifeline).expect("the lifeline").parent;
    assert_eq!(entry(holder).expect("the call holder").parent, watcher);
    assert_eq!(entry(watcher).expect("the watcher").name, "mcp-line-watch");
    signal(watcher, Signal::KILL);
    scene.go();
    scene.completed(&job, "one", 64);
}

#[test]
fn an_answer_that_is_half_in_the_pipe_when_the_guard_is_killed_arrives_whole() {
    [true, false].into_iter().for_each(|is_stopped| Scene::guarded().answer_arrives_whole(is_stopped));
}

#[test]
fn two_jobs_of_a_server_have_one_call_holder() {
    let mut scene = Scene::guarded();
    let jobs = ["one", "two"].map(|label| (label, scene.job(until_go(label, 5000))));
    assert_eq!(scene.named(HOLDER), [0; 0], "nothing of it runs while the guard lives");
    let holder = scene.kill();
    let resident = memory(holder, "VmRSS:").expect("it lives");
    crate::harness::figure(&format!("a call holder at rest: {resident} bytes resident"));
    scene.go();
    for (label, job) in &jobs {
        scene.completed(job, label, 5000);
    }
}

/// How often the threads of a process have gone to sleep so far.
fn sleeps(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let counts = status.filter_map(|status| {
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    counts.sum()
}

#[test]
fn a_call_holder_that_waits_is_not_woken_up_and_hears_a_wish_at_once() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 64));
    let holder = scene.kill();
    let (mut before, mut quiet_looks) = (sleeps(holder), 0);
    wait_until("two seconds of rest", PATIENCE, || {
        let now = sleeps(holder);
        let is_quiet = now == std::mem::replace(&mut before, now);
        quiet_looks = if is_quiet { quiet_looks + 1 } else { 0 };
        // Looks are at least 10 ms apart.
        quiet_looks >= 200
    });
    let (_, took) = timed(|| scene.unhang_job(&["cancel", job.as_str().expect("an id")]));
    // A call holder that only looks now and then would take half a minute.
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(scene.ended(&job)["status"], "cancelled");
    scene.sandbox.assert_nothing_left();
}

#[test]
fn a_job_whose_guard_has_gone_is_cancelled_at_its_server() {
    let mut scene = Scene::guarded();
    let [kept, job] = ["kept", "job"].map(|label| scene.job(until_go(label, 64)));
    scene.kill();
    scene.unhang_job(&["cancel", job.as_str().expect("an id")]);
    assert_eq!(scene.ended(&job)["status"], "cancelled");
    wait_until("the server was told", PATIENCE, || scene.asked(&["notifications/cancelled"]) == 1);
    assert_eq!(scene.shown(&kept)["status"], "running");
    scene.go();
    scene.completed(&kept, "kept", 64);
}

#[test]
fn a_job_that_is_cancelled_before_its_call_holder_runs_is_cancelled_at_its_server() {
    let mut scene = Scene::guarded();
    let [kept, job] = ["kept", "job"].map(|label| scene.job(until_go(label, 64)));
    signal(scene.lifeline, Signal::STOP);
    scene.kill_guard();
    scene.unhang_job(&["cancel", job.as_str().expect("an id")]);
    assert_eq!(scene.ended(&job)["status"], "cancelled");
    assert_eq!(scene.asked(&["notifications/cancelled"]), 0, "nobody could tell it");
    signal(scene.lifeline, Signal::CONT);
    wait_until("the server was told", PATIENCE, || scene.asked(&["notifications/cancelled"]) == 1);
    scene.go();
    scene.completed(&kept, "kept", 64);
}

#[test]
fn a_job_whose_call_holder_is_killed_has_failed_and_its_server_ends() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 64));
    signal(scene.kill(), Signal::KILL);
    scene.failed(&job, "unhang_ended", "check before you repeat it");
}

#[test]
fn a_job_whose_lifeline_is_killed_after_its_guard_has_failed() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 64));
    scene.kill();
    signal(scene.lifeline, Signal::KILL);
    scene.failed(&job, "server_exited", "check before you repeat it");
}

#[test]
fn a_server_that_dies_after_its_guard_is_the_reason_of_its_job() {
    let mut scene = Scene::guarded();
    let job = scene.job(until_go("one", 64));
    let server = children(scene.lifeline)[0].pid;
    scene.kill();
    signal(server, Signal::KILL);
    scene.failed(&job, "server_exited", "signal 9");
}

/// Runs a job that asks this by `method` after its client has become silent, and returns what the server heard.
#[track_caller]
fn heard(scene: &mut Scene, method: &str) -> String {
    let mut arguments = until_go("asks", 64);
    (arguments["ask"], arguments["question"]) = (json!(true), json!(method));
    let job = scene.job(arguments);
    scene.go();
    scene.client.find("a question", |message| message["method"] == method);
    scene.kill_guard();
    assert_eq!(scene.ended(&job)["status"], "completed");
    let result = scene.unhang_job(&["result", job.as_str().expect("an id")]).to_string();
    scene.sandbox.assert_nothing_left();
    result
}

#[test]
fn a_question_that_is_open_when_the_guard_dies_is_declined_and_the_job_goes_on() {
    for method in ["elicitation/create", "sampling/createMessage"] {
        let result = heard(&mut Scene::guarded(), method);
        assert!(result.contains("is declined"), "{result}");
    }
}

#[test]
fn a_server_that_asks_for_roots_after_its_guard_has_gone_gets_the_last_ones() {
    let mut scene = Scene::guarded();
    for uri in ["file:///old", "file:///last"] {
        let id = scene.client.call("ask", json!({ "method": "roots/list" }));
        let question = scene.client.find("a question", |message| message["method"] == "roots/list");
        let answer =
            json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [{ "uri": uri }] } });
        scene.client.send(&answer.to_string());
        scene.client.answer(id);
    }
    let result = heard(&mut scene, "roots/list");
    assert!(result.contains("file:///last") && !result.contains("file:///old"), "{result}");
}

#[test]
fn a_server_whose_jobs_have_ended_ends_with_its_guard_again() {
    for end in [Client::close_stdin as fn(&mut Client), |guard| guard.signal(Signal::KILL)] {
        let mut scene = Scene::guarded();
        let job = scene.job(until_go("one", 200_000));
        scene.go();
        assert_eq!(scene.client.whole(&job), [json!({ "type": "text", "text": text(200_000) })]);
        // Its pipes are as before.
        let fast = scene.client.result("srv__echo", json!({ "text": "fast" }));
        assert_eq!(fast["content"][0]["text"], "fast");
        end(&mut scene.client);
        scene.client.exit_code_within(Duration::from_secs(10));
        scene.sandbox.assert_nothing_left();
        assert!(!scene.sandbox.log().contains("whose owner has ended"), "no call holder ran");
        assert_eq!(scene.shown(&job)["status"], "completed");
    }
}

#[test]
fn a_job_of_a_server_that_was_restarted_outlives_its_guard() {
    let mut scene = Scene::guarded();
    let lost = scene.job(until_go("lost", 64));
    signal(children(scene.lifeline)[0].pid, Signal::KILL);
    assert_eq!(scene.client.at_its_end(&lost)["reason"], "server_exited");
    wait_until("another process", PATIENCE, || {
        scene.client.ask("tools/call", json!({ "name": "pid" }))["result"].is_object()
    });
    scene.lifeline = lifeline(&scene.client);
    // The recorder of the new process writes into new files.
    scene.survives(128 + 9, |guard| guard.signal(Signal::KILL));
}

#[test]
fn a_task_whose_server_was_down_outlives_its_guard_once_the_server_has_the_call() {
    let sandbox = Sandbox::with_jobs();
    // The recorder starts a server that is slow to start.
    let script = r#"until [ -e up ]; do sleep 0.02; done; exec "$0" zoo slow-answers"#;
    let command = [&recorded()[..6], &["sh", "-c", script, lab_program()]].concat();
    fs::write(sandbox.path().join("up"), "").expect("a file");
    let client = Client::start(guard_of(&sandbox, &command));
    let mut scene = Scene::of(sandbox, client);
    scene.client.tool_text("echo", json!({ "text": "up" }));
    fs::remove_file(scene.sandbox.path().join("up")).expect("it is there");
    signal(children(scene.lifeline)[0].pid, Signal::KILL);
    wait_until("it is down", PATIENCE, || !is_alive(scene.lifeline));
    let params = json!({ "name": "slow", "arguments": until_go("task", 5000), "_meta": { "progressToken": "p" }, "task": {} });
    let created = scene.client.ask("tools/call", params);
    let job = created["result"]["task"]["taskId"].clone();
    assert!(job.is_string(), "{created}");
    assert_eq!(scene.asked(&["\"tools/call\"", "\"label\":\"task\""]), 0);
    fs::write(scene.sandbox.path().join("up"), "").expect("a file");
    wait_until("it outlives the guard", PATIENCE, || {
        scene.client.stderr().contains("the job outlives unhang")
    });
    scene.kill();
    scene.go();
    scene.completed(&job, "task", 5000);
}

#[test]
fn a_call_whose_lifeline_does_not_answer_stays_a_call() {
    let mut scene = Scene::guarded();
    signal(scene.lifeline, Signal::STOP);
    let id = scene.client.call("slow", until_go("one", 5000));
    wait_until("it stays a call", PATIENCE, || scene.client.stderr().contains("cannot become a job"));
    assert!(scene.client.stderr().contains("did not answer within 5s"), "{}", scene.client.stderr());
    scene.go();
    let answer = scene.client.answer(id);
    assert_eq!(answer["result"]["content"], json!([{ "type": "text", "text": text(5000) }]), "{answer:.500}");
    signal(scene.lifeline, Signal::CONT);
    // The next one becomes a job.
    fs::remove_file(scene.sandbox.path().join("go")).expect("it is there");
    let job = scene.job(until_go("two", 5000));
    assert_eq!(scene.unhang_job(&["list"]).as_array().map(Vec::len), Some(1));
    scene.kill();
    scene.go();
    scene.completed(&job, "two", 5000);
}
