//! Questions about tasks of 2025-11-25 clients behind `unhang wrap` whose guard has gone: they wait as `input_required`, and a client of any
//! process on the data folder answers them.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller},
    harness::{Client, PATIENCE, Sandbox, wait_until},
    slow_outlives::{Scene, guard_of, recorded},
    slow_questions::{
        ASKED, LEGACY, asking, configure, files, gateway, modern_answer, modern_question, over,
    },
    slow_tasks::Modern,
};

/// The member of `_meta` that names the task of a message.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A guard in front of a server that asks, and the task of a call of its client.
#[track_caller]
fn guarded_task() -> (Scene, Value) {
    let sandbox = Sandbox::with_jobs();
    let client = Client::start(guard_of(&sandbox, &[&recorded()[..], &LEGACY].concat()));
    let mut scene = Scene::of(sandbox, client);
    let params = json!({ "name": "slow", "arguments": asking(ASKED), "task": {} });
    let created = scene.client.ask("tools/call", params);
    let task = created["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{created}");
    (scene, task)
}

/// A client behind another guard, which has the jobs of the same data folder.
fn another_guard(scene: &Scene) -> StdioCaller {
    let mut next = StdioCaller::new(&scene.sandbox, true, &[]);
    next.initialize();
    next
}

#[track_caller]
fn wait_for_question(client: &mut StdioCaller, scene: &Scene, task: &Value) {
    wait_until("the question", PATIENCE, || {
        let told = client.ask("tasks/get", json!({ "taskId": task }));
        assert!(told["result"].is_object(), "{told}; {:.3000}", scene.sandbox.log());
        told["result"]["status"] == "input_required"
    });
}

/// Waits for the result of the task as a client of 2025-11-25 that answers what it is asked meanwhile.
#[track_caller]
fn answered_by(client: &mut StdioCaller, task: &Value, name: &str) -> Value {
    let about = json!({ "taskId": task });
    let waits = client.request("tasks/result", about.clone());
    let question = client.find("a question", |message| message["method"] == ASKED);
    assert_eq!(question["params"]["_meta"][RELATED], about, "{question}");
    let content = json!({ "action": "accept", "content": { "name": name }, "_meta": { RELATED: about } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": content }).to_string());
    let result = client.answer(waits);
    let heard = result["result"]["content"].to_string();
    assert!(heard.contains(name) && !heard.contains(RELATED), "{result}");
    result
}

/// Demands that a client behind the next guard answers the question, that the tool has run once, and that nothing is left.
#[track_caller]
fn ends_behind_another_guard(scene: &Scene, task: &Value) {
    let mut next = another_guard(scene);
    wait_for_question(&mut next, scene, task);
    answered_by(&mut next, task, "Ada");
    next.finish();
    over(scene, task);
}

/// Ends the guard of a task in one way, and demands that a client behind the next guard answers the question.
#[track_caller]
fn asks_behind_the_next_guard(end: impl FnOnce(&mut Client)) {
    let (mut scene, task) = guarded_task();
    end(&mut scene.client);
    scene.client.exit_code();
    scene.go();
    ends_behind_another_guard(&scene, &task);
}

#[test]
fn a_question_after_the_death_of_the_guard_is_answered_behind_another_guard() {
    asks_behind_the_next_guard(|guard| guard.signal(Signal::KILL));
}

#[test]
fn a_question_after_the_end_of_the_guard_is_answered_behind_another_guard() {
    asks_behind_the_next_guard(Client::close_stdin);
}

#[test]
fn a_question_after_the_death_of_the_guard_is_answered_behind_a_gateway() {
    for is_modern in [false, true] {
        let (mut scene, task) = guarded_task();
        scene.kill_guard();
        scene.go();
        configure(&scene.sandbox, &LEGACY, "");
        let mut client = gateway(&scene.sandbox);
        if is_modern {
            let mut modern = Modern::Pipes(client);
            let key = modern_question(&mut modern, &task);
            modern_answer(&mut modern, &task, &key, "Ada");
            let Modern::Pipes(pipes) = modern else { unreachable!("it has pipes") };
            client = pipes;
        } else {
            client.initialize();
            wait_for_question(&mut client, &scene, &task);
            answered_by(&mut client, &task, "Ada");
        }
        let ended = scene.ended(&task);
        assert_eq!(ended["status"], "completed", "{ended}; {:.3000}", scene.sandbox.log());
        let result = scene.unhang_job(&["result", task.as_str().expect("an id")]).to_string();
        assert!(result.contains("Ada"), "{result}");
        client.finish();
        over(&scene, &task);
    }
}

/// The server does not ask again: its line is still in the journal.
#[test]
fn a_question_that_is_open_when_the_guard_dies_is_asked_behind_another_guard() {
    let (mut scene, task) = guarded_task();
    scene.go();
    scene.client.find("a question", |message| message["method"] == ASKED);
    scene.kill();
    ends_behind_another_guard(&scene, &task);
}

/// Somebody who stops waiting for the result has not answered.
#[test]
fn a_client_that_no_longer_waits_for_the_result_leaves_the_question_open() {
    for is_guarded in [true, false] {
        let (mut scene, task) = guarded_task();
        scene.kill_guard();
        let mut next = match is_guarded {
            true => StdioCaller::new(&scene.sandbox, true, &[]),
            false => {
                configure(&scene.sandbox, &LEGACY, "");
                gateway(&scene.sandbox)
            }
        };
        next.initialize();
        let about = json!({ "taskId": task });
        let early = next.request("tasks/result", about.clone());
        next.notify("notifications/cancelled", json!({ "requestId": early }));
        scene.go();
        wait_for_question(&mut next, &scene, &task);
        let waits = next.request("tasks/result", about);
        let asked = next.find("a question", |message| message["method"] == ASKED)["id"].clone();
        next.notify("notifications/cancelled", json!({ "requestId": waits }));
        let withdrawn = next.find("a withdrawal", |message| message["method"] == "notifications/cancelled");
        assert_eq!(withdrawn["params"]["requestId"], asked, "{withdrawn}");
        wait_for_question(&mut next, &scene, &task);
        // The next one ends while it is asked.
        next.request("tasks/result", json!({ "taskId": task }));
        next.find("a question", |message| message["method"] == ASKED);
        next.close_stdin();
        next.exit_code();
        ends_behind_another_guard(&scene, &task);
    }
}

#[test]
fn a_question_of_a_guarded_task_ends_with_its_job() {
    let (mut scene, task) = guarded_task();
    scene.kill_guard();
    scene.go();
    let mut next = another_guard(&scene);
    let waits = next.request("tasks/result", json!({ "taskId": task }));
    let asked = next.find("a question", |message| message["method"] == ASKED)["id"].clone();
    scene.unhang_job(&["cancel", task.as_str().expect("an id")]);
    assert!(next.answer(waits)["error"].is_object());
    let is_withdrawn = |message: &Value| {
        message["method"] == "notifications/cancelled" && message["params"]["requestId"] == asked
    };
    if !next.seen().iter().any(is_withdrawn) {
        next.find("a withdrawal", is_withdrawn);
    }
    next.finish();
    wait_until("the files are gone", PATIENCE, || files(&scene, &task).is_empty());
    scene.sandbox.assert_nothing_left();
}
