//! Jobs of calls behind `unhang serve` that outlive the gateway, by whatever cause it ends: the tool runs once, the job ends with the whole
//! answer or with the true reason, and no process is left.

use std::{fs, os::unix::process::CommandExt, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, StdioCaller, handed_over, slow_server},
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, signal, wait_until},
    processes::{children, lifeline},
    slow_outlives::{HOLDER, Scene, kill_group, recorded, until_go},
    slow_questions::{self, LEGACY, asking},
};

/// Writes the configuration of a gateway with a recorder in front of the server.
pub(crate) fn configure(sandbox: &Sandbox, more: &str) {
    let arguments: Vec<String> =
        recorded()[1..].iter().chain(&["zoo", "slow-answers"]).map(|word| format!("{word:?}")).collect();
    let recorder = format!("args = [{}]\n", arguments.join(", "));
    let plain = "args = [\"zoo\", \"slow-answers\"]\n";
    let config = slow_server(more);
    assert!(config.contains(plain), "{config}");
    fs::write(sandbox.path().join("unhang.toml"), config.replace(plain, &recorder)).expect("a file");
}

impl Scene {
    /// A window on a gateway with a server that waits for `go`.
    pub(crate) fn window() -> Scene {
        let sandbox = Sandbox::with_jobs();
        configure(&sandbox, "limits.stop-grace = \"500ms\"\n");
        let mut command = sandbox.unhang();
        command.args(["-v", "serve"]).process_group(0);
        Scene::of_caller(sandbox, StdioCaller::at(Client::start(command)))
    }
}

/// A gateway over HTTP with a server that waits for `go`.
struct HttpScene {
    process: Client,
    web: Web,
    sandbox: Sandbox,
}

impl HttpScene {
    fn new(more: &str) -> HttpScene {
        let sandbox = Sandbox::with_jobs();
        configure(&sandbox, more);
        let (process, web) = Web::start(&sandbox);
        HttpScene { process, web, sandbox }
    }

    /// The rest of the test, once the gateway has gone.
    #[track_caller]
    fn gone(self, code: i32) -> Scene {
        let HttpScene { mut process, sandbox, .. } = self;
        assert_eq!(process.exit_code_within(Duration::from_secs(10)), code, "{}", process.stderr());
        Scene { client: StdioCaller::at(process), lifeline: 0, sandbox }
    }
}

/// Ends the gateway of a job in one way, and demands the whole answer.
#[track_caller]
fn outlives(code: i32, end: impl FnOnce(&mut Client)) {
    Scene::window().survives(code, end);
}

#[test]
fn a_job_outlives_a_gateway_that_is_killed() {
    outlives(128 + 9, |gateway| gateway.signal(Signal::KILL));
}

#[test]
fn a_job_outlives_a_gateway_that_is_terminated() {
    outlives(128 + 15, |gateway| gateway.signal(Signal::TERM));
}

#[test]
fn a_job_outlives_a_client_that_closes_the_stdin_of_its_gateway() {
    outlives(0, Client::close_stdin);
}

#[test]
fn a_job_outlives_a_gateway_whose_group_is_killed() {
    outlives(128 + 9, kill_group);
}

#[test]
fn an_answer_that_is_half_in_the_pipe_when_the_gateway_is_killed_arrives_whole() {
    [true, false].into_iter().for_each(|is_stopped| Scene::window().answer_arrives_whole(is_stopped));
}

/// The task exists before the server has got the call. The keeper of the job is named before the client has the id.
#[test]
fn a_task_that_its_client_asked_for_outlives_the_gateway() {
    let mut scene = Scene::window();
    let params = json!({ "name": "srv__slow", "arguments": until_go("task", 5000), "task": {}, "_meta": { "progressToken": "t" } });
    let task = scene.client.ask("tools/call", params)["result"]["task"]["taskId"].clone();
    scene.kill();
    scene.go();
    scene.completed(&task, "task", 5000);
}

/// The sessions share the server, and an ordinary call of one of them ends with the gateway.
#[test]
fn jobs_of_two_sessions_outlive_a_gateway_over_http() {
    for signal in [Signal::KILL, Signal::TERM] {
        let scene = HttpScene::new("tools.slow_read.promote-after = \"off\"\nlimits.eof-grace = \"200ms\"\n");
        let sessions = ["one", "two"].map(|name| Session::begin(&scene.web, name));
        let jobs = sessions.clone().map(|mut session| {
            let label = session.name.clone();
            (session.becomes_a_job(until_go(&label, 5000)), label)
        });
        let [mut session, _] = sessions;
        let ordinary = std::thread::spawn(move || {
            // The gateway ends before the answer comes.
            let call = json!({ "name": "srv__slow_read", "arguments": until_go("ordinary", 64) });
            std::panic::catch_unwind(move || session.ask("tools/call", call))
        });
        let has_call = || {
            let asked = fs::read_to_string(scene.sandbox.path().join("asked")).unwrap_or_default();
            asked.contains("\"label\":\"ordinary\"")
        };
        wait_until("the server has the ordinary call", PATIENCE, has_call);
        scene.process.signal(signal);
        let scene = scene.gone(128 + signal.as_raw());
        scene.holder();
        if signal == Signal::TERM {
            // A gateway that ends in order says that nobody waits for the ordinary call.
            let asked = fs::read_to_string(scene.sandbox.path().join("asked")).expect("a file");
            let line = asked.lines().find(|line| line.contains("\"label\":\"ordinary\"")).expect("a line");
            let call: Value = serde_json::from_str(line).expect("JSON");
            let cancelled = format!("\"requestId\":{}", call["id"]);
            wait_until("it is cancelled", PATIENCE, || {
                scene.asked(&["notifications/cancelled", &cancelled]) == 1
            });
        }
        for (job, _) in &jobs {
            assert_eq!(scene.shown(job)["status"], "running");
        }
        scene.go();
        for (job, label) in &jobs {
            assert_eq!(scene.ended(job)["status"], "completed", "{:.3000}", scene.sandbox.log());
            assert_eq!(scene.asked(&["\"tools/call\"", &format!("\"label\":\"{label}\"")]), 1);
        }
        // The panic of this thread is the end of its connection.
        let _ended = ordinary.join();
        // The next gateway clears away what a killed one left.
        StdioCaller::new(&scene.sandbox, false, &[]).finish();
        scene.sandbox.assert_nothing_left();
    }
}

#[test]
fn a_job_whose_gateway_has_gone_is_cancelled_at_its_server() {
    let mut scene = Scene::window();
    let [one, two] = ["one", "two"].map(|label| scene.job(until_go(label, 64)));
    scene.kill();
    scene.unhang_job(&["cancel", one.as_str().expect("an id")]);
    assert_eq!(scene.ended(&one)["status"], "cancelled");
    wait_until("the server hears of it", PATIENCE, || scene.asked(&["notifications/cancelled"]) == 1);
    assert_eq!(scene.shown(&two)["status"], "running", "the other call goes on");
    scene.go();
    scene.completed(&two, "two", 64);
}

/// A session's own instance of a server ends with the session, except what its jobs need.
#[test]
fn a_job_of_a_server_that_one_session_has_for_itself_outlives_the_gateway() {
    let scene = HttpScene::new("per-session = true\n");
    let mut session = Session::begin(&scene.web, "one");
    let job = session.becomes_a_job(until_go("own", 5000));
    session.end();
    scene.process.signal(Signal::TERM);
    let scene = scene.gone(128 + 15);
    scene.holder();
    scene.go();
    assert_eq!(scene.ended(&job)["status"], "completed", "{:.3000}", scene.sandbox.log());
    assert_eq!(scene.asked(&["\"tools/call\"", "\"label\":\"own\""]), 1);
    scene.sandbox.assert_nothing_left();
}

/// The gateway knows the roots from the answers that it has passed on, also from those that came after the job began.
#[test]
fn a_server_that_asks_for_roots_after_its_gateway_has_gone_gets_the_last_ones() {
    let sandbox = Sandbox::with_jobs();
    slow_questions::configure(&sandbox, &LEGACY, "tools.ask.promote-after = \"off\"\n");
    let caller = slow_questions::gateway(&sandbox);
    let mut scene = Scene::of_caller(sandbox, caller);
    let give = |client: &mut Client, uri: &str| {
        let id = client.call("srv__ask", json!({ "method": "roots/list" }));
        let question = client.find("a question", |message| message["method"] == "roots/list");
        client.respond(&question["id"], &json!({ "roots": [{ "uri": uri }] }));
        client.answer(id);
    };
    give(&mut scene.client, "file:///old");
    let jobs = [scene.job(asking("roots/list")), {
        give(&mut scene.client, "file:///last");
        scene.job(until_go("other", 64))
    }];
    scene.kill();
    scene.go();
    for job in &jobs {
        assert_eq!(scene.ended(job)["status"], "completed", "{:.3000}", scene.sandbox.log());
    }
    let result = scene.unhang_job(&["result", jobs[0].as_str().expect("an id")]).to_string();
    assert!(result.contains("file:///last") && !result.contains("file:///old"), "{result}");
    // The next gateway clears away what a killed one left.
    StdioCaller::new(&scene.sandbox, false, &[]).finish();
    scene.sandbox.assert_nothing_left();
}

/// A server whose jobs have ended ends with its gateway again, and reads the end of its stdin.
#[test]
fn a_server_whose_jobs_have_ended_ends_with_its_gateway_again() {
    let mut scene = Scene::window();
    let job = scene.job(until_go("one", 64));
    scene.go();
    assert_eq!(scene.client.at_its_end(&job)["status"], "completed");
    let lifeline = lifeline(&scene.client);
    scene.kill_guard();
    // A gateway that is killed right after the end of the job may not have released the server. A call holder ends at once then.
    wait_until("the server has gone", PATIENCE, || !is_alive(lifeline) && scene.named(HOLDER).is_empty());
    scene.completed(&job, "one", 64);
}

#[test]
fn a_hundred_jobs_outlive_a_client_that_closes_the_stdin_of_its_gateway() {
    const COUNT: usize = 100;
    let mut scene = Scene::window();
    let ids: Vec<i64> =
        (0..COUNT).map(|number| scene.client.call("srv__slow", until_go(&number.to_string(), 64))).collect();
    let jobs: Vec<Value> =
        ids.into_iter().map(|id| handed_over(&scene.client.outcome(id)["result"])).collect();
    scene.client.close_stdin();
    assert_eq!(scene.client.exit_code_within(Duration::from_secs(10)), 0, "{}", scene.client.stderr());
    scene.holder();
    scene.go();
    for job in &jobs {
        assert_eq!(scene.ended(job)["status"], "completed", "{:.3000}", scene.sandbox.log());
    }
    assert_eq!(scene.asked(&["\"tools/call\""]), COUNT);
    scene.sandbox.assert_nothing_left();
}

#[test]
fn a_server_that_dies_after_its_gateway_is_the_reason_of_its_job() {
    let mut scene = Scene::window();
    let job = scene.job(until_go("one", 64));
    let server = children(scene.lifeline).into_iter().next().expect("the recorder").pid;
    scene.kill();
    signal(server, Signal::KILL);
    let ended = scene.ended(&job);
    assert_eq!((&ended["status"], &ended["reason"]), (&json!("failed"), &json!("server_exited")), "{ended}");
    // The next gateway clears away what a killed one left.
    StdioCaller::new(&scene.sandbox, false, &[]).finish();
    scene.sandbox.assert_nothing_left();
}
